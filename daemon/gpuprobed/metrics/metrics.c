/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes the text of metrics (metrics.h).
 *
 * The text of metrics, made in turns of the loop: first the daemon's own numbers, then one export
 * after the other, of each up to CHUNK entries in a turn, and then its text, as much in a turn.
 * Between two turns maps and exports may come and go: a run keeps their numbers, no pointers.
 */

#include "metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/image/kernels-list.h"
#include "daemon/gpuprobed/export/map-export.h"
#include "statistics.h"

#define CHUNK 256
#define CHUNK_BYTES (64 * 1024) /* of values */
#define CHUNK_NS 1000000 /* an element takes the longer the more processes have the map */
#define SYNC_MS 200

enum place_state {
	PLACE_WAITING,
	PLACE_READ,
	PLACE_FAILED, /* too large to be read as one, or no memory */
	PLACE_GONE,
};

/* An export, as it was when the run began. */
struct place {
	uint64_t map, id;
	enum place_state state;
	char name[MAP_EXPORT_NAME_SIZE];
	size_t written, left_out;
};

struct metrics_run {
	struct metrics_context *context;
	struct metrics_text text;
	metrics_fn done;
	void *userdata;
	uv_idle_t idle;
	struct sync_request *sync;
	struct map_cursor cursor;
	struct map_export_series *series; /* of the export at hand; NULL: it has not begun */
	struct place *places;
	size_t n_places, at;
	bool printing; /* all series of the export at hand are there */
	size_t n_text; /* where its text begins */
	struct kernels_reader reader; /* whose kernels may be named */
	uint64_t *kernels; /* ids that are in keys, of all exports; sorted once these are through */
	size_t n_kernels;
	bool *named; /* which of them have got a name: two kernels of one id would be the same
			series */
	struct kernels_list names;
	bool naming; /* the names of these are being gathered */
};

static bool is_full(const struct metrics_run *run) {
	return run->text.failed || run->text.n > METRICS_TEXT_MAX ||
	       run->text.n + run->text.n_escapes > METRICS_REPLY_MAX;
}

/* ---- the daemon's own ---- */

struct own {
	struct metrics_text *text;
	const char *group, *name;
};

static void print_own(const struct statistic *statistic, void *userdata) {
	struct own *own = userdata;
	const char *unit = statistic->unit == STATISTIC_BYTES          ? "bytes"
			   : statistic->unit == STATISTIC_MICROSECONDS ? "seconds"
								       : "";
	char name[128];

	snprintf(name, sizeof(name), "gpuprobe_%s_%s%s%s", statistic->group, statistic->name,
		 *unit ? "_" : "", unit);
	if (!own->group || strcmp(own->group, statistic->group) ||
	    strcmp(own->name, statistic->name))
		metrics_text_family(own->text, name, statistic->counts ? "counter" : "gauge", unit,
				    statistic->help);
	own->group = statistic->group;
	own->name = statistic->name;
	metrics_text_print(own->text, "%s%s", name, statistic->counts ? "_total" : "");
	if (statistic->of)
		metrics_text_print(own->text, "{%s=\"%s\"}", statistic->label, statistic->of);
	if (statistic->unit == STATISTIC_MICROSECONDS)
		metrics_text_print(own->text, " %llu.%06llu\n",
				   (unsigned long long)(statistic->value / 1000000),
				   (unsigned long long)(statistic->value % 1000000));
	else
		metrics_text_print(own->text, " %llu\n", (unsigned long long)statistic->value);
}

static void print_daemon(struct metrics_run *run) {
	struct own own = { .text = &run->text };

	metrics_text_family(&run->text, "gpuprobe_build_info", "gauge", "",
			    "The version of the daemon, as a label.");
	metrics_text_print(&run->text, "gpuprobe_build_info{version=\"%s\"} 1\n", PROJECT_VERSION);
	statistics_each(run->context, print_own, &own);
}

/* What became of the exports. */
static void print_places(struct metrics_run *run) {
	static const char *const names[] = { "gpuprobe_export_series",
					     "gpuprobe_export_series_left_out",
					     "gpuprobe_export_failed" };
	static const char *const help[] = {
		"Series of an exported map.",
		"Series that are not shown: more than --metrics-series-max, more than the text has "
		"room for, or no such metric (a counter below zero, a bucket above 63).",
		"1: the map could not be read, it is too large to be merged.",
	};

	for (size_t i = 0; i < 3; i++) {
		metrics_text_family(&run->text, names[i], "gauge", "", help[i]);
		for (size_t j = 0; j < run->n_places; j++) {
			const struct place *place = &run->places[j];
			size_t value = i == 0   ? place->written
				       : i == 1 ? place->left_out
						: place->state == PLACE_FAILED;

			if (place->state != PLACE_GONE)
				metrics_text_print(&run->text, "%s{metric=\"%s\"} %zu\n", names[i],
						   place->name, value);
		}
	}
}

/* ---- names of kernels ---- */

static int compare_ids(const void *left, const void *right) {
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* Keeps the ids of an export's keys, each once. */
static void add_kernels(struct metrics_run *run) {
	size_t n, kept = 0;
	const uint64_t *ids = map_export_series_kernels(run->series, &n);
	uint64_t *grown = n ? reallocarray(run->kernels, run->n_kernels + n, sizeof(*grown)) : NULL;

	if (!grown)
		return;
	run->kernels = grown;
	memcpy(grown + run->n_kernels, ids, n * sizeof(*ids));
	n += run->n_kernels;
	qsort(grown, n, sizeof(*grown), compare_ids);
	for (size_t i = 0; i < n; i++)
		if (!i || grown[i] != grown[i - 1])
			grown[kept++] = grown[i];
	run->n_kernels = kept;
}

static void print_kernel(uint64_t id, const char *name, void *userdata) {
	struct metrics_run *run = userdata;
	uint64_t *found = bsearch(&id, run->kernels, run->n_kernels, sizeof(id), compare_ids);

	if (!found || run->named[found - run->kernels] || is_full(run))
		return;
	run->named[found - run->kernels] = true;
	metrics_text_print(&run->text, "gpuprobe_kernel_info{kernel_id=\"%llu\",kernel=\"",
			   (unsigned long long)id);
	metrics_text_escape(&run->text, name, strlen(name), true);
	metrics_text_print(&run->text, "\"} 1\n");
}

/* A turn of finding names. True: that was all. */
static bool run_name(struct metrics_run *run) {
	int r;

	if (!run->n_kernels && !run->naming)
		return true;
	if (!run->naming) {
		run->named = calloc(run->n_kernels, sizeof(*run->named));
		run->naming = run->named && kernels_list_init(&run->names, run->context->image,
							      &run->reader, 0, true) == 0;
		return !run->naming;
	}
	r = kernels_list_gather(&run->names);
	if (r > 0)
		return false;
	metrics_text_family(&run->text, "gpuprobe_kernel_info", "gauge", "",
			    "Names of the kernels whose ids are labels of exported maps.");
	kernels_list_each(&run->names, print_kernel, run);
	return true;
}

/* ---- a run ---- */

static void run_on_closed(uv_handle_t *handle) {
	free(handle->data);
}

static void run_end(struct metrics_run *run) {
	if (run->sync)
		client_sync_cancel(run->sync);
	map_cursor_deinit(&run->cursor);
	run->series = map_export_series_free(run->series);
	metrics_text_deinit(&run->text);
	free(run->places);
	free(run->kernels);
	free(run->named);
	if (run->naming)
		kernels_list_deinit(&run->names);
	run->context->runs--;
	run->context->user_runs -= !run->reader.all;
	uv_close((uv_handle_t *)&run->idle, run_on_closed);
}

static void run_finish(struct metrics_run *run) {
	struct metrics_text text;

	print_places(run);
	if (!run->text.prometheus)
		metrics_text_print(&run->text, "# EOF\n");
	text = run->text;
	run->text = (struct metrics_text){};
	run->done(text.failed ? NULL : &text, run->userdata);
	metrics_text_deinit(&text);
	run_end(run);
}

/* The export at hand is through, or cannot be read. */
static void run_next(struct metrics_run *run, enum place_state state) {
	run->places[run->at++].state = state;
	if (run->printing && state != PLACE_READ)
		metrics_text_cut(&run->text, run->n_text);
	run->printing = false;
	run->series = map_export_series_free(run->series);
	map_cursor_deinit(&run->cursor);
}

/* A turn of writing the export at hand. */
static void run_print(struct metrics_run *run) {
	struct place *place = &run->places[run->at];
	bool all = map_export_series_print(run->series, &run->text);

	if (!all && !is_full(run))
		return;
	place->written = map_export_series_count(run->series, &place->left_out);
	if (is_full(run)) {
		metrics_text_cut(&run->text, run->n_text);
		place->left_out += place->written;
		place->written = 0;
	}
	run_next(run, PLACE_READ);
}

/* Begins with an export. False: it must be waited for. */
static bool run_begin(struct metrics_run *run, const struct map_export *export, struct map *map,
		      void (*done)(void *userdata)) {
	int r;

	if (map_export_series_new(&run->series, export,
				  run->context->image->config->metrics_series_max,
				  METRICS_TEXT_MAX) < 0)
		return true;
	map_cursor_init(&run->cursor, &(struct map_order){ .latest = export->latest,
							   .nonzero = export->nonzero });
	if (run->context->image->config->mirror_period_ms)
		return true; /* what was copied last is at most that old */
	run->sync = client_sync(run->context->client, map, SYNC_MS, done, run, &r);
	return !run->sync;
}

static void run_on_idle(uv_idle_t *idle);

static void run_on_synced(void *userdata) {
	struct metrics_run *run = userdata;

	run->sync = NULL;
	uv_idle_start(&run->idle, run_on_idle);
}

/* A turn. */
static void run_on_idle(uv_idle_t *idle) {
	const uint64_t end = uv_hrtime() + CHUNK_NS;
	struct metrics_run *run = idle->data;
	const struct map_export *export;
	const struct place *place;
	struct map_entry entry;
	struct object *object;
	size_t bytes = 0;
	struct map *map;
	int r = 0;

	if (run->at == run->n_places) {
		if (run_name(run)) {
			uv_idle_stop(idle);
			run_finish(run);
		}
		return;
	}
	place = &run->places[run->at];
	export = map_exports_find(run->context->attach->exports, place->map);
	map = registry_map(run->context->image->registry, place->map, &object);
	if (!map || !export || export->id != place->id) {
		run_next(run, PLACE_GONE);
		return;
	}
	if (run->printing) {
		run_print(run);
		return;
	}
	if (!run->series && !run_begin(run, export, map, run_on_synced)) {
		uv_idle_stop(idle);
		return;
	}
	for (unsigned int i = 0;
	     run->series && i < CHUNK && bytes < CHUNK_BYTES && r == 0 && uv_hrtime() < end; i++) {
		r = map_next(map, &run->cursor, &entry);
		if (r == 0) {
			bytes += (size_t)entry.n_values * map->spec.value_size;
			r = map_export_series_add(run->series, map, &entry);
		}
	}
	if (!run->series || r == MAP_E_QUOTA || r < 0) {
		run_next(run, PLACE_FAILED);
	} else if (r == MAP_E_END) {
		add_kernels(run);
		run->n_text = run->text.n;
		run->printing = true;
	}
}

static int run_add_places(struct metrics_run *run, const struct metrics_view *view) {
	const struct map_export *export;

	run->places = calloc(run->context->attach->exports->n + 1, sizeof(*run->places));
	if (!run->places)
		return -ENOMEM;
	TAILQ_FOREACH(export, &run->context->attach->exports->list, link)
		if (view->all || export->owner == view->uid) {
			struct place *place = &run->places[run->n_places++];

			place->map = export->map;
			place->id = export->id;
			memcpy(place->name, export->name, sizeof(place->name));
		}
	return 0;
}

int metrics_run_new(struct metrics_run **runp, struct metrics_context *context,
		    const struct metrics_view *view, metrics_fn done, void *userdata) {
	struct metrics_run *run;

	if (context->runs >= METRICS_RUNS_MAX ||
	    (!view->all && context->user_runs >= METRICS_USER_RUNS_MAX))
		return -EBUSY;
	run = calloc(1, sizeof(*run));
	if (!run)
		return -ENOMEM;
	run->context = context;
	run->text.prometheus = view->prometheus;
	run->text.json = view->json;
	run->done = done;
	run->userdata = userdata;
	if (run_add_places(run, view) < 0) {
		free(run);
		return -ENOMEM;
	}
	run->reader = (struct kernels_reader){ view->all, view->uid };
	context->runs++;
	context->user_runs += !view->all;
	uv_idle_init(context->image->loop, &run->idle);
	run->idle.data = run;
	print_daemon(run);
	uv_idle_start(&run->idle, run_on_idle);
	*runp = run;
	return 0;
}

void metrics_run_cancel(struct metrics_run *run) {
	if (run)
		run_end(run);
}
