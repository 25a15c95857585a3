/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of closer.c: all is closed, each waiter is told once, and a descriptor that holds one
 * thread up holds nothing else up.
 */

#include "closer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define MANY 300 /* more than there may be threads */
#define LONG 600 /* seconds; what a socket would linger */
#define PATIENCE_MS 60000 /* the test is failed */

/* The other end of a socket that the closer has is at its end. */
static void expect_end(int fd) {
	char byte;

	assert_int_equal(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, PATIENCE_MS), 1);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	close(fd);
}

/* A TCP socket whose last close() waits for its other end, which reads nothing. */
static int lingering(int *farp) {
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static const char bytes[65536];

	assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(connect(near, (struct sockaddr *)&address, size), 0);
	*farp = accept(listener, NULL, NULL);
	assert_true(*farp >= 0);
	close(listener);
	while (send(near, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(near, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, LONG },
				    sizeof(struct linger)),
			 0);
	return near;
}

static void count(void *userdata) {
	(*(unsigned int *)userdata)++;
}

/* A closer that ends, and its loop. */
static void end(struct closer *closer, uv_loop_t *loop) {
	closer_free(closer);
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
}

static void test_sockets(void **state) {
	struct closer *closer;
	int pair[2], far[3];
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(closer_new(&closer, &loop), 0);
	for (int i = 0; i < 3; i++)
		closer_socket(closer, lingering(&far[i]));
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		closer_socket(closer, pair[0]);
		expect_end(pair[1]);
	}
	end(closer, &loop);
	for (int i = 0; i < 3; i++)
		close(far[i]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	closer_socket(NULL, pair[0]);
	expect_end(pair[1]);
}

static void test_foreign(void **state) {
	int others[MANY], pair[2], far;
	unsigned int n_over = 0;
	struct closer *closer;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(closer_new(&closer, &loop), 0);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		others[i] = pair[1];
		closer_foreign(closer, i == 7 ? lingering(&far) : pair[0], count, &n_over);
		if (i == 7)
			close(pair[0]);
	}
	while (n_over < MANY)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(n_over, MANY);
	for (int i = 0; i < MANY; i++)
		expect_end(others[i]);
	close(far);
	end(closer, &loop);
	closer_foreign(NULL, dup(0), count, &n_over);
	assert_int_equal(n_over, MANY + 1);
}

/* It ends while threads are at work: everybody is told, once. */
static void test_abandoned(void **state) {
	unsigned int n_over = 0;
	struct closer *closer;
	uv_loop_t loop;

	for (unsigned int round = 0; round < 8; round++) {
		n_over = 0;
		assert_int_equal(uv_loop_init(&loop), 0);
		assert_int_equal(closer_new(&closer, &loop), 0);
		for (int i = 0; i < MANY / 2; i++)
			closer_foreign(closer, dup(0), count, &n_over);
		for (unsigned int i = 0; i < round / 4; i++)
			uv_run(&loop, UV_RUN_NOWAIT);
		end(closer, &loop);
		assert_int_equal(n_over, MANY / 2);
	}
	assert_null(closer_free(NULL));
}

static void test_memory(void **state) {
	struct closer *closer;
	uv_loop_t loop;
	int fd = memfd_create("memory", MFD_CLOEXEC);

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(closer_new(&closer, &loop), 0);
	assert_int_equal(ftruncate(fd, 64 << 20), 0);
	closer_memory(closer, fd);
	for (int i = 0; i < PATIENCE_MS / 10 && fcntl(fd, F_GETFD) >= 0; i++)
		usleep(10000);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	fd = memfd_create("memory", MFD_CLOEXEC);
	closer_memory(NULL, fd);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	end(closer, &loop);
}

/* With so many sockets it is behind, and no longer when they are closed. */
static void test_behind(void **state) {
	struct rlimit before, limit;
	struct closer *closer;
	bool is_behind = false;
	uv_loop_t loop;
	int fd;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ 800, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(closer_new(&closer, &loop), 0);
	assert_false(closer_is_behind(closer));
	assert_false(closer_is_behind(NULL));
	for (int tries = 0; tries < 100 && !is_behind;
	     tries++) { /* this thread may be the one that stands still */
		fd = memfd_create("memory", MFD_CLOEXEC);
		assert_int_equal(fallocate(fd, 0, 0, 256 << 20),
				 0); /* to let go of it takes a while */
		closer_memory(closer, fd);
		for (int i = 0; i < 800 / 8; i++)
			closer_socket(closer, dup(0));
		is_behind = closer_is_behind(closer);
	}
	assert_true(is_behind);
	for (int i = 0; i < PATIENCE_MS / 10 && closer_is_behind(closer); i++)
		usleep(10000);
	assert_false(closer_is_behind(closer));
	end(closer, &loop);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sockets),   cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_abandoned), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
