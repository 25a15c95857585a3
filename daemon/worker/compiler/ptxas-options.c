/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the ptxas command line that a foreign image carries (ptxas-options.h).
 *
 * Words are read one by one: `--name=value`, `--name value`, `-n value` and, for -O, `-O2`. A value
 * is only ever a small number or one of a few words, so nothing of the line reaches the compiler
 * unchecked.
 */

#include "ptxas-options.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum value {
	VALUE_NONE,
	VALUE_NUMBER,
	VALUE_WORD,
};

static const struct known {
	const char *names[3]; /* without leading dashes; the first is the one that is passed on */
	enum value value;
	unsigned int max; /* of a number */
	const char *words; /* of a word: each between spaces */
} known[] = {
	{ { "opt-level", "O" }, VALUE_NUMBER, 4, NULL },
	{ { "maxrregcount" }, VALUE_NUMBER, 1024, NULL },
	{ { "fmad" }, VALUE_WORD, 0, " true false " },
	{ { "register-usage-level" }, VALUE_NUMBER, 10, NULL },
	{ { "def-load-cache", "dlcm" }, VALUE_WORD, 0, " ca cg cs lu cv " },
	{ { "def-store-cache", "dscm" }, VALUE_WORD, 0, " wb cg cs wt " },
	{ { "allow-expensive-optimizations" }, VALUE_WORD, 0, " true false " },
	{ { "disable-optimizer-constants", "disable-optimizer-consts" }, VALUE_NONE, 0, NULL },
	{ { "dont-merge-basicblocks", "no-bb-merge" }, VALUE_NONE, 0, NULL },
	{ { "device-debug", "g" }, VALUE_NONE, 0, NULL },
	{ { "generate-line-info", "lineinfo" }, VALUE_NONE, 0, NULL },
};

struct words {
	const char *position;
	const char *end;
};

static bool is_space(char c) {
	return c == ' ' || c == '\t' || c == '\n' || c == '\0';
}

/* The next word, cut at the size of the buffer; false at the end. */
static bool next_word(struct words *words, char *word, size_t size) {
	size_t length = 0;

	while (words->position < words->end && is_space(*words->position))
		words->position++;
	if (words->position == words->end)
		return false;
	for (; words->position < words->end && !is_space(*words->position); words->position++)
		if (length + 1 < size)
			word[length++] = *words->position;
	word[length] = '\0';
	return true;
}

static const struct known *find_known(const char *name) {
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		for (size_t j = 0; j < 3 && known[i].names[j]; j++)
			if (!strcmp(known[i].names[j], name))
				return &known[i];
	return NULL;
}

static bool value_is_good(const struct known *option, const char *value) {
	char spaced[24];

	if (option->value == VALUE_WORD) {
		if (strlen(value) > sizeof(spaced) - 3)
			return false;
		snprintf(spaced, sizeof(spaced), " %.20s ", value);
		return *value && strstr(option->words, spaced);
	}
	return *value && strlen(value) <= 4 && !value[strspn(value, "0123456789")] &&
	       strtoul(value, NULL, 10) <= option->max;
}

void ptxas_options_add(struct ptxas_options *options, const char *option) {
	for (size_t i = 0; i < options->n; i++)
		if (!strcmp(options->text[i], option))
			return;
	if (options->n == PTXAS_OPTIONS_MAX || strlen(option) >= PTXAS_OPTION_SIZE)
		return;
	strcpy(options->text[options->n], option);
	options->options[options->n] = options->text[options->n];
	options->n++;
}

static void add_known(struct ptxas_options *options, const struct known *option,
		      const char *value) {
	char text[PTXAS_OPTION_SIZE];

	snprintf(text, sizeof(text), option->value == VALUE_NONE ? "--%s" : "--%s=%s",
		 option->names[0], value);
	ptxas_options_add(options, text);
}

void ptxas_options_read(struct ptxas_options *options, const char *line, size_t length) {
	struct words words = { .position = line, .end = line + length };
	char word[PTXAS_OPTION_SIZE], value[PTXAS_OPTION_SIZE];

	options->n = 0;
	while (line && next_word(&words, word, sizeof(word))) {
		const struct known *option;
		char *name = word, *equals;
		bool attached = false;

		if (*name != '-')
			continue;
		name += strspn(name, "-");
		equals = strchr(name, '=');
		value[0] = '\0';
		if (equals) {
			*equals = '\0';
			strcpy(value, equals + 1);
			attached = true;
		} else if (name[0] == 'O' && name[1]) {
			strcpy(value, name + 1);
			name[1] = '\0';
			attached = true;
		}
		option = find_known(name);
		if (!option)
			continue;
		if (option->value == VALUE_NONE)
			add_known(options, option, "");
		else if ((attached || next_word(&words, value, sizeof(value))) &&
			 value_is_good(option, value))
			add_known(options, option, value);
	}
}
