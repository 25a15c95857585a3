/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loads the eBPF programs of uprobes and their maps (uprobe-private.h). It finds out by trying what
 * the kernel can do: each way is loaded and attached once, to a function of this program.
 */

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/clock.h"
#include "pid-namespace.h"
#include "uprobe-attach.h"
#include "uprobe-bpf.h"
#include "uprobe-private.h"

#define THREAD_PIDFD O_EXCL /* PIDFD_THREAD */
#define RING_MIN ((size_t)1 << 20)
#define RING_MAX ((size_t)64 << 20)
#define RING_DEFAULT ((size_t)8 << 20)

/* What libbpf last complained about, in this thread. */
static __thread char complaint[256];

static int keep_complaint(enum libbpf_print_level level, const char *format, va_list arguments) {
	size_t n;

	if (level != LIBBPF_WARN || strstr(format, "-- BEGIN PROG LOAD LOG"))
		return 0;
	vsnprintf(complaint, sizeof(complaint), format, arguments);
	n = strcspn(complaint, "\n");
	while (n && isspace((unsigned char)complaint[n - 1]))
		n--;
	complaint[n] = '\0';
	return 0;
}

static void fill_config(struct uprobe_config *config, const struct trace_options *options,
			const struct uprobe_engine *engine, bool closed) {
	struct stat namespace;

	*config = (struct uprobe_config){
		.min_duration = options->min_duration,
		.sample = options->sample,
		.rate = options->rate < 1000000000 ? options->rate : 0,
		.errors = options->errors,
		.stacks = options->stacks,
		.closed = closed,
		.storage = !engine->hash,
	};
	if (pid_namespace_is_own(&namespace)) {
		config->namespace_device = namespace.st_dev;
		config->namespace_inode = namespace.st_ino;
	}
}

/* The ring's size: a power of two. */
static uint32_t ring_size(size_t buffer) {
	size_t size = RING_MIN, wanted = buffer ? 8 * buffer : RING_DEFAULT;

	while (size < wanted && size < RING_MAX)
		size *= 2;
	return (uint32_t)size;
}

/* Opens the object and chooses what a rung needs of it. */
static int open_object(struct uprobe_engine *engine, const struct trace_options *options,
		       enum uprobe_rung rung, bool closed) {
	struct bpf_program *program;
	struct bpf_map *map;
	size_t size;

	engine->object = bpf_object__open_mem(uprobe_bpf, sizeof(uprobe_bpf), NULL);
	if (!engine->object)
		return -errno;
	bpf_object__for_each_program(program, engine->object) {
		const char *name = bpf_program__name(program);
		bool session = !strcmp(name, "call_session");

		bpf_program__set_autoload(program, session == (rung == UPROBE_SESSION));
		if (rung != UPROBE_CLASSIC)
			bpf_program__set_expected_attach_type(
				program, (enum bpf_attach_type)(rung == UPROBE_SESSION
									? UPROBE_ATTACH_SESSION
									: UPROBE_ATTACH_MULTI));
	}
	bpf_object__for_each_map(map, engine->object) {
		const char *name = bpf_map__name(map);

		if (!strcmp(name, engine->hash ? "storage" : "threads") ||
		    (!options->rate && !strcmp(name, "buckets")))
			bpf_map__set_autocreate(map, false);
		else if (!strcmp(name, "counts") && !options->aggregate)
			bpf_map__set_max_entries(map, 1);
		else if (!strcmp(name, "ring"))
			bpf_map__set_max_entries(map, ring_size(options->buffer));
		else if (strstr(name, ".rodata")) {
			struct uprobe_config *config =
				(struct uprobe_config *)bpf_map__initial_value(map, &size);

			if (config && size >= sizeof(*config))
				fill_config(config, options, engine, closed);
		}
	}
	return 0;
}

static int find_map(const struct uprobe_engine *engine, const char *name) {
	return bpf_object__find_map_fd_by_name(engine->object, name);
}

static int find_program(const struct uprobe_engine *engine, const char *name) {
	struct bpf_program *program = bpf_object__find_program_by_name(engine->object, name);
	int fd = program ? bpf_program__fd(program) : -1;

	return fd < 0 ? -1 : fd;
}

/* Loads one rung, and tries it. */
static int load_rung(struct uprobe_engine *engine, const struct trace_options *options,
		     enum uprobe_rung rung, bool closed) {
	int r;

	r = open_object(engine, options, rung, closed);
	if (!r)
		r = bpf_object__load(engine->object);
	if (!r) {
		engine->programs.session = find_program(engine, "call_session");
		engine->programs.enter = find_program(engine, "call_enter");
		engine->programs.leave = find_program(engine, "call_leave");
		r = uprobe_link_probe(rung, &engine->programs, find_map(engine, "control"));
		if (r < 0)
			snprintf(complaint, sizeof(complaint), "attaching: %s", strerror(-r));
	}
	engine->wide = r == UPROBE_LINK_E_THREADS;
	if (r && !engine->wide) {
		bpf_object__close(engine->object);
		engine->object = NULL;
		return r;
	}
	engine->rung = rung;
	return 0;
}

static int load(struct uprobe_engine *engine, struct trace_session *session,
		const struct trace_options *options, const struct uprobe_tuning *tuning,
		bool closed) {
	libbpf_print_fn_t print = libbpf_set_print(keep_complaint);
	int r = -EOPNOTSUPP;

	*complaint = '\0';
	for (int rung = tuning->first; rung < _UPROBE_RUNG_N; rung++) {
		r = load_rung(engine, options, (enum uprobe_rung)rung, closed);
		if (r >= 0 || tuning->only_first || r == -EPERM || r == -ENOSYS || r == -ENOMEM)
			break;
	}
	libbpf_set_print(print);
	if (r == UPROBE_LINK_E_HARM) {
		trace_session_missing(
			session,
			"bpf: this kernel kills programs with a seccomp filter (containers) whose "
			"functions' returns are probed (6.11 to 6.13 did): "
			"calls of processes without the shim are not seen; update it");
		return -EOPNOTSUPP;
	}
	if (!r && engine->rung == UPROBE_CLASSIC)
		trace_session_missing(
			session, "bpf: this kernel has neither uprobe.session (6.13) nor "
				 "uprobe_multi (6.6): probes of all functions "
				 "cost more, and take up to a minute to go away after the trace");
	if (!r && engine->wide && closed)
		trace_session_missing(
			session, "bpf: on this kernel (6.6 to 6.9 were so) probes of one process "
				 "see its first thread only: probes are in all processes that have "
				 "its libcuda, which pay for them");
	if (r == -EPERM)
		trace_session_missing(session,
				      "bpf: the kernel does not let this daemon probe programs: it "
				      "needs CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE "
				      "(run the system service); calls of processes without the "
				      "shim are not seen");
	else if (r == -ENOSYS)
		trace_session_missing(session,
				      "bpf: this kernel has no BPF (gVisor?): calls are seen of "
				      "processes with the shim alone (gpuprobectl trace -- CMD)");
	else if (r)
		trace_session_missing(session,
				      "bpf: %s; calls of processes without the shim are not seen",
				      *complaint ? complaint : strerror(-r));
	return r;
}

static int find_maps(struct uprobe_engine *engine) {
	int control = find_map(engine, "control");
	void *map;

	engine->rows = find_map(engine, "rows");
	engine->processes = find_map(engine, "processes");
	engine->lost = find_map(engine, "lost");
	engine->counts = find_map(engine, "counts");
	engine->storage = engine->hash ? -1 : find_map(engine, "storage");
	engine->threads = engine->hash ? find_map(engine, "threads") : -1;
	map = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, control,
		   0);
	if (map == MAP_FAILED)
		return -errno;
	engine->control = map;
	engine->control->generation = 1;
	return 0;
}

int uprobe_engine_init(struct uprobe_engine *engine, struct trace_session *session,
		       const struct trace_options *options, const struct uprobe_tuning *tuning,
		       int (*record)(void *userdata, void *data, size_t size), void *userdata) {
	const bool closed = (options->n_pids || options->filter.has_pid) && !options->follow;
	int n_cpus = libbpf_num_possible_cpus(), r;

	engine->hash = tuning->hash || access("/sys/kernel/btf/vmlinux", R_OK) < 0;
	r = load(engine, session, options, tuning, closed);
	if (r)
		return r;
	engine->wide = engine->wide || tuning->wide;
	engine->n_cpus = n_cpus > 0 ? (size_t)n_cpus : 1;
	engine->lost_now = calloc(engine->n_cpus, sizeof(*engine->lost_now));
	r = engine->lost_now ? find_maps(engine) : -ENOMEM;
	if (!r) {
		engine->ring = ring_buffer__new(find_map(engine, "ring"), record, userdata, NULL);
		if (!engine->ring)
			r = -errno;
	}
	if (r) {
		trace_session_missing(session,
				      "bpf: %s; calls of processes without the shim are not seen",
				      strerror(-r));
		uprobe_engine_deinit(engine);
	}
	return r;
}

void uprobe_engine_deinit(struct uprobe_engine *engine) {
	ring_buffer__free(engine->ring);
	if (engine->control)
		munmap(engine->control, (size_t)sysconf(_SC_PAGESIZE));
	free(engine->lost_now);
	bpf_object__close(engine->object);
	*engine = (struct uprobe_engine){};
}

/* Makes room in the list of processes. */
static void forget_refusals(struct uprobe_engine *engine) {
	uint32_t *keys = calloc(UPROBE_PROCESSES_MAX, sizeof(*keys)), *last = NULL;
	size_t n = 0;

	while (keys && n < UPROBE_PROCESSES_MAX &&
	       bpf_map_get_next_key(engine->processes, last, &keys[n]) == 0)
		last = &keys[n++];
	for (size_t i = 0; i < n; i++) {
		uint64_t until;

		if (bpf_map_lookup_elem(engine->processes, &keys[i], &until) == 0 &&
		    until < UPROBE_PROCESS_SHIM)
			bpf_map_delete_elem(engine->processes, &keys[i]);
	}
	free(keys);
}

void uprobe_engine_set_process(struct uprobe_engine *engine, pid_t pid, uint64_t value) {
	uint32_t key = (uint32_t)pid, generation = engine->control->generation + 1;

	if (!value) {
		bpf_map_delete_elem(engine->processes, &key);
	} else if (bpf_map_update_elem(engine->processes, &key, &value, BPF_ANY) < 0 &&
		   errno == E2BIG) {
		forget_refusals(engine);
		bpf_map_update_elem(engine->processes, &key, &value, BPF_ANY);
	}
	__atomic_store_n(&engine->control->generation, generation + !generation, __ATOMIC_RELEASE);
}

uint64_t uprobe_engine_take_lost(struct uprobe_engine *engine) {
	uint64_t sum = 0, before = engine->n_lost;
	uint32_t key = 0;

	if (bpf_map_lookup_elem(engine->lost, &key, engine->lost_now) < 0)
		return 0;
	for (size_t i = 0; i < engine->n_cpus; i++)
		sum += engine->lost_now[i];
	if (sum <= before)
		return 0;
	engine->n_lost = sum;
	return sum - before;
}

/* Reads a thread's state: by its pidfd (since 6.9 there are some of threads that lead no group), or
 * its number. */
static int read_state(const struct uprobe_engine *engine, pid_t tid, struct uprobe_state *state) {
	int pidfd, r;

	if (engine->hash)
		return bpf_map_lookup_elem(engine->threads, &tid, state);
	pidfd = (int)syscall(SYS_pidfd_open, tid, THREAD_PIDFD);
	if (pidfd < 0)
		pidfd = (int)syscall(SYS_pidfd_open, tid, 0);
	if (pidfd < 0)
		return -1;
	r = bpf_map_lookup_elem(engine->storage, &pidfd, state);
	close(pidfd);
	return r;
}

const struct uprobe_record *uprobe_engine_unfinished(struct uprobe_engine *engine, pid_t tid,
						     struct uprobe_state *state, size_t *np) {
	struct uprobe_record *record = &state->record;

	if (read_state(engine, tid, state) < 0 || !state->cookie || state->n < sizeof(*record) ||
	    state->n > UPROBE_CALL_MAX || record->flags & UPROBE_RECORD_UNWANTED)
		return NULL;
	record->flags = 0;
	record->n_frames = 0;
	record->call.record = (struct trace_record){
		.size = (uint32_t)(state->n - offsetof(struct uprobe_record, call)),
		.type = TRACE_CALL,
		.source = TRACE_SOURCE_BPF,
		.flags = record->call.record.flags | TRACE_CALL_OPEN | TRACE_CALL_NO_RESULT,
	};
	record->call.sequence = state->sequence + 1;
	record->call.end = monotonic_now();
	record->call.result = 0;
	record->call.stack = 0;
	*np = state->n;
	return record;
}
