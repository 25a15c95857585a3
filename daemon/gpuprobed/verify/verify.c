/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lets Linux's verifier check GPU programs (verify.h), by their shadows.
 *
 * Creates the shadow's maps, loads the object's BTF and then each shadow program (shadow.c) as a
 * kprobe program, which is never attached: its context is a struct pt_regs (168 bytes on x86-64),
 * read-only. Everything is closed again.
 *
 * A program is loaded without a log first, which is quick; only one that is refused is loaded again
 * to hear why. When the kernel dislikes the object's BTF or the program's function and line
 * records, it goes without: they are for people. If the verifier did not even start ("processed 0
 * insns"), that is the case too.
 */

#include "verify.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shadow.h"

#define LOG_SIZE ((uint32_t)16 << 20)
#define LOG_KEEP ((size_t)32 << 10) /* what is kept of the beginning, and twice that of the end */

/* What verifying the programs of one object needs. */
struct verify {
	const struct linked *linked;
	const uint8_t *blob;
	int maps[LINKED_THREAD + 1]; /* descriptors by index, for fd_array; 0: not created */
	int btf; /* -1: none */
	int32_t kfuncs[_KFUNC_N]; /* ids of the kernel's BTF; 0: not looked up */
	char *log; /* LOG_SIZE bytes */
	struct verify_report *report;
};

int verify_report_set(struct verify_report *report, int result, size_t program, const char *format,
		      ...) {
	va_list arguments;
	char *reason;
	int n;

	va_start(arguments, format);
	n = vasprintf(&reason, format, arguments);
	va_end(arguments);
	if (n < 0)
		return -ENOMEM;
	free(report->reason);
	report->program = program;
	report->reason = reason;
	return result;
}

static int not_permitted(struct verify *v) {
	return verify_report_set(
		v->report, VERIFY_E_NOT_PERMITTED, SIZE_MAX,
		"the kernel does not let this daemon verify BPF programs: it needs "
		"CAP_BPF and CAP_PERFMON (run the system service, or set verify=off if "
		"every user of this daemon is trusted)");
}

/*
 * Whether a line of the log is about an instruction, a state or a source line, rather than a
 * conclusion.
 */
static bool is_trace_line(const char *line, size_t length) {
	static const char *const starts[] = {
		";",
		"processed ",
		"insns processed",
		"verification time",
		"stack depth",
		"peak_states",
		"max_states",
		"mark_precise:",
		"from ",
		"parent ",
		"last_idx",
		"regs=",
		"R0",
		"func#",
		"Func#",
		"arg#",
		"cur state",
		"old state",
		"live regs",
		"caller:",
		"callee:",
		"returning from callee:",
		" frame",
		"frame",
	};
	size_t digits = 0;

	if (!length)
		return true;
	while (digits < length && isdigit((unsigned char)line[digits]))
		digits++;
	if (digits && digits < length && line[digits] == ':')
		return true;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (length >= strlen(starts[i]) && !strncmp(line, starts[i], strlen(starts[i]))) {
			/* "R0 !read_ok" is a conclusion, "R0=scalar() R1=ctx()" a state */
			if (!strcmp(starts[i], "R0"))
				return memchr(line, '=', length) &&
				       !memchr(line, ' ', strcspn(line, "="));
			return true;
		}
	return false;
}

/* Whether a line shows an instruction: "12: (7b) *(u64 *)(r0 +8) = r1". */
static bool is_insn_line(const char *line, size_t length) {
	size_t i = 0;

	while (i < length && isdigit((unsigned char)line[i]))
		i++;
	return i && i + 2 < length && line[i] == ':' && line[i + 1] == ' ' && line[i + 2] == '(';
}

/*
 * Finds the verifier's conclusion: the first line after the last instruction that is no trace; and
 * the last source line before it ("; text @ file:line"), which a helper's stand-in does not have.
 */
static void log_conclude(const char *log, char *conclusion, size_t conclusion_size, char *source,
			 size_t source_size) {
	const char *found = NULL, *at = NULL;
	size_t found_length = 0, at_length = 0;

	for (const char *line = log; *line;) {
		size_t length = strcspn(line, "\n");

		if (is_insn_line(line, length))
			found = NULL;
		else if (!found && !is_trace_line(line, length)) {
			found = line;
			found_length = length;
		}
		if (length > 2 && line[0] == ';' && line[1] == ' ' &&
		    isgraph((unsigned char)line[2]) && line[2] != '@') {
			at = line + 2;
			at_length = length - 2;
		}
		line += length;
		line += *line == '\n';
	}
	snprintf(conclusion, conclusion_size, "%.*s",
		 (int)(found_length < 512 ? found_length : 512), found ? found : "");
	snprintf(source, source_size, "%.*s", (int)(at_length < 256 ? at_length : 256),
		 at ? at : "");
}

/* A copy of the log; a very long one without its middle. NULL when out of memory. */
static char *log_copy(const char *log) {
	static const char gap[] = "\n[... the middle of the log is left out ...]\n";
	size_t n = strlen(log);
	char *copy;

	if (n <= 3 * LOG_KEEP)
		return strdup(log);
	copy = malloc(3 * LOG_KEEP + sizeof(gap));
	if (!copy)
		return NULL;
	memcpy(copy, log, LOG_KEEP);
	memcpy(copy + LOG_KEEP, gap, sizeof(gap) - 1);
	memcpy(copy + LOG_KEEP + sizeof(gap) - 1, log + n - 2 * LOG_KEEP, 2 * LOG_KEEP + 1);
	return copy;
}

/*
 * Says why the verifier refuses a program. shadow: it is a shadow of `linked`, of which the
 * conclusion may say what is no use on a GPU.
 */
static int report_log(struct verify_report *report, int result, size_t program, const char *log,
		      int error, const struct linked *shadow, const void *blob) {
	char conclusion[520], source[264], text[SHADOW_ERROR_SIZE];

	log_conclude(log, conclusion, sizeof(conclusion), source, sizeof(source));
	free(report->log);
	report->log = NULL;
	if (shadow &&
	    shadow_explain(shadow, blob, program, conclusion, text)) /* its log would say less */
		return verify_report_set(report, result, program, *source ? "%s: %s" : "%s", text,
					 source);
	report->log = log_copy(log);
	if (!report->log)
		return -ENOMEM;
	if (!*conclusion)
		return verify_report_set(report, result, program,
					 "the kernel refuses the program: %s", strerror(-error));
	if (!*source)
		return verify_report_set(report, result, program, "%s", conclusion);
	return verify_report_set(report, result, program, "%s: %s", conclusion, source);
}

int verify_report_log(struct verify_report *report, int result, size_t program, const char *log,
		      int error) {
	return report_log(report, result, program, log, error, NULL, NULL);
}

/* Creates a map. name: for messages. */
static int shadow_create(struct verify *v, size_t index, size_t program,
			 const struct shadow_map *shadow, const char *name) {
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = shadow->flags);
	int fd = bpf_map_create((enum bpf_map_type)shadow->type, shadow->name, shadow->key_size,
				shadow->value_size, shadow->max_entries, &options);

	if (fd == -EPERM || fd == -EACCES)
		return not_permitted(v);
	if (fd < 0)
		return verify_report_set(v->report, VERIFY_E_INVALID, program,
					 "map %s: the kernel does not create it: %s", name,
					 strerror(-fd));
	v->maps[index] = fd;
	return 0;
}

/* What stands for the variables of a thread. */
static int thread_create(struct verify *v, size_t program) {
	const struct shadow_map shadow = shadow_thread_make(v->linked);

	return shadow_create(v, LINKED_THREAD, program, &shadow, ".thread");
}

/* Creates the map, with its initial bytes if the verifier may rely on them. */
static int map_create(struct verify *v, size_t index, size_t program) {
	const struct linked_map *map = &v->linked->maps[index];
	char error[SHADOW_ERROR_SIZE];
	struct shadow_map shadow;
	const uint32_t key = 0;
	int r;

	r = shadow_map_make(map, (uint32_t)sysconf(_SC_PAGESIZE), &shadow, error);
	if (r)
		return verify_report_set(
			v->report, r == SHADOW_E_REFUSED ? VERIFY_E_REFUSED : VERIFY_E_INVALID,
			program, "%s", error);
	r = shadow_create(v, index, program, &shadow, map->name);
	if (r || !shadow.freeze)
		return r;
	if (map->initial.count != map->value_size || map->initial.offset > v->linked->size ||
	    map->initial.count > v->linked->size - map->initial.offset)
		return verify_report_set(v->report, VERIFY_E_INVALID, program,
					 "map %s: no initial values", map->name);
	r = bpf_map_update_elem(v->maps[index], &key, v->blob + map->initial.offset, BPF_ANY);
	if (!r)
		r = bpf_map_freeze(v->maps[index]);
	return r < 0 ? r : 0;
}

/* Loads the object's BTF if it has one that the kernel likes. */
static void btf_load(struct verify *v) {
	const struct linked_table *btf = &v->linked->btf;

	v->btf = -1;
	if (!btf->count || btf->offset > v->linked->size ||
	    btf->count > v->linked->size - btf->offset)
		return;
	v->btf = bpf_btf_load(v->blob + btf->offset, btf->count, NULL);
}

/* Loads and closes. with_log: into v->log. 0 or -errno. */
static int program_load(struct verify *v, const struct shadow *shadow, bool with_infos,
			bool with_log) {
	LIBBPF_OPTS(bpf_prog_load_opts, options, .fd_array = v->maps);
	int fd;

	if (with_infos) {
		options.prog_btf_fd = (uint32_t)v->btf;
		options.func_info = shadow->func_info;
		options.func_info_cnt = shadow->n_func_info;
		options.func_info_rec_size = shadow->func_info_size;
		options.line_info = shadow->line_info;
		options.line_info_cnt = shadow->n_line_info;
		options.line_info_rec_size = shadow->n_line_info ? shadow->line_info_size : 0;
	}
	if (with_log) {
		v->log[0] = '\0';
		options.log_level = 1;
		options.log_buf = v->log;
		options.log_size = LOG_SIZE;
	}
	fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "gpuprobe_shadow", v->linked->license,
			   shadow->insns, shadow->n_insns, &options);
	if (with_log)
		v->log[LOG_SIZE - 1] = '\0';
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Whether the kernel refused before it looked at any instruction. */
static bool not_started(const struct verify *v) {
	return !*v->log || strstr(v->log, "processed 0 insns");
}

static int program_verify(struct verify *v, const struct shadow *shadow, size_t index) {
	bool infos = v->btf >= 0 && shadow->n_func_info;
	int r;

	r = program_load(v, shadow, infos, false);
	if (!r || r == -EAGAIN || r == -EINTR) /* a signal: the caller gives up */
		return r;
	/* after seconds; to do it again for a log of a million lines helps nobody */
	if (r == -E2BIG)
		return verify_report_set(
			v->report, VERIFY_E_REFUSED, index,
			"the verifier gave up after a million instructions: a loop "
			"without an end, or too many ways through the program");
	if (!v->log) {
		v->log = malloc(LOG_SIZE);
		if (!v->log)
			return -ENOMEM;
	}
	r = program_load(v, shadow, infos, true);
	if (r && infos && not_started(v))
		r = program_load(v, shadow, false, true);
	if (!r)
		return 0;
	if (r == -ENOMEM || r == -EINTR || r == -EAGAIN)
		return r;
	if (r == -EPERM && !*v->log)
		return not_permitted(v);
	return report_log(v->report, VERIFY_E_REFUSED, index, v->log, r, v->linked, v->blob);
}

/* Looks up the functions of the kernel that a shadow calls, and lets it call them. */
static int kfuncs_bind(struct verify *v, struct shadow *shadow, size_t program) {
	struct btf *btf = NULL;
	int r = 0;

	for (int32_t i = 1; i < _KFUNC_N && !r; i++) {
		if (!(shadow->kfuncs & UINT32_C(1) << i) || v->kfuncs[i])
			continue;
		if (!btf)
			btf = btf__load_vmlinux_btf();
		if (!btf)
			return verify_report_set(v->report, VERIFY_E_REFUSED, program,
						 "%s: this kernel has no types (BTF, "
						 "/sys/kernel/btf/vmlinux) to find it by",
						 kfunc_name(i));
		v->kfuncs[i] = btf__find_by_name_kind(btf, kfunc_name(i), BTF_KIND_FUNC);
		if (v->kfuncs[i] <= 0)
			r = verify_report_set(
				v->report, VERIFY_E_REFUSED, program,
				"this kernel's verifier does not know %s (Linux 6.4 or newer)",
				kfunc_name(i));
	}
	btf__free(btf);
	if (!r && shadow->kfuncs)
		shadow_bind(shadow, v->kfuncs);
	return r;
}

/*
 * Makes the shadow of one program and the maps it needs that are not there yet, and has it
 * verified.
 */
static int program_run(struct verify *v, size_t index, const struct verify_options *options) {
	char error[SHADOW_ERROR_SIZE];
	struct shadow shadow;
	int r;

	r = shadow_make(v->linked, v->blob, index, options->allow_exit, &shadow, error);
	if (r < 0)
		return r;
	if (r)
		return verify_report_set(
			v->report, r == SHADOW_E_REFUSED ? VERIFY_E_REFUSED : VERIFY_E_INVALID,
			index, "%s", error);
	for (size_t i = 0; i < v->linked->n_maps && !r; i++)
		if ((shadow.maps & UINT64_C(1) << i) && !v->maps[i])
			r = map_create(v, i, index);
	if (!r && shadow.thread && !v->maps[LINKED_THREAD])
		r = thread_create(v, index);
	if (!r)
		r = kfuncs_bind(v, &shadow, index);
	if (!r)
		r = program_verify(v, &shadow, index);
	shadow_deinit(&shadow);
	return r;
}

int verify_object(const struct linked *linked, const void *blob, uint64_t programs,
		  const struct verify_options *options, struct verify_report *report) {
	struct verify v = { .linked = linked, .blob = blob, .btf = -1, .report = report };
	int r = 0;

	if (linked->n_programs > LINKED_PROGRAMS_MAX || linked->n_maps > LINKED_MAPS_MAX)
		return verify_report_set(report, VERIFY_E_INVALID, SIZE_MAX,
					 "too many programs or maps");
	btf_load(&v);
	for (size_t i = 0; i < linked->n_programs && !r; i++)
		if (programs & UINT64_C(1) << i)
			r = program_run(&v, i, options);
	for (size_t i = 0; i <= LINKED_THREAD; i++)
		if (v.maps[i] > 0)
			close(v.maps[i]);
	if (v.btf >= 0)
		close(v.btf);
	free(v.log);
	return r;
}

void verify_report_deinit(struct verify_report *report) {
	free(report->reason);
	free(report->log);
	*report = (struct verify_report){};
}

int verify_available(void) {
	static const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd;

	fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "gpuprobe_try", "GPL", insns,
			   sizeof(insns) / sizeof(insns[0]), NULL);
	if (fd == -EPERM || fd == -EACCES || fd == -ENOSYS)
		return VERIFY_E_NOT_PERMITTED;
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}
