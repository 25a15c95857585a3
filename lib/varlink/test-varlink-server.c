/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the varlink server, with clients that behave and clients that do not. Server and
 * client are in one thread: whenever the client waits, the loop runs.
 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "varlink-idl.h"
#include "varlink-json.h"
#include "varlink-server.h"

static const char interface[] =
	"interface org.example.test\n"
	"method Echo(text: string, number: ?int) -> (text: string, number: ?int)\n"
	"method Later() -> ()\n"
	"method Count(n: int, size: int) -> (i: int, padding: string)\n"
	"method Watch() -> (i: int)\n"
	"method Missing() -> ()\n"
	"method Wrong() -> (i: int)\n"
	"method Forget() -> ()\n"
	"method Fail() -> ()\n"
	"method Who() -> (uid: int, pid: int, mine: bool, other: bool)\n"
	"method Refuse(how: string) -> ()\n"
	"method Burst(how: string) -> (text: string)\n"
	"method Slow(who: string) -> ()\n"
	"method Work() -> ()\n"
	"method Gather(who: string) -> ()\n"
	"error Refused (how: string)\n";

struct fixture {
	uv_loop_t loop;
	struct varlink_server *server;
	char path[64];
	struct varlink_call *later; /* a reference, of Later and Watch */
	unsigned int n_cancelled, n_produced, n_echoed, n_closed, n_behind;
	size_t n_count, count_max, count_size;
	bool idle;
	int wrong; /* what the first answer of Wrong gave */
	const char *burst;
	char slow[16]; /* whose calls of Slow and Gather ran, in their order */
	unsigned int n_worked;
};

static int echo(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct fixture *fixture = userdata;

	fixture->n_echoed++;
	return varlink_call_reply(call, json_object_get(parameters));
}

static void on_cancel(struct varlink_call *call, void *userdata) {
	struct fixture *fixture = userdata;

	fixture->n_cancelled++;
	if (fixture->later == call)
		fixture->later = varlink_call_unref(call);
}

static int later(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct fixture *fixture = userdata;

	varlink_call_set_userdata(call, fixture);
	varlink_call_on_cancel(call, on_cancel);
	fixture->later = varlink_call_ref(call);
	return 0;
}

static int produce_count(struct varlink_call *call, void *userdata) {
	struct fixture *fixture = userdata;
	char *padding = malloc(fixture->count_size + 1);
	json_object *parameters;
	int r;

	memset(padding, 'x', fixture->count_size);
	padding[fixture->count_size] = '\0';
	parameters = varlink_json_pack("i", json_object_new_int64((int64_t)fixture->n_count),
				       "padding", json_object_new_string(padding), NULL);
	free(padding);
	fixture->n_produced++;
	if (++fixture->n_count == fixture->count_max)
		return varlink_call_reply(call, parameters);
	r = varlink_call_continue(call, parameters);
	assert_int_equal(r, 0);
	return r;
}

static int count(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct fixture *fixture = userdata;

	fixture->n_count = 0;
	fixture->count_max = (size_t)json_object_get_int64(json_object_object_get(parameters, "n"));
	fixture->count_size =
		(size_t)json_object_get_int64(json_object_object_get(parameters, "size"));
	varlink_call_set_userdata(call, fixture);
	varlink_call_on_cancel(call, on_cancel);
	return varlink_call_stream(call, produce_count);
}

/* Says one number each time it is woken. */
static int produce_watch(struct varlink_call *call, void *userdata) {
	struct fixture *fixture = userdata;

	if (fixture->idle)
		return VARLINK_PRODUCE_IDLE;
	fixture->idle = true;
	return varlink_call_continue(
		call,
		varlink_json_pack("i", json_object_new_int64((int64_t)++fixture->n_count), NULL));
}

static int watch(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct fixture *fixture = userdata;

	later(call, parameters, userdata);
	fixture->idle = true;
	return varlink_call_stream(call, produce_watch);
}

static int wrong(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct fixture *fixture = userdata;

	fixture->wrong =
		varlink_call_reply(call, varlink_json_pack("i", json_object_new_string("1"), NULL));
	assert_string_equal(varlink_call_fault(call)->field, "i");
	assert_int_equal(varlink_call_error(call, "org.example.test.Nonsense", NULL),
			 VARLINK_E_INVALID);
	assert_int_equal(varlink_call_error(call, "org.example.test.Refused", NULL),
			 VARLINK_E_INVALID);
	assert_int_equal(varlink_call_continue(call, NULL), VARLINK_E_SINGLE);
	assert_int_equal(varlink_call_stream(call, produce_watch), VARLINK_E_SINGLE);
	assert_int_equal(
		varlink_call_reply(call, varlink_json_pack("i", json_object_new_int(1), NULL)), 0);
	return varlink_call_reply(call, NULL) == VARLINK_E_DONE ? 0 : -EIO;
}

static int forget(struct varlink_call *call, json_object *parameters, void *userdata) {
	return 0;
}

static int fail_handler(struct varlink_call *call, json_object *parameters, void *userdata) {
	return -EIO;
}

static int who(struct varlink_call *call, json_object *parameters, void *userdata) {
	const struct varlink_peer *peer = varlink_call_peer(call);

	return varlink_call_reply(
		call,
		varlink_json_pack(
			"uid", json_object_new_int64(peer->uid), "pid",
			json_object_new_int64(peer->pid), "mine",
			json_object_new_boolean(varlink_call_peer_in_group(call, getgid())),
			"other",
			json_object_new_boolean(varlink_call_peer_in_group(call, 4294967000U)),
			NULL));
}

static int refuse(struct varlink_call *call, json_object *parameters, void *userdata) {
	if (!strcmp(json_object_get_string(json_object_object_get(parameters, "how")),
		    "permission"))
		return varlink_call_permission_denied(call);
	return varlink_call_error(call, "org.example.test.Refused", json_object_get(parameters));
}

/* Answers with more than the user's bytes, and learns of that by the return value alone. */
static int produce_burst(struct varlink_call *call, void *userdata) {
	struct fixture *fixture = userdata;
	size_t n_text = 8 * 1024 * 1024;
	char *text = malloc(n_text);
	json_object *value;
	int r;

	memset(text, 'x', n_text);
	value = json_object_new_string_len(text, (int)n_text);
	free(text);
	if (!strcmp(fixture->burst, "error"))
		r = varlink_call_error(call, "org.example.test.Refused",
				       varlink_json_pack("how", value, NULL));
	else if (!strcmp(fixture->burst, "continue"))
		r = varlink_call_continue(call, varlink_json_pack("text", value, NULL));
	else
		r = varlink_call_reply(call, varlink_json_pack("text", value, NULL));
	assert_int_equal(r, -EDQUOT);
	assert_int_equal(fixture->n_cancelled, 0);
	assert_int_equal(varlink_call_reply(call, NULL), VARLINK_E_DISCONNECTED);
	fixture->later = varlink_call_unref(fixture->later);
	return r;
}

static int burst(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct fixture *fixture = userdata;

	fixture->burst = json_object_get_string(json_object_object_get(parameters, "how"));
	later(call, parameters, userdata);
	/* at once, in a stream, or when the test says so */
	if (!strcmp(fixture->burst, "at once"))
		return produce_burst(call, userdata);
	return varlink_call_more(call) ? varlink_call_stream(call, produce_burst) : 0;
}

#define SLOW_US 3000 /* more than a user's part of a turn */

static int slow(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct fixture *fixture = userdata;

	usleep(SLOW_US);
	assert_true(strlen(fixture->slow) + 1 < sizeof(fixture->slow));
	strcat(fixture->slow, json_object_get_string(json_object_object_get(parameters, "who")));
	return varlink_call_reply(call, NULL);
}

/* Works in three parts before it answers. */
static int produce_work(struct varlink_call *call, void *userdata) {
	struct fixture *fixture = userdata;

	usleep(SLOW_US);
	if (++fixture->n_worked % 3)
		return VARLINK_PRODUCE_AGAIN;
	return varlink_call_reply(call, NULL);
}

static int work(struct varlink_call *call, json_object *parameters, void *userdata) {
	varlink_call_set_userdata(call, userdata);
	varlink_call_on_cancel(call, on_cancel);
	return varlink_call_work(call, produce_work);
}

static int produce_gather(struct varlink_call *call, void *userdata) {
	struct fixture *fixture = userdata;
	json_object *who = NULL;

	json_object_object_get_ex(varlink_call_parameters(call), "who", &who);
	strcat(fixture->slow, json_object_get_string(who));
	return fixture->idle ? VARLINK_PRODUCE_IDLE : varlink_call_reply(call, NULL);
}

static int gather(struct varlink_call *call, json_object *parameters, void *userdata) {
	varlink_call_set_userdata(call, userdata);
	varlink_call_on_cancel(call, on_cancel);
	return varlink_call_gather(call, produce_gather);
}

static const struct varlink_method methods[] = {
	{ "Echo", echo },         { "Later", later },
	{ "Count", count },       { "Watch", watch, VARLINK_METHOD_MORE_ONLY },
	{ "Wrong", wrong },       { "Forget", forget },
	{ "Fail", fail_handler }, { "Who", who },
	{ "Refuse", refuse },     { "Burst", burst },
	{ "Slow", slow },         { "Work", work },
	{ "Gather", gather },     {},
};

static void close_socket(int consumed_fd, void *userdata) {
	struct fixture *fixture = userdata;

	fixture->n_closed++;
	close(consumed_fd);
}

static bool is_behind(void *userdata) {
	struct fixture *fixture = userdata;

	return fixture->n_behind && fixture->n_behind--;
}

static int setup(void **state) {
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	struct varlink_fault fault;

	assert_int_equal(uv_loop_init(&fixture->loop), 0);
	assert_int_equal(varlink_server_new(&fixture->server, &fixture->loop,
					    &(struct varlink_server_options){
						    .size = sizeof(struct varlink_server_options),
						    .vendor = "v",
						    .product = "p",
						    .version = "1",
						    .url = "u",
						    .connections_per_uid_max = 8,
						    .message_max = 1024 * 1024,
						    .output_mark = 64 * 1024,
						    .bytes_per_uid_max = 7680 * 1024,
						    .stall_ms = 500,
						    .close_socket = close_socket,
						    .is_behind = is_behind,
						    .userdata = fixture }),
			 0);
	assert_int_equal(varlink_server_add_interface(fixture->server, interface, methods, fixture,
						      &fault),
			 0);
	snprintf(fixture->path, sizeof(fixture->path), "/tmp/test-varlink-%d", getpid());
	assert_int_equal(varlink_server_listen(fixture->server, fixture->path, 0600), 0);
	*state = fixture;
	return 0;
}

/* The server must go without anything left in the loop, whatever the test did to it. */
static int teardown(void **state) {
	struct fixture *fixture = *state;

	varlink_server_free(fixture->server);
	assert_int_equal(access(fixture->path, F_OK), -1);
	uv_run(&fixture->loop, UV_RUN_DEFAULT);
	assert_null(fixture->later);
	assert_int_equal(uv_loop_close(&fixture->loop), 0);
	free(fixture);
	return 0;
}

static int dial(struct fixture *fixture) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, fixture->path);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static int64_t now_ms(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Runs the loop for a while. */
static void spin(struct fixture *fixture, int ms) {
	for (int64_t end = now_ms() + ms; now_ms() < end;) {
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
		usleep(500);
	}
}

static void send_bytes(struct fixture *fixture, int fd, const char *bytes, size_t n_bytes) {
	while (n_bytes > 0) {
		ssize_t n = send(fd, bytes, n_bytes, MSG_NOSIGNAL);

		if (n < 0) {
			assert_int_equal(errno, EAGAIN);
			n = 0;
		}
		bytes += n;
		n_bytes -= n;
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	}
}

/* Sends a text with its NUL. */
static void send_text(struct fixture *fixture, int fd, const char *text) {
	send_bytes(fixture, fd, text, strlen(text) + 1);
}

/* Receives one message into a static buffer. NULL: the server hung up. */
static const char *receive(struct fixture *fixture, int fd) {
	static char text[2 * 1024 * 1024];
	int64_t end = now_ms() + 5000;
	size_t n_text = 0;

	while (now_ms() < end) {
		ssize_t n = recv(fd, text + n_text, 1, 0);

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return NULL;
		if (n < 0) {
			uv_run(&fixture->loop, UV_RUN_NOWAIT);
			continue;
		}
		if (!text[n_text++])
			return text;
	}
	fail_msg("no answer in 5 s");
	return NULL;
}

static void expect(struct fixture *fixture, int fd, const char *call, const char *reply) {
	const char *text;

	if (call)
		send_text(fixture, fd, call);
	text = receive(fixture, fd);
	if (!text != !reply || (text && strcmp(text, reply)))
		fail_msg("%s: %s, expected %s", call, text, reply);
}

#define CALL(method, parameters) \
	"{\"method\":\"org.example.test." method "\",\"parameters\":" parameters "}"
#define MORE(method, parameters) \
	"{\"method\":\"org.example.test." method "\",\"parameters\":" parameters ",\"more\":true}"
#define ONEWAY(method, parameters)                                                              \
	"{\"method\":\"org.example.test." method "\",\"parameters\":" parameters ",\"oneway\":" \
	"true}"
#define ERROR(name, key, value) \
	"{\"error\":\"org.varlink.service." name "\",\"parameters\":{\"" key "\":\"" value "\"}}"
#define OK "{\"parameters\":{}}"
#define HI "{\"parameters\":{\"text\":\"hi\"}}"

static void test_service(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);

	expect(fixture, fd, "{\"method\":\"org.varlink.service.GetInfo\"}",
	       "{\"parameters\":{\"vendor\":\"v\",\"product\":\"p\",\"version\":\"1\",\"url\":"
	       "\"u\","
	       "\"interfaces\":[\"org.varlink.service\",\"org.example.test\"]}}");
	send_text(fixture, fd,
		  "{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":"
		  "{\"interface\":\"org.example.test\"}}");
	assert_non_null(strstr(
		receive(fixture, fd),
		"{\"parameters\":{\"description\":\"interface org.example.test\\nmethod Echo("));
	expect(fixture, fd,
	       "{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{"
	       "\"interface\":\"a.b\"}}",
	       ERROR("InterfaceNotFound", "interface", "a.b"));
	close(fd);
}

static void test_errors(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);

	expect(fixture, fd, "{\"method\":\"org.nowhere.Do\"}",
	       ERROR("InterfaceNotFound", "interface", "org.nowhere"));
	expect(fixture, fd, CALL("Nothing", "{}"),
	       ERROR("MethodNotFound", "method", "org.example.test.Nothing"));
	expect(fixture, fd, CALL("Missing", "{}"),
	       ERROR("MethodNotImplemented", "method", "org.example.test.Missing"));
	expect(fixture, fd, "{\"method\":\"Echo\"}",
	       ERROR("InvalidParameter", "parameter", "method"));
	expect(fixture, fd, CALL("Echo", "{\"text\":1}"),
	       ERROR("InvalidParameter", "parameter", "text"));
	expect(fixture, fd, CALL("Echo", "{}"), ERROR("InvalidParameter", "parameter", "text"));
	expect(fixture, fd, CALL("Echo", "null"), ERROR("InvalidParameter", "parameter", "text"));
	expect(fixture, fd, CALL("Echo", "{\"text\":\"\",\"x\":null}"),
	       ERROR("InvalidParameter", "parameter", "x"));
	expect(fixture, fd, CALL("Watch", "{}"),
	       "{\"error\":\"org.varlink.service.ExpectedMore\",\"parameters\":{}}");
	expect(fixture, fd, "{\"method\":\"org.example.test.Later\",\"upgrade\":true}",
	       ERROR("InvalidParameter", "parameter", "upgrade"));
	expect(fixture, fd, CALL("Refuse", "{\"how\":\"permission\"}"),
	       "{\"error\":\"org.varlink.service.PermissionDenied\",\"parameters\":{}}");
	expect(fixture, fd, CALL("Refuse", "{\"how\":\"x\"}"),
	       "{\"error\":\"org.example.test.Refused\",\"parameters\":{\"how\":\"x\"}}");
	expect(fixture, fd, CALL("Wrong", "{}"), "{\"parameters\":{\"i\":1}}");
	assert_int_equal(fixture->wrong, VARLINK_E_INVALID);
	close(fd);
}

/*
 * All nullable parameters may be left out or null; `parameters` too where there is nothing to say.
 */
static void test_parameters(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);

	expect(fixture, fd, CALL("Echo", "{\"text\":\"hi\"}"), HI);
	expect(fixture, fd, CALL("Echo", "{\"text\":\"hi\",\"number\":null}"),
	       "{\"parameters\":{\"text\":\"hi\",\"number\":null}}");
	expect(fixture, fd, CALL("Echo", "{\"number\":-5,\"text\":\"\\u00e9/\"}"),
	       "{\"parameters\":{\"number\":-5,\"text\":\"\xc3\xa9/\"}}");
	expect(fixture, fd,
	       " { \"method\" : \"org.example.test.Echo\" , \"more\" : true, "
	       "\"parameters\":{\"text\":\"hi\"} } \n",
	       HI);
	close(fd);
}

static void test_peer(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);
	char expected[128];

	snprintf(expected, sizeof(expected),
		 "{\"parameters\":{\"uid\":%u,\"pid\":%d,\"mine\":true,\"other\":false}}", getuid(),
		 getpid());
	expect(fixture, fd, CALL("Who", "{}"), expected);
	close(fd);
}

/*
 * A handler that fails, or forgets the call, costs the client the connection, not the others
 * theirs.
 */
static void test_handler_fails(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture), other = dial(fixture);

	expect(fixture, fd, CALL("Fail", "{}"), NULL);
	close(fd);
	fd = dial(fixture);
	expect(fixture, fd, CALL("Forget", "{}"), NULL);
	close(fd);
	expect(fixture, other, CALL("Echo", "{\"text\":\"hi\"}"), HI);
	close(other);
}

static void test_oneway(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);

	send_text(fixture, fd, ONEWAY("Echo", "{\"text\":\"unheard\"}"));
	send_text(fixture, fd, ONEWAY("Nothing", "{}"));
	send_text(fixture, fd, ONEWAY("Forget", "{}"));
	expect(fixture, fd, CALL("Echo", "{\"text\":\"hi\"}"), HI);
	assert_int_equal(fixture->n_echoed, 2);

	/* a oneway call that is answered later holds up those behind it, and outlives its client */
	send_text(fixture, fd, ONEWAY("Later", "{}"));
	send_text(fixture, fd, ONEWAY("Echo", "{\"text\":\"hi\"}"));
	close(fd);
	spin(fixture, 20);
	assert_non_null(fixture->later);
	assert_int_equal(fixture->n_echoed, 2);
	assert_int_equal(varlink_call_reply(fixture->later, NULL), 0);
	fixture->later = varlink_call_unref(fixture->later);
	spin(fixture, 20);
	assert_int_equal(fixture->n_echoed, 3);
	assert_int_equal(fixture->n_cancelled, 0);
	assert_int_equal(varlink_server_connections(fixture->server), 0);

	/* also if the client has not read all answers: that is a reset, and no end */
	fd = dial(fixture);
	send_text(fixture, fd, CALL("Echo", "{\"text\":\"hi\"}"));
	send_text(fixture, fd, ONEWAY("Later", "{}"));
	spin(fixture, 5);
	close(fd);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 0);
	assert_non_null(fixture->later);
	assert_int_equal(varlink_call_reply(fixture->later, NULL), 0);
	fixture->later = varlink_call_unref(fixture->later);
	spin(fixture, 20);
	assert_int_equal(varlink_server_connections(fixture->server), 0);
}

/* Calls that were sent ahead are answered in order, also when the first one takes its time. */
static void test_pipelined(void **state) {
	struct fixture *fixture = *state;
	static char calls[] = CALL("Later", "{}") "\0" CALL("Echo", "{\"text\":\"hi\"}") "\0" CALL(
		"Nothing", "{}");
	int fd = dial(fixture);

	send_bytes(fixture, fd, calls, sizeof(calls));
	spin(fixture, 20);
	assert_non_null(fixture->later);
	assert_int_equal(fixture->n_echoed, 0);
	assert_int_equal(varlink_call_reply(fixture->later, NULL), 0);
	assert_int_equal(varlink_call_reply(fixture->later, NULL), VARLINK_E_DONE);
	fixture->later = varlink_call_unref(fixture->later);
	expect(fixture, fd, NULL, OK);
	expect(fixture, fd, NULL, HI);
	expect(fixture, fd, NULL, ERROR("MethodNotFound", "method", "org.example.test.Nothing"));
	close(fd);
}

/* Far more calls than are read ahead. */
static void test_flood(void **state) {
	struct fixture *fixture = *state;
	static const char call[] = CALL("Echo", "{\"text\":\"hi\"}");
	size_t n_bytes = 0, sent = 0, replies = 0;
	char *bytes = malloc(20000 * sizeof(call)), buffer[4096];
	int fd = dial(fixture);

	for (int i = 0; i < 20000; i++, n_bytes += sizeof(call))
		memcpy(bytes + n_bytes, call, sizeof(call));
	for (int64_t end = now_ms() + 20000; replies < 20000 && now_ms() < end;) {
		ssize_t n =
			sent < n_bytes ? send(fd, bytes + sent, n_bytes - sent, MSG_NOSIGNAL) : 0;

		sent += n > 0 ? n : 0;
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
		n = recv(fd, buffer, sizeof(buffer), 0);
		for (ssize_t i = 0; i < n; i++)
			replies += buffer[i] == '\0';
	}
	assert_int_equal(replies, 20000);
	free(bytes);
	close(fd);
}

/* Whatever is no message ends the connection; what came before it is answered. */
static void test_garbage(void **state) {
	struct fixture *fixture = *state;
	static const char *const garbage[] = {
		"",
		"x",
		"{",
		"[]",
		"null",
		"{}",
		"{\"method\":1}",
		"{\"method\":\"a.B\",\"extra\":1}",
		"{\"method\":\"a.B\"}}",
		"{\"method\":\"a.B\",\"method\":\"a.C\"}",
		"{\"method\":\"a.B\",\"parameters\":[]}",
		"{\"method\":\"a.B\",\"more\":1}",
		"{\"method\":\"a.B\",\"oneway\":true,\"more\":true}",
		"{\"method\":\"a.\xff\"}",
		"{\"error\":\"a.B\"}",
		"GET / HTTP/1.1\r\n",
	};

	for (size_t i = 0; i < sizeof(garbage) / sizeof(*garbage); i++) {
		int fd = dial(fixture);

		send_text(fixture, fd, CALL("Echo", "{\"text\":\"hi\"}"));
		send_text(fixture, fd, garbage[i]);
		expect(fixture, fd, NULL, HI);
		expect(fixture, fd, NULL, NULL);
		close(fd);
	}
}

/* A call that is cut at any byte, by the end of the connection or by a NUL, is not run. */
static void test_cut(void **state) {
	struct fixture *fixture = *state;
	static const char call[] = CALL("Echo", "{\"text\":\"hi\",\"number\":1}");

	for (size_t n = 0; n < strlen(call); n++) {
		int fd = dial(fixture);

		send_bytes(fixture, fd, call, n);
		shutdown(fd, SHUT_WR);
		expect(fixture, fd, NULL, NULL);
		close(fd);
		fd = dial(fixture);
		send_bytes(fixture, fd, call, n);
		send_bytes(fixture, fd, "", 1);
		expect(fixture, fd, NULL, NULL);
		close(fd);
	}
	spin(fixture, 5);
	assert_int_equal(fixture->n_echoed, 0);
	assert_int_equal(varlink_server_connections(fixture->server), 0);
}

/* A call that comes byte by byte; the client then only listens. */
static void test_bytewise(void **state) {
	struct fixture *fixture = *state;
	static const char call[] = CALL("Echo", "{\"text\":\"hi\"}");
	int fd = dial(fixture);

	for (size_t i = 0; i < sizeof(call); i++)
		send_bytes(fixture, fd, call + i, 1);
	expect(fixture, fd, NULL, HI);
	send_text(fixture, fd, CALL("Later", "{}"));
	shutdown(fd, SHUT_WR);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 0);
	assert_int_equal(varlink_call_reply(fixture->later, NULL), 0);
	fixture->later = varlink_call_unref(fixture->later);
	expect(fixture, fd, NULL, OK);
	expect(fixture, fd, NULL, NULL);
	close(fd);
}

/* A message as long as may be, and one byte more. */
static void test_oversize(void **state) {
	struct fixture *fixture = *state;
	static const char head[] =
		"{\"method\":\"org.example.test.Echo\",\"parameters\":{\"text\":\"",
			  tail[] = "\"}}";
	size_t max = 1024 * 1024;
	char *text = malloc(max + 2);
	int fd = dial(fixture);

	memset(text, 'x', max + 1);
	memcpy(text, head, strlen(head));
	memcpy(text + max - strlen(tail), tail, sizeof(tail));
	send_text(fixture, fd, text);
	assert_int_equal(strlen(receive(fixture, fd)),
			 max - strlen(head) - strlen(tail) +
				 strlen("{\"parameters\":{\"text\":\"\"}}"));

	memset(text, 'x', max + 1);
	memcpy(text, head, strlen(head));
	text[max + 1] = '\0';
	for (size_t sent = 0; sent < max + 1;) {
		ssize_t n = send(fd, text + sent, max + 1 - sent, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			break;
		sent += n > 0 ? n : 0;
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	}
	expect(fixture, fd, NULL, NULL);
	free(text);
	close(fd);
}

static void test_stream(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);

	expect(fixture, fd, MORE("Count", "{\"n\":3,\"size\":1}"),
	       "{\"parameters\":{\"i\":0,\"padding\":\"x\"},\"continues\":true}");
	expect(fixture, fd, NULL,
	       "{\"parameters\":{\"i\":1,\"padding\":\"x\"},\"continues\":true}");
	expect(fixture, fd, NULL, "{\"parameters\":{\"i\":2,\"padding\":\"x\"}}");
	expect(fixture, fd, CALL("Echo", "{\"text\":\"hi\"}"), HI);
	assert_int_equal(fixture->n_produced, 3);
	assert_int_equal(fixture->n_cancelled, 0);

	send_text(fixture, fd, MORE("Watch", "{}"));
	for (int i = 4; i < 7; i++) {
		char expected[64];

		spin(fixture, 5);
		fixture->idle = false;
		varlink_call_wake(fixture->later);
		snprintf(expected, sizeof(expected),
			 "{\"parameters\":{\"i\":%d},\"continues\":true}", i);
		expect(fixture, fd, NULL, expected);
	}
	close(fd);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 1);
	assert_null(fixture->later);
}

/*
 * A client that does not read: the producer stops soon, goes on when it reads, and after a while
 * the client is dropped.
 */
static void test_back_pressure(void **state) {
	struct fixture *fixture = *state;
	unsigned int n_produced;
	int fd = dial(fixture);

	send_text(fixture, fd, MORE("Count", "{\"n\":100000,\"size\":1000}"));
	spin(fixture, 50);
	n_produced = fixture->n_produced;
	assert_in_range(n_produced, 10, 1000); /* the socket's buffer, and 64 KiB */
	spin(fixture, 50);
	assert_int_equal(fixture->n_produced, n_produced);
	for (int i = 0; i < 2000; i++)
		assert_non_null(receive(fixture, fd));
	assert_in_range(fixture->n_produced, 2000, 3000);
	assert_int_equal(fixture->n_cancelled, 0);

	for (int64_t end = now_ms() + 20000; !fixture->n_cancelled && now_ms() < end;)
		spin(fixture, 50);
	assert_int_equal(fixture->n_cancelled, 1);
	assert_int_equal(varlink_server_connections(fixture->server), 0);
	close(fd);
}

/* One that goes while a call runs, in the ways there are. */
static void test_disconnect(void **state) {
	struct fixture *fixture = *state;
	static char ahead[256 * 1024];
	int fd = dial(fixture);

	send_text(fixture, fd, CALL("Later", "{}"));
	spin(fixture, 5);
	close(fd);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 1);

	/* it has sent so much ahead that the server does not read any more */
	fd = dial(fixture);
	send_text(fixture, fd, CALL("Later", "{}"));
	for (int i = 0; i < 100; i++) {
		send(fd, ahead, sizeof(ahead), MSG_NOSIGNAL);
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	}
	close(fd);
	spin(fixture, 200);
	assert_int_equal(fixture->n_cancelled, 2);

	/* it has shut down its side first */
	fd = dial(fixture);
	send_text(fixture, fd, CALL("Later", "{}"));
	shutdown(fd, SHUT_WR);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 2);
	close(fd);
	spin(fixture, 200);
	assert_int_equal(fixture->n_cancelled, 3);

	/* in the midst of a stream that it does not read */
	fd = dial(fixture);
	send_text(fixture, fd, MORE("Count", "{\"n\":100000,\"size\":1000}"));
	spin(fixture, 20);
	close(fd);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 4);
	assert_int_equal(varlink_server_connections(fixture->server), 0);
}

/* An answer that comes too late is no harm. */
static void test_late_answer(void **state) {
	struct fixture *fixture = *state;
	struct varlink_call *call;
	int fd = dial(fixture);

	send_text(fixture, fd, CALL("Later", "{}"));
	spin(fixture, 5);
	call = varlink_call_ref(fixture->later);
	close(fd);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 1);
	assert_int_equal(varlink_call_reply(call, NULL), VARLINK_E_DISCONNECTED);
	assert_int_equal(varlink_call_permission_denied(call), VARLINK_E_DISCONNECTED);
	assert_int_equal(varlink_call_peer(call)->pid, getpid());
	varlink_call_unref(call);
}

/* The ninth connection is sent away; when one goes there is room again. */
static void test_connection_limit(void **state) {
	struct fixture *fixture = *state;
	int fds[9];

	for (int i = 0; i < 8; i++) {
		fds[i] = dial(fixture);
		expect(fixture, fds[i], CALL("Echo", "{\"text\":\"hi\"}"), HI);
	}
	fds[8] = dial(fixture);
	expect(fixture, fds[8], NULL, NULL);
	close(fds[8]);
	close(fds[0]);
	spin(fixture, 10);
	fds[0] = dial(fixture);
	expect(fixture, fds[0], CALL("Echo", "{\"text\":\"hi\"}"), HI);
	for (int i = 0; i < 8; i++)
		close(fds[i]);
}

/* The limit of all users together, of a second server on the same loop. */
static void test_total_limit(void **state) {
	struct fixture *fixture = *state, other = {};
	int fds[3];

	assert_int_equal(varlink_server_new(&other.server, &fixture->loop,
					    &(struct varlink_server_options){
						    .size = sizeof(struct varlink_server_options),
						    .connections_max = 2,
					    }),
			 0);
	snprintf(other.path, sizeof(other.path), "/tmp/test-varlink-%d-total", getpid());
	assert_int_equal(varlink_server_listen(other.server, other.path, 0600), 0);
	for (int i = 0; i < 3; i++)
		fds[i] = dial(&other);
	spin(fixture, 20);
	assert_int_equal(varlink_server_connections(other.server), 2);
	assert_int_equal(recv(fds[2], &(char){ 0 }, 1, 0), 0);
	assert_int_equal(recv(fds[1], &(char){ 0 }, 1, 0), -1);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	varlink_server_free(other.server);
	spin(fixture, 5);
}

/*
 * Half-sent messages of several connections are charged to their user: in the end one is too much.
 */
static void test_byte_limit(void **state) {
	struct fixture *fixture = *state;
	size_t n_bytes = 1000 * 1000;
	char *bytes = malloc(n_bytes);
	int fds[8], n_dropped = 0;

	memset(bytes, 'x', n_bytes);
	for (int i = 0; i < 8; i++) {
		fds[i] = dial(fixture);
		for (size_t sent = 0; sent < n_bytes;) {
			ssize_t n = send(fds[i], bytes + sent, n_bytes - sent, MSG_NOSIGNAL);

			if (n < 0 && errno != EAGAIN) {
				n_dropped++;
				break;
			}
			sent += n > 0 ? n : 0;
			uv_run(&fixture->loop, UV_RUN_NOWAIT);
		}
	}
	assert_int_equal(n_dropped, 1); /* seven have room for 1 MiB each */
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	free(bytes);
}

/* An answer beyond the limit closes the connection; who gave it is told so by it, and not cancelled
 * as well. */
static void test_failed_answer(void **state) {
	static const char *const in_stream[] = { MORE("Burst", "{\"how\":\"reply\"}"),
						 MORE("Burst", "{\"how\":\"continue\"}"),
						 MORE("Burst", "{\"how\":\"error\"}"),
						 CALL("Burst", "{\"how\":\"at once\"}") },
				 *const later_on[] = { CALL("Burst", "{\"how\":\"reply\"}"),
						       CALL("Burst", "{\"how\":\"error\"}") };
	struct fixture *fixture = *state;
	int fd;

	for (size_t i = 0; i < 4; i++) {
		fd = dial(fixture);
		expect(fixture, fd, in_stream[i], NULL);
		assert_null(fixture->later);
		close(fd);
	}
	for (size_t i = 0; i < 2; i++) {
		fd = dial(fixture);
		send_text(fixture, fd, later_on[i]);
		while (!fixture->later)
			uv_run(&fixture->loop, UV_RUN_NOWAIT);
		produce_burst(fixture->later, fixture);
		expect(fixture, fd, NULL, NULL);
		close(fd);
	}
	assert_int_equal(fixture->n_cancelled, 0);
	assert_int_equal(varlink_server_connections(fixture->server), 0);
}

/* An answer that cannot be sent leaves the call as it was: it is cancelled when the client goes. */
static void test_cancel_after_fault(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);

	send_text(fixture, fd, CALL("Burst", "{\"how\":\"reply\"}"));
	while (!fixture->later)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	assert_int_equal(
		varlink_call_reply(fixture->later,
				   varlink_json_pack("text", json_object_new_string("\xff"), NULL)),
		VARLINK_E_INVALID);
	close(fd);
	while (fixture->later)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	assert_int_equal(fixture->n_cancelled, 1);
}

/*
 * What takes long is for several turns of the loop, oneway or not, and connections of a user take
 * turns; so nobody keeps the loop by calling on and on.
 */
static void test_turns(void **state) {
	static const char *const calls[] = { ONEWAY("Slow", "{\"who\":\"a\"}"),
					     CALL("Slow", "{\"who\":\"b\"}") };
	struct fixture *fixture = *state;
	int fds[2];

	for (size_t i = 0; i < 2; i++) {
		fds[i] = dial(fixture);
		expect(fixture, fds[i], CALL("Echo", "{\"text\":\"hi\"}"), HI);
	}
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(send(fds[i / 4], calls[i / 4], strlen(calls[i / 4]) + 1,
				      MSG_NOSIGNAL),
				 strlen(calls[i / 4]) + 1);
	for (size_t n = 0; n < 8; n = strlen(fixture->slow)) {
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
		assert_in_range(strlen(fixture->slow), n, n + 1);
	}
	/* the one that is read first may have run once before the other came */
	for (size_t i = 2; i < 6; i++)
		assert_int_not_equal(fixture->slow[i], fixture->slow[i - 1]);
	for (size_t i = 0; i < 4; i++)
		expect(fixture, fds[1], NULL, OK);
	expect(fixture, fds[0], CALL("Echo", "{\"text\":\"hi\"}"), HI);
	close(fds[0]);
	close(fds[1]);
}

/* So is a call that works in parts; it ends when its client goes. */
static void test_work(void **state) {
	struct fixture *fixture = *state;
	int fd = dial(fixture);

	send_text(fixture, fd, CALL("Work", "{}"));
	for (unsigned int n = 0; n < 3; n = fixture->n_worked) {
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
		assert_in_range(fixture->n_worked, n, n + 1);
	}
	expect(fixture, fd, NULL, OK);
	assert_int_equal(fixture->n_cancelled, 0);
	send_text(fixture, fd, CALL("Work", "{}"));
	while (fixture->n_worked < 4)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	close(fd);
	while (!fixture->n_cancelled && fixture->n_worked < 6)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	assert_int_equal(fixture->n_cancelled, 1);
	assert_in_range(fixture->n_worked, 4, 5);
}

/* Calls that gather: the first of a user has its turn until it ends, or its client goes. */
static void test_gather(void **state) {
	static const char *const calls[] = { CALL("Gather", "{\"who\":\"a\"}"),
					     CALL("Gather", "{\"who\":\"b\"}"),
					     CALL("Gather", "{\"who\":\"c\"}"),
					     CALL("Gather", "{\"who\":\"d\"}") };
	struct fixture *fixture = *state;
	int fds[4];

	fixture->idle = true;
	for (size_t i = 0; i < 4; i++) {
		fds[i] = dial(fixture);
		send_text(fixture, fds[i], calls[i]);
		spin(fixture, 20);
	}
	assert_string_equal(fixture->slow, "a");
	close(fds[1]);
	spin(fixture, 20);
	assert_int_equal(fixture->n_cancelled, 1);
	assert_string_equal(fixture->slow, "a");
	fixture->idle = false;
	close(fds[0]);
	expect(fixture, fds[2], NULL, OK);
	expect(fixture, fds[3], NULL, OK);
	assert_string_equal(fixture->slow, "acd");
	assert_int_equal(fixture->n_cancelled, 2);
	expect(fixture, fds[2], calls[0], OK);
	close(fds[2]);
	close(fds[3]);
}

/* A socket that nobody listens on is replaced, one in use is not, nor is a file. */
static void test_listen(void **state) {
	struct fixture *fixture = *state;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat st;
	int fd;

	assert_int_equal(varlink_server_listen(fixture->server, fixture->path, 0600), -EADDRINUSE);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s-b", fixture->path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	assert_int_equal(varlink_server_listen(fixture->server, address.sun_path, 0666), 0);
	assert_int_equal(stat(address.sun_path, &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0666);
	strcat(address.sun_path, "c");
	close(open(address.sun_path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(varlink_server_listen(fixture->server, address.sun_path, 0600),
			 -EADDRINUSE);
	unlink(address.sun_path);
	assert_int_equal(varlink_server_listen(fixture->server, "/nonexistent/x", 0600), -ENOENT);
}

/* Whatever lies in a socket is not for the loop to close, also when no descriptor is left. */
static void test_close_socket(void **state) {
	struct fixture *fixture = *state;
	int fds[2] = { dial(fixture), dial(fixture) }, others[2048], n = 0;
	struct rlimit before, limit;

	expect(fixture, fds[0], CALL("Echo", "{\"text\":\"hi\"}"), HI);
	expect(fixture, fds[1], CALL("Echo", "{\"text\":\"hi\"}"), HI);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ before.rlim_max < 1024 ? before.rlim_max : 1024, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while (n < 2048 && (others[n] = dup(0)) >= 0)
		n++;
	assert_in_range(n, 1, 2047);
	for (unsigned int i = 0; i < 2; i++) {
		send_text(fixture, fds[i], "this is no call");
		expect(fixture, fds[i], NULL, NULL);
		assert_int_equal(fixture->n_closed, i + 1);
	}
	while (n > 0)
		close(others[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	close(fds[0]);
	close(fds[1]);
}

/* While sockets that are being closed are too many, who comes waits, and is served then. */
static void test_behind(void **state) {
	struct fixture *fixture = *state;
	int fd;

	fixture->n_behind = 3;
	fd = dial(fixture);
	expect(fixture, fd, CALL("Echo", "{\"text\":\"hi\"}"), HI);
	assert_int_equal(fixture->n_behind, 0);
	close(fd);
}

/* A method that the interface does not have, an interface twice, and one that is none. */
static void test_add_interface(void **state) {
	struct fixture *fixture = *state;
	struct varlink_fault fault;

	assert_int_equal(varlink_server_add_interface(fixture->server, interface, methods, NULL,
						      &fault),
			 -EEXIST);
	assert_int_equal(varlink_server_add_interface(fixture->server, "interface a.b\nerror X ()",
						      methods, NULL, &fault),
			 -EINVAL);
	assert_int_equal(varlink_server_add_interface(fixture->server, "interface", methods, NULL,
						      &fault),
			 VARLINK_E_INVALID);
}

/* The server is freed with a call running, a stream under way, one half sent, and one that waits
 * for the next turn. */
static void test_free_busy(void **state) {
	struct fixture *fixture = *state;
	int fds[4] = { dial(fixture), dial(fixture), dial(fixture), dial(fixture) };

	send_text(fixture, fds[0], CALL("Later", "{}"));
	send_text(fixture, fds[1], MORE("Count", "{\"n\":100000,\"size\":1000}"));
	send_bytes(fixture, fds[2], "{\"method", 8);
	spin(fixture, 20);
	send_text(fixture, fds[3], CALL("Slow", "{\"who\":\"a\"}"));
	send_text(fixture, fds[3], CALL("Slow", "{\"who\":\"a\"}"));
	while (!*fixture->slow)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	assert_int_equal(varlink_server_connections(fixture->server), 4);
	teardown(state);
	setup(state);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void) {
	const struct CMUnitTest tests[] = {
		TEST(service),
		TEST(errors),
		TEST(parameters),
		TEST(peer),
		TEST(handler_fails),
		TEST(oneway),
		TEST(close_socket),
		TEST(behind),
		TEST(pipelined),
		TEST(flood),
		TEST(garbage),
		TEST(cut),
		TEST(bytewise),
		TEST(oversize),
		TEST(stream),
		TEST(back_pressure),
		TEST(disconnect),
		TEST(late_answer),
		TEST(connection_limit),
		TEST(total_limit),
		TEST(byte_limit),
		TEST(failed_answer),
		TEST(cancel_after_fault),
		TEST(turns),
		TEST(work),
		TEST(gather),
		TEST(listen),
		TEST(add_interface),
		TEST(free_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
