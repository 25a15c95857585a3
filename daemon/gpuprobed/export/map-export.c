/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which maps are exported as metrics, and how (map-export.h). All mistakes are found when a
 * map is exported, not when metrics are read: names, labels, two families that would share a name.
 */

#include "map-export.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/map/map.h"
#include "daemon/gpuprobed/registry/registry.h"

#define OWN_PREFIX "gpuprobe_"

static const char *const kind_names[] = {
	[MAP_EXPORT_AUTO] = "auto",
	[MAP_EXPORT_COUNTER] = "counter",
	[MAP_EXPORT_GAUGE] = "gauge",
	[MAP_EXPORT_HISTOGRAM] = "histogram",
};

const char *map_export_kind_name(enum map_export_kind kind) {
	return kind_names[kind];
}

bool map_export_kind_from_name(const char *name, enum map_export_kind *kindp) {
	for (size_t i = 0; i < sizeof(kind_names) / sizeof(kind_names[0]); i++)
		if (!strcmp(kind_names[i], name)) {
			*kindp = (enum map_export_kind)i;
			return true;
		}
	return false;
}

static struct map_export *map_export_free(struct map_export *export) {
	if (!export)
		return NULL;
	fields_free(export->key);
	fields_free(export->value);
	free(export);
	return NULL;
}

void map_exports_init(struct map_exports *exports) {
	TAILQ_INIT(&exports->list);
	exports->n = 0;
}

void map_exports_deinit(struct map_exports *exports) {
	while (!TAILQ_EMPTY(&exports->list))
		map_exports_remove(exports, TAILQ_FIRST(&exports->list));
}

void map_exports_remove(struct map_exports *exports, struct map_export *export) {
	if (!export)
		return;
	TAILQ_REMOVE(&exports->list, export, link);
	exports->n--;
	map_export_free(export);
}

void map_exports_sweep(struct map_exports *exports, const struct registry *registry) {
	struct map_export *export, *next;
	struct object *object;

	for (export = TAILQ_FIRST(&exports->list); export; export = next) {
		next = TAILQ_NEXT(export, link);
		if (!registry_map(registry, export->map, &object))
			map_exports_remove(exports, export);
	}
}

struct map_export *map_exports_find(const struct map_exports *exports, uint64_t map) {
	struct map_export *export;

	TAILQ_FOREACH(export, &exports->list, link)
		if (export->map == map)
			return export;
	return NULL;
}

static int refuse(struct map_export_refusal *refusal, const char *parameter, const char *format,
		  ...) __attribute__((format(printf, 3, 4)));
static int refuse(struct map_export_refusal *refusal, const char *parameter, const char *format,
		  ...) {
	va_list arguments;

	refusal->parameter = parameter;
	va_start(arguments, format);
	vsnprintf(refusal->reason, sizeof(refusal->reason), format, arguments);
	va_end(arguments);
	return MAP_EXPORT_E_INVALID;
}

/* ---- names ---- */

/* Suffixes that make a family's names of samples. */
static const char *const *kind_suffixes(enum map_export_kind kind) {
	static const char *const counter[] = { "", "_total", "_created", NULL };
	static const char *const histogram[] = {
		"", "_bucket", "_count", "_sum", "_created", NULL
	};
	static const char *const gauge[] = { "", NULL };

	return kind == MAP_EXPORT_COUNTER     ? counter
	       : kind == MAP_EXPORT_HISTOGRAM ? histogram
					      : gauge;
}

/* Whether two families would have a name in common. */
static bool families_clash(const char *a, enum map_export_kind a_kind, const char *b,
			   enum map_export_kind b_kind) {
	const size_t na = strlen(a), nb = strlen(b);

	if (memcmp(a, b, na < nb ? na : nb) != 0)
		return false;
	for (const char *const *x = kind_suffixes(a_kind); *x; x++)
		for (const char *const *y = kind_suffixes(b_kind); *y; y++)
			/* a + x == b + y */
			if (na <= nb ? !strncmp(*x, b + na, nb - na) && !strcmp(*x + (nb - na), *y)
				     : !strncmp(*y, a + nb, na - nb) && !strcmp(*y + (na - nb), *x))
				return true;
	return false;
}

static bool ends_with(const char *text, const char *end) {
	size_t n = strlen(text), n_end = strlen(end);

	return n >= n_end && !strcmp(text + n - n_end, end);
}

/* The name of the export: as given, or made of the map's. */
static int set_name(struct map_export *export, const struct map_export_options *options,
		    struct map_export_refusal *refusal) {
	const char *name = options->name;
	size_t n;

	if (!name) {
		const char *map = export->map_name + strspn(export->map_name, "._");

		snprintf(export->name, sizeof(export->name), "%s%s", MAP_EXPORT_PREFIX, map);
		for (char *p = export->name; *p; p++)
			if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
			      (*p >= '0' && *p <= '9')))
				*p = '_';
		name = export->name;
	} else if (!openmetrics_name_valid(name)) {
		return refuse(refusal, "name",
			      "not a name of a metric: 1 to %d letters, digits and underscores, no "
			      "digit first",
			      OPENMETRICS_NAME_MAX);
	} else {
		snprintf(export->name, sizeof(export->name), "%s", name);
	}
	/* the format adds it */
	n = strlen(export->name);
	if (export->kind == MAP_EXPORT_COUNTER && ends_with(export->name, "_total") && n > 6)
		export->name[n - 6] = '\0';
	return 0;
}

static int refuse_taken(struct map_export_refusal *refusal, const char *name,
			const struct map_export *other) {
	return refuse(refusal, "name", "%s is taken by map %llu (%s): choose another with --as",
		      name, (unsigned long long)other->map, other->map_name);
}

static int set_families(struct map_export *export, const struct map_exports *exports,
			const struct map_export *earlier, struct map_export_refusal *refusal) {
	const struct map_export *other;

	/* the label of the metrics that say what became of exports */
	TAILQ_FOREACH(other, &exports->list, link)
		if (other != earlier && !strcmp(export->name, other->name))
			return refuse_taken(refusal, export->name, other);
	for (size_t i = 0; i < export->value->n; i++) {
		const struct field *field = &export->value->fields[i];
		struct map_export_family *family = &export->families[export->n_families];
		char name[MAP_EXPORT_NAME_SIZE + FIELD_NAME_SIZE + sizeof(export->unit) + 2],
			tail[sizeof(export->unit) + 1];

		if (!field_is_number(field) ||
		    (export->kind == MAP_EXPORT_HISTOGRAM && !export->bucket && !field->is_array))
			continue;
		snprintf(tail, sizeof(tail), "_%s", export->unit);
		snprintf(name, sizeof(name), "%s%s%s", export->name, field->name[0] ? "_" : "",
			 field->name);
		if (export->kind == MAP_EXPORT_COUNTER && ends_with(name, "_total"))
			name[strlen(name) - 6] = '\0';
		if (export->unit[0] && !ends_with(name, tail))
			strcat(name, tail);
		if (!openmetrics_name_valid(name))
			return refuse(refusal, "name",
				      "with the member %s it has more than %d bytes", field->name,
				      OPENMETRICS_NAME_MAX);
		if (!strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) &&
		    strncmp(name, MAP_EXPORT_PREFIX, strlen(MAP_EXPORT_PREFIX)) != 0)
			return refuse(refusal, "name",
				      "names that begin with %s are the daemon's own, but for %s",
				      OWN_PREFIX, MAP_EXPORT_PREFIX);
		memcpy(family->name, name, sizeof(family->name));
		family->field = field;
		for (size_t j = 0; j < export->n_families; j++)
			if (families_clash(name, export->kind, export->families[j].name,
					   export->kind))
				return refuse(
					refusal, "name",
					"two members of the value would both have the name %s",
					export->families[j].name);
		TAILQ_FOREACH(other, &exports->list, link)
			for (size_t j = 0; other != earlier && j < other->n_families; j++)
				if (families_clash(name, export->kind, other->families[j].name,
						   other->kind))
					return refuse_taken(refusal, name, other);
		export->n_families++;
	}
	if (!export->n_families)
		return refuse(refusal, "map",
			      "no member of its values is a number (structs of numbers need BTF: "
			      "clang -g)");
	return 0;
}

/* ---- labels ---- */

static bool label_taken(const struct map_export *export, size_t n, const char *name) {
	static const char *const reserved[] = { "sm", "thread", "le", "index", "quantile" };

	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (!strcmp(reserved[i], name))
			return true;
	for (size_t i = 0; i < export->n_labels; i++)
		if (!strcmp(export->labels[i].name, name))
			return true;
	for (size_t i = 0; i < n; i++)
		if (!strcmp(export->key_labels[i], name))
			return true;
	return false;
}

/* A name for member i of the key that nothing else has. */
static void set_key_label(struct map_export *export, size_t i) {
	const char *name = export->key->fields[i].name;
	char *label = export->key_labels[i];
	unsigned int number = 2;

	name += strspn(name, "_0123456789");
	snprintf(label, sizeof(export->key_labels[i]), "%s", *name ? name : "key");
	while (label_taken(export, i, label))
		snprintf(label, sizeof(export->key_labels[i]), "%.*s_%u", FIELD_NAME_SIZE - 1,
			 *name ? name : "key", number++);
}

static int set_labels(struct map_export *export, const struct map_export_options *options,
		      const struct map *map, struct map_export_refusal *refusal) {
	for (size_t i = 0; i < options->n_labels; i++) {
		const struct map_export_label *label = &options->labels[i];

		if (!openmetrics_label_valid(label->name))
			return refuse(refusal, "labels",
				      "%.40s: not a name of a label: letters, digits and "
				      "underscores, no digit and no __ first",
				      label->name);
		if (label_taken(export, 0, label->name))
			return refuse(refusal, "labels", "%.40s: there is such a label already",
				      label->name);
		export->labels[export->n_labels++] = *label;
	}
	if (map->spec.layout.kind == MAP_KIND_ARRAY && map->spec.max_entries == 1)
		return 0; /* its only key says nothing */
	for (size_t i = 0; i < export->key->n; i++)
		if (&export->key->fields[i] != export->bucket)
			set_key_label(export, i);
	return 0;
}

/* Where a histogram has its buckets. */
static int set_bucket(struct map_export *export, const struct map_export_options *options,
		      struct map_export_refusal *refusal) {
	const struct fields *key = export->key;
	bool in_value = false;

	if (export->kind != MAP_EXPORT_HISTOGRAM)
		return options->bucket ? refuse(refusal, "bucket",
						"only a histogram has buckets: --type=histogram")
				       : 0;
	for (size_t i = 0; i < export->value->n; i++)
		in_value = in_value || (export->value->fields[i].is_array &&
					field_is_number(&export->value->fields[i]));
	for (size_t i = 0; options->bucket && i < key->n; i++)
		if (!strcmp(key->fields[i].name, options->bucket))
			export->bucket = &key->fields[i];
	if (options->bucket && !export->bucket)
		return refuse(refusal, "bucket", "%.64s: the key has no such member",
			      options->bucket);
	if (!options->bucket && !in_value && key->n == 1)
		export->bucket = &key->fields[0];
	if (export->bucket && (!field_is_number(export->bucket) ||
			       export->bucket->kind == FIELD_FLOAT || export->bucket->is_array))
		return refuse(
			refusal, "bucket",
			"the number of a bucket is an integer, and this member of the key is none");
	if (!export->bucket && !in_value)
		return refuse(refusal, "bucket",
			      "which member of the key is the number of the bucket? Say it with "
			      "--bucket");
	return 0;
}

/* ---- an export ---- */

static int set_fields(struct map_export *export, const struct map *map, const struct object *object,
		      struct map_export_refusal *refusal) {
	int r;

	r = fields_new(&export->key, object->btf, object->n_btf, map->spec.btf_key_type,
		       map->spec.key_size);
	if (r == 0)
		r = fields_new(&export->value, object->btf, object->n_btf, map->spec.btf_value_type,
			       map->spec.value_size);
	if (r == FIELDS_E_BTF)
		return refuse(refusal, "map", "the types of its object (BTF) cannot be read");
	if (r == FIELDS_E_MEMBERS)
		return refuse(
			refusal, "map",
			"its key or value has more than %d members, or they are nested too deep",
			FIELDS_MAX);
	for (size_t i = 0; r == 0 && i < export->key->n; i++)
		if (!strcmp(export->key->fields[i].name, "kernel_id") &&
		    export->key->fields[i].kind == FIELD_UNSIGNED &&
		    !export->key->fields[i].is_array)
			export->kernel = &export->key->fields[i];
	return r;
}

static int fill(struct map_export *export, const struct map_exports *exports, const struct map *map,
		const struct object *object, const struct map_export_options *options,
		struct map_export_refusal *refusal) {
	const uint32_t merge = map->spec.layout.merge;
	int r;

	if (map->spec.layout.kind == MAP_KIND_RING)
		return refuse(refusal, "map",
			      "it is a ring: records are no metrics. Count in an array or a hash "
			      "map instead");
	if (options->unit && *options->unit &&
	    (strlen(options->unit) >= sizeof(export->unit) ||
	     !openmetrics_label_valid(options->unit)))
		return refuse(refusal, "unit",
			      "not a unit: letters, digits and underscores, like bytes or seconds");
	if (options->help && strlen(options->help) >= sizeof(export->help))
		return refuse(refusal, "help", "more than %zu bytes", sizeof(export->help) - 1);
	export->map = map->id;
	export->object = object->id;
	export->owner = object->owner;
	snprintf(export->map_name, sizeof(export->map_name), "%s", map->name);
	snprintf(export->help, sizeof(export->help), "%s", options->help ? options->help : "");
	snprintf(export->unit, sizeof(export->unit), "%s", options->unit ? options->unit : "");
	export->kind = options->kind;
	if (export->kind == MAP_EXPORT_AUTO)
		export->kind = merge == MAP_MERGE_SUM64 || merge == MAP_MERGE_SUM32
				       ? MAP_EXPORT_COUNTER
				       : MAP_EXPORT_GAUGE;
	export->per_sm = options->per_sm;
	export->latest = options->latest;
	export->nonzero = options->nonzero || map->spec.layout.kind == MAP_KIND_THREADS;
	if (export->per_sm && map->n_values == 1)
		return refuse(refusal, "per_sm",
			      "the map has one value for all SMs: only maps of a per-CPU type have "
			      "one for each");
	r = set_fields(export, map, object, refusal);
	if (r == 0)
		r = set_bucket(export, options, refusal);
	if (r == 0)
		r = set_labels(export, options, map, refusal);
	if (r == 0)
		r = set_name(export, options, refusal);
	if (r == 0)
		r = set_families(export, exports, map_exports_find(exports, map->id), refusal);
	return r;
}

int map_exports_add(struct map_exports *exports, const struct map *map, const struct object *object,
		    const struct map_export_options *options, const struct map_export **exportp,
		    struct map_export_refusal *refusal) {
	struct map_export *export, *earlier = map_exports_find(exports, map->id);
	size_t n_owner = 0;
	int r;

	TAILQ_FOREACH(export, &exports->list, link)
		n_owner += export->owner == object->owner;
	if (!earlier && (exports->n >= MAP_EXPORTS_MAX || n_owner >= MAP_EXPORTS_UID_MAX))
		return MAP_EXPORT_E_LIMIT;
	export = calloc(1, sizeof(*export));
	if (!export)
		return -ENOMEM;
	r = fill(export, exports, map, object, options, refusal);
	if (r) {
		map_export_free(export);
		return r;
	}
	map_exports_remove(exports, earlier);
	export->id = ++exports->last_id;
	TAILQ_INSERT_TAIL(&exports->list, export, link);
	exports->n++;
	*exportp = export;
	return 0;
}
