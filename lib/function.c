/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Looks up functions of the CUDA driver in the generated table (function.h): by number, by name,
 * and names of enumerators.
 */

#include "function.h"

#include <fnmatch.h>
#include <string.h>

#include "function-table.h"

static const char *const class_names[_FUNCTION_CLASS_N] = {
	[FUNCTION_OTHER] = "other",   [FUNCTION_LAUNCH] = "launch",
	[FUNCTION_MEMORY] = "memory", [FUNCTION_TRANSFER] = "transfer",
	[FUNCTION_SYNC] = "sync",     [FUNCTION_MODULE] = "module",
	[FUNCTION_GRAPH] = "graph",   [FUNCTION_STREAM] = "stream",
	[FUNCTION_EVENT] = "event",   [FUNCTION_CONTEXT] = "context",
	[FUNCTION_DEVICE] = "device", [FUNCTION_IPC] = "ipc",
	[FUNCTION_QUERY] = "query",
};

const struct function *function_by_number(uint16_t number) {
	if (number >= TRACE_FUNCTION_DYNAMIC || !function_table_numbers[number])
		return NULL;
	return function_all[function_table_numbers[number] - 1];
}

const struct function *function_by_name(const char *name) {
	size_t low = 0, high = function_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, function_all[middle]->name);

		if (order == 0)
			return function_all[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

const char *function_class_name(enum function_class class) {
	return (unsigned)class < _FUNCTION_CLASS_N ? class_names[class]
						   : class_names[FUNCTION_OTHER];
}

const struct function_enum *function_results(void) {
	return function_table_results;
}

/* Of several enumerators with one value the first one in the header. */
const char *function_enumerator(const struct function_enum *enumeration, int64_t value) {
	size_t low = 0, high = enumeration->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (enumeration->values[middle].value < value)
			low = middle + 1;
		else
			high = middle;
	}
	return low < enumeration->n && enumeration->values[low].value == value
		       ? enumeration->values[low].name
		       : NULL;
}

bool function_describes_size(const struct function *function) {
	if (function->size_argument >= 0 ||
	    (function->class != FUNCTION_TRANSFER && function->class != FUNCTION_MEMORY))
		return false;
	for (size_t i = 0; i < function->n_extras; i++) {
		const struct function_type *target =
			function->arguments[function->extras[i].argument].type->target;

		for (size_t k = 0; target && target->structure && k < target->structure->n; k++)
			if (strcmp(target->structure->fields[k].name, "WidthInBytes") == 0 ||
			    strcmp(target->structure->fields[k].name, "NumChannels") == 0)
				return true;
	}
	return false;
}

bool function_size_words(const struct function *function, struct function_size_words *words) {
	const struct function_argument *size =
		function->size_argument >= 0 ? &function->arguments[function->size_argument] : NULL;
	const struct function_argument *rows =
		function->rows_argument >= 0 ? &function->arguments[function->rows_argument] : NULL;

	if (!size || size->words != 1 || (rows && rows->words != 1))
		return false;
	*words = (struct function_size_words){ size, rows };
	return true;
}

static void function_set(uint64_t functions[TRACE_FUNCTION_MAX / 64], uint16_t number, bool value) {
	uint64_t bit = UINT64_C(1) << (number % 64);

	functions[number / 64] =
		value ? functions[number / 64] | bit : functions[number / 64] & ~bit;
}

/* Whether a pattern means a function of that class, name and name without version. */
static bool function_matches(const char *pattern, enum function_class class, const char *name,
			     const char *base) {
	return strcmp(pattern, "all") == 0 || strcmp(pattern, class_names[class]) == 0 ||
	       fnmatch(pattern, name, 0) == 0 || fnmatch(pattern, base, 0) == 0;
}

/* Sets or clears all that a pattern means. False: it means nothing. */
static bool function_apply(uint64_t functions[TRACE_FUNCTION_MAX / 64], const char *pattern,
			   bool value) {
	bool found = false;

	for (size_t i = 0; i < function_count; i++) {
		const struct function *function = function_all[i];

		if (function_matches(pattern, function->class, function->name, function->base)) {
			function_set(functions, function->number, value);
			found = true;
		}
	}
	/* functions that the table does not know: of globs only those for any name mean them */
	if (function_matches(pattern, FUNCTION_OTHER, "cu\1", "cu\1")) {
		function_set(functions, TRACE_FUNCTION_DYNAMIC, value);
		found = true;
	}
	return found;
}

size_t function_select(const char *const *patterns, size_t n,
		       uint64_t functions[TRACE_FUNCTION_MAX / 64]) {
	static const char *const usual[] = { "!query" };

	if (n == 0) {
		patterns = usual;
		n = 1;
	}
	memset(functions, 0, TRACE_FUNCTION_MAX / 8);
	if (patterns[0][0] == '!')
		function_apply(functions, "all", true);
	for (size_t i = 0; i < n; i++) {
		bool not = patterns[i][0] == '!';

		if (!function_apply(functions, patterns[i] + not, !not))
			return i + 1;
	}
	return 0;
}
