/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of varlink-client.c against services that misbehave. Each service is a child process
 * that accepts one connection, reads one call for each entry of its script, and sends what the
 * entry says.
 */

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "varlink-client.h"
#include "varlink-json.h"
#include "varlink-message.h"

struct step {
	const char *bytes;
	size_t n_bytes;
	bool piecemeal; /* byte by byte */
	bool silent; /* says nothing, and stays */
};

#define SAY(text) { (text), sizeof(text) }
#define SAY_RAW(text) { (text), sizeof(text) - 1 }

static char path[64];

/* Reads up to a NUL. False at the end. */
static bool read_call(int fd) {
	char c;

	while (read(fd, &c, 1) == 1)
		if (!c)
			return true;
	return false;
}

static void serve(int listener, const struct step *steps, size_t n_steps) {
	int fd = accept(listener, NULL, NULL);

	for (size_t i = 0; i < n_steps && read_call(fd); i++) {
		if (steps[i].silent)
			pause();
		for (size_t n = 0; n < steps[i].n_bytes;) {
			ssize_t sent =
				send(fd, steps[i].bytes + n,
				     steps[i].piecemeal ? 1 : steps[i].n_bytes - n, MSG_NOSIGNAL);

			if (sent < 0)
				_exit(0);
			n += sent;
			if (steps[i].piecemeal)
				usleep(200);
		}
	}
	_exit(0);
}

/* Starts a service and connects to it. */
static pid_t start(const struct step *steps, size_t n_steps, int timeout_ms,
		   struct varlink_client **clientp) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid;

	snprintf(path, sizeof(path), "/tmp/test-varlink-client-%d", getpid());
	unlink(path);
	strcpy(address.sun_path, path);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		serve(listener, steps, n_steps);
	close(listener);
	assert_int_equal(varlink_client_connect(clientp, path, timeout_ms), 0);
	return pid;
}

static void stop(pid_t pid, struct varlink_client *client) {
	varlink_client_free(client);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
}

#define START(timeout, client, ...)                 \
	start((const struct step[]){ __VA_ARGS__ }, \
	      sizeof((const struct step[]){ __VA_ARGS__ }) / sizeof(struct step), timeout, client)

static void test_replies(void **state) {
	struct varlink_client *client;
	struct varlink_reply reply;
	pid_t pid = START(5000, &client, SAY("{}"), SAY("{\"parameters\":null}"),
			  SAY("{\"parameters\":{\"a\":1}}"),
			  { "{\"parameters\":{\"slow\":true}}",
			    sizeof("{\"parameters\":{\"slow\":true}}"), .piecemeal = true },
			  SAY("{\"error\":\"a.b.Bad\",\"parameters\":{\"x\":2}}"), SAY("{}"));

	for (int i = 0; i < 2; i++) {
		assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), 0);
		assert_int_equal(json_object_object_length(reply.parameters), 0);
		varlink_reply_deinit(&reply);
	}
	assert_int_equal(varlink_client_call(client, "a.b.C",
					     varlink_json_pack("p", json_object_new_int(1), NULL),
					     &reply),
			 0);
	assert_int_equal(json_object_get_int(json_object_object_get(reply.parameters, "a")), 1);
	varlink_reply_deinit(&reply);
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), 0);
	assert_true(json_object_get_boolean(json_object_object_get(reply.parameters, "slow")));
	varlink_reply_deinit(&reply);
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply),
			 VARLINK_CLIENT_E_ERROR);
	assert_string_equal(reply.error, "a.b.Bad");
	assert_int_equal(json_object_get_int(json_object_object_get(reply.parameters, "x")), 2);
	varlink_reply_deinit(&reply);
	/* an error is no reason to hang up */
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), 0);
	varlink_reply_deinit(&reply);
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), -ECONNRESET);
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), -ENOTCONN);
	stop(pid, client);
}

static void test_more(void **state) {
	static const char replies[] = "{\"parameters\":{\"i\":0},\"continues\":true}\0{"
				      "\"parameters\":{\"i\":1},\"continues\":true}\0"
				      "{\"parameters\":{\"i\":2}}";
	struct varlink_client *client;
	struct varlink_reply reply;
	pid_t pid = START(5000, &client, SAY(replies),
			  SAY("{\"continues\":true}\0{\"error\":\"a.b.Bad\"}"));

	assert_int_equal(varlink_client_next(client, &reply), -ENODATA);
	assert_int_equal(varlink_client_call_more(client, "a.b.C", NULL), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), -EBUSY);
		assert_int_equal(varlink_client_next(client, &reply), 0);
		assert_int_equal(json_object_get_int(json_object_object_get(reply.parameters, "i")),
				 i);
		assert_int_equal(reply.continues, i < 2);
		varlink_reply_deinit(&reply);
	}
	assert_int_equal(varlink_client_next(client, &reply), -ENODATA);
	assert_int_equal(varlink_client_call_more(client, "a.b.C", NULL), 0);
	assert_int_equal(varlink_client_next(client, &reply), 0);
	varlink_reply_deinit(&reply);
	assert_int_equal(varlink_client_next(client, &reply), VARLINK_CLIENT_E_ERROR);
	varlink_reply_deinit(&reply);
	assert_int_equal(varlink_client_next(client, &reply), -ENODATA);
	stop(pid, client);
}

/* A reply that is none, one that is cut, one that continues unasked. */
static void test_garbage(void **state) {
	static const struct {
		struct step step;
		int error;
	} cases[] = {
		{ SAY("x"), -EBADMSG },
		{ SAY(""), -EBADMSG },
		{ SAY("[]"), -EBADMSG },
		{ SAY("{\"x\":1}"), -EBADMSG },
		{ SAY("{\"continues\":true}"), -EBADMSG },
		{ SAY("{\"error\":\"nodot\"}"), -EBADMSG },
		{ SAY("{\"parameters\":{\"a\":1,\"a\":2}}"), -EBADMSG },
		{ SAY_RAW("{\"parameters\":{"), -ECONNRESET },
		{ SAY_RAW(""), -ECONNRESET },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct varlink_client *client;
		struct varlink_reply reply = {};
		pid_t pid = start(&cases[i].step, 1, 5000, &client);

		assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply),
				 cases[i].error);
		assert_null(reply.root);
		assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), -ENOTCONN);
		stop(pid, client);
	}
}

/* A reply that never ends is given up when it is too long. */
static void test_endless(void **state) {
	size_t n_bytes = VARLINK_MESSAGE_MAX + 65536 * 2;
	char *bytes = malloc(n_bytes);
	struct varlink_client *client;
	struct varlink_reply reply;
	struct step step = { bytes, n_bytes };
	pid_t pid;

	memset(bytes, ' ', n_bytes);
	pid = start(&step, 1, 20000, &client);
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), -EBADMSG);
	stop(pid, client);
	free(bytes);
}

static int64_t now_ms(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Silence, and bytes that drip, end with the timeout; both when sending and receiving. */
static void test_timeout(void **state) {
	struct varlink_client *client;
	struct varlink_reply reply;
	int64_t begin = now_ms();
	static char dripping[20000];
	struct step step = { dripping, sizeof(dripping), .piecemeal = true };
	char *large = malloc(4 * 1024 * 1024);
	pid_t pid = START(100, &client, { .silent = true });

	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), -ETIMEDOUT);
	assert_in_range(now_ms() - begin, 100, 2000);
	stop(pid, client);

	memset(dripping, ' ', sizeof(dripping));
	begin = now_ms();
	pid = start(&step, 1, 100, &client);
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), -ETIMEDOUT);
	assert_in_range(now_ms() - begin, 100, 2000);
	stop(pid, client);

	memset(large, 'x', 4 * 1024 * 1024 - 1);
	large[4 * 1024 * 1024 - 1] = '\0';
	begin = now_ms();
	pid = START(100, &client, { .silent = true });
	kill(pid, SIGSTOP);
	assert_int_equal(
		varlink_client_call(client, "a.b.C",
				    varlink_json_pack("x", json_object_new_string(large), NULL),
				    &reply),
		-ETIMEDOUT);
	assert_in_range(now_ms() - begin, 100, 2000);
	stop(pid, client);
	free(large);
}

/* A call that is too long is not sent, and the connection is still good. */
static void test_too_long(void **state) {
	char *large = malloc(VARLINK_MESSAGE_MAX + 1);
	struct varlink_client *client;
	struct varlink_reply reply;
	pid_t pid = START(5000, &client, SAY("{}"));

	memset(large, 'x', VARLINK_MESSAGE_MAX);
	large[VARLINK_MESSAGE_MAX] = '\0';
	assert_int_equal(
		varlink_client_call(client, "a.b.C",
				    varlink_json_pack("x", json_object_new_string(large), NULL),
				    &reply),
		-EMSGSIZE);
	assert_int_equal(
		varlink_client_call(client, "a.b.C",
				    varlink_json_pack("x", json_object_new_string("\xff"), NULL),
				    &reply),
		-EILSEQ);
	assert_int_equal(varlink_client_call(client, "a.b.C", NULL, &reply), 0);
	varlink_reply_deinit(&reply);
	stop(pid, client);
	free(large);
}

static void test_connect(void **state) {
	struct varlink_client *client;
	char *longer = malloc(200);

	memset(longer, 'x', 199);
	longer[199] = '\0';
	assert_int_equal(varlink_client_connect(&client, longer, 100), -ENAMETOOLONG);
	assert_int_equal(varlink_client_connect(&client, "/nonexistent/socket", 100), -ENOENT);
	assert_int_equal(varlink_client_connect(&client, "/dev/null", 100), -ECONNREFUSED);
	assert_null(varlink_client_free(NULL));
	free(longer);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replies), cmocka_unit_test(test_more),
		cmocka_unit_test(test_garbage), cmocka_unit_test(test_endless),
		cmocka_unit_test(test_timeout), cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_connect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
