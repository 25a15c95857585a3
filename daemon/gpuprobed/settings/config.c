/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the configuration from the command line and from files (config.h). Both know the same
 * names, from one table, and use one function to read values. The last source that sets something
 * wins. Items of a list add up over files; those of the command line replace them.
 */

#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Says what is wrong; returns CONFIG_E_USAGE. */
__attribute__((format(printf, 2, 3))) static int config_wrong(char *error, const char *format,
							      ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, CONFIG_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return CONFIG_E_USAGE;
}

/* ---- values ---- */

static void *config_at(const struct config *config, const struct config_setting *setting) {
	return (char *)config + setting->offset;
}

static int config_parse_bool(const struct config_setting *setting, const char *text, bool *valuep,
			     char *error) {
	if (strcmp(text, "yes") == 0 || strcmp(text, "on") == 0)
		*valuep = true;
	else if (strcmp(text, "no") == 0 || strcmp(text, "off") == 0)
		*valuep = false;
	else
		return config_wrong(error, strcmp(setting->argument, "on|off") == 0
						   ? "expected on or off"
						   : "expected yes or no");
	return 0;
}

static int config_parse_number(const struct config_setting *setting, const char *text,
			       uint64_t *valuep, char *error) {
	static const char units[] = "KMGT";
	const bool size = setting->kind == CONFIG_SIZE;
	unsigned int shift = 0;
	const char *unit;
	uint64_t n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	unit = size && *end ? strchr(units, *end) : NULL;
	if (unit) {
		shift = 10 * (unsigned int)(unit - units + 1);
		end++;
	}
	if (errno || *text < '0' || *text > '9' || *end || n > UINT64_MAX >> shift ||
	    n << shift < setting->min || n << shift > setting->max)
		return config_wrong(error, "not a %s from %" PRIu64 " to %" PRIu64 "%s",
				    size ? "size" : "number", setting->min, setting->max,
				    size ? " bytes (or with K, M, G or T)" : "");
	*valuep = n << shift;
	return 0;
}

static int config_replace(char **place, const char *text) {
	free(*place);
	*place = text ? strdup(text) : NULL;
	return text && !*place ? -ENOMEM : 0;
}

static void config_list_clear(struct config_list *list) {
	while (list->n)
		free(list->items[--list->n]);
	list->items[0] = NULL;
}

static int config_list_add(struct config_list *list, size_t max, const char *text, char *error) {
	char *item;

	if (list->n == max)
		return config_wrong(error, "at most %zu of them", max);
	item = strdup(text);
	if (!item)
		return -ENOMEM;
	list->items[list->n++] = item;
	list->items[list->n] = NULL;
	return 0;
}

/* Puts the value in its place. */
static int config_store(struct config *config, const struct config_setting *setting,
			const char *text, char *error) {
	void *place = config_at(config, setting);
	uint64_t number = 0;
	int r = 0;

	switch (setting->kind) {
	case CONFIG_BOOL:
		return config_parse_bool(setting, text, place, error);
	case CONFIG_NUMBER:
		r = config_parse_number(setting, text, &number, error);
		if (r == 0)
			*(unsigned int *)place = (unsigned int)number;
		return r;
	case CONFIG_SIZE:
		r = config_parse_number(setting, text, &number, error);
		if (r == 0)
			*(uint64_t *)place = number;
		return r;
	case CONFIG_TEXT:
		return config_replace(place, text);
	case CONFIG_LIST:
		return config_list_add(place, setting->max ? setting->max : CONFIG_LIST_MAX, text,
				       error);
	}
	return r;
}

int config_set(struct config *config, const struct config_setting *setting, const char *text,
	       char error[static CONFIG_ERROR_SIZE]) {
	unsigned int *given = &config->given[setting - config_settings];
	const bool again = *given == config->source,
		   options = config->source == CONFIG_COMMAND_LINE;
	int r;

	if (!*text && (setting->kind != CONFIG_LIST || options))
		return config_wrong(error, "a value is missing");
	if (setting->kind == CONFIG_LIST && (!*text || (options && !again)))
		config_list_clear(config_at(config, setting));
	if (setting->kind != CONFIG_LIST && again && !options)
		return config_wrong(error, "this file has set it before");
	*given = config->source;
	r = *text ? config_store(config, setting, text, error) : 0;
	return r == 0 && setting->apply ? setting->apply(config, error) : r;
}

/* ---- the command line ---- */

enum {
	OPTION_SESSION = 1000,
	OPTION_CONFIG,
	OPTION_CHECK,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_SETTING, /* and those that follow: the settings */
};

/* The options of getopt_long(). */
static void config_options(struct option options[static CONFIG_SETTINGS_MAX + 8]) {
	static const struct option own[] = {
		{ "session", optional_argument, NULL, OPTION_SESSION },
		{ "config", required_argument, NULL, OPTION_CONFIG },
		{ "check-config", optional_argument, NULL, OPTION_CHECK },
		{ "help", no_argument, NULL, OPTION_HELP },
		{ "version", no_argument, NULL, OPTION_VERSION },
	};
	size_t n = sizeof(own) / sizeof(own[0]);

	memcpy(options, own, sizeof(own));
	for (int i = 0; config_settings[i].name; i++)
		options[n++] = (struct option){ config_settings[i].name,
						config_settings[i].flags & CONFIG_OPTIONAL
							? optional_argument
							: required_argument,
						NULL, OPTION_SETTING + i };
	options[n] = (struct option){};
}

/* What is no setting. */
static int config_own_option(struct config *config, int option, char *error) {
	switch (option) {
	case OPTION_SESSION:
		config->session = true;
		return config_replace(&config->session_name, optarg);
	case OPTION_CONFIG:
		return config_replace(&config->file, optarg);
	case OPTION_CHECK:
		config->action = CONFIG_CHECK;
		config->quiet = optarg;
		return optarg && strcmp(optarg, "quiet") != 0
			       ? config_wrong(error, "--check-config=%s: expected quiet", optarg)
			       : 0;
	case 'h':
	case OPTION_HELP:
		config->action = CONFIG_HELP;
		return 0;
	case OPTION_VERSION:
		config->action = CONFIG_VERSION;
		return 0;
	default: /* getopt_long() has said what */
		return config_wrong(error, "see gpuprobed --help");
	}
}

/* Goes through the command line: for what is no setting, or for the settings. */
static int config_read_options(struct config *config, int argc, char *argv[], bool settings,
			       char *error) {
	struct option options[CONFIG_SETTINGS_MAX + 8];
	char why[CONFIG_ERROR_SIZE] = "";
	int c, r = 0;

	config_options(options);
	config->source = CONFIG_COMMAND_LINE;
	optind = 0; /* from the beginning, whoever was here before */
	while (r == 0 && config->action <= CONFIG_CHECK &&
	       (c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
		const struct config_setting *setting =
			c >= OPTION_SETTING ? &config_settings[c - OPTION_SETTING] : NULL;

		if (!setting && !settings)
			r = config_own_option(config, c, error);
		else if (setting && settings)
			r = config_set(config, setting, optarg ? optarg : "yes", why);
		if (r > 0 && setting)
			snprintf(error, CONFIG_ERROR_SIZE, "--%s=%.600s: %s", setting->name,
				 optarg ? optarg : "", why);
	}
	if (r == 0 && config->action <= CONFIG_CHECK && optind < argc)
		return config_wrong(error, "%s: there are options only; see gpuprobed --help",
				    argv[optind]);
	return r;
}

/* ---- all of it ---- */

int config_new(struct config **configp, int argc, char *argv[], const char *file,
	       const char *folder, char error[static CONFIG_ERROR_SIZE]) {
	struct config *config = calloc(1, sizeof(*config));
	int r;

	*error = '\0';
	if (!config)
		return -ENOMEM;
	config_set_defaults(config);
	r = config_read_options(config, argc, argv, false, error);
	if (r == 0 && config->action <= CONFIG_CHECK) {
		config->source = 0;
		if (config->file)
			r = config_read_file(config, config->file, true, error);
		else if (!config->session)
			r = config_read_file(config, file, false, error)
				    ?: config_read_folder(config, folder, error);
		if (r == 0)
			r = config_read_options(config, argc, argv, true, error);
	}
	if (r == 0)
		*configp = config;
	else
		config_free(config);
	return r;
}

struct config *config_free(struct config *config) {
	if (!config)
		return NULL;
	for (const struct config_setting *setting = config_settings; setting->name; setting++)
		if (setting->kind == CONFIG_TEXT)
			free(*(char **)config_at(config, setting));
		else if (setting->kind == CONFIG_LIST)
			config_list_clear(config_at(config, setting));
	free(config->session_name);
	free(config->file);
	free(config);
	return NULL;
}

bool config_same(const struct config_setting *setting, const struct config *a,
		 const struct config *b) {
	const void *x = config_at(a, setting), *y = config_at(b, setting);
	const struct config_list *list = x, *other = y;

	switch (setting->kind) {
	case CONFIG_BOOL:
		return *(const bool *)x == *(const bool *)y;
	case CONFIG_NUMBER:
		return *(const unsigned int *)x == *(const unsigned int *)y;
	case CONFIG_SIZE:
		return *(const uint64_t *)x == *(const uint64_t *)y;
	case CONFIG_TEXT: {
		const char *text = *(char *const *)x, *other_text = *(char *const *)y;

		return text && other_text ? strcmp(text, other_text) == 0 : text == other_text;
	}
	case CONFIG_LIST:
		for (size_t i = 0; i < list->n && i < other->n; i++)
			if (strcmp(list->items[i], other->items[i]) != 0)
				return false;
		return list->n == other->n;
	}
	return false;
}

int config_copy(const struct config_setting *setting, struct config *config,
		const struct config *other) {
	void *to = config_at(config, setting);
	const void *from = config_at(other, setting);
	const struct config_list *list = from;
	char error[CONFIG_ERROR_SIZE];
	int r = 0;

	switch (setting->kind) {
	case CONFIG_BOOL:
		*(bool *)to = *(const bool *)from;
		break;
	case CONFIG_NUMBER:
		*(unsigned int *)to = *(const unsigned int *)from;
		break;
	case CONFIG_SIZE:
		*(uint64_t *)to = *(const uint64_t *)from;
		break;
	case CONFIG_TEXT:
		return config_replace(to, *(char *const *)from);
	case CONFIG_LIST:
		config_list_clear(to);
		for (size_t i = 0; r == 0 && i < list->n; i++)
			r = config_list_add(to, CONFIG_LIST_MAX, list->items[i], error);
		break;
	}
	return r == 0 && setting->apply ? setting->apply(config, error) : r;
}

/* ---- for people ---- */

static void config_print_one(const struct config *config, const struct config_setting *setting,
			     FILE *file) {
	const void *place = config_at(config, setting);
	const struct config_list *list = place;
	const bool on = strcmp(setting->argument, "on|off") == 0;

	switch (setting->kind) {
	case CONFIG_BOOL:
		fprintf(file, "%s = %s\n", setting->name,
			*(const bool *)place ? on ? "on" : "yes"
			: on                 ? "off"
					     : "no");
		break;
	case CONFIG_NUMBER:
		fprintf(file, "%s = %u\n", setting->name, *(const unsigned int *)place);
		break;
	case CONFIG_SIZE:
		fprintf(file, "%s = %" PRIu64 "\n", setting->name, *(const uint64_t *)place);
		break;
	case CONFIG_TEXT:
		if (*(char *const *)place)
			fprintf(file, "%s = %s\n", setting->name, *(char *const *)place);
		else
			fprintf(file, "#%s =\n", setting->name);
		break;
	case CONFIG_LIST:
		for (size_t i = 0; i < list->n; i++)
			fprintf(file, "%s = %s\n", setting->name, list->items[i]);
		if (!list->n)
			fprintf(file, "#%s =\n", setting->name);
		break;
	}
}

void config_print(const struct config *config, FILE *file) {
	for (const struct config_setting *setting = config_settings; setting->name; setting++)
		if (!(setting->flags & CONFIG_HIDDEN))
			config_print_one(config, setting, file);
}

/* An option and its help, whose further lines stand below the first. */
static void config_usage_one(const char *option, const char *help, FILE *file) {
	fprintf(file, strlen(option) > 23 ? "  %s\n%26s" : "  %-23s %s", option, "");
	while (*help) {
		const size_t n = strcspn(help, "\n");

		fprintf(file, "%.*s\n", (int)n, help);
		help += n + (help[n] == '\n');
		if (*help)
			fprintf(file, "%26s", "");
	}
}

void config_usage(FILE *file) {
	char option[64];

	fprintf(file, "usage: gpuprobed [options]\n"
		      "\n"
		      "Runs eBPF programs inside the kernels of CUDA processes. See gpuprobectl(1) "
		      "for what to do with it.\n"
		      "\n");
	config_usage_one("--session[=NAME]",
			 "a private daemon of this user, for a try; processes find it by "
			 "GPUPROBE_SESSION=NAME",
			 file);
	config_usage_one("--config=FILE",
			 "settings, in place of " CONFIG_FILE " and *.conf in\n" CONFIG_FOLDER
			 "; a session reads none but this",
			 file);
	config_usage_one("--check-config[=quiet]",
			 "print the settings that hold, as a file could say them, or what is "
			 "wrong; quiet: only that",
			 file);
	for (const struct config_setting *setting = config_settings; setting->name; setting++) {
		const bool optional = setting->flags & CONFIG_OPTIONAL;

		if (setting->flags & CONFIG_HIDDEN)
			continue;
		snprintf(option, sizeof(option), "--%s%s%s%s", setting->name, optional ? "[=" : "=",
			 setting->argument, optional ? "]" : "");
		config_usage_one(option, setting->help, file);
	}
	fprintf(file, "  --help, --version\n");
}
