/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. How many records a second one core takes out of the rings of an instance: the
 * consumer alone, the daemon with ReadRing to a client that throws the replies away, and to one
 * that has the records' bytes at the end: from base64, and from the memory of a descriptor. Records
 * of a whole warp, all in the rings before. `ring-rate [BYTES OF A RECORD]`. For the whole, with
 * printing, read a ring with gpuprobectl.
 */

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/gpuprobed/clients/test-ring-daemon.h"
#include "lib/base64.h"
#include "lib/varlink/varlink-json.h"
#include "proto/client-ring.h"
#include "proto/ring-reply.h"

#define RING_BYTES (UINT64_C(256) << 20)
#define CLIENT_DATA ((size_t)1 << 20) /* of the daemon's: control-ring.c */

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

/* The bytes of a reply of batches. In memory they may go around its end. */
static uint64_t count_bytes(json_object *reply, uint64_t *consumedp) {
	json_object *text = json_member(reply, "batches");
	const uint64_t end = (uint64_t)json_int_of(reply, "end");
	uint64_t n = end > *consumedp ? end - *consumedp : 0;
	unsigned char *data;
	size_t n_data;

	*consumedp += n;
	if (text && !base64_decode(json_object_get_string(text),
				   (size_t)json_object_get_string_len(text), &data, &n_data)) {
		n += n_data;
		free(data);
	}
	return n;
}

/* A client as gpuprobectl is one, which reads every byte of the records. */
static void read_decoded(struct process_rings *process, uint32_t size, bool descriptor) {
	const size_t batch = sizeof(struct ring_reply_batch) + (size_t)size * RING_LANES;
	const uint64_t n = fill(&process->rings, size);
	const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	volatile uint64_t sum = 0; /* so that the bytes are read */
	struct client_ring *ring = NULL;
	struct varlink_client *client;
	struct varlink_reply reply;
	uint64_t bytes = 0, consumed = 0, before;
	bool more = true;
	double took;

	if (varlink_client_connect(&client, test.path, TIMEOUT_MS) ||
	    varlink_client_call_more(client, "io.gpuprobe.control.ReadRing",
				     varlink_json_pack("map", json_object_new_string("events"),
						       "raw", json_object_new_boolean(true),
						       "descriptor",
						       json_object_new_boolean(descriptor), NULL)))
		exit(EXIT_FAILURE);
	while (more && !varlink_client_next(client, &reply)) {
		const size_t data = (size_t)json_int_of(reply.parameters, "descriptor");

		more = reply.continues;
		if (data)
			ring = mmap(NULL, sizeof(*ring) + data, PROT_READ | PROT_WRITE, MAP_SHARED,
				    varlink_client_take_descriptor(client), 0);
		before = consumed;
		bytes += count_bytes(reply.parameters, &consumed);
		for (; ring && before < consumed; before += sizeof(uint64_t))
			sum += *(uint64_t *)(ring->data + (before & (CLIENT_DATA - 1)));
		if (ring)
			__atomic_store_n(&ring->consumed, consumed, __ATOMIC_RELEASE);
		varlink_reply_deinit(&reply);
	}
	varlink_client_free(client);
	took = seconds(CLOCK_MONOTONIC) - wall;
	printf("decoded, by %s %6.2f M records/s, %6.2f for a second of CPU time of both%s\n",
	       descriptor ? "descriptor" : "base64    ", (double)n / took * 1e-6,
	       (double)n / (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e-6,
	       bytes == n / RING_LANES * batch ? "" : " (NOT ALL)");
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
	for (int i = 0; i < 2; i++) {
		read_decoded(&process, size, false);
		read_decoded(&process, size, true);
	}
	process_stop(&process);
	return teardown(NULL);
}
