/* SPDX-License-Identifier: Apache-2.0 */

/* The methods ExportMap, UnexportMap, ListExports and Metrics. */

#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/keep/keep.h"
#include "daemon/gpuprobed/export/map-export.h"
#include "daemon/gpuprobed/metrics/metrics.h"
#include "lib/json.h"

int control_export_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	struct map_export_refusal refusal = {};
	struct map_export_options options;
	const struct map_export *export = NULL;
	struct object *object;
	struct map *map;
	int r = 0;

	map = control_find_map(context, call, json_string_of(parameters, "map"), &r);
	if (!map)
		return r;
	registry_map(context->image->registry, map->id, &object);
	r = map_export_options_from_json(&options, parameters, &refusal);
	if (r == 0 && options.name &&
	    strncmp(options.name, MAP_EXPORT_PREFIX, strlen(MAP_EXPORT_PREFIX)) != 0 &&
	    !control_may_attach(call))
		return control_error_reason(call, "PermissionDenied",
					    "only root and members of the group gpuprobe choose "
					    "any name for metrics (one of another "
					    "exporter would spoil what that one says): begin it "
					    "with " MAP_EXPORT_PREFIX);
	if (r == 0)
		r = map_exports_add(context->attach->exports, map, object, &options, &export,
				    &refusal);
	if (r == MAP_EXPORT_E_INVALID)
		return control_error_argument(call, refusal.parameter, refusal.reason);
	if (r == MAP_EXPORT_E_LIMIT)
		return context->attach->exports->n >= MAP_EXPORTS_MAX
			       ? control_error_limit(call, "exported maps", MAP_EXPORTS_MAX)
			       : control_error_limit(call, "exported maps of a user",
						     MAP_EXPORTS_UID_MAX);
	if (r < 0)
		return r;
	keep_changed(context->client->keep);
	parameters = json_object_new_object();
	json_add(parameters, "export", map_export_json(export));
	return varlink_call_reply(call, parameters);
}

int control_unexport_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	const char *name = json_string_of(parameters, "map");
	struct control_context *context = userdata;
	struct map_export *export;
	struct map *map;
	int r = 0;

	map = control_find_map(context, call, name, &r);
	if (!map)
		return r;
	export = map_exports_find(context->attach->exports, map->id);
	if (!export)
		return control_error_not_found(call, "an export of map %.282s", name);
	map_exports_remove(context->attach->exports, export);
	keep_changed(context->client->keep);
	return varlink_call_reply(call, NULL);
}

int control_list_exports(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *json = json_object_new_object(), *exports = json_object_new_array();
	const struct control_context *context = userdata;
	const struct map_export *export;

	TAILQ_FOREACH(export, &context->attach->exports->list, link)
		if (control_may_see(call, export->owner))
			json_append(exports, map_export_json(export));
	json_add(json, "exports", exports);
	return varlink_call_reply(call, json);
}

/* ---- Metrics ---- */

struct metrics_call {
	struct control_work work;
	struct metrics_run *run;
};

static void metrics_call_free(void *userdata) {
	struct metrics_call *metrics = userdata;

	metrics_run_cancel(metrics->run);
	free(metrics);
}

static void metrics_call_on_text(struct metrics_text *text, void *userdata) {
	struct metrics_call *metrics = userdata;
	json_object *json;

	metrics->run = NULL;
	if (!text) {
		control_error_reason(metrics->work.call, "Internal", "no memory");
	} else {
		json = json_object_new_object();
		json_add(json, "text", json_object_new_string_len(text->data, (int)text->n));
		varlink_call_reply(metrics->work.call, json);
	}
	control_work_end(&metrics->work, 0);
}

int control_metrics(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	const struct metrics_view view = {
		.all = control_is_admin(call),
		.uid = varlink_call_peer(call)->uid,
		.json = true,
		.prometheus = json_bool_of(parameters, "prometheus"),
	};
	struct metrics_call *metrics = calloc(1, sizeof(*metrics));
	int r;

	if (!metrics)
		return -ENOMEM;
	r = metrics_run_new(&metrics->run, context->metrics, &view, metrics_call_on_text, metrics);
	if (r < 0) {
		free(metrics);
		return r == -EBUSY
			       ? control_error_limit(call, "metrics that are read at the same time",
						     METRICS_RUNS_MAX)
			       : r;
	}
	control_work_begin(&metrics->work, call, metrics_call_free);
	return 0;
}
