/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The test of org.varlink.certification, both roles in one program:
 *
 *     certification server SOCKET     serves until SIGTERM
 *     certification client SOCKET     calls everything once, in order; exit status 0 if the service
 * was content
 *
 * The service has a table: what a method must be given, and what it returns. A client is known by
 * its id, and must call in order. The client passes on what it got.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "varlink-client.h"
#include "varlink-idl.h"
#include "varlink-json.h"
#include "varlink-server.h"

#define INTERFACE "org.varlink.certification"
#define STRUCT "{\"bool\":false,\"int\":2,\"float\":3.14,\"string\":\"a lot of string\"}"
#define MAP "{\"bar\":\"Bar\",\"foo\":\"Foo\"}"
#define SET "{\"one\":{},\"two\":{},\"three\":{}}"
#define MYTYPE                                                                                 \
	"{\"object\":{\"method\":\"" INTERFACE ".Test09\",\"parameters\":{\"map\":" MAP        \
	"}},\"enum\":\"two\","                                                                 \
	"\"struct\":{\"first\":1,\"second\":\"2\"},\"array\":[\"one\",\"two\",\"three\"],"     \
	"\"dictionary\":" MAP ","                                                              \
	"\"stringset\":" SET                                                                   \
	",\"nullable\":null,\"nullable_array_struct\":null,\"interface\":{\"foo\":[null,"      \
	"{\"foo\":\"foo\",\"bar\":\"bar\"},null,{\"one\":\"foo\",\"two\":\"bar\"}],\"anon\":{" \
	"\"foo\":true,\"bar\":false}}}"
#define N_MORE 10
#define N_CLIENTS 16

extern const char varlink_org_varlink_certification[];

static const struct {
	const char *method, *takes, *returns;
} steps[] = {
	{ "Test01", "{}", "{\"bool\":true}" },
	{ "Test02", "{\"bool\":true}", "{\"int\":1}" },
	{ "Test03", "{\"int\":1}", "{\"float\":1.0}" },
	{ "Test04", "{\"float\":1.0}", "{\"string\":\"ping\"}" },
	{ "Test05", "{\"string\":\"ping\"}", STRUCT },
	{ "Test06", STRUCT, "{\"struct\":" STRUCT "}" },
	{ "Test07", "{\"struct\":" STRUCT "}", "{\"map\":" MAP "}" },
	{ "Test08", "{\"map\":" MAP "}", "{\"set\":" SET "}" },
	{ "Test09", "{\"set\":" SET "}", "{\"mytype\":" MYTYPE "}" },
	{ "Test10", "{\"mytype\":" MYTYPE "}", NULL },
	{ "Test11", NULL, "{}" },
};

#define N_STEPS (sizeof(steps) / sizeof(*steps))

struct service {
	unsigned int n_started;
	struct {
		unsigned int id;
		size_t next; /* index in steps */
	} clients[N_CLIENTS];
};

static json_object *from_text(const char *text) {
	json_object *value;

	if (varlink_json_parse(&value, text, strlen(text)))
		abort();
	return value;
}

/* Whether two values mean the same: 1 is 1.0, and an absent member is null. */
static bool same(json_object *a, json_object *b) {
	if (!a || !b)
		return a == b;
	if (json_object_is_type(a, json_type_double) || json_object_is_type(b, json_type_double))
		return json_object_get_double(a) == json_object_get_double(b);
	if (json_object_get_type(a) != json_object_get_type(b))
		return false;
	if (json_object_is_type(a, json_type_array)) {
		if (json_object_array_length(a) != json_object_array_length(b))
			return false;
		for (size_t i = 0; i < json_object_array_length(a); i++)
			if (!same(json_object_array_get_idx(a, i), json_object_array_get_idx(b, i)))
				return false;
		return true;
	}
	if (json_object_is_type(a, json_type_object)) {
		json_object_object_foreach(a, key_a, value_a) {
			if (!same(value_a, json_object_object_get(b, key_a)))
				return false;
		}
		json_object_object_foreach(b, key_b, value_b) {
			if (!same(value_b, json_object_object_get(a, key_b)))
				return false;
		}
		return true;
	}
	return json_object_equal(a, b);
}

/* What @step must be given, without the id. */
static json_object *wanted(size_t step) {
	json_object *value, *replies;
	char text[64];

	if (steps[step].takes)
		return from_text(steps[step].takes);
	replies = json_object_new_array();
	for (int i = 1; i <= N_MORE; i++) {
		snprintf(text, sizeof(text), "Reply number %d", i);
		json_object_array_add(replies, json_object_new_string(text));
	}
	value = varlink_json_pack("last_more_replies", replies, NULL);
	return value;
}

static int start(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct service *service = userdata;
	unsigned int id = ++service->n_started;
	char text[16];

	service->clients[id % N_CLIENTS].id = id;
	service->clients[id % N_CLIENTS].next = 0;
	snprintf(text, sizeof(text), "%u", id);
	return varlink_call_reply(call, varlink_json_pack("client_id", json_object_new_string(text),
							  NULL));
}

/*
 * Finds the client of a call, and takes its id out of the parameters. Returns NULL after it has
 * answered.
 */
static size_t *find_client(struct varlink_call *call, struct service *service,
			   json_object *parameters) {
	unsigned long id = strtoul(
		json_object_get_string(json_object_object_get(parameters, "client_id")), NULL, 10);

	if (id == 0 || service->clients[id % N_CLIENTS].id != id) {
		varlink_call_error(call, INTERFACE ".ClientIdError", NULL);
		return NULL;
	}
	json_object_object_del(parameters, "client_id");
	return &service->clients[id % N_CLIENTS].next;
}

/* Sends one of the replies of Test10; the call's userdata is how many there were. */
static int produce(struct varlink_call *call, void *userdata) {
	size_t n = (size_t)userdata + 1;
	json_object *parameters;
	char text[64];

	snprintf(text, sizeof(text), "Reply number %zu", n);
	parameters = varlink_json_pack("string", json_object_new_string(text), NULL);
	if (n == N_MORE)
		return varlink_call_reply(call, parameters);
	varlink_call_set_userdata(call, (void *)n);
	return varlink_call_continue(call, parameters);
}

static int test(struct varlink_call *call, json_object *parameters, void *userdata) {
	const char *name = strrchr(varlink_call_method(call), '.') + 1;
	size_t *next = find_client(call, userdata, parameters);
	size_t step = strtoul(name + strlen("Test"), NULL, 10) - 1;
	json_object *wants;

	if (!next)
		return 0;
	wants = wanted(step);
	if (*next != step || !same(wants, parameters) ||
	    varlink_call_more(call) != !strcmp(name, "Test10") ||
	    varlink_call_oneway(call) != !strcmp(name, "Test11")) {
		fprintf(stderr, "%s: wants %s\n", name, json_object_to_json_string(wants));
		fprintf(stderr, "%s: got   %s\n", name, json_object_to_json_string(parameters));
		return varlink_call_error(call, INTERFACE ".CertificationError",
					  varlink_json_pack("wants", wants, "got",
							    json_object_get(parameters), NULL));
	}
	json_object_put(wants);
	++*next;
	return steps[step].returns ? varlink_call_reply(call, from_text(steps[step].returns))
				   : varlink_call_stream(call, produce);
}

static int end(struct varlink_call *call, json_object *parameters, void *userdata) {
	size_t *next = find_client(call, userdata, parameters);

	if (!next)
		return 0;
	return varlink_call_reply(
		call, varlink_json_pack("all_ok", json_object_new_boolean(*next == N_STEPS), NULL));
}

static const struct varlink_method methods[] = {
	{ "Start", start },
	{ "Test01", test },
	{ "Test02", test },
	{ "Test03", test },
	{ "Test04", test },
	{ "Test05", test },
	{ "Test06", test },
	{ "Test07", test },
	{ "Test08", test },
	{ "Test09", test },
	{ "Test10", test, VARLINK_METHOD_MORE_ONLY },
	{ "Test11", test },
	{ "End", end },
	{},
};

static void on_signal(uv_signal_t *handle, int number) {
	varlink_server_free(handle->data);
	uv_close((uv_handle_t *)handle, NULL);
}

static int serve(const char *path) {
	struct service service = {};
	struct varlink_server *server;
	struct varlink_fault fault;
	uv_loop_t loop;
	uv_signal_t sigterm;
	int r;

	if (uv_loop_init(&loop) < 0)
		return EXIT_FAILURE;
	r = varlink_server_new(&server, &loop,
			       &(struct varlink_server_options){
				       .size = sizeof(struct varlink_server_options),
				       .vendor = "gpuprobe",
				       .product = "certification",
				       .version = PROJECT_VERSION,
				       .url = "https://varlink.org",
			       });
	if (!r)
		r = varlink_server_add_interface(server, varlink_org_varlink_certification, methods,
						 &service, &fault);
	if (!r)
		r = varlink_server_listen(server, path, 0600);
	if (r) {
		fprintf(stderr, "%s: %s\n", path, r < 0 ? strerror(-r) : fault.reason);
		return EXIT_FAILURE;
	}
	uv_signal_init(&loop, &sigterm);
	sigterm.data = server;
	uv_signal_start(&sigterm, on_signal, SIGTERM);
	puts("ready");
	fflush(stdout);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Says what went wrong with a call. */
static int report(const char *method, int r, struct varlink_reply *reply) {
	if (r > 0)
		fprintf(stderr, "%s: %s %s\n", method, reply->error,
			json_object_to_json_string(reply->parameters));
	else
		fprintf(stderr, "%s: %s\n", method, strerror(-r));
	return EXIT_FAILURE;
}

/* Collects the replies of Test10 in an array. */
static int collect(struct varlink_client *client, const char *method,
		   json_object *consume_parameters, json_object *replies,
		   struct varlink_reply *reply) {
	int r;

	r = varlink_client_call_more(client, method, consume_parameters);
	while (!r) {
		r = varlink_client_next(client, reply);
		if (!r) {
			bool continues = reply->continues;

			json_object_array_add(replies, json_object_get(json_object_object_get(
							       reply->parameters, "string")));
			varlink_reply_deinit(reply);
			if (!continues)
				return 0;
		}
	}
	return r;
}

static int ask(const char *path) {
	struct varlink_client *client;
	struct varlink_reply reply = {};
	json_object *id, *parameters, *all_ok = NULL;
	char method[64];
	int r;

	r = varlink_client_connect(&client, path, 10000);
	if (r)
		return report(path, r, NULL);
	r = varlink_client_call(client, INTERFACE ".Start", NULL, &reply);
	if (r)
		return report("Start", r, &reply);
	id = json_object_get(json_object_object_get(reply.parameters, "client_id"));
	varlink_reply_deinit(&reply);
	parameters = json_object_new_object();
	for (size_t i = 0; i < N_STEPS; i++) {
		snprintf(method, sizeof(method), INTERFACE ".%s", steps[i].method);
		json_object_object_add(parameters, "client_id", json_object_get(id));
		if (!strcmp(steps[i].method, "Test10")) {
			json_object *replies = json_object_new_array();

			r = collect(client, method, parameters, replies, &reply);
			parameters = varlink_json_pack("last_more_replies", replies, NULL);
		} else if (!strcmp(steps[i].method, "Test11")) {
			r = varlink_client_call_oneway(client, method, parameters);
		} else {
			r = varlink_client_call(client, method, parameters, &reply);
			if (!r)
				parameters = json_object_get(reply.parameters);
		}
		if (r)
			return report(method, r, &reply);
		varlink_reply_deinit(&reply);
	}
	r = varlink_client_call(client, INTERFACE ".End", varlink_json_pack("client_id", id, NULL),
				&reply);
	if (r)
		return report("End", r, &reply);
	json_object_object_get_ex(reply.parameters, "all_ok", &all_ok);
	r = json_object_get_boolean(all_ok) ? EXIT_SUCCESS : EXIT_FAILURE;
	puts(r ? "not certified" : "certified");
	varlink_reply_deinit(&reply);
	varlink_client_free(client);
	return r;
}

int main(int argc, char **argv) {
	if (argc == 3 && !strcmp(argv[1], "server"))
		return serve(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "client"))
		return ask(argv[2]);
	fprintf(stderr, "usage: certification server|client SOCKET\n");
	return 2;
}
