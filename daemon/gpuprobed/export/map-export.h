/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Maps as metrics. An export says under which names the numbers of a map's values are shown, and
 * which labels its keys become; both come from the BTF of its object (fields.h). It belongs to the
 * map, and so to its owner.
 *
 * A family is one number of the value: of a struct NAME_MEMBER, else NAME. A label is one member of
 * the key, or `key`.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/gpuprobed/map/fields.h"
#include "openmetrics.h"

#define MAP_EXPORTS_MAX 256
#define MAP_EXPORTS_UID_MAX 64
#define MAP_EXPORT_LABELS_MAX 8 /* that are the same for all of its series */
#define MAP_EXPORT_NAME_SIZE (OPENMETRICS_NAME_MAX + 1)
#define MAP_EXPORT_PREFIX "gpuprobe_map_"
#define MAP_EXPORT_BUCKETS 64

struct map;
struct map_entry;
struct object;
struct registry;

enum map_export_kind {
	MAP_EXPORT_AUTO, /* a counter if programs only ever add to the map, else a gauge */
	MAP_EXPORT_COUNTER,
	MAP_EXPORT_GAUGE,
	MAP_EXPORT_HISTOGRAM, /* the values count what falls into buckets: i is 2^i to 2^(i+1)-1 */
};

struct map_export_label {
	char name[64];
	char value[OPENMETRICS_VALUE_MAX];
};

struct map_export_family {
	char name[MAP_EXPORT_NAME_SIZE];
	const struct field *field; /* of the value */
};

struct map_export {
	TAILQ_ENTRY(map_export) link;
	uint64_t id; /* never used again */
	uint64_t map, object;
	uid_t owner;
	char map_name[64];
	char name[MAP_EXPORT_NAME_SIZE], help[256], unit[32];
	enum map_export_kind kind; /* not AUTO */
	bool per_sm; /* label sm; else the values of all SMs are added */
	bool latest; /* of several processes the value that was copied last, not the sum */
	bool nonzero; /* values of zero are left out */
	struct map_export_label labels[MAP_EXPORT_LABELS_MAX];
	size_t n_labels;
	struct fields *key, *value;
	char key_labels[FIELDS_MAX]
		       [FIELD_NAME_SIZE + 8]; /* of the members of the key; "": no label */
	const struct field *kernel; /* member of the key that is a kernel's id; NULL: none */
	const struct field *bucket; /* member of the key; NULL: the index in an array */
	struct map_export_family families[FIELDS_MAX];
	size_t n_families;
};

TAILQ_HEAD(map_export_list, map_export);

struct map_exports {
	struct map_export_list list;
	size_t n;
	uint64_t last_id;
};

/* What the caller wants. Texts are borrowed; NULL: none. */
struct map_export_options {
	const char *name, *help, *unit, *bucket;
	enum map_export_kind kind;
	bool per_sm, latest, nonzero;
	struct map_export_label labels[MAP_EXPORT_LABELS_MAX];
	size_t n_labels;
};

/* Why not: the parameter at fault, and one line. */
struct map_export_refusal {
	const char *parameter;
	char reason[256];
};

enum map_export_result {
	_MAP_EXPORT_SUCCESS,
	MAP_EXPORT_E_INVALID, /* see the refusal */
	MAP_EXPORT_E_LIMIT, /* of MAP_EXPORTS_MAX or MAP_EXPORTS_UID_MAX */
};

void map_exports_init(struct map_exports *exports);
void map_exports_deinit(struct map_exports *exports);

/* Exports a map, in place of an earlier export of it. 0, MAP_EXPORT_E_*, or -ENOMEM; then nothing
 * has changed. */
int map_exports_add(struct map_exports *exports, const struct map *map, const struct object *object,
		    const struct map_export_options *options, const struct map_export **exportp,
		    struct map_export_refusal *refusal);
struct map_export *map_exports_find(const struct map_exports *exports, uint64_t map);

/* Removes those whose maps are gone. */
void map_exports_sweep(struct map_exports *exports, const struct registry *registry);

/* NULL is fine. */
void map_exports_remove(struct map_exports *exports, struct map_export *export);

const char *map_export_kind_name(enum map_export_kind kind);
bool map_export_kind_from_name(const char *name, enum map_export_kind *kindp);

/* ---- map-export-json.c ---- */

json_object *map_export_json(const struct map_export *export);

/* What a call of ExportMap wants; texts are the JSON's. 0 or MAP_EXPORT_E_INVALID. */
int map_export_options_from_json(struct map_export_options *options, json_object *json,
				 struct map_export_refusal *refusal);

/* All of them, and again. How many could not be exported again; those whose map is gone do not
 * count. */
json_object *map_exports_json(const struct map_exports *exports);
unsigned int map_exports_restore(struct map_exports *exports, const struct registry *registry,
				 json_object *json);

/* ---- map-export-text.c ---- */

/* The series of one export as they are gathered, entry by entry. */
struct map_export_series;

int map_export_series_new(struct map_export_series **seriesp, const struct map_export *export,
			  size_t max, size_t bytes_max);
struct map_export_series *map_export_series_free(struct map_export_series *series);

/* An entry of the map. What finds no room, or makes no metric, is counted. 0 or -ENOMEM. */
int map_export_series_add(struct map_export_series *series, const struct map *map,
			  const struct map_entry *entry);

/* Ids of kernels that are in the keys; some twice. */
const uint64_t *map_export_series_kernels(const struct map_export_series *series, size_t *np);

/*
 * Writes the next part of them: entries with the same labels become one, in the order of the
 * labels. A part is 64 KiB, or a histogram; the first call sorts. True: that was all.
 */
bool map_export_series_print(struct map_export_series *series, struct metrics_text *text);

/* How many series there are, and of how many there was no room, or no metric. */
size_t map_export_series_count(const struct map_export_series *series, size_t *left_outp);
