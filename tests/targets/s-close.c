/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Closes all descriptors between loads and uses the numbers for its
 * own, which must be as it left them in the end.
 */

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "s.h"

#define FIRST 3
#define LAST 620

static void close_all(void) {
	usleep(200000); /* who else has descriptors has them by then */
	if (close_range(FIRST, ~0U, 0))
		for (int fd = FIRST; fd < 1024; fd++)
			close(fd);
}

/* All numbers from FIRST to LAST: pipes' ends with a byte in them. */
static int fill(void) {
	int count = 0;

	for (;;) {
		int ends[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends))
			return count;
		if (write(ends[0], "x", 1) != 1 || write(ends[1], "y", 1) != 1)
			return -1;
		count++;
		if (ends[0] >= LAST)
			return count;
	}
}

/* How many of them still hold their byte and nothing else. */
static int intact(void) {
	int good = 0;

	for (int fd = FIRST; fd <= LAST; fd++) {
		char bytes[8];

		good += read(fd, bytes, sizeof(bytes)) == 1 &&
			(bytes[0] == 'x' || bytes[0] == 'y') && read(fd, bytes, sizeof(bytes)) < 0;
	}
	return good;
}

int main(void) {
	struct rlimit limit = { 4096, 4096 };
	struct s_loaded loaded;

	setrlimit(RLIMIT_NOFILE, &limit);
	driver_start(false);
	loaded = s_load(S_LIBRARY);
	printf("%d\n", s_launch(&loaded));
	close_all();
	printf("%d %d\n", s_launch(&loaded), s_once(S_MODULE));
	close_all();
	printf("pairs: %d\n", fill());
	printf("%d %d\n", s_launch(&loaded), s_once(S_MODULE));
	printf("intact: %d\n", intact());
	s_unload(&loaded);
	printf("intact: %d\n", intact()); /* now empty: none */
	return 0;
}
