/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loads and attaches the eBPF programs of hooks (hook-programs.h).
 *
 * One object for all hooks of a trace. Links are made with bpf(2) itself: libbpf 1.1 has no cookies
 * for some, and looks functions up by name. Programs of fentry are loaded for each function, with
 * the instructions of a template that libbpf has relocated (it is loaded for a function that all
 * kernels have).
 */

#include "hook-programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/gpuprobed/trace/source/cpu-list.h"
#include "hook-kernel.h"
#include "hook-bpf.h"
#include "daemon/gpuprobed/trace/source/uprobe-attach.h"

#define TEMPLATE_FUNCTION "vfs_read"
#define COUNT_SINGLY_MAX 512 /* kprobes, where there is no kprobe.multi */

static const char *const map_names[] = { "rows", "processes", "pending", "ioctls",
					 "ring", "hits",      "lost",    "counts" };

_Static_assert(sizeof(map_names) / sizeof(*map_names) == _HOOK_MAP_N, "a name for each map");

struct hook_programs {
	struct hook_config config;
	struct bpf_object *object;
	struct bpf_object
		*template; /* hook_fentry and hook_fexit; NULL: not loaded yet, or not possible */
	int template_error;
	bool multi;
	unsigned needs;
	int cpu; /* of perf events */
	int maps[_HOOK_MAP_N]; /* of object */
	struct uprobe_fds fds; /* links, events, programs: closed from the last to the first */
};

static bool is_template(const char *name) {
	return !strcmp(name, "hook_fentry") || !strcmp(name, "hook_fexit");
}

/* Whether the object's program is wanted: verifying one takes milliseconds. */
static bool is_needed(const struct hook_programs *programs, const char *name) {
	static const struct {
		const char *name;
		unsigned needs;
	} needs[] = {
		{ "hook_entry", HOOK_NEED_FUNCTIONS | HOOK_NEED_USER },
		{ "hook_return", HOOK_NEED_FUNCTIONS | HOOK_NEED_USER },
		{ "hook_multi_entry", HOOK_NEED_FUNCTIONS },
		{ "hook_multi_return", HOOK_NEED_FUNCTIONS },
		{ "hook_multi_user_entry", HOOK_NEED_USER },
		{ "hook_multi_user_return", HOOK_NEED_USER },
		{ "hook_count", HOOK_NEED_COUNTS },
		{ "hook_multi_count", HOOK_NEED_COUNTS },
		{ "hook_tracepoint", HOOK_NEED_TRACEPOINTS },
		{ "hook_tracepoint_end", HOOK_NEED_TRACEPOINTS },
		{ "hook_sys_enter", HOOK_NEED_SYSCALLS },
		{ "hook_sys_exit", HOOK_NEED_SYSCALLS },
	};

	if (!programs->multi && strstr(name, "_multi_"))
		return false;
	for (size_t i = 0; i < sizeof(needs) / sizeof(*needs); i++)
		if (!strcmp(name, needs[i].name))
			return programs->needs & needs[i].needs;
	return true;
}

/* Opens the object, with its constant, and only those programs that are to be loaded. */
static int open_object(const struct hook_programs *programs, bool template,
		       struct bpf_object **objectp) {
	struct bpf_program *program;
	struct bpf_object *object;
	struct bpf_map *map;
	int r = 0;

	object = bpf_object__open_mem(hook_bpf, sizeof(hook_bpf), NULL);
	if (!object)
		return -errno;
	map = bpf_object__find_map_by_name(object, ".rodata.config");
	if (!map || bpf_map__set_initial_value(map, &programs->config, sizeof(programs->config)))
		r = -EINVAL;
	bpf_object__for_each_program(program, object) {
		const char *name = bpf_program__name(program);
		bool load = template ? is_template(name)
				     : !is_template(name) && is_needed(programs, name);

		bpf_program__set_autoload(program, load);
		if (strstr(name, "_multi_user_"))
			bpf_program__set_expected_attach_type(
				program, (enum bpf_attach_type)UPROBE_ATTACH_MULTI);
		if (template && load && !r)
			r = bpf_program__set_attach_target(program, 0, TEMPLATE_FUNCTION);
	}
	map = bpf_object__find_map_by_name(object, map_names[HOOK_MAP_COUNTS]);
	if (!r && !template && !(programs->needs & HOOK_NEED_COUNTS)) /* for each processor */
		r = map ? bpf_map__set_max_entries(map, 1) : -EINVAL;
	for (size_t i = 0; template && !r && i < _HOOK_MAP_N; i++) {
		map = bpf_object__find_map_by_name(object, map_names[i]);
		r = map ? bpf_map__reuse_fd(map, programs->maps[i]) : -EINVAL;
	}
	if (r) {
		bpf_object__close(object);
		return r;
	}
	*objectp = object;
	return 0;
}

static int load_object(const struct hook_programs *programs, bool template,
		       struct bpf_object **objectp) {
	libbpf_print_fn_t previous = libbpf_set_print(NULL);
	struct bpf_object *object = NULL;
	int r;

	r = open_object(programs, template, &object);
	if (!r) {
		r = bpf_object__load(object);
		if (r)
			bpf_object__close(object);
		else
			*objectp = object;
	}
	libbpf_set_print(previous);
	return r;
}

int hook_programs_new(struct hook_programs **programsp, const struct hook_config *config,
		      unsigned needs) {
	struct hook_programs *programs = calloc(1, sizeof(*programs));
	int r;

	if (!programs)
		return -ENOMEM;
	programs->config = *config;
	programs->needs = needs;
	programs->cpu = cpu_first_online();
	programs->multi = true;
	r = load_object(programs, false, &programs->object);
	if (r && r != -EPERM && r != -ENOMEM) {
		programs->multi = false; /* before 5.18 */
		r = load_object(programs, false, &programs->object);
	}
	if (r) {
		free(programs);
		return r;
	}
	for (size_t i = 0; i < _HOOK_MAP_N; i++)
		programs->maps[i] = bpf_object__find_map_fd_by_name(programs->object, map_names[i]);
	*programsp = programs;
	return 0;
}

void hook_programs_detach(struct hook_programs *programs) {
	uprobe_fds_close(&programs->fds, 0);
}

struct hook_programs *hook_programs_free(struct hook_programs *programs) {
	if (!programs)
		return NULL;
	hook_programs_detach(programs);
	free(programs->fds.fds);
	bpf_object__close(programs->template);
	bpf_object__close(programs->object);
	free(programs);
	return NULL;
}

int hook_programs_map(const struct hook_programs *programs, enum hook_map map) {
	return programs->maps[map];
}

static int program_fd(const struct bpf_object *object, const char *name) {
	const struct bpf_program *program = bpf_object__find_program_by_name(object, name);
	int fd = program ? bpf_program__fd(program) : -1;

	return fd < 0 ? -EOPNOTSUPP : fd;
}

/* ---- fentry ---- */

/* The template's program, for another function, and a link to that. */
static int fentry(struct hook_programs *programs, const char *name, enum bpf_attach_type type,
		  int btf_fd, int btf_id, uint32_t row) {
	const struct bpf_program *template =
		bpf_object__find_program_by_name(programs->template, name);
	LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = type,
		    .attach_btf_id = (uint32_t)btf_id,
		    .attach_btf_obj_fd = btf_fd < 0 ? 0 : (uint32_t)btf_fd);
	LIBBPF_OPTS(bpf_link_create_opts, link, .tracing.cookie = row);
	int fd, r;

	fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, name, "GPL", bpf_program__insns(template),
			   bpf_program__insn_cnt(template), &options);
	r = uprobe_fds_add(&programs->fds, fd);
	return r < 0 ? r : uprobe_fds_add(&programs->fds, bpf_link_create(fd, 0, type, &link));
}

int hook_programs_fentry(struct hook_programs *programs, int btf_fd, int btf_id, uint32_t row,
			 bool span) {
	size_t n = programs->fds.n;
	int r;

	if (!programs->template && !programs->template_error)
		programs->template_error = load_object(programs, true, &programs->template);
	if (programs->template_error)
		return programs->template_error;
	/* the end first: a beginning without end would stay pending */
	r = span ? fentry(programs, "hook_fexit", BPF_TRACE_FEXIT, btf_fd, btf_id, row) : 0;
	if (r >= 0)
		r = fentry(programs, "hook_fentry", BPF_TRACE_FENTRY, btf_fd, btf_id, row);
	return uprobe_fds_undo(&programs->fds, n, r);
}

/* ---- kprobes ---- */

static int multi_link(struct hook_programs *programs, const char *name, const uint64_t *addresses,
		      const uint64_t *rows, size_t n, bool at_return) {
	LIBBPF_OPTS(bpf_link_create_opts, options,
		    .kprobe_multi.flags = at_return ? BPF_F_KPROBE_MULTI_RETURN : 0,
		    .kprobe_multi.cnt = (uint32_t)n,
		    .kprobe_multi.addrs = (const unsigned long *)addresses,
		    .kprobe_multi.cookies = (const __u64 *)rows);
	int fd = program_fd(programs->object, name);

	return fd < 0 ? fd
		      : uprobe_fds_add(&programs->fds,
				       bpf_link_create(fd, 0, BPF_TRACE_KPROBE_MULTI, &options));
}

int hook_programs_multi(struct hook_programs *programs, const uint64_t *addresses,
			const uint64_t *rows, const bool *spans, size_t n) {
	uint64_t *ends = calloc(2 * n + 1, sizeof(*ends));
	size_t before = programs->fds.n, n_ends = 0;
	int r = 0;

	if (!ends)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (spans[i]) {
			ends[n_ends] = addresses[i];
			ends[n + n_ends++] = rows[i];
		}
	if (!programs->multi)
		r = -EOPNOTSUPP;
	else if (n_ends)
		r = multi_link(programs, "hook_multi_return", ends, ends + n, n_ends, true);
	if (!r)
		r = multi_link(programs, "hook_multi_entry", addresses, rows, n, false);
	free(ends);
	return uprobe_fds_undo(&programs->fds, before, r);
}

/* An event of perf, and the program that runs at it. */
static int perf_link(struct hook_programs *programs, struct perf_event_attr *attributes,
		     int program, uint32_t row) {
	LIBBPF_OPTS(bpf_link_create_opts, options, .perf_event.bpf_cookie = row);
	int event, r;

	attributes->size = sizeof(*attributes);
	event = (int)syscall(SYS_perf_event_open, attributes, -1, programs->cpu, -1,
			     PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	r = uprobe_fds_add(&programs->fds, event);
	if (r < 0)
		return r;
	return uprobe_fds_add(
		&programs->fds,
		program < 0 ? program : bpf_link_create(program, event, BPF_PERF_EVENT, &options));
}

static int kprobe(struct hook_programs *programs, const struct hook_kernel *kernel,
		  const char *name, uint64_t address, uint32_t row, bool at_return) {
	struct perf_event_attr attributes = {
		.type = (uint32_t)kernel->kprobe_type,
		.config2 = address,
	};

	if (kernel->kprobe_type < 0 || kernel->kprobe_return_bit < 0)
		return -EOPNOTSUPP;
	if (at_return)
		attributes.config = UINT64_C(1) << kernel->kprobe_return_bit;
	return perf_link(programs, &attributes, program_fd(programs->object, name), row);
}

int hook_programs_kprobe(struct hook_programs *programs, const struct hook_kernel *kernel,
			 uint64_t address, uint32_t row, bool span) {
	size_t n = programs->fds.n;
	int r = span ? kprobe(programs, kernel, "hook_return", address, row, true) : 0;

	if (!r)
		r = kprobe(programs, kernel, "hook_entry", address, row, false);
	return uprobe_fds_undo(&programs->fds, n, r);
}

size_t hook_programs_count(struct hook_programs *programs, const struct hook_kernel *kernel,
			   const uint64_t *addresses, bool *counted, size_t n_multi, size_t n) {
	uint64_t *rows = calloc(n + 1, sizeof(*rows));
	size_t n_counted = 0;
	int r = 0;

	if (!rows)
		return 0;
	for (size_t i = 0; i < n; i++)
		rows[i] = i;
	memset(counted, false, n);
	if (programs->multi && n_multi &&
	    !multi_link(programs, "hook_multi_count", addresses, rows, n_multi, false)) {
		memset(counted, true, n_multi);
		n_counted = n_multi;
	}
	free(rows);
	for (size_t i = n_counted; i < n && !r && n_counted < n_multi + COUNT_SINGLY_MAX; i++) {
		size_t before = programs->fds.n;

		r = uprobe_fds_undo(&programs->fds, before,
				    kprobe(programs, kernel, "hook_count", addresses[i],
					   (uint32_t)i, false));
		counted[i] = !r;
		n_counted += counted[i];
		/* of those that ftrace reaches one may fail by itself; the others fail all or none
		 */
		if (i < n_multi && r != -EOPNOTSUPP)
			r = 0;
	}
	return n_counted;
}

/* ---- tracepoints ---- */

int hook_programs_tracepoint(struct hook_programs *programs, int id, int end_id, uint32_t row) {
	struct perf_event_attr attributes = { .type = PERF_TYPE_TRACEPOINT,
					      .config = (uint64_t)id },
			       end = { .type = PERF_TYPE_TRACEPOINT, .config = (uint64_t)end_id };
	size_t n = programs->fds.n;
	int r = 0;

	if (end_id > 0)
		r = perf_link(programs, &end, program_fd(programs->object, "hook_tracepoint_end"),
			      row);
	if (!r)
		r = perf_link(programs, &attributes,
			      program_fd(programs->object, "hook_tracepoint"), row);
	return uprobe_fds_undo(&programs->fds, n, r);
}

static int raw_tracepoint(struct hook_programs *programs, const char *name, const char *program) {
	int fd = program_fd(programs->object, program);

	return fd < 0 ? fd : uprobe_fds_add(&programs->fds, bpf_raw_tracepoint_open(name, fd));
}

int hook_programs_syscalls(struct hook_programs *programs,
			   const int32_t rows[static 2 * _HOOK_SYSCALL_N]) {
	int fd = bpf_object__find_map_fd_by_name(programs->object, ".data.syscalls"), r;
	size_t n = programs->fds.n;
	uint32_t key = 0;

	r = bpf_map_update_elem(fd, &key, rows, BPF_ANY)
		    ? -errno
		    : raw_tracepoint(programs, "sys_exit", "hook_sys_exit");
	if (!r)
		r = raw_tracepoint(programs, "sys_enter", "hook_sys_enter");
	return uprobe_fds_undo(&programs->fds, n, r);
}

int hook_programs_processes(struct hook_programs *programs) {
	size_t n = programs->fds.n;
	int r = raw_tracepoint(programs, "sched_process_exit", "hook_exit");

	if (!r)
		r = raw_tracepoint(programs, "sched_process_exec", "hook_exec");
	if (!r)
		r = raw_tracepoint(programs, "sched_process_fork", "hook_fork");
	return uprobe_fds_undo(&programs->fds, n, r);
}

/* ---- uprobes ---- */

struct hook_user_programs hook_programs_user(const struct hook_programs *programs) {
	return (struct hook_user_programs){
		.multi_entry = program_fd(programs->object, "hook_multi_user_entry"),
		.multi_return = program_fd(programs->object, "hook_multi_user_return"),
		.entry = program_fd(programs->object, "hook_entry"),
		.end = program_fd(programs->object, "hook_return"),
	};
}
