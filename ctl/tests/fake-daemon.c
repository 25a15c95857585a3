/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A daemon for the tests of gpuprobectl: fake-daemon SOCKET. It speaks the control interface,
 * through the same library as the real one, and does nothing behind it. What it answers follows
 * from what it is asked: a program called `refused` is refused by the verifier, a map called
 * `struct` holds structs, and so on. Attach answers with what it was given.
 */

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "lib/varlink/varlink-idl.h"
#include "lib/varlink/varlink-interfaces.h"
#include "lib/varlink/varlink-json.h"
#include "lib/varlink/varlink-server.h"

#include "fake-daemon.h"

#define ERROR(name) "io.gpuprobe.control." name
#define STREAM_ENTRIES 100000

enum {
	TYPE_U32,
	TYPE_S64,
	TYPE_CHAR,
	TYPE_U16,
	TYPE_BOOL,
	TYPE_FLOAT,
	TYPE_U64,
	TYPE_COLOR,
	TYPE_EVENT,
	TYPE_PAIR,
	TYPE_SECTION,
	N_TYPES
};

static struct {
	json_object *attachments;
	int64_t next_id;
	const char *btf; /* in base64 */
	int types[N_TYPES];
	struct fake_types ring_types;
	int64_t run_pid; /* of the process that the last program to be run is attached to */
	bool run_unprobed; /* and was not put into */
	bool kept_waiting; /* the first Detach of `clinging` was */
} state;

static json_object *get(json_object *object, const char *key) {
	json_object *value = NULL;

	json_object_object_get_ex(object, key, &value);
	return value;
}

static json_object *from_text(const char *text) {
	json_object *value;

	if (varlink_json_parse(&value, text, strlen(text)))
		abort();
	return value;
}

static json_object *base64(const void *data, size_t n_data) {
	char *text = malloc(base64_encoded_size(n_data));
	json_object *value;

	base64_encode(text, data, n_data);
	value = json_object_new_string(text);
	free(text);
	return value;
}

static void check(int r) {
	if (r < 0)
		abort();
}

/* Types as clang would describe struct event. */
static void make_btf(void) {
	struct btf *btf = btf__new_empty();
	const void *data;
	uint32_t n_data;
	int *types = state.types, name, list, anonymous;

	types[TYPE_U32] = btf__add_int(btf, "unsigned int", 4, 0);
	types[TYPE_S64] = btf__add_int(btf, "long", 8, BTF_INT_SIGNED);
	types[TYPE_CHAR] = btf__add_int(btf, "char", 1, BTF_INT_SIGNED);
	types[TYPE_U16] = btf__add_int(btf, "unsigned short", 2, 0);
	types[TYPE_BOOL] = btf__add_int(btf, "_Bool", 1, BTF_INT_BOOL);
	types[TYPE_FLOAT] = btf__add_float(btf, "float", 4);
	types[TYPE_U64] = btf__add_typedef(btf, "__u64", btf__add_int(btf, "unsigned long", 8, 0));
	types[TYPE_COLOR] = btf__add_enum(btf, "color", 4);
	check(btf__add_enum_value(btf, "RED", 0));
	check(btf__add_enum_value(btf, "GREEN", 1));
	name = btf__add_array(btf, types[TYPE_U32], types[TYPE_CHAR], 8);
	list = btf__add_array(btf, types[TYPE_U32], types[TYPE_U16], 2);
	anonymous = btf__add_union(btf, NULL, 4);
	check(btf__add_field(btf, "u", types[TYPE_U32], 0, 0));
	check(btf__add_field(btf, "f", types[TYPE_FLOAT], 0, 0));
	types[TYPE_EVENT] = btf__add_struct(btf, "event", sizeof(struct event));
	check(btf__add_field(btf, "a", types[TYPE_U32], 0, 0));
	check(btf__add_field(btf, "b", types[TYPE_S64], 64, 0));
	check(btf__add_field(btf, "name", name, 128, 0));
	check(btf__add_field(btf, "color", types[TYPE_COLOR], 192, 0));
	check(btf__add_field(btf, "low", types[TYPE_U32], 224, 3));
	check(btf__add_field(btf, "high", types[TYPE_U32], 227, 29));
	check(btf__add_field(btf, "list", list, 256, 0));
	check(btf__add_field(btf, NULL, anonymous, 288, 0));
	check(btf__add_field(btf, "flag", types[TYPE_BOOL], 320, 0));
	types[TYPE_PAIR] = btf__add_struct(btf, "pair", 8);
	check(btf__add_field(btf, "x", types[TYPE_U32], 0, 0));
	check(btf__add_field(btf, "y", types[TYPE_COLOR], 32, 0));
	name = btf__add_var(btf, "entered", BTF_VAR_GLOBAL_ALLOCATED, types[TYPE_U64]);
	list = btf__add_var(btf, "pairs", BTF_VAR_STATIC,
			    btf__add_array(btf, types[TYPE_U32], types[TYPE_PAIR], 2));
	types[TYPE_SECTION] = btf__add_datasec(btf, ".bss", 24);
	check(btf__add_datasec_var_info(btf, name, 0, 8));
	check(btf__add_datasec_var_info(btf, list, 8, 16));
	data = btf__raw_data(btf, &n_data);
	state.btf = strdup(json_object_get_string(base64(data, n_data)));
	state.ring_types = (struct fake_types){ state.btf, types[TYPE_EVENT] };
}

/*
 * The errors of attach, by the name of the program that is asked for. NULL: there is none of this
 * name.
 */
static const struct {
	const char *program, *error, *parameters;
} attach_errors[] = {
	{ "missing", ERROR("NotFound"), "{\"what\":\"missing\"}" },
	{ "dead", ERROR("NotFound"), "{\"what\":\"process 4711\"}" },
	{ "refused", ERROR("VerificationFailed"),
	  "{\"program\":\"refused\",\"reason\":\"invalid access to map value\","
	  "\"log\":\"; *value = 1; @ a.bpf.c:7\\nR1 invalid mem access\"}" },
	{ "hostile", ERROR("VerificationFailed"),
	  "{\"program\":\"host\\u001bile\",\"reason\":\"a\\nb\\u009bc\",\"log\":\"; x = "
	  "\\\"\\u001b[31m\\\" @ a.c:1\\n\\tR1\\u009b1m\\u00e9\\r\\n\"}" },
	{ "logless", ERROR("VerificationFailed"),
	  "{\"program\":\"logless\",\"reason\":\"no reason\",\"log\":null}" },
	{ "uncompiled", ERROR("CompileFailed"),
	  "{\"program\":\"uncompiled\",\"reason\":\"helper 6 comes with the next release\"}" },
	{ "nameless", ERROR("CompileFailed"), "{\"program\":\"\",\"reason\":\"no worker\"}" },
	{ "invalid", ERROR("InvalidObject"),
	  "{\"reason\":\"no GPU program in it\",\"log\":\"libbpf: hm\\n\"}" },
	{ "denied", ERROR("PermissionDenied"),
	  "{\"reason\":\"only root and the group gpuprobe may attach\"}" },
	{ "unavailable", ERROR("Unavailable"), "{\"reason\":\"no CAP_BPF here\"}" },
	{ "limit", ERROR("LimitExceeded"), "{\"what\":\"attachments of uid 0\",\"limit\":64}" },
	{ "argument", ERROR("InvalidArgument"),
	  "{\"parameter\":\"ring_size\",\"reason\":\"not so large\"}" },
	{ "internal", ERROR("Internal"), "{\"reason\":\"worker did not start\"}" },
	{ "forbidden", "org.varlink.service.PermissionDenied", "{}" },
	{ "other", "org.varlink.service.InvalidParameter", "{\"parameter\":\"filter\"}" },
	{ "old", "org.varlink.service.MethodNotImplemented",
	  "{\"method\":\"io.gpuprobe.control.Attach\"}" },
};

static json_object *maps_of_run(void);

static int attach(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *program = get(parameters, "program"), *kernel = get(parameters, "kernel"),
		    *filter = get(parameters, "filter"), *point = get(parameters, "point"),
		    *engine = get(parameters, "engine");
	const char *name = program ? json_object_get_string(program) : "cuda__count";
	bool run = point && !strcmp(json_object_get_string(point), "kprobe/__directly_run");
	json_object *attachment, *list = json_object_new_array();
	unsigned char *data;
	size_t n_data;

	for (size_t i = 0; i < sizeof(attach_errors) / sizeof(*attach_errors); i++)
		if (!strcmp(name, attach_errors[i].program))
			return varlink_call_error(call, attach_errors[i].error,
						  from_text(attach_errors[i].parameters));
	if (!strcmp(name, "crash"))
		return -EIO;
	if (!strcmp(name, "echo")) { /* says what it was asked for */
		json_object_object_del(parameters, "object");
		return varlink_call_error(
			call, ERROR("Internal"),
			varlink_json_pack("reason",
					  json_object_new_string(json_object_to_json_string_ext(
						  parameters, JSON_C_TO_STRING_PLAIN)),
					  NULL));
	}
	if (base64_decode(json_object_get_string(get(parameters, "object")),
			  strlen(json_object_get_string(get(parameters, "object"))), &data,
			  &n_data))
		return varlink_call_invalid_parameter(call, "object");
	attachment = varlink_json_pack(
		"id", json_object_new_int64(++state.next_id), "object",
		json_object_new_int64((int64_t)n_data), "program", json_object_new_string(name),
		"point", json_object_new_string("entry"), "kernel",
		kernel ? json_object_get(kernel)
		       : json_object_new_string(run ? "__gpuprobe_directly_run" : "vectorAdd"),
		"section",
		json_object_new_string(point ? json_object_get_string(point) : "kprobe/vectorAdd"),
		"engine", engine ? json_object_get(engine) : json_object_new_string("auto"),
		"filter", filter ? json_object_get(filter) : json_object_new_object(), "state",
		json_object_new_string(strcmp(name, "failed") ? "armed" : "failed"), "modules",
		json_object_new_int(0), "recompiled", json_object_new_int(filter ? 1 : 0),
		"processes", json_object_new_int(0), "owner",
		json_object_new_int64(varlink_call_peer(call)->uid), NULL);
	free(data);
	json_object_array_add(state.attachments, json_object_get(attachment));
	json_object_array_add(list, attachment);
	if (run) {
		state.run_pid = json_object_get_int64(get(filter, "pid"));
		state.run_unprobed = !strcmp(name, "unprobed");
	}
	return varlink_call_reply(
		call, varlink_json_pack("attachments", list, "maps",
					run ? maps_of_run() : json_object_new_array(), NULL));
}

/* Who is the first to detach `clinging` waits for an answer for ever, which standard output tells.
 */
static bool keeps_waiting(json_object *attachment) {
	if (state.kept_waiting ||
	    strcmp(json_object_get_string(get(attachment, "program")), "clinging") != 0)
		return false;
	state.kept_waiting = true;
	puts("waits");
	fflush(stdout);
	return true;
}

static int detach(struct varlink_call *call, json_object *parameters, void *userdata) {
	int64_t id = json_object_get_int64(get(parameters, "id"));
	char text[32];

	for (size_t i = 0; i < json_object_array_length(state.attachments); i++)
		if (json_object_get_int64(
			    get(json_object_array_get_idx(state.attachments, i), "id")) == id) {
			if (keeps_waiting(json_object_array_get_idx(state.attachments, i))) {
				varlink_call_ref(call);
				return 0;
			}
			json_object_array_del_idx(state.attachments, i, 1);
			return varlink_call_reply(call, NULL);
		}
	snprintf(text, sizeof(text), "%lld", (long long)id);
	return varlink_call_error(call, ERROR("NotFound"),
				  varlink_json_pack("what", json_object_new_string(text), NULL));
}

static int list_attachments(struct varlink_call *call, json_object *parameters, void *userdata) {
	return varlink_call_reply(
		call, varlink_json_pack("attachments", json_object_get(state.attachments), NULL));
}

static int status(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *reply =
		from_text("{\"version\":\"0.1.0\",\"pid\":4711,\"mode\":\"session\",\"started\":"
			  "1700000000000000,\"verify\":\"on\","
			  "\"compiler\":\"nvJitLink "
			  "13.0\",\"attachments\":1,\"maps\":2,\"counters\":{\"images\":3,\"images_"
			  "made\":2,"
			  "\"images_own\":1,\"images_cached\":0,\"worker_crashes\":0,\"worker_"
			  "timeouts\":0,\"processes\":1},"
			  "\"statistics\":[{\"group\":\"daemon\",\"name\":\"memory\",\"kind\":"
			  "\"gauge\",\"unit\":\"bytes\",\"value\":6291456},"
			  "{\"group\":\"daemon\",\"name\":\"longest_turn\",\"kind\":\"gauge\","
			  "\"unit\":\"microseconds\",\"value\":1500},"
			  "{\"group\":\"workers\",\"name\":\"jobs\",\"of\":\"image\",\"kind\":"
			  "\"counter\",\"unit\":\"number\",\"value\":9007199254740993},"
			  "{\"group\":\"workers\",\"name\":\"jobs\",\"of\":\"program\",\"kind\":"
			  "\"counter\",\"unit\":\"number\",\"value\":2},"
			  "{\"group\":\"workers\",\"name\":\"alive\",\"of\":\"image\",\"kind\":"
			  "\"gauge\",\"unit\":\"number\",\"value\":3},"
			  "{\"group\":\"workers\",\"name\":\"alive\",\"of\":\"program\",\"kind\":"
			  "\"gauge\",\"unit\":\"number\",\"value\":1},"
			  "{\"group\":\"quotas\",\"name\":\"hit\",\"of\":\"images\",\"kind\":"
			  "\"counter\",\"unit\":\"number\",\"value\":0},"
			  "{\"group\":\"quotas\",\"name\":\"hit\",\"of\":\"maps\",\"kind\":"
			  "\"counter\",\"unit\":\"number\",\"value\":4}],"
			  "\"missing\":[\"no CAP_BPF: nothing can be verified; run as root\"]}");
	const char *version = getenv("FAKE_VERSION");

	if (version)
		json_object_object_add(reply, "version", json_object_new_string(version));
	return varlink_call_reply(call, reply);
}

static int why(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *kernel = get(parameters, "kernel"), *pid = get(parameters, "pid");
	json_object *reply = from_text(
		"{\"outcomes\":[{\"pid\":77,\"comm\":\"vec_add\",\"time\":"
		"1700000000000000,\"kernel\":\"_Z9vectorAddPfS_\",\"demangled\":"
		"\"vectorAdd(float*, float*)\",\"outcome\":\"probed\",\"reason\":\"no "
		"PTX for sm_90 in this image\",\"engine\":\"sanitizer\",\"attachments\":[1]},"
		"{\"pid\":78,\"comm\":\"py\\u001b[31mthon\",\"time\":1700000000000000,"
		"\"kernel\":\"\",\"demangled\":\"\",\"outcome\":"
		"\"not-probed\",\"reason\":\"no PTX for sm_90 in this image: SASS "
		"only\",\"engine\":\"\",\"attachments\":[]}]}");

	if (kernel && !strcmp(json_object_get_string(kernel), "none"))
		json_object_array_del_idx(get(reply, "outcomes"), 0, 2);
	if (pid && json_object_get_int64(pid) == state.run_pid) {
		json_object_put(reply);
		return varlink_call_reply(
			call,
			from_text(
				state.run_unprobed
					? "{\"outcomes\":[{\"pid\":1,\"comm\":\"gpuprobe-launch\","
					  "\"time\":1,\"kernel\":\"\",\"demangled\":\"\","
					  "\"outcome\":\"failed\",\"reason\":\"the compiler said "
					  "no\",\"engine\":\"\",\"attachments\":[]}]}"
					: "{\"outcomes\":[{\"pid\":1,\"comm\":\"gpuprobe-launch\","
					  "\"time\":1,\"kernel\":\"__gpuprobe_directly_run\","
					  "\"demangled\":\"\",\"outcome\":\"probed\",\"reason\":"
					  "\"\",\"engine\":\"\",\"attachments\":[1]}]}"));
	}
	if (pid && json_object_get_int64(pid) == 78)
		json_object_array_del_idx(get(reply, "outcomes"), 0, 1);
	return varlink_call_reply(call, reply);
}

static const struct {
	const char *name, *type, *merge;
	int64_t value_size, max_entries;
	int value_type; /* index; -1: none */
	const char *kind; /* NULL: array */
} maps[] = {
	{ "counter", "gpu_array", "sum64", 8, 1, TYPE_U64, NULL },
	{ "struct", "array", "none", sizeof(struct event), 2, TYPE_EVENT, NULL },
	{ "percpu", "percpu_array", "percpu", 8, 2, TYPE_S64, NULL },
	{ "plain", "array", "none", 8, 1, -1, NULL },
	{ "large", "array", "none", 8, STREAM_ENTRIES, TYPE_U64, NULL },
	{ "misfit", "array", "none", 4, 1, TYPE_EVENT, NULL },
	{ "empty", "array", "none", 8, 1, TYPE_U64, NULL },
	{ "threads", "gpu_thread_array", "none", 8, 2, TYPE_U64, "threads" },
	{ "pairs", "percpu_hash", "percpu", 8, 2, TYPE_S64, "hash" }, /* keys: struct pair */
	{ "events", "ringbuf", "none", 0, 4096, -1, "ring" },
	{ ".bss", "array", "sum64", 24, 1, TYPE_SECTION, NULL },
};

static bool is_kind(size_t map, const char *kind) {
	return maps[map].kind && !strcmp(maps[map].kind, kind);
}

static json_object *map_json(size_t i) {
	json_object *map = varlink_json_pack(
		"id", json_object_new_int64((int64_t)i + 1), "object", json_object_new_int(1),
		"name", json_object_new_string(maps[i].name), "type",
		json_object_new_string(maps[i].type), "key_size",
		json_object_new_int(is_kind(i, "hash") ? 8 : 4), "value_size",
		json_object_new_int64(maps[i].value_size), "max_entries",
		json_object_new_int64(maps[i].max_entries), "kind",
		json_object_new_string(maps[i].kind ? maps[i].kind : "array"), "place",
		json_object_new_string("device"), "shards", json_object_new_int(1), "merge",
		json_object_new_string(maps[i].merge), "instances", json_object_new_int(1), "bytes",
		json_object_new_int(4096), NULL);

	if (is_kind(i, "threads"))
		json_object_object_add(map, "threads", json_object_new_int(65536));
	if (is_kind(i, "ring")) {
		json_object_object_add(map, "written", json_object_new_int64(5000000000));
		json_object_object_add(map, "lost", json_object_new_int(7));
	}
	return map;
}

/* counter and events */
static json_object *maps_of_run(void) {
	json_object *list = json_object_new_array();

	json_object_array_add(list, map_json(0));
	json_object_array_add(list, map_json(9));
	return list;
}

static int list_maps(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *list = json_object_new_array();

	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++)
		json_object_array_add(list, map_json(i));
	return varlink_call_reply(call, varlink_json_pack("maps", list, NULL));
}

static json_object *entry(uint32_t key, const void *value, size_t n_value, size_t n_values,
			  int64_t pid) {
	json_object *values = json_object_new_array(), *object;

	for (size_t i = 0; i < n_values; i++)
		json_object_array_add(values, base64((const char *)value + i * n_value, n_value));
	object = varlink_json_pack("key", base64(&key, sizeof(key)), "values", values, NULL);
	if (pid)
		json_object_object_add(object, "pid", json_object_new_int64(pid));
	return object;
}

static void add_member(json_object *object, const char *key, json_object *value) {
	json_object_object_del(object, key);
	json_object_object_add(object, key, value);
}

/* Of a per-thread array. */
static json_object *thread_entry(uint32_t key, int thread, uint64_t value, int64_t pid) {
	json_object *object = entry(key, &value, sizeof(value), 1, pid);

	add_member(object, "thread", json_object_new_int(thread));
	return object;
}

/* Of the hash map. */
static json_object *pair_entry(uint32_t x, uint32_t y, const int64_t *values, size_t n_values) {
	json_object *object = entry(0, values, sizeof(*values), n_values, 0);
	const uint32_t pair[] = { x, y };

	add_member(object, "key", base64(pair, sizeof(pair)));
	return object;
}

static json_object *entries_of(size_t map, bool per_process, bool nonzero, bool latest) {
	struct event events[2] = {
		{ .a = 1,
		  .b = -2,
		  .name = "a,(b)",
		  .color = 1,
		  .low = 5,
		  .high = 100,
		  .list = { 7, 8 },
		  .f = 1.5F,
		  .flag = 1 },
		{},
	};
	int64_t per_sm[] = { 1, -2, 3 };
	const uint32_t section[] = { 512, 0, 7, 1, 8, 0 };
	uint64_t counter = UINT64_C(18446744073709551615), some[] = { 5, 6 };
	json_object *entries = json_object_new_array();

	switch (map) {
	case 0:
		if (per_process) {
			json_object_array_add(entries, entry(0, &some[0], 8, 1, 77));
			json_object_array_add(entries, entry(0, &some[1], 8, 1, 78));
		} else {
			json_object_array_add(entries, entry(0, &counter, 8, 1, 0));
		}
		break;
	case 1:
		json_object_array_add(entries, entry(0, &events[0], sizeof(struct event), 1, 0));
		if (!nonzero)
			json_object_array_add(entries,
					      entry(1, &events[1], sizeof(struct event), 1, 0));
		break;
	case 2:
		json_object_array_add(entries, entry(0, per_sm, 8, 3, 0));
		json_object_array_add(entries, entry(1, per_sm, 8, 1, 0));
		break;
	case 7:
		json_object_array_add(entries, thread_entry(0, 5, 1, per_process ? 77 : 0));
		json_object_array_add(entries, thread_entry(1, 0, 9, per_process ? 77 : 0));
		if (per_process)
			json_object_array_add(entries, thread_entry(1, 0, 3, 0));
		break;
	case 8:
		json_object_array_add(entries, pair_entry(7, 1, per_sm, latest ? 1 : 3));
		json_object_array_add(entries, pair_entry(8, 0, per_sm, 1));
		break;
	case 10:
		json_object_array_add(entries, entry(0, section, sizeof(section), 1, 0));
		break;
	case 3:
	case 5:
		json_object_array_add(entries,
				      entry(0, &some[0], (size_t)maps[map].value_size, 1, 0));
		break;
	}
	return entries;
}

static json_object *dump_reply(size_t map, json_object *consume_entries, bool first) {
	bool typed = maps[map].value_type >= 0;

	return varlink_json_pack(
		"map", map_json(map), "entries", consume_entries, "btf",
		first && typed ? json_object_new_string(state.btf) : NULL, "btf_key_type",
		json_object_new_int(
			!typed || maps[map].value_type == TYPE_SECTION
				? 0
				: state.types[is_kind(map, "hash") ? TYPE_PAIR : TYPE_U32]),
		"btf_value_type",
		json_object_new_int(typed ? state.types[maps[map].value_type] : 0), NULL);
}

/* Sends the large map, a thousand elements a reply; the userdata is the next key. */
static int produce_large(struct varlink_call *call, void *userdata) {
	size_t key = (size_t)userdata;
	json_object *entries = json_object_new_array();

	for (size_t end = key + 1000; key < end; key++) {
		uint64_t value = key * 2;

		json_object_array_add(entries, entry((uint32_t)key, &value, 8, 1, 0));
	}
	varlink_call_set_userdata(call, (void *)key);
	if (key == STREAM_ENTRIES)
		return varlink_call_reply(call, dump_reply(4, entries, false));
	return varlink_call_continue(call, dump_reply(4, entries, key == 1000));
}

static int dump_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	const char *name = json_object_get_string(get(parameters, "map"));
	json_object *merge = get(parameters, "merge");
	bool per_process = json_object_get_boolean(get(parameters, "per_process")),
	     nonzero = json_object_get_boolean(get(parameters, "nonzero")),
	     latest = merge && !strcmp(json_object_get_string(merge), "latest");

	if (!strcmp(name, "twice"))
		return varlink_call_error(call, ERROR("Ambiguous"),
					  from_text("{\"what\":\"twice\",\"ids\":[3,14]}"));
	if (!strcmp(name, "theirs"))
		return varlink_call_error(call, ERROR("PermissionDenied"),
					  from_text("{\"reason\":\"it is of uid 1000\"}"));
	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++)
		if (!strcmp(name, maps[i].name) || strtoul(name, NULL, 10) == i + 1)
			return i == 4 && varlink_call_more(call)
				       ? varlink_call_stream(call, produce_large)
				       : varlink_call_reply(call,
							    dump_reply(i,
								       entries_of(i, per_process,
										  nonzero, latest),
								       true));
	return varlink_call_error(call, ERROR("NotFound"),
				  varlink_json_pack("what", json_object_new_string(name), NULL));
}

/* The number of a map by name or id; -1: there is none. */
static int find_map(json_object *parameters) {
	const char *name = json_object_get_string(get(parameters, "map"));

	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++)
		if (!strcmp(name, maps[i].name) || strtoul(name, NULL, 10) == i + 1)
			return (int)i;
	return -1;
}

static int show_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	int map = find_map(parameters);
	json_object *reply;

	if (map < 0)
		return varlink_call_error(
			call, ERROR("NotFound"),
			varlink_json_pack("what", json_object_get(get(parameters, "map")), NULL));
	reply = dump_reply((size_t)map, json_object_new_array(), true);
	json_object_object_del(reply, "entries");
	return varlink_call_reply(call, reply);
}

/* Takes what it gets, but has no key 10, and says what it got if there must be no such element
 * (noexist), or a deletion is of key 9. */
static int update_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *flags = get(parameters, "flags"), *value = get(parameters, "value");
	const char *key = json_object_get_string(get(parameters, "key"));
	char text[256];

	if (!strcmp(key, "CgAAAA=="))
		return varlink_call_error(
			call, ERROR("NotFound"),
			varlink_json_pack(
				"what", json_object_new_string("an element with that key"), NULL));
	snprintf(text, sizeof(text), "map %s key %s value %s",
		 json_object_get_string(get(parameters, "map")), key,
		 value ? json_object_get_string(value) : "-");
	if (flags ? !strcmp(json_object_get_string(flags), "noexist") : !strcmp(key, "CQAAAA=="))
		return varlink_call_error(call, ERROR("Unavailable"),
					  varlink_json_pack("reason", json_object_new_string(text),
							    NULL));
	return varlink_call_reply(call, NULL);
}

static int list_kernels(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *pid = get(parameters, "pid");
	json_object *reply =
		from_text("{\"kernels\":[{\"id\":\"00000000000000ab\",\"name\":\"_Z9vectorAddPfS_"
			  "\",\"demangled\":\"vectorAdd(float*, float*)\","
			  "\"device_function\":false,\"pids\":[77,78],\"attachments\":[1]},{\"id\":"
			  "\"00000000000000cd\",\"name\":\"_Z1gv\","
			  "\"demangled\":\"_Z1gv\",\"device_function\":true,\"pids\":[],"
			  "\"attachments\":[]}]}");

	if (pid && json_object_get_int64(pid) == 77)
		json_object_array_del_idx(get(reply, "kernels"), 1, 1);
	if (varlink_call_more(call)) {
		json_object *first = from_text(json_object_to_json_string(reply));

		if (json_object_array_length(get(first, "kernels")) > 1)
			json_object_array_del_idx(get(first, "kernels"), 1, 1);
		json_object_array_del_idx(get(reply, "kernels"), 0, 1);
		varlink_call_continue(call, first);
	}
	return varlink_call_reply(call, reply);
}

static int show_kernel(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *kernel = get(parameters, "kernel"),
		    *instruction = get(parameters, "instruction");
	json_object *reply =
		from_text("{\"instructions\":[{\"id\":\"0000001100000000\",\"kernel\":\"_Z1fv\","
			  "\"text\":\"ld.global.f32 %f1, [%rd4];\","
			  "\"file\":\"x.cu\",\"line\":12},{\"id\":\"0000001100000001\",\"kernel\":"
			  "\"_Z1fv\",\"text\":\"bar\\u001b\"}]}");

	if (!kernel == !instruction)
		return varlink_call_invalid_parameter(call, "kernel");
	if (instruction)
		json_object_array_del_idx(get(reply, "instructions"), 1, 1);
	if (!strcmp(json_object_get_string(kernel ?: instruction), "none"))
		return varlink_call_error(
			call, ERROR("NotFound"),
			varlink_json_pack("what", json_object_new_string("kernel none"), NULL));
	if (kernel && !strcmp(json_object_get_string(kernel), "bare"))
		json_object_array_del_idx(get(reply, "instructions"), 0, 2);
	return varlink_call_reply(call, reply);
}

/* Attachment 1 of a program with patches, and 2, which only the sanitizer engine can run; `ptx`
 * cannot be run there. */
static int show_program(struct varlink_call *call, json_object *parameters, void *userdata) {
	const char *name = json_object_get_string(get(parameters, "program"));
	json_object *reply = from_text(
		"{\"programs\":[{\"attachment\":{\"id\":1,\"object\":1,\"program\":"
		"\"cuda__count\",\"point\":\"entry\",\"kernel\":\"gemm\\u001b*\","
		"\"section\":\"kprobe/"
		"gemm*\",\"filter\":{},\"engine\":\"auto\",\"state\":\"armed\","
		"\"modules\":1,\"recompiled\":1,\"processes\":1,\"owner\":0},"
		"\"symbol\":\"__gpuprobe_o1_p0\",\"ptx_size\":1234,\"local_bytes\":16,"
		"\"isa\":63,\"target\":52,\"maps\":[\"a\",\"b\"],\"thread\":[\"begin\","
		"\"bytes\"],\"sanitizer\":\"\","
		"\"patches\":[{\"instruction\":\"entry\",\"capability\":90,\"registers\":"
		"24,\"spill_stores\":4,\"spill_loads\":8,\"stack\":16}]},"
		"{\"attachment\":{\"id\":2,\"object\":1,\"program\":\"cuda__count\","
		"\"point\":\"barrier\",\"kernel\":\"f\",\"section\":\"kprobe/f@barrier\","
		"\"filter\":{},\"engine\":\"sanitizer\",\"state\":\"armed\",\"modules\":0,"
		"\"recompiled\":0,\"processes\":0,\"owner\":0},\"symbol\":\"__gpuprobe_o1_p1\","
		"\"ptx_size\":20,\"local_bytes\":0,\"isa\":78,\"target\":90,\"maps\":[],"
		"\"thread\":[],\"sanitizer\":\"\",\"patches\":[]}]}");
	json_object *programs = get(reply, "programs");

	if (!strcmp(name, "1"))
		json_object_array_del_idx(programs, 1, 1);
	if (!strcmp(name, "ptx")) {
		json_object *program = json_object_array_get_idx(programs, 0);

		json_object_array_del_idx(programs, 1, 1);
		add_member(get(program, "attachment"), "engine", json_object_new_string("ptx"));
		add_member(program, "sanitizer",
			   json_object_new_string("it reads params of its context"));
		add_member(program, "patches", json_object_new_array());
	}
	if (!strcmp(name, "none"))
		return varlink_call_error(call, ERROR("NotFound"),
					  varlink_json_pack("what", json_object_new_string("none"),
							    NULL));
	return varlink_call_reply(call, reply);
}

static int list_passes(struct varlink_call *call, json_object *parameters, void *userdata) {
	return varlink_call_reply(
		call,
		from_text("{\"passes\":[{\"name\":\"mine\",\"description\":\"does "
			  "\\u001bthis\",\"file\":\"/etc/p/mine.json\","
			  "\"executable\":\"/usr/bin/mine\",\"order\":50,\"include\":[\"kprobe/"
			  "*\"],\"exclude\":[\"kprobe/f\"]},"
			  "{\"name\":\"kretprobe\",\"description\":\"\",\"file\":\"\","
			  "\"executable\":\"\",\"order\":200,"
			  "\"include\":[\"kretprobe/*\"],\"exclude\":[]}],\"folders\":[\"/etc/"
			  "p\"]}"));
}

/* One of each state, one that is of a later daemon, and a terminal's command. */
static int examine(struct varlink_call *call, json_object *parameters, void *userdata) {
	return varlink_call_reply(
		call, from_text("{\"checks\":[{\"id\":\"daemon.fine\",\"title\":\"this\",\"state\":"
				"\"ok\",\"found\":\"as it should be\",\"todo\":\"\"},"
				"{\"id\":\"daemon.less\",\"title\":\"that\",\"state\":\"warning\","
				"\"found\":\"not there\",\"todo\":\"get \\u001bone\"},"
				"{\"id\":\"daemon.broken\",\"title\":\"other\",\"state\":"
				"\"failed\",\"found\":\"gone\",\"todo\":\"mend it\"},"
				"{\"id\":\"daemon.later\",\"title\":\"new\",\"state\":\"splendid\","
				"\"found\":\"x\",\"todo\":\"\"}]}"));
}

static const struct varlink_method methods[] = {
	{ "Attach", attach },
	{ "Detach", detach },
	{ "List", list_attachments },
	{ "Status", status },
	{ "Examine", examine },
	{ "Why", why },
	{ "ListMaps", list_maps },
	{ "DumpMap", dump_map },
	{ "ShowMap", show_map },
	{ "UpdateMap", update_map },
	{ "DeleteMap", update_map },
	{ "ReadRing", fake_read_ring },
	{ "ReadLog", fake_read_log },
	{ "ListKernels", list_kernels },
	{ "ShowKernel", show_kernel },
	{ "ShowProgram", show_program },
	{ "ListPasses", list_passes },
	{ "Trace", fake_trace, VARLINK_METHOD_MORE_ONLY },
	{ "ListHooks", fake_list_hooks },
	{ "ExportMap", fake_export_map },
	{ "UnexportMap", fake_unexport_map },
	{ "ListExports", fake_list_exports },
	{ "Metrics", fake_metrics },
	{ "CacheStatus", fake_cache_status },
	{ "ListCache", fake_list_cache },
	{ "ClearCache", fake_clear_cache },
	{},
};

int main(int argc, char **argv) {
	struct varlink_server *server;
	struct varlink_fault fault;
	uv_loop_t *loop = uv_default_loop();
	int r;

	if (argc != 2)
		return 2;
	state.attachments = json_object_new_array();
	make_btf();
	r = varlink_server_new(
		&server, loop,
		&(struct varlink_server_options){ .size = sizeof(struct varlink_server_options),
						  .vendor = "gpuprobe",
						  .product = "fake-daemon",
						  .version = PROJECT_VERSION,
						  .url = "http://localhost" });
	if (!r)
		r = varlink_server_add_interface(server, varlink_io_gpuprobe_control, methods,
						 &state.ring_types, &fault);
	if (!r)
		r = varlink_server_listen(server, argv[1], 0600);
	if (r) {
		fprintf(stderr, "fake-daemon: %d\n", r);
		return EXIT_FAILURE;
	}
	puts("ready");
	fflush(stdout);
	return uv_run(loop, UV_RUN_DEFAULT);
}
