/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loads and attaches the programs of an object that run on the host (host.h).
 *
 * The object is opened a second time, here in the daemon, with its GPU programs left out: CO-RE,
 * sections, symbols and kinds of attachment are libbpf's business. Only who may load programs into
 * the kernel anyway gets this far (attach.c).
 *
 * Which maps host programs use is known once libbpf has relocated them: from the descriptors in
 * their instructions. Until then every array that they may use is created so that it can be mapped.
 * The GPU's own arrays (1503, 1504, 1513) become kernel arrays where host programs refer to them;
 * other types of its own cannot, and a line says what can.
 */

#include "host.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host-maps.h"
#include "host-target.h"
#include "daemon/gpuprobed/map/map.h"
#include "lib/bpf/thread-section.h"

#define LOG_SIZE ((size_t)1 << 20)

struct host {
	const struct linked *linked; /* borrowed while host_new() runs only */
	struct bpf_object *object;
	struct bpf_program *programs[LINKED_PROGRAMS_MAX]; /* by index in linked; NULL: not ours */
	struct bpf_link *links[LINKED_PROGRAMS_MAX];
	int adopted[LINKED_PROGRAMS_MAX]; /* links that came as descriptors; else -1 */
	int maps[LINKED_MAPS_MAX]; /* descriptor, if a host program uses it; else -1 */
	uint64_t shared; /* bit i: a GPU program uses map i too */
};

/* What libbpf last complained about, in this thread. */
static __thread char complaint[256];

static int keep_complaint(enum libbpf_print_level level, const char *format, va_list arguments) {
	char line[sizeof(complaint)];
	size_t n;

	if (level != LIBBPF_WARN)
		return 0;
	vsnprintf(line, sizeof(line), format, arguments);
	n = strcspn(line, "\n");
	while (n && isspace((unsigned char)line[n - 1]))
		n--;
	line[n] = '\0';
	if (!strstr(line, "BPF program load failed") && !strstr(line, "failed to load object") &&
	    !strstr(line, "BEGIN PROG LOAD LOG") && !strncmp(line, "libbpf: ", 8))
		snprintf(complaint, sizeof(complaint), "%s", line + 8);
	return 0;
}

/* Says why libbpf returned -error. */
static int report_libbpf(struct verify_report *report, int result, size_t program, const char *what,
			 int error) {
	if (error == ENOMEM)
		return -ENOMEM;
	if (error == EPERM || error == EACCES)
		return verify_report_set(
			report, HOST_E_NOT_PERMITTED, program,
			"%s: the kernel does not let this daemon: it needs CAP_BPF and CAP_PERFMON "
			"(run the system service)",
			what);
	return verify_report_set(report, result, program, "%s: %s", what,
				 *complaint ? complaint : strerror(error));
}

/* Finds the programs of ours, and leaves out all others. */
static int choose_programs(struct host *host, uint64_t chosen,
			   char *const targets[static LINKED_PROGRAMS_MAX],
			   struct verify_report *report) {
	const struct linked *linked = host->linked;
	struct bpf_program *program;
	int r;

	bpf_object__for_each_program(program, host->object)
		bpf_program__set_autoload(program, false);
	for (size_t i = 0; i < linked->n_programs; i++) {
		if (!(chosen >> i & 1))
			continue;
		program = bpf_object__find_program_by_name(host->object, linked->programs[i].name);
		if (!program)
			return verify_report_set(report, HOST_E_INVALID, i,
						 "the object has no program %s",
						 linked->programs[i].name);
		*complaint = '\0';
		r = host_target_prepare(program, linked->programs[i].section, targets[i]);
		if (r)
			return report_libbpf(report, HOST_E_ATTACH, i, targets[i], -r);
		bpf_program__set_autoload(program, true);
		host->programs[i] = program;
	}
	return 0;
}

/* libbpf's map of that name: internal ones are called by their section here, and "<object>.bss"
 * there. */
static struct bpf_map *find_map(const struct host *host, const struct linked_map *linked) {
	struct bpf_map *map;

	bpf_object__for_each_map(map, host->object) {
		const char *name = bpf_map__name(map), *dot = strrchr(name, '.');

		if (linked->internal == LINKED_MAP_DECLARED ? !strcmp(name, linked->name)
							    : dot && !strcmp(dot, linked->name))
			return map;
	}
	return NULL;
}

static int cannot_share(struct verify_report *report, const struct linked_map *map) {
	char type[16];

	return verify_report_set(
		report, HOST_E_INVALID, SIZE_MAX,
		"map %s (%s): programs on the host and on the GPU can share arrays only: "
		"make it a BPF_MAP_TYPE_ARRAY",
		map->name, map_type_name(map->type, type));
}

/* Makes arrays mappable; leaves out maps that only a GPU has. used: by programs on the host. */
static int prepare_maps(struct host *host, uint64_t used, struct verify_report *report) {
	const struct linked *linked = host->linked;

	for (size_t i = 0; i < linked->n_maps; i++) {
		struct bpf_map *map = find_map(host, &linked->maps[i]);
		uint32_t type = linked->maps[i].type;

		if (!map || linked->maps[i].internal != LINKED_MAP_DECLARED)
			continue;
		if (map_kind_of(type) == MAP_KIND_ARRAY && map_type_is_gpu(type) && used >> i & 1)
			bpf_map__set_type(map, BPF_MAP_TYPE_ARRAY);
		else if (map_type_is_gpu(type) && used >> i & 1)
			return cannot_share(report, &linked->maps[i]);
		else if (map_type_is_gpu(type))
			bpf_map__set_autocreate(map, false);
		if (bpf_map__type(map) == BPF_MAP_TYPE_ARRAY)
			bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BPF_F_MMAPABLE);
	}
	return 0;
}

/* The maps that a GPU program refers to, by index in linked. */
static uint64_t gpu_maps(const struct linked *linked, const void *blob, uint64_t programs) {
	uint64_t maps = 0;

	for (size_t i = 0; i < linked->n_programs; i++) {
		const struct linked_table *table = &linked->programs[i].insns;
		const struct bpf_insn *insns = (const void *)((const char *)blob + table->offset);

		for (uint32_t k = 0; programs >> i & 1 && k < table->count; k++)
			if (insns[k].code == (BPF_LD | BPF_IMM | BPF_DW) &&
			    (insns[k].src_reg == BPF_PSEUDO_MAP_IDX ||
			     insns[k].src_reg == BPF_PSEUDO_MAP_IDX_VALUE) &&
			    insns[k].imm >= 0 && (size_t)insns[k].imm < linked->n_maps)
				maps |= UINT64_C(1) << insns[k].imm;
	}
	return maps;
}

static bool program_uses(const struct bpf_program *program, int fd) {
	const struct bpf_insn *insns = bpf_program__insns(program);

	for (size_t i = 0; i < bpf_program__insn_cnt(program); i++)
		if (insns[i].code == (BPF_LD | BPF_IMM | BPF_DW) &&
		    (insns[i].src_reg == BPF_PSEUDO_MAP_FD ||
		     insns[i].src_reg == BPF_PSEUDO_MAP_VALUE) &&
		    insns[i].imm == fd)
			return true;
	return false;
}

/* After loading: no program on the host has a thread of a GPU. */
static int check_thread(const struct host *host, struct verify_report *report) {
	struct bpf_map *map =
		host->linked->thread
			? bpf_object__find_map_by_name(host->object, THREAD_LINKED_SECTION)
			: NULL;

	for (size_t p = 0; map && p < LINKED_PROGRAMS_MAX; p++)
		if (host->programs[p] && program_uses(host->programs[p], bpf_map__fd(map)))
			return verify_report_set(report, HOST_E_INVALID, p,
						 "program %s runs on the host, where there are no "
						 "variables of a GPU's thread (.thread)",
						 host->linked->programs[p].name);
	return 0;
}

/* After loading: notes which maps host programs use, and checks that those shared with the GPU can
 * be. */
static int find_maps(struct host *host, uint64_t gpu, struct verify_report *report) {
	for (size_t i = 0; i < host->linked->n_maps; i++) {
		const struct linked_map *linked = &host->linked->maps[i];
		struct bpf_map *map = find_map(host, linked);
		int fd = map ? bpf_map__fd(map) : -1;
		bool used = false;

		for (size_t p = 0; p < LINKED_PROGRAMS_MAX && fd >= 0; p++)
			used = used || (host->programs[p] && program_uses(host->programs[p], fd));
		if (!used)
			continue;
		host->maps[i] = fd;
		if (!(gpu >> i & 1) || linked->internal == LINKED_MAP_RODATA)
			continue;
		if (bpf_map__type(map) != BPF_MAP_TYPE_ARRAY)
			return cannot_share(report, linked);
		host->shared |= UINT64_C(1) << i;
	}
	return 0;
}

/* The program that the kernel refused: the first that has no descriptor. */
static size_t refused_program(const struct host *host) {
	for (size_t i = 0; i < LINKED_PROGRAMS_MAX; i++)
		if (host->programs[i] && bpf_program__fd(host->programs[i]) < 0)
			return i;
	return SIZE_MAX;
}

/* The name of a map that was left out (prepare_maps()) and that a program uses, from libbpf's words
 * in the log; NULL: that is not what is wrong. Cuts the log. */
static char *missing_map(char *log) {
	static const char begin[] = "BPF map '", end[] = "' is referenced but wasn't created";
	char *behind = strstr(log, end), *name = NULL;

	if (!behind)
		return NULL;
	*behind = '\0';
	for (char *at = log; (at = strstr(at, begin));)
		name = at += sizeof(begin) - 1;
	return name;
}

static int load(struct host *host, char *log, struct verify_report *report) {
	size_t program;
	char *map;
	int r;

	r = -bpf_object__load(host->object);
	if (!r)
		return 0;
	program = refused_program(host);
	map = missing_map(log);
	if (map)
		return verify_report_set(report, HOST_E_INVALID, program,
					 "map %s: a program on the host uses it, and there can be "
					 "arrays only: BPF_MAP_TYPE_ARRAY, or 1504",
					 map);
	if (*log && r != EPERM)
		return verify_report_log(report, HOST_E_REFUSED, program, log, -r);
	return report_libbpf(report, HOST_E_INVALID, program, "loading the programs on the host",
			     r);
}

static int host_open(struct host *host, const void *elf, size_t n_elf, char *log,
		     struct verify_report *report) {
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "gpuprobe_host",
		    .kernel_log_buf = log, .kernel_log_size = LOG_SIZE, .kernel_log_level = 0);

	void *marked = malloc(n_elf ? n_elf : 1);

	if (!marked)
		return -ENOMEM;
	memcpy(marked, elf, n_elf);
	if (host->linked->thread)
		thread_section_mark(marked, n_elf);
	host->object = bpf_object__open_mem(marked, n_elf, &options);
	free(marked);
	if (!host->object)
		return report_libbpf(report, HOST_E_INVALID, SIZE_MAX,
				     "libbpf does not open the object", errno);
	return 0;
}

int host_adopt(struct host **hostp) {
	struct host *host = calloc(1, sizeof(*host));

	if (!host)
		return -ENOMEM;
	for (size_t i = 0; i < LINKED_MAPS_MAX; i++)
		host->maps[i] = -1;
	for (size_t i = 0; i < LINKED_PROGRAMS_MAX; i++)
		host->adopted[i] = -1;
	*hostp = host;
	return 0;
}

void host_adopt_link(struct host *host, size_t program, int fd) {
	if (host->adopted[program] >= 0)
		close(host->adopted[program]);
	host->adopted[program] = fd;
}

int host_link_fd(const struct host *host, size_t program) {
	if (program >= LINKED_PROGRAMS_MAX)
		return -1;
	return host->links[program] ? bpf_link__fd(host->links[program]) : host->adopted[program];
}

int host_new(struct host **hostp, const void *elf, size_t n_elf, const struct linked *linked,
	     const void *blob, uint64_t gpu_programs, uint64_t host_programs,
	     char *const targets[static LINKED_PROGRAMS_MAX], struct verify_report *report) {
	char *log = calloc(1, LOG_SIZE), error[192];
	struct host *host = NULL;
	uint64_t used = 0;
	int r;

	if (!log || host_adopt(&host) < 0) {
		free(log);
		return -ENOMEM;
	}
	libbpf_set_print(keep_complaint);
	*complaint = '\0';
	host->linked = linked;
	r = host_open(host, elf, n_elf, log, report);
	if (!r)
		r = choose_programs(host, host_programs, targets, report);
	if (!r && host_maps_find(elf, n_elf, linked, host_programs, &used, error))
		r = verify_report_set(report, HOST_E_INVALID, SIZE_MAX, "%s", error);
	if (!r)
		r = prepare_maps(host, used, report);
	if (!r)
		r = load(host, log, report);
	if (!r)
		r = check_thread(host, report);
	if (!r)
		r = find_maps(host, gpu_maps(linked, blob, gpu_programs), report);
	host->linked = NULL;
	free(log);
	if (r) {
		host_free(host);
		return r;
	}
	*hostp = host;
	return 0;
}

int host_attach(struct host *host, char *const targets[static LINKED_PROGRAMS_MAX],
		struct verify_report *report) {
	for (size_t i = 0; i < LINKED_PROGRAMS_MAX; i++) {
		char what[200];

		if (!host->programs[i] || host->links[i])
			continue;
		*complaint = '\0';
		host->links[i] =
			targets[i]
				? host_target_attach(host->programs[i],
						     bpf_program__section_name(host->programs[i]),
						     targets[i])
				: bpf_program__attach(host->programs[i]);
		if (host->links[i])
			continue;
		snprintf(what, sizeof(what), "attaching %.60s to %.100s",
			 bpf_program__name(host->programs[i]),
			 targets[i] ?: bpf_program__section_name(host->programs[i]));
		return report_libbpf(report, HOST_E_ATTACH, i, what, errno);
	}
	return 0;
}

void host_detach(struct host *host, size_t program) {
	if (program < LINKED_PROGRAMS_MAX) {
		bpf_link__destroy(host->links[program]);
		host->links[program] = NULL;
		host_adopt_link(host, program, -1);
	}
}

struct host *host_free(struct host *host) {
	if (!host)
		return NULL;
	for (size_t i = 0; i < LINKED_PROGRAMS_MAX; i++)
		host_detach(host, i);
	bpf_object__close(host->object);
	free(host);
	return NULL;
}

int host_map_fd(const struct host *host, size_t map) {
	return map < LINKED_MAPS_MAX ? host->maps[map] : -1;
}

bool host_map_shared(const struct host *host, size_t map) {
	return map < LINKED_MAPS_MAX && (host->shared >> map & 1);
}
