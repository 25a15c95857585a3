/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a map is: its kind and its keys are the same wherever it is used. A map that both sides use
 * is one that both aggregate, or the host prints: see check_map_sides().
 */

#include <string.h>

#include "check.h"
#include "ctl/base/suggest.h"
#include "words.h"

static const char *const kind_names[] = {
	[MAP_UNKNOWN] = "nothing", [MAP_SCALAR] = "a value", [MAP_COUNT] = "count()",
	[MAP_SUM] = "sum()",       [MAP_AVG] = "avg()",      [MAP_MIN] = "min()",
	[MAP_MAX] = "max()",       [MAP_STATS] = "stats()",  [MAP_HIST] = "hist()",
	[MAP_LHIST] = "lhist()",
};

struct map *check_map_find(struct script *script, const struct node *node) {
	for (size_t i = 0; i < script->n_maps; i++)
		if (!strcmp(script->maps[i].name, node->text))
			return &script->maps[i];
	if (script->n_maps == SCRIPT_MAPS_MAX) {
		script_fail(script, node->place, "a script has at most %d maps", SCRIPT_MAPS_MAX);
		return NULL;
	}
	script->maps[script->n_maps].name = node->text;
	return &script->maps[script->n_maps++];
}

/* A key is a name of a kernel on one side and its id on the other: these are one. */
static bool key_fits(struct map *map, size_t i, enum type type, bool on_gpu) {
	enum type *known = on_gpu ? &map->gpu_keys[i] : &map->keys[i],
		  *other = on_gpu ? &map->keys[i] : &map->gpu_keys[i];

	if (*other != TYPE_NONE && (*other == TYPE_NUMBER) != (type == TYPE_NUMBER))
		return false;
	if (*known != TYPE_NONE && *known != type)
		return false;
	*known = type;
	return true;
}

bool check_map_keys(struct script *script, const struct clause *clause, struct node *node) {
	struct map *map = node->map;
	size_t n = 0;

	for (struct node *key = node->a; key; key = key->next, n++) {
		if (n == SCRIPT_KEYS_MAX)
			return script_fail(script, key->place, "a map has at most %d keys",
					   SCRIPT_KEYS_MAX);
		if (!check_expression(script, (struct clause *)clause, key))
			return false;
		if (key->type == TYPE_FLOAT)
			return script_fail(script, key->place, "a float cannot be a key");
		if (!key_fits(map, n, key->type, clause->on_gpu))
			return script_fail(
				script, key->place,
				"key %zu of %s is of another type at line %d, column %d: "
				"a number here, a name there, or the other way",
				n + 1, map->name, map->keys_place.line, map->keys_place.column);
	}
	if (map->has_keys && map->n_keys != n)
		return script_fail(script, node->place,
				   "%s has %zu key%s at line %d, column %d, but %zu here",
				   map->name, map->n_keys, map->n_keys == 1 ? "" : "s",
				   map->keys_place.line, map->keys_place.column, n);
	if (!map->has_keys)
		map->keys_place = node->place;
	map->has_keys = true;
	map->n_keys = n;
	return true;
}

bool check_map_kind(struct script *script, struct node *node, enum map_kind kind) {
	struct map *map = node->map;

	if (map->kind != MAP_UNKNOWN && map->kind != kind)
		return script_fail(script, node->place,
				   "%s is %s at line %d, column %d, but %s here: use two maps",
				   map->name, kind_names[map->kind], map->kind_place.line,
				   map->kind_place.column, kind_names[kind]);
	if (map->kind == MAP_UNKNOWN)
		map->kind_place = node->place;
	map->kind = kind;
	return true;
}

enum type check_map_key_type(const struct map *map, size_t i) {
	const enum type type = map->keys[i] != TYPE_NONE ? map->keys[i] : map->gpu_keys[i];

	return type == TYPE_NUMBER ? TYPE_NUMBER : TYPE_TEXT;
}

enum type check_map_value(struct script *script, const struct node *node) {
	const struct map *map = node->map;

	switch (map->kind) {
	case MAP_SCALAR:
		return map->value;
	case MAP_HIST:
	case MAP_LHIST:
	case MAP_STATS:
		script_fail(
			script, node->place,
			"%s is %s, which is more than one number: print(%s), or read a count(), "
			"sum() or avg()",
			map->name, kind_names[map->kind], map->name);
		return TYPE_NONE;
	default:
		return TYPE_NUMBER;
	}
}

/* One side assigns what the other one reads: it would have to be one word of memory for both. */
static bool crossed(struct script *script, const struct map *map, struct place writes,
		    struct place reads, const char *how) {
	return script_fail(script, reads,
			   "%s is read %s, but set %s at line %d, column %d: both can use a map "
			   "without keys alone; aggregate, and let the host print it",
			   map->name, how,
			   strcmp(how, "here on the host") ? "on the host" : "on the GPU",
			   writes.line, writes.column);
}

/* What the host reads of a map can be read. */
static bool check_reads(struct script *script, const struct map *map) {
	const struct node node = { .place = map->host_reads, .map = (struct map *)map };

	if (map->host_reads.line && map->value == TYPE_FLOAT)
		return script_fail(script, map->host_reads,
				   "%s holds floats, which print(%s) shows: it cannot be read",
				   map->name, map->name);
	if (map->host_reads.line && check_map_value(script, &node) == TYPE_NONE)
		return false;
	return !map->deleted.line || !map->gpu_writes.line ||
	       script_fail(script, map->deleted,
			   "%s is kept on the GPU: its elements cannot be deleted; clear(%s) can",
			   map->name, map->name);
}

bool check_map_sides(struct script *script) {
	for (size_t i = 0; i < script->n_maps; i++) {
		struct map *map = &script->maps[i];

		if (map->kind == MAP_UNKNOWN)
			return script_fail(
				script, map->kind_place.line ? map->kind_place : map->keys_place,
				"nothing is put into %s: assign to it, as in %s = count()",
				map->name, map->name);
		if (!check_reads(script, map))
			return false;
		if (map->kind == MAP_SCALAR && map->n_keys && map->gpu_writes.line &&
		    map->host_reads.line)
			return crossed(script, map, map->gpu_writes, map->host_reads,
				       "here on the host");
		if (map_is_shared(map) && map->value == TYPE_TEXT)
			return script_fail(script, map->gpu_reads,
					   "%s is a text, which the GPU cannot read", map->name);
		if (map_is_shared(map) && map->n_keys)
			return crossed(script, map, map->host_writes, map->gpu_reads,
				       "here on the GPU");
		if (map->kind == MAP_SCALAR && map->gpu_writes.line && map->host_writes.line)
			return script_fail(
				script, map->host_writes,
				"%s is set on the GPU, too, at line %d, column %d: use two maps",
				map->name, map->gpu_writes.line, map->gpu_writes.column);
		if (map->cleared.line && map->gpu_writes.line &&
		    (map->stored || map->kind == MAP_MIN || map->kind == MAP_MAX))
			return script_fail(
				script, map->cleared,
				"%s is kept on the GPU: counts, sums and histograms can be cleared "
				"there, not %s; in END all can",
				map->name, kind_names[map->kind]);
	}
	return true;
}
