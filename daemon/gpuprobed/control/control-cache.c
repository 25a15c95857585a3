/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The methods CacheStatus, ListCache and ClearCache. The last two read the disk, so a thread does
 * that and the answer follows when it has finished.
 */

#include "control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "lib/json.h"

#define CONTROL_CACHE_LIST_MAX 1000

int control_cache_status(struct varlink_call *call, json_object *parameters, void *userdata) {
	const struct control_context *context = userdata;
	json_object *json = json_object_new_object();
	struct cache_counters counters;

	cache_counters(context->image->cache, &counters);
	json_add_bool(json, "enabled", context->image->cache != NULL);
	json_add_text(json, "folder", job_cache_folder(context->image->cache));
	json_add_int(json, "limit", counters.limit);
	json_add_int(json, "bytes", counters.bytes);
	json_add_int(json, "entries", counters.entries);
	json_add_int(json, "hits", counters.hits);
	json_add_int(json, "misses", counters.misses);
	json_add_int(json, "invalid", counters.invalid);
	json_add_int(json, "stores", counters.stores);
	json_add_int(json, "skipped", counters.skipped);
	json_add_int(json, "failures", counters.failures);
	json_add_int(json, "evicted", counters.evicted);
	return varlink_call_reply(call, json);
}

static json_object *control_cache_item_json(const struct cache_item *item) {
	json_object *json = json_object_new_object();
	char text[CACHE_KEY_TEXT_SIZE];
	struct cache_key key;

	memcpy(key.bytes, item->header.key, sizeof(key.bytes));
	cache_key_text(&key, text);
	json_add_text(json, "key", text);
	json_add_text(json, "job", item->header.job);
	json_add_text(json, "name", item->header.name);
	json_add_int(json, "uid", item->header.uid);
	json_add_int(json, "bytes", item->bytes);
	json_add_int(json, "used", item->used * 1000000);
	return json;
}

/* The end of a call that waited for the disk, unless it could not be read. True: it was answered.
 */
static bool control_cache_failed(struct varlink_call *call, const struct job_cache_report *report) {
	if (report->result == 0)
		return false;
	control_error_reason(call, "Unavailable", "%s",
			     report->result == CACHE_STORE_E_UNSAFE
				     ? "the folder of the cache is not the daemon's alone"
				     : strerror(-report->result));
	return true;
}

static void control_on_listed(const struct job_cache_report *report, void *userdata) {
	struct varlink_call *call = userdata;
	json_object *json, *entries;

	if (!control_cache_failed(call, report)) {
		json = json_object_new_object();
		entries = json_object_new_array();
		for (size_t i = 0; i < report->n_items; i++)
			json_append(entries, control_cache_item_json(&report->items[i]));
		json_add(json, "entries", entries);
		json_add_int(json, "total", report->usage.entries);
		json_add_int(json, "bytes", report->usage.bytes);
		varlink_call_reply(call, json);
	}
	varlink_call_unref(call);
}

static void control_on_cleared(const struct job_cache_report *report, void *userdata) {
	struct varlink_call *call = userdata;
	json_object *json;

	if (!control_cache_failed(call, report)) {
		json = json_object_new_object();
		json_add_int(json, "removed", report->usage.removed);
		json_add_int(json, "bytes", report->usage.bytes);
		varlink_call_reply(call, json);
	}
	varlink_call_unref(call);
}

/* Whether a call that was referred for later can be; else it is answered. */
static int control_cache_referred(struct varlink_call *call, int r) {
	if (r == 0)
		return 0;
	r = r == -EBUSY
		    ? control_error_limit(call,
					  "calls that look through the cache at the same time", 1)
		    : control_error_reason(call, "Internal", "%s", strerror(-r));
	varlink_call_unref(call);
	return r;
}

static int control_no_cache(struct varlink_call *call) {
	return control_error_reason(
		call, "Unavailable",
		"this daemon has no cache on the disk (--cache-dir, --cache-size)");
}

int control_list_cache(struct varlink_call *call, json_object *parameters, void *userdata) {
	const struct control_context *context = userdata;
	const uint32_t uid =
		control_is_admin(call) ? CACHE_STORE_ANYBODY : varlink_call_peer(call)->uid;

	if (!context->image->cache)
		return control_no_cache(call);
	varlink_call_ref(call);
	return control_cache_referred(call, job_cache_list(context->image->cache, uid,
							   CONTROL_CACHE_LIST_MAX,
							   control_on_listed, call));
}

int control_clear_cache(struct varlink_call *call, json_object *parameters, void *userdata) {
	const struct control_context *context = userdata;

	if (!control_may_attach(call))
		return control_error_reason(
			call, "PermissionDenied",
			"only who may attach may clear the cache: it is everybody's");
	if (!context->image->cache)
		return control_no_cache(call);
	varlink_call_ref(call);
	return control_cache_referred(call,
				      job_cache_clear(context->image->cache, CACHE_STORE_ANYBODY,
						      control_on_cleared, call));
}
