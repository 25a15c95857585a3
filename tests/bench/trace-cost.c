/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. What a call of the driver costs more with the shim loaded, and with a trace of it:
 * functions of a stand-in driver that do nothing, bare, under the shim, traced, and traced with
 * what pointers point to, in turns.
 *
 *   trace-cost SHIM DRIVER-FOLDER [CALLS=2000000] [ROUNDS=5]
 *
 * Prints one JSON object: for each function (with so many arguments) the median of the rounds in
 * nanoseconds a call, what each way adds, how many times the bare call that is, and how many
 * records there were. Exits 1 if a shim without a trace adds more than 5 ns, or one with it more
 * than 100 ns, or calls are neither recorded nor counted as lost. This program is the daemon, and
 * starts itself anew for each round.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/interest.h"
#include "proto/paths.h"
#include "proto/trace-ring.h"
#include "proto/wire.h"

#define ROUNDS_MAX 101
#define FOLDER_MAX 96
#define LIMIT_DISABLED_NS 5.0
#define LIMIT_ENABLED_NS 100.0
#define SLOT_BYTES (UINT32_C(1) << 22)
#define SLOTS_OFFSET 4096
#define SLOTS 4
#define CONNECTIONS_MAX 8

enum way {
	BARE,
	DISABLED,
	ENABLED,
	EXTRAS,
	WAYS
};

static const char *const way_names[] = { "bare", "disabled", "enabled", "extras" };

static const struct function {
	const char *name;
	int arguments;
} functions[] = {
	{ "cuDriverGetVersion", 1 },
	{ "cuLaunchKernelEx", 4 },
	{ "cuLaunchKernel", 11 },
};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static double now_ns(clockid_t clock) {
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- the program that calls ----------------------------------------------------------------- */

typedef int one_argument(void *);
typedef int four_arguments(void *, void *, void *, void *);
typedef int eleven_arguments(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			     unsigned, void *, void **, void **);

/* Calls a function so many times. */
static void call(void *function, int arguments, long calls) {
	static char configuration[64];
	int version;

	for (long i = 0; i < calls; i++) {
		if (arguments == 1)
			((one_argument *)function)(&version);
		else if (arguments == 4)
			((four_arguments *)function)(configuration, NULL, NULL, NULL);
		else
			((eleven_arguments *)function)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	}
}

static int measure(const char *name, int arguments, long calls) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *function = NULL;
	int (*init)(unsigned) = NULL;
	double start;

	if (driver) {
		function = dlsym(driver, name);
		init = (int (*)(unsigned))dlsym(driver, "cuInit");
	}
	if (!function || !init || init(0) != 0) {
		fprintf(stderr, "no driver: %s\n", dlerror());
		return 1;
	}
	call(function, arguments, calls / 10);
	start = now_ns(CLOCK_THREAD_CPUTIME_ID);
	call(function, arguments, calls);
	printf("%.4f\n", (now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)calls);
	return 0;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

struct daemon {
	char folder[FOLDER_MAX];
	int listener, ring_fd;
	struct trace_ring *ring;
	size_t size;
	uint64_t records;
	int connections[CONNECTIONS_MAX];
	unsigned connection_count;
};

static void fail(const char *what) {
	perror(what);
	exit(2);
}

static void start_daemon(struct daemon *daemon, const char *session) {
	struct interest_page page = {
		.magic = INTEREST_MAGIC,
		.version = INTEREST_VERSION,
		.generation = 2,
		.deadline_ms = 5000,
		.trace_generation = 2,
		.trace_rule_count = 1,
	};
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char bytes[INTEREST_PAGE_SIZE] = { 0 }, user[32], base[64];
	char path[FOLDER_MAX + 16];
	struct stat status;
	int fd;

	memcpy(bytes, &page, sizeof(page));
	snprintf(user, sizeof(user), PATHS_USER_DIR, (unsigned)getuid());
	snprintf(base, sizeof(base),
		 stat(user, &status) == 0 ? PATHS_SESSION_IN_USER_DIR : PATHS_SESSION_IN_TMP,
		 (unsigned)getuid());
	snprintf(daemon->folder, FOLDER_MAX, "%s-%s", base, session);
	snprintf(path, sizeof(path), "%.*s/%s", FOLDER_MAX, daemon->folder, PATHS_INTEREST_PAGE);
	if (mkdir(daemon->folder, 0700) < 0 ||
	    (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) < 0 ||
	    write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
		fail(path);
	close(fd);
	snprintf(address.sun_path, sizeof(address.sun_path), "%.*s/%s", FOLDER_MAX - 16,
		 daemon->folder, PATHS_SHIM_SOCKET);
	daemon->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(daemon->listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(daemon->listener, CONNECTIONS_MAX) < 0)
		fail(address.sun_path);
}

static void stop_daemon(struct daemon *daemon) {
	char path[FOLDER_MAX + 16];

	snprintf(path, sizeof(path), "%.*s/%s", FOLDER_MAX, daemon->folder, PATHS_INTEREST_PAGE);
	unlink(path);
	snprintf(path, sizeof(path), "%.*s/%s", FOLDER_MAX, daemon->folder, PATHS_SHIM_SOCKET);
	unlink(path);
	rmdir(daemon->folder);
}

static void new_ring(struct daemon *daemon, uint32_t flags) {
	daemon->size = SLOTS_OFFSET + SLOTS * (sizeof(struct trace_slot) + SLOT_BYTES);
	daemon->ring_fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(daemon->ring_fd, (off_t)daemon->size) < 0)
		fail("memfd");
	daemon->ring =
		mmap(NULL, daemon->size, PROT_READ | PROT_WRITE, MAP_SHARED, daemon->ring_fd, 0);
	if (daemon->ring == MAP_FAILED ||
	    fcntl(daemon->ring_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		fail("memfd");
	*daemon->ring = (struct trace_ring){
		.magic = TRACE_RING_MAGIC,
		.version = TRACE_RING_VERSION,
		.enabled = 1,
		.flags = flags,
		.slot_count = SLOTS,
		.slot_bytes = SLOT_BYTES,
		.slot_stride = sizeof(struct trace_slot) + SLOT_BYTES,
		.slots_offset = SLOTS_OFFSET,
	};
	memset(daemon->ring->functions, 0xff, sizeof(daemon->ring->functions));
	daemon->records = 0;
}

static struct trace_slot *slot_of(struct daemon *daemon, unsigned number) {
	return (struct trace_slot *)((char *)daemon->ring + SLOTS_OFFSET +
				     number * (sizeof(struct trace_slot) + SLOT_BYTES));
}

/* Counts the records of calls that have come. */
static void drain(struct daemon *daemon) {
	for (unsigned i = 0; i < SLOTS; i++) {
		struct trace_slot *slot = slot_of(daemon, i);
		uint64_t head = __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE), tail = slot->tail;

		while (tail < head) {
			struct trace_ring_record *record =
				(struct trace_ring_record *)((char *)(slot + 1) +
							     (tail & (SLOT_BYTES - 1)));

			daemon->records += record->type == TRACE_RING_CALL;
			tail += record->size;
		}
		__atomic_store_n(&slot->tail, tail, __ATOMIC_RELEASE);
	}
	daemon->ring->heartbeat = (uint64_t)now_ns(CLOCK_MONOTONIC);
}

static uint64_t lost(struct daemon *daemon) {
	uint64_t sum = daemon->ring->homeless;

	for (unsigned i = 0; i < SLOTS; i++)
		sum += slot_of(daemon, i)->lost;
	return sum;
}

/* Answers one message; false: the process has hung up. */
static bool answer(struct daemon *daemon, int fd) {
	union wire_message message, reply;
	struct iovec bytes = { &reply, 0 };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr datagram = { .msg_iov = &bytes, .msg_iovlen = 1 };

	if (recv(fd, &message, sizeof(message), 0) <= 0)
		return false;
	memset(&reply, 0, sizeof(reply));
	reply.header = message.header;
	reply.header.type = message.header.type == WIRE_HELLO ? WIRE_WELCOME : WIRE_TRACE_REPLY;
	reply.header.size = (uint32_t)(bytes.iov_len = wire_size(reply.header.type));
	if (reply.header.type == WIRE_TRACE_REPLY) {
		memset(&control, 0, sizeof(control));
		datagram.msg_control = &control;
		datagram.msg_controllen = sizeof(control.space);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &daemon->ring_fd, sizeof(int));
		reply.trace_reply.size = daemon->size;
	}
	return sendmsg(fd, &datagram, MSG_NOSIGNAL) == (ssize_t)bytes.iov_len;
}

/* Serves until the child has printed its result and closed `output`. Returns the result. */
static double serve(struct daemon *daemon, int output) {
	char text[64] = { 0 };
	size_t length = 0;

	for (;;) {
		struct pollfd polled[CONNECTIONS_MAX + 2] = { { daemon->listener, POLLIN, 0 },
							      { output, POLLIN, 0 } };

		for (unsigned i = 0; i < daemon->connection_count; i++)
			polled[i + 2] = (struct pollfd){ daemon->connections[i], POLLIN, 0 };
		poll(polled, daemon->connection_count + 2, 1);
		drain(daemon);
		for (unsigned i = daemon->connection_count; i-- > 0;)
			if (polled[i + 2].revents && !answer(daemon, daemon->connections[i])) {
				close(daemon->connections[i]);
				daemon->connections[i] =
					daemon->connections[--daemon->connection_count];
			}
		if (polled[0].revents && daemon->connection_count < CONNECTIONS_MAX)
			daemon->connections[daemon->connection_count++] =
				accept4(daemon->listener, NULL, NULL, SOCK_CLOEXEC);
		if (polled[1].revents) {
			ssize_t got = read(output, text + length, sizeof(text) - 1 - length);

			if (got <= 0)
				return length ? atof(text) : -1;
			length += (size_t)got;
		}
	}
}

static double run_child(char *const *argv, struct daemon *daemon, enum way way, const char *session,
			const struct function *function, const char *calls) {
	int pipes[2], status = -1;
	char arguments[16];
	double result;
	pid_t child;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		fail("pipe");
	child = fork();
	if (!child) {
		snprintf(arguments, sizeof(arguments), "%d", function->arguments);
		dup2(pipes[1], STDOUT_FILENO);
		setenv("LD_LIBRARY_PATH", argv[2], 1);
		setenv(PATHS_SESSION_VARIABLE, way >= ENABLED ? session : "no_such_session", 1);
		if (way != BARE)
			setenv("LD_PRELOAD", argv[1], 1);
		execl("/proc/self/exe", argv[0], "--measure", function->name, arguments, calls,
		      (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	result = serve(daemon, pipes[0]);
	close(pipes[0]);
	waitpid(child, &status, 0);
	drain(daemon);
	if (status || result < 0) {
		fprintf(stderr, "a measurement failed: %s\n", way_names[way]);
		stop_daemon(daemon);
		exit(2);
	}
	return result;
}

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Prints the figures of a function; returns whether they are good enough. */
static bool run_function(char *const *argv, struct daemon *daemon, const char *session,
			 const struct function *function, const char *calls, int rounds) {
	double times[WAYS][ROUNDS_MAX], medians[WAYS];
	uint64_t wanted = (uint64_t)atol(calls) + (uint64_t)atol(calls) / 10, records = 0, gone = 0;
	bool complete = true;

	for (int i = 0; i < rounds; i++)
		for (int way = 0; way < WAYS; way++) {
			new_ring(daemon, way == EXTRAS ? TRACE_RING_EXTRAS : 0);
			times[way][i] = run_child(argv, daemon, way, session, function, calls);
			if (way >= ENABLED) {
				complete &= daemon->records + lost(daemon) == wanted;
				records += daemon->records;
				gone += lost(daemon);
			}
			munmap(daemon->ring, daemon->size);
			close(daemon->ring_fd);
		}
	for (int way = 0; way < WAYS; way++) {
		qsort(times[way], (size_t)rounds, sizeof(double), compare);
		medians[way] = times[way][rounds / 2];
	}
	printf("{\"function\": \"%s\", \"arguments\": %d", function->name, function->arguments);
	for (int way = 0; way < WAYS; way++)
		printf(", \"%s_ns\": %.2f", way_names[way], medians[way]);
	for (int way = DISABLED; way < WAYS; way++)
		printf(", \"%s_added_ns\": %.2f, \"%s_ratio\": %.2f", way_names[way],
		       medians[way] - medians[BARE], way_names[way], medians[way] / medians[BARE]);
	printf(", \"records\": %llu, \"lost\": %llu, \"complete\": %s}",
	       (unsigned long long)records, (unsigned long long)gone, complete ? "true" : "false");
	return complete && medians[DISABLED] - medians[BARE] <= LIMIT_DISABLED_NS &&
	       medians[ENABLED] - medians[BARE] <= LIMIT_ENABLED_NS;
}

int main(int argc, char **argv) {
	const char *calls = argc > 3 ? argv[3] : "2000000";
	int rounds = argc > 4 ? atoi(argv[4]) : 5;
	char session[PATHS_SESSION_NAME_MAX + 1];
	static struct daemon daemon;
	bool good = true;

	if (argc == 5 && !strcmp(argv[1], "--measure"))
		return measure(argv[2], atoi(argv[3]), atol(argv[4]));
	if (argc < 3 || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "trace-cost SHIM DRIVER-FOLDER [CALLS] [ROUNDS]\n");
		return 2;
	}
	snprintf(session, sizeof(session), "trace_%d", getpid());
	start_daemon(&daemon, session);
	printf("{\"benchmark\": \"trace-cost\", \"calls\": %s, \"rounds\": %d, "
	       "\"limit_disabled_ns\": %.0f, "
	       "\"limit_enabled_ns\": %.0f, \"functions\": [",
	       calls, rounds, LIMIT_DISABLED_NS, LIMIT_ENABLED_NS);
	for (size_t i = 0; i < FUNCTIONS; i++) {
		printf("%s", i ? ", " : "");
		good &= run_function(argv, &daemon, session, &functions[i], calls, rounds);
	}
	printf("]}\n");
	stop_daemon(&daemon);
	return !good;
}
