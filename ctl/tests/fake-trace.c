/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A part of the fake daemon for tests of gpuprobectl. The fake daemon's traces. A call is told what
 * to play by its cgroup, a path of a file: its bytes are sent as they are, so many in a reply as
 * the name says ("x.100"; else all), lines of FILE.missing are `missing` of the first one, and
 * those of FILE.later of the second. What comes behind them follows from the name: "follow" in it,
 * nothing, for ever; "last", the end of the call with the rest of the file as soon as none of its
 * processes lives; else the end. "/echo" says what it was asked for, "/error/NAME" is that error,
 * "/hangup" ends the connection after the first reply.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "fake-daemon.h"
#include "proto/trace.h"
#include "lib/varlink/varlink-json.h"
#include "lib/varlink/varlink-server.h"

#define ERROR(name) "io.gpuprobe.control." name
#define REPLY_SIZE ((size_t)1 << 20)

/* A call in work; it lives as long as the process. */
struct play {
	struct varlink_call *call;
	unsigned char *bytes;
	size_t n, at, portion;
	bool follow, last, hangup, started;
	json_object *missing, *later, *pids;
	uv_timer_t timer;
};

static json_object *get(json_object *object, const char *key) {
	json_object *value = NULL;

	json_object_object_get_ex(object, key, &value);
	return value;
}

/* The next records; the first reply of a call that waits for its processes has the beginning only.
 */
static json_object *next_reply(struct play *play) {
	size_t portion = play->last && !play->started ? sizeof(struct trace_start) : play->portion;
	size_t n = play->n - play->at < portion ? play->n - play->at : portion;
	char *text = malloc(base64_encoded_size(n));
	json_object *reply;

	base64_encode(text, play->bytes + play->at, n);
	play->at += n;
	reply = varlink_json_pack("records", json_object_new_string(text), "missing",
				  play->started ? play->later : play->missing, NULL);
	if (play->started)
		play->later = NULL;
	play->started = true;
	free(text);
	return reply;
}

static bool is_alive(const struct play *play) {
	for (size_t i = 0; play->pids && i < json_object_array_length(play->pids); i++)
		if (kill((pid_t)json_object_get_int64(json_object_array_get_idx(play->pids, i)),
			 0) == 0)
			return true;
	return false;
}

static int produce(struct varlink_call *call, void *userdata) {
	struct play *play = userdata;

	if (play->started && play->hangup)
		return -EIO;
	if (play->started && play->last && is_alive(play))
		return VARLINK_PRODUCE_IDLE;
	if (play->at < play->n || !play->started) {
		json_object *reply = next_reply(play);

		if (play->at == play->n && !play->follow && !play->last && !play->hangup) {
			uv_timer_stop(&play->timer);
			return varlink_call_reply(call, reply);
		}
		return varlink_call_continue(call, reply);
	}
	if (play->follow)
		return VARLINK_PRODUCE_IDLE;
	uv_timer_stop(&play->timer);
	return varlink_call_reply(call,
				  varlink_json_pack("records", json_object_new_string(""), NULL));
}

static void wake(uv_timer_t *timer) {
	struct play *play = timer->data;

	varlink_call_wake(play->call);
}

static json_object *read_lines(const char *path, const char *ending) {
	json_object *lines = NULL;
	char name[4096], line[512];
	FILE *file;

	snprintf(name, sizeof(name), "%s.%s", path, ending);
	file = fopen(name, "re");
	while (file && fgets(line, sizeof(line), file)) {
		lines = lines ?: json_object_new_array();
		line[strcspn(line, "\n")] = '\0';
		json_object_array_add(lines, json_object_new_string(line));
	}
	if (file)
		fclose(file);
	return lines;
}

static int play_file(struct varlink_call *call, json_object *parameters, const char *path) {
	struct play *play = calloc(1, sizeof(*play));
	const char *name = strrchr(path, '/'), *dot = strrchr(path, '.');
	FILE *file = fopen(path, "re");

	if (file) {
		play->bytes = malloc((size_t)64 << 20);
		play->n = fread(play->bytes, 1, (size_t)64 << 20, file);
		fclose(file);
	}
	play->call = varlink_call_ref(call);
	play->portion = dot && atoi(dot + 1) > 0 ? (size_t)atoi(dot + 1) : REPLY_SIZE;
	play->follow = strstr(name, "follow");
	play->last = strstr(name, "last");
	play->hangup = !strcmp(path, "/hangup");
	play->missing = read_lines(path, "missing");
	play->later = read_lines(path, "later");
	play->pids = json_object_get(get(parameters, "pids"));
	uv_timer_init(uv_default_loop(), &play->timer);
	play->timer.data = play;
	uv_timer_start(&play->timer, wake, 10, 10);
	varlink_call_set_userdata(call, play);
	return varlink_call_stream(call, produce);
}

static int play_error(struct varlink_call *call, const char *name) {
	char error[128];

	snprintf(error, sizeof(error), ERROR("%s"), name);
	if (!strcmp(name, "InvalidArgument"))
		return varlink_call_error(
			call, error,
			varlink_json_pack(
				"parameter", json_object_new_string("calls"), "reason",
				json_object_new_string("cuFoo: no function has that name"), NULL));
	if (!strcmp(name, "NotFound"))
		return varlink_call_error(
			call, error,
			varlink_json_pack("what", json_object_new_string("process 7"), NULL));
	return varlink_call_error(call, error,
				  varlink_json_pack("reason", json_object_new_string("not today"),
						    NULL));
}

int fake_trace(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *cgroup = get(parameters, "cgroup");
	const char *path = cgroup ? json_object_get_string(cgroup) : getenv("FAKE_TRACE");

	if (path && !strcmp(path, "/echo"))
		path = NULL;
	if (path && !strncmp(path, "/error/", 7))
		return play_error(call, path + 7);
	if (path)
		return play_file(call, parameters, path);
	json_object_object_del(parameters, "cgroup");
	return varlink_call_error(
		call, ERROR("Internal"),
		varlink_json_pack("reason",
				  json_object_new_string(json_object_to_json_string_ext(
					  parameters, JSON_C_TO_STRING_PLAIN)),
				  NULL));
}

int fake_list_hooks(struct varlink_call *call, json_object *parameters, void *userdata) {
	static const char text[] = "[{\"name\":\"ioctl\",\"set\":\"driver\",\"purpose\":\"ioctls "
				   "of NVIDIA's devices\",\"arguments\":[],\"state\":\"attached\","
				   "\"method\":\"raw-tracepoint\",\"target\":\"sys_enter\","
				   "\"reason\":\"no kprobes here\",\"hits\":12},"
				   "{\"name\":\"xid\",\"set\":\"driver\",\"purpose\":\"errors of "
				   "the GPU\",\"arguments\":[\"code:u32\"],\"state\":\"available\","
				   "\"method\":\"tracepoint\",\"target\":\"nvidia:nvidia_dev_xid\","
				   "\"reason\":\"\",\"hits\":0},"
				   "{\"name\":\"nvidia:rm_\\u001bioctl\",\"set\":\"gsp\","
				   "\"purpose\":\"RM\",\"arguments\":[],\"state\":\"unavailable\","
				   "\"method\":\"kprobe\",\"target\":\"\",\"reason\":\"this kernel "
				   "has no kprobes\",\"hits\":0}]";
	json_object *pattern = get(parameters, "pattern"), *hooks, *all;
	const char *name = pattern ? json_object_get_string(pattern) : NULL;

	if (name && strlen(name) > 255)
		return varlink_call_error(
			call, ERROR("InvalidArgument"),
			varlink_json_pack("parameter", json_object_new_string("pattern"), "reason",
					  json_object_new_string("longer than 255 bytes"), NULL));
	if (varlink_json_parse(&all, text, strlen(text)))
		abort();
	hooks = json_object_new_array();
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		json_object *hook = json_object_array_get_idx(all, i);

		if (!name || strchr(name, '*') ||
		    !strcmp(name, json_object_get_string(get(hook, "name"))) ||
		    !strcmp(name, json_object_get_string(get(hook, "set"))))
			json_object_array_add(hooks, json_object_get(hook));
	}
	json_object_put(all);
	return varlink_call_reply(call, varlink_json_pack("hooks", hooks, NULL));
}
