/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. What reads metrics from the daemon's socket may say anything. The first byte says in
 * portions of which size it comes, and by its highest bit whether the end is told. There is one
 * answer at most, and it is HTTP: a status that is meant, and as many bytes as it says.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon-world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ANSWER_MAX ((size_t)1 << 20)

static char answer[ANSWER_MAX + 1];

/* What has come so far. Bytes, all in all. */
static size_t receive(int fd, size_t n) {
	ssize_t got;

	while (n < ANSWER_MAX && (got = recv(fd, answer + n, ANSWER_MAX - n, MSG_DONTWAIT)) > 0)
		n += (size_t)got;
	return n;
}

static void check(size_t n, bool head) {
	unsigned int status;
	const char *body;
	size_t length;

	answer[n] = '\0';
	body = strstr(answer, "\r\n\r\n");
	if (!body || sscanf(answer, "HTTP/1.1 %u", &status) != 1 ||
	    (status != 200 && (status < 400 || status > 503)))
		abort();
	body += 4;
	if (sscanf(strstr(answer, "Content-Length: "), "Content-Length: %zu", &length) != 1)
		abort();
	if (length != n - (size_t)(body - answer) && !(head && n == (size_t)(body - answer)))
		abort();
	if (status == 200 && length && n != (size_t)(body - answer) &&
	    (strncmp(body, "# ", 2) || strcmp(answer + n - 6, "# EOF\n")))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	size_t portion, n = 0;
	int fd;

	if (!size)
		return 0;
	if (!world.daemon)
		world_start();
	world_begin();
	portion = data[0] & 0x7f ? (size_t)(data[0] & 0x7f) : size;
	fd = world_connect(world.metrics, SOCK_STREAM);
	for (size_t at = 1; at < size; at += portion) {
		if (send(fd, data + at, portion < size - at ? portion : size - at, MSG_NOSIGNAL) <
		    0)
			break;
		world_turn();
	}
	if (data[0] & 0x80)
		shutdown(fd, SHUT_WR);
	for (unsigned int i = 0; i < 8; i++) {
		world_turn();
		n = receive(fd, n);
	}
	if (n)
		check(n, size > 4 && !memcmp(data + 1, "HEAD", 4));
	close(fd);
	world_turn();
	world_end();
	return 0;
}
