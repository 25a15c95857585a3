/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. How many records a second one core takes out of the rings of an instance: the
 * consumer alone, and the daemon with ReadRing to a client that throws them away. Records of a
 * whole warp, all in the rings before. `ring-rate [BYTES OF A RECORD]`. For the whole, with
 * printing, read a ring with gpuprobectl.
 */

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/gpuprobed/clients/test-ring-daemon.h"

#define RING_BYTES (UINT64_C(256) << 20)

static double seconds(clockid_t clock) {
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool count(const struct ring_batch *batch, void *userdata) {
	*(uint64_t *)userdata += batch->count;
	return true;
}

/* Fills the rings. Returns the number of records. */
static uint64_t fill(const struct producer_rings *rings, uint32_t size) {
	static unsigned char records[RING_SCRATCH_SIZE];
	uint64_t n = 0;

	for (uint32_t ring = 0; ring < rings->layout.rings; ring++)
		while (producer_write(rings, ring, size, UINT32_MAX, records, true))
			n += RING_LANES;
	return n;
}

static void consume(struct process_rings *process, uint32_t size) {
	static unsigned char scratch[RING_SCRATCH_SIZE] __attribute__((aligned(64)));
	uint64_t written = fill(&process->rings, size), n = 0;
	double start = seconds(CLOCK_MONOTONIC);

	while (ring_consume(process->instance->consumer, scratch, SIZE_MAX, count, &n) !=
	       RING_E_EMPTY)
		;
	printf("consumer      %6.2f M records/s%s\n",
	       (double)n / (seconds(CLOCK_MONOTONIC) - start) * 1e-6,
	       n == written ? "" : " (NOT ALL)");
}

/* Reads to the last reply, which is the one that does not continue. */
static void drain(int fd) {
	static char buffer[1 << 20];
	char tail[64] = "";

	do {
		ssize_t n = read(fd, buffer, sizeof(buffer));
		size_t keep = n < (ssize_t)sizeof(tail) - 1 ? (size_t)n : sizeof(tail) - 1;

		if (n <= 0)
			return;
		memmove(tail, tail + keep, sizeof(tail) - 1 - keep);
		memcpy(tail + sizeof(tail) - 1 - keep, buffer + n - keep, keep);
	} while (tail[sizeof(tail) - 2] ||
		 memmem(tail, sizeof(tail), "\"continues\":true", strlen("\"continues\":true")));
}

static void read_ring(struct process_rings *process, uint32_t size, bool raw) {
	uint64_t n = fill(&process->rings, size);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	double wall, cpu;
	clockid_t clock;
	char call[256];

	pthread_getcpuclockid(test.thread, &clock);
	strcpy(address.sun_path, test.path);
	snprintf(call, sizeof(call),
		 "{\"method\":\"io.gpuprobe.control.ReadRing\",\"parameters\":{\"map\":\"events\","
		 "\"raw\":%s},\"more\":true}",
		 raw ? "true" : "false");
	wall = seconds(CLOCK_MONOTONIC);
	cpu = seconds(clock);
	if (connect(fd, (void *)&address, sizeof(address)) < 0 ||
	    write(fd, call, strlen(call) + 1) < 0) {
		perror("ring-rate");
		exit(EXIT_FAILURE);
	}
	drain(fd);
	wall = seconds(CLOCK_MONOTONIC) - wall;
	cpu = seconds(clock) - cpu;
	close(fd);
	printf("ReadRing%s %6.2f M records/s, %6.2f for a second of the daemon's core\n",
	       raw ? " raw " : "     ", (double)n / wall * 1e-6, (double)n / cpu * 1e-6);
}

int main(int argc, char **argv) {
	uint32_t size = argc > 1 ? (uint32_t)atoi(argv[1]) : 32;
	struct process_rings process;

	if (!size || size > MAP_RECORD_SIZE_MAX || setup(NULL)) {
		fprintf(stderr, "usage: ring-rate [BYTES OF A RECORD]\n");
		return EXIT_FAILURE;
	}
	process_start(&process, map_made("events", RING_BYTES), 1);
	for (int i = 0; i < 2; i++) /* the first touches the memory */
		consume(&process, size);
	read_ring(&process, size, true);
	read_ring(&process, size, false);
	process_stop(&process);
	return teardown(NULL);
}
