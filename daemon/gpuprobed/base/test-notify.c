/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of notify.c with a systemd that does not read: messages arrive in order, none is lost
 * that had room to wait, and nothing waits for them.
 */

#include "notify.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#define MESSAGES 3000

static int bind_at(struct sockaddr_un *address, const char *name) {
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(address->sun_path, sizeof(address->sun_path), "/tmp/test-notify-%d-%s", getpid(),
		 name);
	unlink(address->sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)address, sizeof(*address)), 0);
	return fd;
}

/* The next message is this one; with a descriptor if it is a multiple of 100. */
static void expect(int fd, int number) {
	char text[64] = "", wanted[64], control[CMSG_SPACE(sizeof(int))];
	struct iovec vector = { text, sizeof(text) - 1 };
	struct msghdr header = { .msg_iov = &vector,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control) };
	int got = -1;

	assert_true(recvmsg(fd, &header, MSG_DONTWAIT) > 0);
	snprintf(wanted, sizeof(wanted), "N=%d", number);
	assert_string_equal(text, wanted);
	if (CMSG_FIRSTHDR(&header)) {
		memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(got));
		close(got);
	}
	assert_int_equal(got >= 0, number % 100 == 0);
}

/* Nothing of it is left in the loop, nor anywhere. */
static void end(struct notify *notify, uv_loop_t *loop, int fd, const struct sockaddr_un *address) {
	notify_end(notify);
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
	notify_free(notify);
	close(fd);
	unlink(address->sun_path);
}

static void test_order(void **state) {
	struct sockaddr_un address;
	int fd = bind_at(&address, "order"), sent, got = 0;
	struct notify *notify;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(notify_new(&notify, address.sun_path), 0);
	assert_true(notify_heard(notify));
	for (sent = 0; sent < MESSAGES / 2; sent++) /* some before there is a loop */
		assert_int_equal(notify_send(notify, sent % 100 ? -1 : 0, "N=%d", sent), 0);
	assert_int_equal(notify_start(notify, &loop), 0);
	for (; sent < MESSAGES; sent++)
		assert_int_equal(notify_send(notify, sent % 100 ? -1 : 0, "N=%d", sent), 0);
	notify_beat(notify); /* not behind all these */
	while (got < MESSAGES) {
		expect(fd, got++);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_true(recv(fd, &(char){ 0 }, 1, MSG_DONTWAIT) < 0);
	notify_beat(notify);
	assert_int_equal(recv(fd, (char[32]){}, 32, MSG_DONTWAIT), strlen("WATCHDOG=1"));
	end(notify, &loop, fd, &address);
}

/* There is an end to what may wait, and it goes with the notify. */
static void test_bound(void **state) {
	struct sockaddr_un address;
	int fd = bind_at(&address, "bound"), r = 0;
	struct notify *notify;

	assert_int_equal(notify_new(&notify, address.sun_path), 0);
	for (int i = 0; i < 100000 && r == 0; i++)
		r = notify_send(notify, -1, "N=%d", i);
	assert_int_equal(r, -ENOBUFS);
	notify_free(notify);
	close(fd);
	unlink(address.sun_path);
}

/* Its socket is another one at the same place; and there is none. */
static void test_again(void **state) {
	struct sockaddr_un address;
	int fd = bind_at(&address, "again");
	struct notify *notify;

	assert_int_equal(notify_new(&notify, address.sun_path), 0);
	close(fd);
	fd = bind_at(&address, "again");
	assert_int_equal(notify_send(notify, -1, "N=%d", 1), 0);
	expect(fd, 1);
	close(fd);
	assert_int_equal(notify_send(notify, -1, "N=%d", 2), -ECONNREFUSED);
	notify_free(notify);
	assert_int_equal(notify_new(&notify, address.sun_path), -ECONNREFUSED);
	unlink(address.sun_path);
	assert_int_equal(notify_new(&notify, "what"), -EINVAL);
	assert_int_equal(notify_new(&notify, NULL), 0);
	assert_false(notify_heard(notify));
	assert_int_equal(notify_send(notify, -1, "N=%d", 3), 0);
	notify_free(notify);
}

/* There is another one while more waits than either takes at once: all of that goes to the new one.
 */
static void test_again_waiting(void **state) {
	struct sockaddr_un address;
	int fd = bind_at(&address, "waiting"), number = 0, first = -1;
	struct notify *notify;
	char text[32];
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(notify_new(&notify, address.sun_path), 0);
	assert_int_equal(notify_start(notify, &loop), 0);
	for (int i = 0; i < MESSAGES; i++)
		assert_int_equal(notify_send(notify, -1, "N=%d", i), 0);
	close(fd);
	fd = bind_at(&address, "waiting");
	for (int i = 0; i < 100 * MESSAGES && number < MESSAGES - 1; i++) {
		ssize_t n;

		uv_run(&loop, UV_RUN_NOWAIT);
		n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (n <= 0)
			continue;
		text[n] = '\0';
		if (first < 0)
			first = number = atoi(text + strlen("N="));
		else
			assert_int_equal(atoi(text + strlen("N=")), ++number);
	}
	assert_true(first > 0); /* those before were read by nobody */
	assert_int_equal(number, MESSAGES - 1);
	end(notify, &loop, fd, &address);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_again_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
