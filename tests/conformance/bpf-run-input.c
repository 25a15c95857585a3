/* SPDX-License-Identifier: Apache-2.0 */

/* Parses the input of bpf-run: words of a batch, options of the command line. */

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf-run.h"

#define MEMORY_MAX (1u << 20)

static const char *const map_names[MAPS_MAX] = { "m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7" };
static const char *const slot_names[MAPS_MAX] = { "__gpuprobe_m0", "__gpuprobe_m1", "__gpuprobe_m2",
						  "__gpuprobe_m3", "__gpuprobe_m4", "__gpuprobe_m5",
						  "__gpuprobe_m6", "__gpuprobe_m7" };

int fail(char **error, const char *format, ...) {
	va_list args;

	va_start(args, format);
	if (vasprintf(error, format, args) < 0)
		*error = NULL;
	va_end(args);
	return -1;
}

/* ---- input ---- */

static int hex_digit(int c) {
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

int parse_hex(const char *text, struct bytes *bytes, char **error) {
	struct bytes b = { .data = malloc(strlen(text) / 2 + 1) };

	if (!b.data)
		return fail(error, "out of memory");
	while (*text) {
		if (isspace((unsigned char)*text)) {
			text++;
			continue;
		}
		if (hex_digit(text[0]) < 0 || hex_digit(text[1]) < 0) {
			free(b.data);
			return fail(error, "not hex: '%.16s'", text);
		}
		b.data[b.size++] = (uint8_t)(hex_digit(text[0]) << 4 | hex_digit(text[1]));
		text += 2;
	}
	if (b.size > MEMORY_MAX) {
		free(b.data);
		return fail(error, "more than %u bytes", MEMORY_MAX);
	}
	free(bytes->data);
	*bytes = b;
	return 0;
}

static int parse_count(const char *text, unsigned *count, char **error) {
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || end == text || n == 0 || n > 1u << 30)
		return fail(error, "not a count: '%s'", text);
	*count = (unsigned)n;
	return 0;
}

int parse_shape(const char *text, unsigned shape[3], char **error) {
	char *end = (char *)text;
	unsigned long n;

	for (unsigned i = 0; i < 3; i++) {
		n = strtoul(text, &end, 10);
		if (end == text || n == 0 || n > 1u << 30 || (*end && (*end != 'x' || i == 2)))
			return fail(error, "not a grid or block: '%s'", text);
		shape[i] = (unsigned)n;
		if (!*end)
			break;
		text = end + 1;
	}
	return 0;
}

/* An option of a map: "host", "threads=64" ... */
static int parse_map_option(struct test_case *test, const char *text, char **error) {
	struct translate_map *map = test->maps + test->n_maps;
	unsigned n;
	int r = 0;

	if (strcmp(text, "host") == 0)
		map->place = MAP_PLACE_HOST;
	else if (strcmp(text, "kernel") == 0)
		map->place = MAP_PLACE_KERNEL;
	else if (strcmp(text, "log") == 0)
		map->log = true;
	else if (strcmp(text, "records") == 0)
		test->records[test->n_maps] = true;
	else if (strncmp(text, "threads=", 8) == 0 && !(r = parse_count(text + 8, &n, error)))
		map->threads = n;
	else if (strncmp(text, "ring=", 5) == 0 && !(r = parse_count(text + 5, &n, error)))
		map->ring_bytes = n;
	else if (strncmp(text, "head=", 5) == 0 && !(r = parse_count(text + 5, &n, error)))
		test->heads[test->n_maps] = n;
	else if (strncmp(text, "tail=", 5) == 0 && !(r = parse_count(text + 5, &n, error)))
		test->tails[test->n_maps] = n;
	else
		return r ? r : fail(error, "unknown option of a map '%.32s'", text);
	return 0;
}

int parse_map(struct test_case *test, const char *text, char **error) {
	struct translate_map *map = test->maps + test->n_maps;
	char *copy, *save, *option, end;
	int r = 0;

	if (test->n_maps == MAPS_MAX)
		return fail(error, "more than %d maps", MAPS_MAX);
	copy = strdup(text);
	option = copy ? strtok_r(copy, ",", &save) : NULL;
	if (!option ||
	    sscanf(option, "%" SCNu32 ":%" SCNu32 ":%" SCNu32 ":%" SCNu32 "%c", &map->type,
		   &map->key_size, &map->value_size, &map->max_entries, &end) != 4)
		r = fail(error, "a map is TYPE:KEY:VALUE:ENTRIES[,OPTION]..., not '%s'", text);
	while (!r && (option = strtok_r(NULL, ",", &save)))
		r = parse_map_option(test, option, error);
	free(copy);
	map->name = map_names[test->n_maps];
	map->slot_symbol = slot_names[test->n_maps];
	test->n_maps++;
	return r;
}

int parse_context(struct test_case *test, const char *text, char **error) {
	test->has_context = true;
	if (parse_hex(text, &test->context, error))
		return -1;
	if (test->context.size > 8 * TRANSLATE_CONTEXT_FIELDS)
		return fail(error, "a context has at most %d bytes", 8 * TRANSLATE_CONTEXT_FIELDS);
	return 0;
}

int parse_word(struct test_case *test, const char *word, char **error) {
	if (strncmp(word, "prog=", 5) == 0)
		return parse_hex(word + 5, &test->program, error);
	if (strncmp(word, "mem=", 4) == 0)
		return parse_hex(word + 4, &test->memory, error);
	if (strncmp(word, "context=", 8) == 0)
		return parse_context(test, word + 8, error);
	if (strncmp(word, "map=", 4) == 0)
		return parse_map(test, word + 4, error);
	if (strncmp(word, "grid=", 5) == 0)
		return parse_shape(word + 5, test->grid, error);
	if (strncmp(word, "block=", 6) == 0)
		return parse_shape(word + 6, test->block, error);
	if (strncmp(word, "thread=", 7) == 0)
		return parse_count(word + 7, &test->thread, error);
	if (strncmp(word, "runs=", 5) == 0)
		return parse_count(word + 5, &test->runs, error);
	if (strcmp(word, "want=memory") == 0) {
		test->want_memory = true;
		return 0;
	}
	if (strcmp(word, "maps=unarmed") == 0) {
		test->unarmed = true;
		return 0;
	}
	if (strcmp(word, "place=uniform") == 0) {
		test->uniform = true;
		return 0;
	}
	if (strncmp(word, "warps=", 6) == 0) {
		test->mask = strcmp(word + 6, "whole") == 0 ? UINT32_MAX
							    : (uint32_t)strtoul(word + 6, NULL, 16);
		return test->mask ? 0 : fail(error, "not a mask: '%.32s'", word + 6);
	}
	return fail(error, "unknown word '%.32s'", word);
}

void test_case_deinit(struct test_case *test) {
	free(test->program.data);
	free(test->memory.data);
	free(test->context.data);
}
