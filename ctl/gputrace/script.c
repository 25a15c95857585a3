/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The memory and the errors of a script, and the buckets of its histograms. It touches nothing
 * outside of the script.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/text.h"
#include "parse-tree.h"
#include "script.h"

struct memory {
	struct memory *next;
	max_align_t bytes[];
};

bool script_fail(struct script *script, struct place place, const char *format, ...) {
	va_list arguments;
	int n;

	if (script->failed)
		return false;
	script->failed = true;
	n = snprintf(script->error, sizeof(script->error), "%.100s:%d:%d: ", script->name,
		     place.line, place.column);
	va_start(arguments, format);
	vsnprintf(script->error + n, sizeof(script->error) - (size_t)n, format, arguments);
	va_end(arguments);
	for (char *c = script->error; *c; c++)
		if (is_control(*c))
			*c = '?';
	return false;
}

void *script_alloc(struct script *script, size_t size) {
	struct memory *memory = calloc(1, sizeof(*memory) + size);

	if (!memory) {
		script_fail(script, (struct place){ 1, 1 }, "out of memory");
		return NULL;
	}
	memory->next = script->memory;
	script->memory = memory;
	return memory->bytes;
}

char *script_copy(struct script *script, const char *text, size_t n) {
	char *copy = script_alloc(script, n + 1);

	return copy ? memcpy(copy, text, n) : NULL;
}

struct script *script_free(struct script *script) {
	struct memory *memory, *next;

	if (!script)
		return NULL;
	for (memory = script->memory; memory; memory = next) {
		next = memory->next;
		free(memory);
	}
	free(script);
	return NULL;
}

struct script *script_new(const char *name, const char *kernel, const char *text, size_t n_text) {
	struct script *script = calloc(1, sizeof(*script));

	if (!script)
		return NULL;
	script->name = name;
	script->kernel = kernel;
	if (n_text > SCRIPT_SIZE_MAX)
		script_fail(script, (struct place){ 1, 1 },
			    "the script has %zu bytes; at most %d can be read", n_text,
			    SCRIPT_SIZE_MAX);
	else if (memchr(text, '\0', n_text))
		script_fail(script, (struct place){ 1, 1 },
			    "the script has a zero byte in it: is it a text?");
	else if (script_parse(script, text, n_text))
		script_check(script);
	return script;
}

bool map_is_shared(const struct map *map) {
	return map->host_writes.line && map->gpu_reads.line;
}

bool map_sums_floats(const struct map *map) {
	return map->value == TYPE_FLOAT &&
	       (map->kind == MAP_SUM || map->kind == MAP_AVG || map->kind == MAP_STATS);
}

size_t map_buckets(const struct map *map) {
	if (map->kind == MAP_HIST)
		return map->value == TYPE_FLOAT ? SCRIPT_FLOAT_BUCKETS : SCRIPT_LOG_BUCKETS;
	return map->kind == MAP_LHIST && map->step ? (size_t)((map->max - map->min) / map->step) + 2
						   : 0;
}

static size_t float_bucket(int64_t bits) {
	const int exponent = (int)((uint64_t)bits << 1 >> 53) - 1023;

	if ((uint64_t)bits << 1 > UINT64_C(0xffe0000000000000))
		return 0;
	if (!((uint64_t)bits << 1))
		return 2;
	if (bits < 0)
		return 1;
	if (exponent < -SCRIPT_FLOAT_POWER)
		return 3;
	return exponent > SCRIPT_FLOAT_POWER ? SCRIPT_FLOAT_BUCKETS - 1
					     : (size_t)(exponent + SCRIPT_FLOAT_POWER + 4);
}

size_t map_bucket(const struct map *map, int64_t value) {
	if (map->kind == MAP_HIST && map->value == TYPE_FLOAT)
		return float_bucket(value);
	if (map->kind == MAP_HIST)
		return value < 0    ? 0
		       : value == 0 ? 1
				    : 65 - (size_t)__builtin_clzll((uint64_t)value);
	if (value < map->min)
		return 0;
	if (value >= map->max)
		return map_buckets(map) - 1;
	return (size_t)((value - map->min) / map->step) + 1;
}
