/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. How many calls a second go from a ring through the daemon to a client of Trace, and
 * whether each of them is there or counted as lost:
 *
 *     trace-rate [-n EVENTS] [-r EVENTS A SECOND] [-t THREADS] [-d] GPUPROBED
 *
 * -d: through the memory of a descriptor (proto/client-ring.h), else in base64. It
 * starts a private daemon, and is both the traced process and the client, which decodes all that
 * comes. Without -r it writes as fast as there is room, and waits where the shim would not; with -r
 * (1: as fast as it can, without waiting) it does not wait and counts what finds no room, as the
 * shim does. Prints JSON.
 */

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/gpuprobed/trace/session/test-trace-producer.h"
#include "lib/base64.h"
#include "lib/clock.h"
#include "proto/client-ring.h"
#include "proto/wire.h"

#define WORDS 6
#define FUNCTION 307 /* cuLaunchKernel */
#define TEXT_MAX ((size_t)4 << 20)
#define THREADS_MAX 64

static struct {
	uint64_t events, rate;
	unsigned int threads;
	bool descriptor;
	char folder[64];
	struct trace_ring *ring;
} options = { .events = 10000000, .threads = 1 };

static struct {
	uint64_t calls, lost, replies, bytes, out_of_order;
	struct trace_stop stop;
} seen;

static void fail(const char *what) {
	fprintf(stderr, "trace-rate: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static int connect_to(const char *name, int type) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", options.folder, name);
	if (connect(fd, (void *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* ---- the client ---- */

/* Walks the records of a reply. Sequences of each thread come in order. */
static void take_records(const unsigned char *data, size_t n) {
	static uint32_t next[65536];

	seen.bytes += n;
	for (size_t at = 0; at < n;) {
		const struct trace_record *record = (const void *)(data + at);

		if (record->type == TRACE_CALL) {
			const struct trace_call *call = (const void *)record;
			uint32_t *expected = &next[call->tid & 65535];

			seen.calls++;
			seen.out_of_order += call->sequence < *expected;
			*expected = call->sequence + 1;
		} else if (record->type == TRACE_LOST) {
			seen.lost += ((const struct trace_lost *)record)->count;
		} else if (record->type == TRACE_STOP) {
			memcpy(&seen.stop, record, sizeof(seen.stop));
		}
		at += record->size;
	}
}

static struct client_ring *memory; /* -d: the memory */
static size_t ring_size;
static uint64_t ring_end;

/* A number of a reply; 0: it is not there. */
static uint64_t number_of(const char *reply, const char *key) {
	const char *at = strstr(reply, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* What a reply says of the memory. fd: that came with it, or -1. */
static void take_memory(const char *reply, int fd) {
	static unsigned char bytes[4 << 20];
	const uint64_t size = number_of(reply, "\"descriptor\":"),
		       end = number_of(reply, "\"end\":");
	size_t n = 0;

	if (size) {
		ring_size = size;
		memory = mmap(NULL, sizeof(*memory) + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			      0);
		if (memory == MAP_FAILED)
			fail("the memory");
	}
	while (ring_end < end) { /* around its end */
		const size_t at = ring_end & (ring_size - 1);
		const size_t part =
			end - ring_end < ring_size - at ? end - ring_end : ring_size - at;

		memcpy(bytes + n, memory->data + at, part);
		n += part;
		ring_end += part;
	}
	take_records(bytes, n);
	if (memory)
		__atomic_store_n(&memory->consumed, ring_end, __ATOMIC_RELEASE);
}

/* A reply: its records lie between the first "records":" and the next quotation mark. True: more
 * follow. */
static bool take_reply(const char *text, int fd) {
	const char *start = strstr(text, "\"records\":\""), *end;
	unsigned char *data;
	size_t n_data;

	take_memory(text, fd);
	if (!start)
		fail(text);
	start += strlen("\"records\":\"");
	end = strchr(start, '"');
	if (base64_decode(start, (size_t)(end - start), &data, &n_data))
		fail("base64");
	take_records(data, n_data);
	free(data);
	seen.replies++;
	return strstr(end, "\"continues\":true") != NULL;
}

static char *text;
static size_t n_text;

/* As read(2), with a descriptor if one comes. */
static ssize_t receive(int fd, char *to, size_t n, int *receivedp) {
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { to, n };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	const ssize_t got = recvmsg(fd, &message, 0);

	if (got > 0 && CMSG_FIRSTHDR(&message))
		memcpy(receivedp, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return got;
}

/* Reads one reply. True: more follow. */
static bool read_reply(int fd) {
	size_t scanned = 0;
	int received = -1;
	char *nul;
	bool more;

	while (!(nul = memchr(text + scanned, '\0', n_text - scanned))) {
		ssize_t n = receive(fd, text + n_text, TEXT_MAX - n_text, &received);

		scanned = n_text;
		if (n <= 0)
			fail("the daemon hung up");
		n_text += (size_t)n;
	}
	more = take_reply(text, received);
	n_text -= (size_t)(nul + 1 - text);
	memmove(text, nul + 1, n_text);
	return more;
}

static void *run_client(void *userdata) {
	while (read_reply((int)(intptr_t)userdata))
		;
	return NULL;
}

/* ---- the traced process ---- */

static void message_send(int fd, union wire_message *message, uint16_t type) {
	message->header = (struct wire_header){ WIRE_MAGIC, WIRE_VERSION, type,
						(uint32_t)wire_size(type), 1 };
	if (send(fd, message, wire_size(type), 0) < 0)
		fail("send");
}

static void map_ring(int fd) {
	union wire_message message = { .hello = { .role = WIRE_ROLE_TRACE } };
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec vector = { &message, sizeof(message) };
	struct msghdr header = { .msg_iov = &vector,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control) };
	int ring;

	message_send(fd, &message, WIRE_HELLO);
	if (recv(fd, &message, sizeof(message), 0) <= 0)
		fail("no welcome");
	memset(&message, 0, sizeof(message));
	message_send(fd, &message, WIRE_TRACE);
	if (recvmsg(fd, &header, 0) <= 0 || !message.trace_reply.size)
		fail("no ring");
	memcpy(&ring, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(ring));
	options.ring =
		mmap(NULL, message.trace_reply.size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
	if (options.ring == MAP_FAILED)
		fail("mmap");
}

static uint64_t ring_now(void) {
	return options.ring->clock == TRACE_RING_TSC ? tsc_now() : monotonic_now();
}

static void *run_thread(void *userdata) {
	const uint64_t n = options.events / options.threads, began = monotonic_now();
	struct producer producer;
	struct producer_call call;

	if (!producer_claim(&producer, options.ring, (uint32_t)syscall(SYS_gettid)))
		fail("no slot");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t now = ring_now();

		if (options.rate > 1 && i % 64 == 0)
			while ((monotonic_now() - began) * options.rate / options.threads /
				       1000000000 <
			       i)
				sched_yield();
		producer_call(&call, FUNCTION, (uint32_t)i, now, now + 10, WORDS);
		while (!producer_write(&producer, &call.call.record)) {
			if (options.rate) {
				producer_count_lost(&producer);
				break;
			}
			sched_yield();
		}
	}
	producer_leave(&producer);
	return NULL;
}

/* ---- all together ---- */

static pid_t start_daemon(const char *path) {
	char name[64], run[64];
	pid_t pid;

	snprintf(name, sizeof(name), "--session=rate_%d", (int)getpid());
	snprintf(run, sizeof(run), "/run/user/%u", (unsigned)getuid());
	snprintf(options.folder, sizeof(options.folder),
		 access(run, F_OK) == 0 ? "/run/user/%u/gpuprobe-rate_%d"
					: "/tmp/gpuprobe-%u-rate_%d",
		 (unsigned)getuid(), (int)getpid());
	pid = fork();
	if (pid == 0) {
		execl(path, path, name, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void parse(int argc, char **argv) {
	int c;

	while ((c = getopt(argc, argv, "n:r:t:d")) >= 0) {
		unsigned long long number = optarg ? strtoull(optarg, NULL, 10) : 0;

		if (c == 'n')
			options.events = number;
		else if (c == 'r')
			options.rate = number;
		else if (c == 't')
			options.threads = (unsigned int)number;
		else if (c == 'd')
			options.descriptor = true;
		if (c == '?' || (optarg && !number))
			optind = argc;
	}
	if (optind + 1 != argc || options.threads > THREADS_MAX) {
		fprintf(stderr,
			"usage: trace-rate [-n EVENTS] [-r RATE] [-t THREADS (at most %d)] [-d] "
			"GPUPROBED\n",
			THREADS_MAX);
		exit(2);
	}
	options.events = options.events / options.threads * options.threads;
}

/* Calls Trace for this process; the first reply has come. The socket. */
static int start_trace(void) {
	char call[256];
	int fd = -1;

	for (int i = 0; i < 500 && fd < 0; i++) {
		usleep(10000);
		fd = connect_to("io.gpuprobe.control", SOCK_STREAM);
	}
	snprintf(call, sizeof(call),
		 "{\"method\":\"io.gpuprobe.control.Trace\",\"parameters\":{\"pids\":[%d],"
		 "\"sources\":[\"shim\"],\"descriptor\":%s},\"more\":true}",
		 (int)getpid(), options.descriptor ? "true" : "false");
	if (fd < 0 || write(fd, call, strlen(call) + 1) < 0)
		fail("no daemon");
	read_reply(fd);
	return fd;
}

static void print(double seconds, double cpu) {
	printf("{\"events\":%llu,\"received\":%llu,\"lost\":%llu,\"seconds\":%.3f,\"events_per_"
	       "second\":%.0f,\"megabytes_per_second\":%.0f,\"replies\":%llu,"
	       "\"daemon_cpu_seconds\":%.3f,\"threads\":%u,\"out_of_order\":%llu,\"exact\":%s}\n",
	       (unsigned long long)options.events, (unsigned long long)seen.calls,
	       (unsigned long long)seen.lost, seconds, (double)(seen.calls + seen.lost) / seconds,
	       (double)seen.bytes / seconds * 1e-6, (unsigned long long)seen.replies, cpu,
	       options.threads, (unsigned long long)seen.out_of_order,
	       seen.calls + seen.lost == options.events && seen.stop.lost == seen.lost ? "true"
										       : "false");
}

int main(int argc, char **argv) {
	pthread_t client, threads[THREADS_MAX];
	uint64_t began, written;
	struct rusage usage;
	double seconds;
	pid_t daemon;
	int bus, shim;

	parse(argc, argv);
	text = malloc(TEXT_MAX);
	daemon = start_daemon(argv[optind]);
	bus = start_trace();
	shim = connect_to("shim.sock", SOCK_SEQPACKET);
	map_ring(shim);
	pthread_create(&client, NULL, run_client, (void *)(intptr_t)bus);
	began = monotonic_now();
	for (unsigned int i = 0; i < options.threads; i++)
		pthread_create(&threads[i], NULL, run_thread, NULL);
	for (unsigned int i = 0; i < options.threads; i++)
		pthread_join(threads[i], NULL);
	written = monotonic_now();
	close(shim); /* the last drain; then the daemon is asked to stop, which ends the trace */
	while (__atomic_load_n(&seen.calls, __ATOMIC_RELAXED) +
			       __atomic_load_n(&seen.lost, __ATOMIC_RELAXED) <
		       options.events &&
	       monotonic_now() - written < UINT64_C(30000000000))
		usleep(1000);
	seconds = (double)(monotonic_now() - began) * 1e-9;
	kill(daemon, SIGTERM);
	wait4(daemon, NULL, 0, &usage);
	pthread_join(client, NULL);
	print(seconds, (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
	return seen.calls + seen.lost == options.events && !seen.out_of_order ? EXIT_SUCCESS
									      : EXIT_FAILURE;
}
