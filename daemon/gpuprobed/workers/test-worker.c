/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A worker for tests of the pool. It does what the member "do" of a request says, good or bad.
 * --not-ready: it never becomes ready; --die: it ends at once; --die-if=FILE: it does so if FILE
 * exists; --garbage: it begins with bytes that are no message.
 */

#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define FD 3

static void say(const char *text) {
	if (send(FD, text, strlen(text), 0) < 0)
		exit(1);
}

static int receive(char *text, size_t size, int fds[8]) {
	union {
		char bytes[CMSG_SPACE(sizeof(int) * 8)];
		struct cmsghdr align;
	} control;
	struct iovec vector = { text, size - 1 };
	struct msghdr message = { .msg_iov = &vector,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *c;
	ssize_t n;

	n = recvmsg(FD, &message, 0);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	c = CMSG_FIRSTHDR(&message);
	if (c)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return 0;
}

/* Open descriptors besides 0-3 and the one that reads the folder. */
static int count_fds(void) {
	int n = 0;

	for (int fd = 4; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void serve(const char *text, int fds[8]) {
	json_object *request = json_tokener_parse(text), *member = NULL;
	long long id = json_object_get_int64(json_object_object_get(request, "id"));
	const char *what = json_object_object_get_ex(request, "do", &member)
				   ? json_object_get_string(member)
				   : "";
	char reply[256];

	snprintf(reply, sizeof(reply),
		 "{\"id\":%lld,\"status\":\"done\",\"pid\":%d,\"fds\":%d,\"home\":%s}", id,
		 (int)getpid(), count_fds(), getenv("HOME") ? "true" : "false");
	if (strcmp(what, "crash") == 0) {
		signal(SIGSEGV, SIG_DFL); /* no sanitizer's handler */
		raise(SIGSEGV);
	} else if (strcmp(what, "abort") == 0 || strcmp(what, "abort once") == 0) {
		const bool again = json_object_object_get_ex(request, "one_thread", &member) &&
				   json_object_get_boolean(member);

		if (pwrite(fds[0], again ? "second" : "the first", again ? 6 : 9, 0) < 0)
			exit(4);
		if (!again || strcmp(what, "abort") == 0) {
			signal(SIGABRT, SIG_DFL);
			abort();
		}
		say(reply);
	} else if (strcmp(what, "crash later") == 0) {
		usleep(500000);
		raise(SIGKILL);
	} else if (strcmp(what, "exit") == 0) {
		exit(3);
	} else if (strcmp(what, "hang") == 0) {
		for (;;)
			pause();
	} else if (strcmp(what, "close") == 0) {
		close(FD);
		for (;;)
			pause();
	} else if (strcmp(what, "garbage") == 0) {
		say("{\"id\":");
	} else if (strcmp(what, "trailing") == 0) {
		strcat(reply, "x");
		say(reply);
	} else if (strcmp(what, "id") == 0) {
		snprintf(reply, sizeof(reply), "{\"id\":%lld,\"status\":\"done\"}", id + 1);
		say(reply);
	} else if (strcmp(what, "error") == 0) {
		snprintf(reply, sizeof(reply),
			 "{\"id\":%lld,\"status\":\"error\",\"error\":\"image\",\"message\":\"no "
			 "good\"}",
			 id);
		say(reply);
	} else if (strcmp(what, "slow") == 0) {
		usleep(50000);
		say(reply);
	} else if (strcmp(what, "slower") == 0) {
		usleep(500000);
		say(reply);
	} else if (strcmp(what, "write") == 0) {
		if (pwrite(fds[0], "hello", 5, 0) != 5)
			exit(4);
		say(reply);
	} else if (strcmp(what, "large") == 0) {
		if (ftruncate(fds[0], 1 << 20) < 0)
			exit(4);
		say(reply);
	} else if (strcmp(what, "map") == 0) {
		if (ftruncate(fds[0], 4096) < 0 ||
		    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED)
			exit(4);
		say(reply);
		pause();
	} else if (strcmp(what, "fd") == 0) {
		struct iovec vector = { reply, strlen(reply) };
		char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {};
		struct msghdr message = { .msg_iov = &vector,
					  .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof(control) };
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &(int){ 1 }, sizeof(int));
		if (sendmsg(FD, &message, 0) < 0)
			exit(1);
	} else {
		say(reply);
	}
	json_object_put(request);
}

int main(int argc, char *argv[]) {
	char text[65536];
	int fds[8];

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves none behind */
	if (argc > 1 && strcmp(argv[1], "--die") == 0)
		return 7;
	if (argc > 1 && strncmp(argv[1], "--die-if=", 9) == 0 && access(argv[1] + 9, F_OK) == 0)
		return 7;
	if (argc > 1 && strcmp(argv[1], "--not-ready") == 0)
		for (;;)
			pause();
	say(argc > 1 && strcmp(argv[1], "--garbage") == 0
		    ? "ready"
		    : "{\"ready\":true,\"features\":{\"name\":\"test\"}}");
	while (receive(text, sizeof(text), fds) == 0) {
		if (argc > 1 && strcmp(argv[1], "--mute") == 0)
			continue;
		serve(text, fds);
		for (int fd = 4; fd < 64; fd++)
			close(fd);
	}
	return 0;
}
