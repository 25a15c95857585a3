/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. What a traced call costs by source B: bare, by each rung of the ladder
 * (daemon/gpuprobed/trace/source/uprobe-link.h), and at each kind of site, in turns.
 *
 *   uprobe-cost LIBCUDA TEST-LIBCUDA [CALLS=100000] [ROUNDS=5]
 *
 * LIBCUDA has all functions: the toolkit's lib64/stubs/libcuda.so will do. TEST-LIBCUDA is
 * daemon/gpuprobed/trace/libcuda.so.1 of the build folder. As root. Prints one JSON object:
 * nanoseconds a call, by the clock and of CPU time (the best round, as others share the machine),
 * and milliseconds for attaching to and detaching from all functions (median). Exits 1 if a
 * session's record of a call at a push costs more than 1500 ns, attaching takes more than 20 ms,
 * detaching more than 100 ms, or a record is missing.
 *
 * To compare, bpftrace 0.17 on the same function, in a process of the same loop (prints nanoseconds
 * a call each second; COPY: LIBCUDA as libcuda.so.1):
 *
 *   uprobe-cost --loop COPY cuInit 8 & bpftrace one.bt >out.txt		one.bt, with COPY's
 *   path:
 *
 *     uprobe:COPY:cuInit { @start[tid] = nsecs; @flags[tid] = arg0; }
 *     uretprobe:COPY:cuInit /@start[tid]/ { printf("%d %d %d %d %d\n", tid, @start[tid], nsecs,
 *     @flags[tid], retval); delete(@start[tid]); delete(@flags[tid]); }
 *
 * and on all (uprobe:COPY:cu*, with BPFTRACE_MAX_PROBES=4000 BPFTRACE_MAX_BPF_PROGS=4000): how long
 * until the first record, and from ^C to its end.
 */

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fcntl.h>

#include "lib/function.h"
#include "daemon/gpuprobed/trace/source/uprobe-private.h"

#define ROUNDS_MAX 101
#define BATCHES 500
#define LIMIT_NS 1500.0
#define ATTACH_LIMIT_MS 20.0
#define DETACH_LIMIT_MS 100.0

typedef int any_function(void *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			 uint64_t, void *, void *, void *);

/* ---- a session that counts ---- */

struct trace_session {
	pid_t pid;
	uint64_t calls, counted, bytes, lost; /* counted: of the one function that is called */
	unsigned int n_functions;
};

bool trace_session_means(struct trace_session *session, pid_t pid) {
	return pid == session->pid;
}

bool trace_session_meant(struct trace_session *session, pid_t pid, uint64_t time) {
	return trace_session_means(session, pid);
}

bool trace_session_missed(struct trace_session *session, pid_t pid) {
	return false;
}

bool trace_session_emit(struct trace_session *session, const struct trace_record *record,
			uint32_t pid, uint32_t tid) {
	session->calls += record->type == TRACE_CALL && !(record->flags & TRACE_CALL_OPEN);
	session->bytes += record->size;
	return true;
}

bool trace_session_counts(struct trace_session *session, enum trace_source source, uint32_t pid,
			  uint16_t function, const struct trace_tally *tally) {
	session->counted = 0;
	for (size_t i = 0; i < TRACE_BUCKETS; i++)
		session->counted += tally->buckets[i];
	return true;
}

void trace_session_counts_anew(struct trace_session *session, enum trace_source source,
			       uint32_t pid, uint16_t function) {
}

void trace_session_lost(struct trace_session *session, enum trace_source source, uint32_t pid,
			uint32_t tid, uint64_t count) {
	session->lost += count;
}

void trace_session_process(struct trace_session *session, pid_t pid) {
}

void trace_session_thread(struct trace_session *session, pid_t pid, pid_t tid) {
}

bool trace_session_has_shim(struct trace_session *session, pid_t pid) {
	return false;
}

uint16_t trace_session_function(struct trace_session *session, const char *name) {
	return (uint16_t)(TRACE_FUNCTION_DYNAMIC + session->n_functions++);
}

void trace_session_foresee(struct trace_session *session, pid_t pid) {
}

uint32_t trace_session_stack(struct trace_session *session, pid_t pid, const uint64_t *addresses,
			     size_t n) {
	return 1;
}

void trace_session_missing(struct trace_session *session, const char *format, ...) {
}

/* ---- the program that calls ---- */

static double now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nanoseconds of this thread, in the kernel and out of it: what others want of the CPU does not
 * count, nor what a hypervisor does. */
static double cpu_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct figures {
	double wall, cpu; /* nanoseconds a call */
};

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int n) {
	qsort(values, (size_t)n, sizeof(*values), compare);
	return values[n / 2];
}

/* Calls in batches, of which few are as long as a slice of the scheduler's: the median batch had
 * the CPU for itself. */
static struct figures call_many(any_function *function, long calls) {
	static double walls[BATCHES];
	struct figures figures;
	double cpu = cpu_ns();

	for (size_t batch = 0; batch < BATCHES; batch++) {
		double start = now_ns();

		for (long i = 0; i < calls / BATCHES; i++)
			function(NULL, 1, 2, 3, 4, 5, 6, 7, NULL, NULL, NULL);
		walls[batch] = (now_ns() - start) / (double)(calls / BATCHES);
	}
	figures.cpu = (cpu_ns() - cpu) / (double)calls;
	figures.wall = median(walls, BATCHES);
	return figures;
}

static any_function *find(const char *path, const char *name) {
	void *library = dlopen(path, RTLD_NOW);
	any_function *function = library ? (any_function *)dlsym(library, name) : NULL;

	if (!function) {
		fprintf(stderr, "uprobe-cost: %s: %s\n", path, dlerror());
		exit(2);
	}
	return function;
}

static int loop(const char *path, const char *name, int seconds) {
	any_function *function = find(path, name);

	for (double start = now_ns(); now_ns() - start < seconds * 1e9;) {
		double begin = now_ns(), sum = 0;
		long n = 0;

		for (; now_ns() - begin < 1e9; n++)
			sum += call_many(function, 20 * BATCHES).wall;
		printf("%.0f\n", sum / (double)n);
		fflush(stdout);
	}
	return 0;
}

/* ---- the ways ---- */

static const struct way {
	const char *name, *function;
	enum uprobe_rung rung;
	bool bare, test; /* test: a function of the other library */
	bool all; /* all functions are probed, else this one */
	bool hash, extras, open, stacks, counts;
} ways[] = {
	{ .name = "bare", .function = "cuInit", .bare = true },
	{ .name = "session", .function = "cuInit", .rung = UPROBE_SESSION, .all = true },
	{ .name = "session_any_process",
	  .function = "cuInit",
	  .rung = UPROBE_SESSION,
	  .all = true,
	  .open = true },
	{ .name = "session_hash",
	  .function = "cuInit",
	  .rung = UPROBE_SESSION,
	  .all = true,
	  .hash = true },
	{ .name = "session_stacks",
	  .function = "cuInit",
	  .rung = UPROBE_SESSION,
	  .all = true,
	  .stacks = true },
	{ .name = "session_launch_11_arguments",
	  .function = "cuLaunchKernel",
	  .rung = UPROBE_SESSION,
	  .all = true,
	  .extras = true },
	{ .name = "session_counts",
	  .function = "cuInit",
	  .rung = UPROBE_SESSION,
	  .all = true,
	  .counts = true },
	{ .name = "session_counts_launch",
	  .function = "cuLaunchKernel",
	  .rung = UPROBE_SESSION,
	  .all = true,
	  .counts = true },
	{ .name = "session_counts_nop5",
	  .function = "cuSiteNop5",
	  .rung = UPROBE_SESSION,
	  .test = true,
	  .all = true,
	  .counts = true },
	{ .name = "multi", .function = "cuInit", .rung = UPROBE_MULTI, .all = true },
	{ .name = "classic", .function = "cuInit", .rung = UPROBE_CLASSIC },
	{ .name = "bare_nop5", .function = "cuSiteNop5", .bare = true, .test = true },
	{ .name = "session_nop5",
	  .function = "cuSiteNop5",
	  .rung = UPROBE_SESSION,
	  .test = true,
	  .all = true },
	{ .name = "session_nop",
	  .function = "cuSiteNop",
	  .rung = UPROBE_SESSION,
	  .test = true,
	  .all = true },
	{ .name = "session_endbr64_push",
	  .function = "cuSiteEndbr",
	  .rung = UPROBE_SESSION,
	  .test = true,
	  .all = true },
	{ .name = "session_jump",
	  .function = "cuSiteJump",
	  .rung = UPROBE_SESSION,
	  .test = true,
	  .all = true },
	{ .name = "session_test_branch",
	  .function = "cuSiteTest",
	  .rung = UPROBE_SESSION,
	  .test = true,
	  .all = true },
	{ .name = "bare_stepped", .function = "cuSiteSub", .bare = true, .test = true },
	{ .name = "session_stepped",
	  .function = "cuSiteSub",
	  .rung = UPROBE_SESSION,
	  .test = true,
	  .all = true },
	{ .name = "classic_stepped",
	  .function = "cuSiteSub",
	  .rung = UPROBE_CLASSIC,
	  .test = true },
};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

static const char *paths[2]; /* of the libraries, named libcuda.so.1 */
static struct trace_session session;
static bool complete = true;

/* The child: measures what it is asked to. */
static int serve(int in, int out, long calls) {
	any_function *functions[WAYS];
	unsigned char way;

	for (size_t i = 0; i < WAYS; i++)
		functions[i] = find(paths[ways[i].test], ways[i].function);
	way = WAYS;
	if (write(out, &(struct figures){}, sizeof(struct figures)) != sizeof(struct figures))
		return 1;
	while (read(in, &way, 1) == 1 && way < WAYS) {
		struct figures ns = call_many(functions[way], calls);

		if (write(out, &ns, sizeof(ns)) != sizeof(ns))
			return 1;
	}
	return 0;
}

static void check(int r, const char *what) {
	if (r) {
		fprintf(stderr, "uprobe-cost: %s: %s\n", what, strerror(-r));
		exit(2);
	}
}

static struct trace_uprobe *start(const struct way *way) {
	const uint32_t pid = (uint32_t)session.pid;
	struct trace_options options = { .all_users = true,
					 .bpf = true,
					 .pids = &pid,
					 .n_pids = 1,
					 .extras = way->extras,
					 .sample = 1,
					 .stacks = way->stacks,
					 .aggregate = way->counts };
	const struct uprobe_tuning tuning = { .first = way->rung,
					      .only_first = true,
					      .hash = way->hash,
					      .no_usual = true,
					      .detach_now = true };
	const struct function *function = function_by_name(way->function);
	uint16_t bit = function ? function->number : TRACE_FUNCTION_DYNAMIC;
	struct trace_uprobe *uprobe;

	if (way->open)
		options.n_pids = 0;
	if (way->all)
		memset(options.functions, 0xff, sizeof(options.functions));
	options.functions[bit / 64] |= UINT64_C(1) << bit % 64;
	check(uprobe_new_tuned(&uprobe, &session, &options, &tuning), way->name);
	return uprobe;
}

/* One way once. */
static struct figures measure(unsigned char number, int in, int out, long calls) {
	const struct way *way = &ways[number];
	struct trace_uprobe *uprobe = way->bare ? NULL : start(way);
	struct figures ns;

	session.calls = session.counted = session.lost = 0;
	fcntl(in, F_SETFL, O_NONBLOCK);
	if (write(out, &number, 1) != 1)
		exit(2);
	while (read(in, &ns, sizeof(ns)) != sizeof(ns)) {
		usleep(10000);
		if (uprobe)
			trace_uprobe_drain(uprobe);
	}
	if (uprobe)
		trace_uprobe_drain(uprobe);
	trace_uprobe_free(uprobe);
	session.calls += session.counted;
	if (!way->bare && (session.calls != (uint64_t)calls || session.lost)) {
		fprintf(stderr, "uprobe-cost: %s: %lu records of %ld calls, %lu lost\n", way->name,
			session.calls, calls, session.lost);
		complete = false;
	}
	return ns;
}

static double least(const double *values, int n) {
	double value = values[0];

	for (int i = 1; i < n; i++)
		value = values[i] < value ? values[i] : value;
	return value;
}

/* Attaching to all functions of the library, and detaching; and all that is done before the first
 * one. */
static void measure_attaching(enum uprobe_rung rung, size_t max, double *startp, double *attachp,
			      double *detachp, size_t *np) {
	const struct way way = { .name = "attaching", .function = "cuInit", .rung = rung };
	double begin = now_ns();
	struct trace_uprobe *uprobe = start(&way);
	uint64_t *offsets, *cookies;
	struct uprobe_link *link;
	struct libcuda *file;
	size_t refused;
	double middle;

	*startp = (now_ns() - begin) / 1e6;
	check(libcuda_new(&file, open(paths[0], O_RDONLY | O_CLOEXEC), paths[0]), paths[0]);
	*np = file->n < max ? file->n : max;
	offsets = calloc(*np, sizeof(*offsets));
	cookies = calloc(*np, sizeof(*cookies));
	for (size_t i = 0; i < *np; i++)
		offsets[i] = file->functions[i].offset;
	begin = now_ns();
	check(uprobe_link_new(&link, rung, &uprobe->engine.programs, file->fd, offsets, cookies,
			      *np, 0, &refused),
	      "attaching");
	middle = now_ns();
	uprobe_link_free_now(link);
	*attachp = (middle - begin) / 1e6;
	*detachp = (now_ns() - middle) / 1e6;
	trace_uprobe_free(uprobe);
	libcuda_free(file);
	free(offsets);
	free(cookies);
}

static const char *copy_library(const char *folder, const char *name, const char *from) {
	char command[8192], *path;

	if (asprintf(&path, "%s/%s/libcuda.so.1", folder, name) < 0)
		exit(2);
	snprintf(command, sizeof(command), "mkdir '%s/%s' && cp '%s' '%s'", folder, name, from,
		 path);
	if (system(command) != 0)
		exit(2);
	return path;
}

static bool report_attaching(const char *name, enum uprobe_rung rung, size_t max, int rounds) {
	double starts[ROUNDS_MAX], attaches[ROUNDS_MAX], detaches[ROUNDS_MAX];
	size_t n = 0;

	for (int i = 0; i < rounds; i++)
		measure_attaching(rung, max, &starts[i], &attaches[i], &detaches[i], &n);
	printf(", \"%s\": {\"functions\": %zu, \"start_ms\": %.1f, \"attach_ms\": %.1f, "
	       "\"detach_ms\": %.1f}",
	       name, n, median(starts, rounds), median(attaches, rounds), median(detaches, rounds));
	return rung != UPROBE_SESSION || (median(attaches, rounds) <= ATTACH_LIMIT_MS &&
					  median(detaches, rounds) <= DETACH_LIMIT_MS);
}

int main(int argc, char **argv) {
	static double times[WAYS][ROUNDS_MAX], cpu_times[WAYS][ROUNDS_MAX];
	char folder[] = "/tmp/uprobe-cost-XXXXXX", command[64];
	long calls = argc > 3 ? atol(argv[3]) : 100000;
	int rounds = argc > 4 ? atoi(argv[4]) : 5, to[2], from[2];
	struct figures figures;
	double session_ns;
	bool good;

	if (argc == 5 && !strcmp(argv[1], "--loop"))
		return loop(argv[2], argv[3], atoi(argv[4]));
	if (argc < 3 || calls < BATCHES || calls % BATCHES || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "uprobe-cost LIBCUDA TEST-LIBCUDA [CALLS] [ROUNDS] | --loop "
				"LIBCUDA FUNCTION SECONDS\n");
		return 2;
	}
	if (!mkdtemp(folder) || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return 2;
	paths[0] = copy_library(folder, "all", argv[1]);
	paths[1] = copy_library(folder, "test", argv[2]);
	session.pid = fork();
	if (!session.pid)
		_exit(serve(to[0], from[1], calls));
	if (read(from[0], &figures, sizeof(figures)) != sizeof(figures))
		return 2;
	for (int round = 0; round < rounds; round++)
		for (size_t way = 0; way < WAYS; way++) {
			figures = measure((unsigned char)way, from[0], to[1], calls);
			times[way][round] = figures.wall;
			cpu_times[way][round] = figures.cpu;
		}
	printf("{\"calls\": %ld, \"rounds\": %d, \"ns\": {", calls, rounds);
	for (size_t way = 0; way < WAYS; way++)
		printf("%s\"%s\": %.1f", way ? ", " : "", ways[way].name,
		       least(times[way], rounds));
	printf("}, \"cpu_ns\": {");
	for (size_t way = 0; way < WAYS; way++)
		printf("%s\"%s\": %.1f", way ? ", " : "", ways[way].name,
		       least(cpu_times[way], rounds));
	session_ns = least(times[1], rounds) - least(times[0], rounds);
	printf("}, \"session_added_ns\": %.1f", session_ns);
	good = report_attaching("session", UPROBE_SESSION, SIZE_MAX, rounds);
	report_attaching("multi", UPROBE_MULTI, SIZE_MAX, rounds);
	report_attaching("classic", UPROBE_CLASSIC, 16, 1);
	good = good && session_ns <= LIMIT_NS && complete;
	printf(", \"complete\": %s, \"good\": %s}\n", complete ? "true" : "false",
	       good ? "true" : "false");
	kill(session.pid, SIGKILL);
	waitpid(session.pid, NULL, 0);
	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	return system(command) != 0 || !good;
}
