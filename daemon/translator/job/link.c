/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The link step (link.h): turns an ELF object into relocated programs, maps and BTF, by libbpf.
 *
 * libbpf does the linking, in the mode in which it writes a loader program (bpf_object__gen_loader)
 * instead of calling the kernel: it relocates calls, data and maps (the latter in index form) and
 * hands each program to a prepare callback, where we copy it. The loader program itself is thrown
 * away.
 *
 * The object is opened twice: first to learn the names of its sections, so that a handler of ours
 * can be registered for each (libbpf's own would look for tracepoints and kernel types), then to
 * link. Programs that can only run on the host are not linked. A program in kprobe/ may be for
 * either; such are linked too, and left out in a second try if libbpf cannot link them (kernel
 * types that this process must not look up).
 *
 * What libbpf would trust is checked before (elf-check.c). Maps are created by nobody: their types
 * and sizes are noted, then replaced by those of a small array, so that libbpf neither refuses
 * numbers it does not know nor looks up how many CPUs there are.
 */

#include "link.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bpf/btf-check.h"
#include "lib/bpf/elf-check.h"
#include "lib/bpf/thread-section.h"
#include "kfunc-link.h"
#include "lanes.h"
#include "proto/helper.h"
#include "proto/log-record.h"
#include "proto/map-layout.h"
#include "proto/point.h"

#define LOG_MAX ((size_t)64 << 10)
#define OBJECT_NAME "object"
#define STUB_NAME "gpuprobe_helper_stub"

struct link_log {
	char *text;
	size_t size, warning; /* where the first warning begins, if there is one */
	bool warned;
};

/* One link step at work. */
struct link_step {
	void *elf;
	size_t size;
	const char *only; /* a glob of the programs that are meant; NULL: all */
	struct link_log log;
	struct link_output *output;
	struct link_failure *failure;
	int handlers[LINKED_PROGRAMS_MAX + 1];
	size_t n_handlers;
	bool marked; /* there are variables of a thread */
	int32_t thread; /* libbpf's number of the map that stands for them; -1: none */
	bool only_certain; /* second try: only programs that are GPU programs by name */
	int error; /* -ENOMEM in a callback */
};

/*
 * libbpf's print callback has no argument for its user: where the words of the step of this thread
 * go.
 */
static _Thread_local struct link_log *current_log;

__attribute__((format(printf, 2, 0))) static int log_print(enum libbpf_print_level level,
							   const char *format, va_list arguments) {
	char line[1024];
	char *grown;
	int n;

	if (level == LIBBPF_DEBUG || !current_log)
		return 0;
	n = vsnprintf(line, sizeof(line), format, arguments);
	if (n < 0)
		return 0;
	if ((size_t)n >= sizeof(line))
		n = sizeof(line) - 1;
	if (current_log->size + (size_t)n + 1 > LOG_MAX)
		return 0;
	grown = realloc(current_log->text, current_log->size + (size_t)n + 1);
	if (!grown)
		return 0;
	if (level == LIBBPF_WARN && !current_log->warned) {
		current_log->warning = current_log->size;
		current_log->warned = true;
	}
	memcpy(grown + current_log->size, line, (size_t)n + 1);
	for (int i = 0; i < n; i++)
		if (!isprint((unsigned char)line[i]) && line[i] != '\n' && line[i] != '\t')
			grown[current_log->size + (size_t)i] = '?';
	current_log->text = grown;
	current_log->size += (size_t)n;
	return 0;
}

/* The object cannot be used, because. Returns LINK_E_OBJECT. */
__attribute__((format(printf, 2, 3))) static int refuse(struct link_step *step, const char *format,
							...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(step->failure->reason, sizeof(step->failure->reason), format, arguments);
	va_end(arguments);
	for (char *c = step->failure->reason; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
	return LINK_E_OBJECT;
}

/* Whether the object has types. Maps need them, and source lines of the verifier's log come with
 * them. */
static bool has_btf(const struct link_step *step) {
	return memmem(step->elf, step->size, ".BTF", sizeof(".BTF"));
}

/* libbpf refused: the reason is the first line that it wrote, of warnings if there are such. */
static int refuse_by_libbpf(struct link_step *step, const char *doing, int error) {
	const char *text = step->log.text;
	int length;

	if (error == -ENOMEM)
		return -ENOMEM;
	if (!has_btf(step)) {
		free(step->log.text); /* it says no more */
		step->log = (struct link_log){};
		return refuse(step, "it has no types (BTF): compile it with clang -g");
	}
	if (text)
		text += step->log.warning;
	if (!text || !*text)
		return refuse(step, "%s: %s", doing, strerror(-error));
	if (!strncmp(text, "libbpf: ", 8))
		text += 8;
	length = (int)strcspn(text, "\n");
	return refuse(step, "%s: %.*s", doing, length, text);
}

/* Appends bytes to the blob, at a multiple of 8. 0, -ENOMEM or LINK_E_OBJECT. */
static int blob_append(struct link_step *step, const void *data, size_t count, size_t record_size,
		       struct linked_table *table) {
	struct link_output *output = step->output;
	uint64_t at = (output->linked.size + 7) & ~UINT64_C(7), end;
	uint8_t *grown;

	*table = (struct linked_table){ .record_size = (uint32_t)record_size };
	if (!count)
		return 0;
	if (count > LINKED_BLOB_MAX / record_size || at + count * record_size > LINKED_BLOB_MAX)
		return refuse(step, "the object is too large");
	end = at + count * record_size;
	if (end > output->capacity) {
		size_t capacity = end * 2;

		grown = realloc(output->blob, capacity);
		if (!grown)
			return -ENOMEM;
		output->blob = grown;
		output->capacity = capacity;
	}
	memset(output->blob + output->linked.size, 0, at - output->linked.size);
	memcpy(output->blob + at, data, count * record_size);
	output->linked.size = end;
	table->offset = at;
	table->count = (uint32_t)count;
	return 0;
}

/*
 * Variables of a thread are no map, so the maps behind what libbpf takes for one have other numbers
 * here than there.
 */
static void maps_renumber(const struct link_step *step, struct bpf_insn *insns, size_t n) {
	for (size_t i = 0; step->thread >= 0 && i < n; i++) {
		struct bpf_insn *insn = &insns[i];

		if (insn->code != (BPF_LD | BPF_IMM | BPF_DW))
			continue;
		if (insn->src_reg == BPF_PSEUDO_MAP_IDX ||
		    insn->src_reg == BPF_PSEUDO_MAP_IDX_VALUE) {
			if (insn->imm == step->thread)
				insn->imm = LINKED_THREAD;
			else
				insn->imm -= insn->imm > step->thread;
		}
		i++;
	}
}

/* libbpf is about to load a program: it is complete, copy it. cookie: the step. */
static int program_capture(struct bpf_program *prog, struct bpf_prog_load_opts *opts, long cookie) {
	struct link_step *step = (struct link_step *)(intptr_t)cookie;
	struct linked *linked = &step->output->linked;
	struct linked_program *program = NULL;
	size_t n = bpf_program__insn_cnt(prog);
	int r;

	for (size_t i = 0; i < linked->n_programs; i++)
		if (!strcmp(linked->programs[i].name, bpf_program__name(prog)))
			program = &linked->programs[i];
	if (!program || program->insns.count)
		return -EINVAL;
	if (n > LINKED_INSNS_MAX) {
		refuse(step, "program %s: %zu instructions, %d are allowed", program->name, n,
		       LINKED_INSNS_MAX);
		step->error = LINK_E_OBJECT;
		return -E2BIG;
	}
	r = blob_append(step, bpf_program__insns(prog), n, sizeof(struct bpf_insn),
			&program->insns);
	if (!r) {
		struct bpf_insn *insns = (void *)(step->output->blob + program->insns.offset);

		kfunc_finish(insns, program->insns.count);
		maps_renumber(step, insns, program->insns.count);
	}
	if (!r && opts->func_info_cnt && opts->func_info_rec_size <= LINKED_RECORD_MAX)
		r = blob_append(step, opts->func_info, opts->func_info_cnt,
				opts->func_info_rec_size, &program->func_info);
	if (!r && opts->line_info_cnt && opts->line_info_rec_size <= LINKED_RECORD_MAX)
		r = blob_append(step, opts->line_info, opts->line_info_cnt,
				opts->line_info_rec_size, &program->line_info);
	if (r)
		step->error = r;
	return r ? -ENOMEM : 0;
}

/* Whether the caller wants this program. */
static bool is_meant(const struct link_step *step, const struct bpf_program *prog) {
	return !step->only || fnmatch(step->only, bpf_program__name(prog), 0) == 0;
}

/* Handlers for the sections of the object, and one for what has no other. */
static int handlers_register(struct link_step *step, const struct bpf_object *object) {
	LIBBPF_OPTS(libbpf_prog_handler_opts, options, .cookie = (long)(intptr_t)step,
		    .prog_prepare_load_fn = program_capture);
	static bool placeholder; /* libbpf before 1.2 frees its list twice if it was empty once */
	struct bpf_program *prog;
	int id;

	if (!placeholder) {
		id = libbpf_register_prog_handler("gpuprobe-placeholder", BPF_PROG_TYPE_KPROBE, 0,
						  NULL);
		if (id < 0)
			return id;
		placeholder = true;
	}
	id = libbpf_register_prog_handler(NULL, BPF_PROG_TYPE_KPROBE, 0, &options);
	if (id < 0)
		return id;
	step->handlers[step->n_handlers++] = id;
	bpf_object__for_each_program(prog, object) {
		const char *section = bpf_program__section_name(prog);

		if (!is_meant(step, prog))
			continue;
		section += *section == '?';
		if (step->n_handlers > LINKED_PROGRAMS_MAX)
			return refuse(step, "more than %d programs", LINKED_PROGRAMS_MAX);
		if (!*section)
			continue;
		id = libbpf_register_prog_handler(section, BPF_PROG_TYPE_KPROBE, 0, &options);
		if (id < 0)
			return id;
		step->handlers[step->n_handlers++] = id;
	}
	return 0;
}

static void handlers_unregister(struct link_step *step) {
	while (step->n_handlers)
		libbpf_unregister_prog_handler(step->handlers[--step->n_handlers]);
}

static bool starts_with(const char *text, const char *prefix) {
	return !strncmp(text, prefix, strlen(prefix));
}

/* The point that its section begins with; NULL: none. */
static const struct point *point_begun(const struct linked_program *program) {
	for (size_t i = POINT_ENTRY; i <= POINT_MEMORY; i++)
		if (starts_with(program->section, point_table[i].section) &&
		    program->section[strlen(point_table[i].section)] == '/')
			return &point_table[i];
	return NULL;
}

/* Whether its section is one that kernels on the host and on a GPU both have points for. */
static bool is_kprobe(const struct linked_program *program) {
	const struct point *point = point_begun(program);

	return point && point->kind != POINT_MEMORY;
}

/* Whether name or section alone make it a GPU program. */
static bool is_certainly_gpu(const struct linked_program *program) {
	const char *section = program->section;

	if (starts_with(program->name, "cuda__") || starts_with(section, "gpu"))
		return true;
	if (!is_kprobe(program))
		return point_begun(program);
	return strchr(section, '@') || starts_with(strchr(section, '/'), "/dev:") ||
	       !strcmp(section, "kprobe/__memcapture") || !strcmp(section, "kprobe/__directly_run");
}

/* Whether it may be one. */
static bool may_be_gpu(const struct linked_program *program) {
	return is_certainly_gpu(program) || is_kprobe(program);
}

/* The type behind typedefs, const and the like; NULL: none. */
static const struct btf_type *type_behind(const struct btf *btf, uint32_t id) {
	int type = btf__resolve_type(btf, id);

	return type > 0 ? btf__type_by_id(btf, (uint32_t)type) : NULL;
}

static bool is_name(const char *text, size_t size) {
	if (!*text || strlen(text) >= size)
		return false;
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && *text != '_' && *text != '.' && *text != '$')
			return false;
	return true;
}

/* Notes the name of the struct that the program's argument points to, if its BTF says one. */
static void context_note(const struct btf *btf, struct linked_program *program) {
	int id = btf ? btf__find_by_name_kind(btf, program->name, BTF_KIND_FUNC) : -1;
	const struct btf_type *type = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
	const char *name;

	type = type ? btf__type_by_id(btf, type->type) : NULL;
	if (!type || !btf_is_func_proto(type) || !btf_vlen(type))
		return;
	type = type_behind(btf, btf_params(type)->type);
	if (!type || !btf_is_ptr(type))
		return;
	type = type_behind(btf, type->type);
	if (!type || !(btf_is_struct(type) || btf_is_fwd(type)))
		return;
	name = btf__name_by_offset(btf, type->name_off);
	if (name && is_name(name, sizeof(program->context)))
		strcpy(program->context, name);
}

/* Notes names and sections, and tells libbpf which programs to link. */
static int programs_begin(struct link_step *step, struct bpf_object *object) {
	struct linked *linked = &step->output->linked;
	struct bpf_program *prog;

	linked->n_programs = 0;
	bpf_object__for_each_program(prog, object) {
		const char *name = bpf_program__name(prog),
			   *section = bpf_program__section_name(prog);
		struct linked_program *program;

		if (!is_meant(step, prog)) {
			bpf_program__set_autoload(prog, false);
			continue;
		}
		if (linked->n_programs == LINKED_PROGRAMS_MAX)
			return refuse(step, "more than %d programs", LINKED_PROGRAMS_MAX);
		program = &linked->programs[linked->n_programs];
		*program = (struct linked_program){};
		section += *section == '?';
		if (!is_name(name, sizeof(program->name)))
			return refuse(step, "program %.100s: not a name", name);
		for (size_t i = 0; i < linked->n_programs; i++)
			if (!strcmp(linked->programs[i].name, name))
				return refuse(step, "two programs of the name %s", name);
		if (strlen(section) >= sizeof(program->section))
			return refuse(
				step,
				"program %s: the name of its section has more than %d characters",
				name, LINKED_SECTION_SIZE - 1);
		for (const char *c = section; *c; c++)
			if (!isprint((unsigned char)*c))
				return refuse(step, "program %s: strange name of a section", name);
		strcpy(program->name, name);
		strcpy(program->section, section);
		context_note(bpf_object__btf(object), program);
		linked->n_programs++;
		if (bpf_program__set_autoload(prog, step->only_certain ? is_certainly_gpu(program)
								       : may_be_gpu(program)) < 0)
			return refuse(step, "program %s cannot be linked", name);
	}
	return linked->n_programs || step->only
		       ? 0
		       : refuse(step, "no program in the object: write SEC(\"kprobe/KERNEL\") "
				      "before a function");
}

/*
 * Types of the running kernel mean nothing to a GPU. Programs that are not linked may rely on them
 * (CO-RE), but not functions that they might share with others.
 */
static int core_check(struct link_step *step) {
	const struct linked *linked = &step->output->linked;
	size_t size, at = 0;
	const void *ext = elf_section(step->elf, step->size, ".BTF.ext", &size),
		   *btf = elf_section(step->elf, step->size, ".BTF", &size);
	const char *section;

	while (ext && btf && (section = btf_ext_core_section(ext, btf, &at))) {
		section += *section == '?';
		if (!strcmp(section, ".text"))
			return refuse(
				step,
				"a function that is called by programs relies on types of the "
				"running kernel (CO-RE), which a GPU does not have");
		for (size_t i = 0; i < linked->n_programs; i++) {
			const struct linked_program *program = &linked->programs[i];

			if (!strcmp(program->section, section) &&
			    (step->only_certain ? is_certainly_gpu(program) : may_be_gpu(program)))
				return refuse(step,
					      "program %s relies on types of the running kernel "
					      "(CO-RE), which a GPU does not have",
					      program->name);
		}
	}
	return 0;
}

/*
 * A data section's kind, from the name that libbpf gives its map ("object.rodata", or
 * ".data.mine").
 */
static int map_internal(struct link_step *step, const char *name, enum linked_internal *internal) {
	if (starts_with(name, ".rodata"))
		*internal = LINKED_MAP_RODATA;
	else if (starts_with(name, ".data"))
		*internal = LINKED_MAP_DATA;
	else if (starts_with(name, ".bss"))
		*internal = LINKED_MAP_BSS;
	else
		return refuse(step, "%s: a GPU has no kernel configuration or symbols to link to",
			      name);
	return 0;
}

/* Notes what a map is, its initial bytes and its integers. */
static int map_note(struct link_step *step, const struct btf *btf, struct bpf_map *m,
		    struct linked_map *map) {
	static const size_t prefix = sizeof(OBJECT_NAME) - 1;
	const char *name = bpf_map__name(m);
	struct linked_lane *lanes = NULL;
	const void *initial;
	size_t n;
	int r;

	*map = (struct linked_map){
		.type = bpf_map__type(m),
		.key_size = bpf_map__key_size(m),
		.value_size = bpf_map__value_size(m),
		.max_entries = bpf_map__max_entries(m),
		.flags = bpf_map__map_flags(m),
		.btf_key_type = bpf_map__btf_key_type_id(m),
		.btf_value_type = bpf_map__btf_value_type_id(m),
	};
	if (bpf_map__is_internal(m) && starts_with(name, OBJECT_NAME "."))
		name += prefix;
	if (!is_name(name, sizeof(map->name)))
		return refuse(step, "map %.100s: not a name, or longer than %d characters", name,
			      LINKED_MAP_NAME_SIZE - 1);
	strcpy(map->name, name);
	if (bpf_map__is_internal(m)) {
		r = map_internal(step, name, &map->internal);
		if (r)
			return r;
		initial = bpf_map__initial_value(m, &n);
		if (!initial || n != map->value_size)
			return refuse(step, "%s: no initial values", name);
		r = blob_append(step, initial, n, 1, &map->initial);
		if (r)
			return r;
	}
	if (!btf || !map->btf_value_type)
		return 0;
	map->has_lanes = true;
	if (map->internal == LINKED_MAP_RODATA) /* nothing is ever added to it */
		return 0;
	r = lanes_find(btf, map->btf_value_type, map->value_size, &lanes, &n);
	if (r < 0)
		return r;
	if (r)
		return refuse(step,
			      "map %s: the type of its values is too large, or nested too deeply, "
			      "to find all integers in it",
			      name);
	r = blob_append(step, lanes, n, sizeof(*lanes), &map->lanes);
	free(lanes);
	return r;
}

/* The variable at a byte of the section .thread. */
static const char *thread_name(const struct thread_variables *variables, size_t byte) {
	for (size_t i = 0; i < variables->n; i++)
		if (byte >= variables->variables[i].offset &&
		    byte - variables->variables[i].offset < variables->variables[i].size)
			return variables->variables[i].name;
	return "a variable";
}

/* Notes the variables of a thread, which libbpf takes for a map. number: of that. */
static int thread_note(struct link_step *step, const struct btf *btf, struct bpf_map *m,
		       int32_t number) {
	struct thread_variables variables = {};
	const uint8_t *initial;
	size_t n = 0;

	initial = bpf_map__initial_value(m, &n);
	thread_variables_read(&variables, btf);
	if (!variables.n)
		return refuse(step, "the variables in " THREAD_SECTION
				    " have no types (BTF): compile it with clang -g");
	if (n > THREAD_BYTES_MAX)
		return refuse(step,
			      "the variables in " THREAD_SECTION
			      " have %zu bytes: %d are allowed, as they are registers of a thread",
			      n, THREAD_BYTES_MAX);
	for (size_t i = 0; initial && i < n; i++)
		if (initial[i])
			return refuse(
				step,
				"%s in " THREAD_SECTION
				" begins as 0 in each thread: it can have no other first value",
				thread_name(&variables, i));
	step->output->linked.thread = (uint32_t)n;
	step->thread = number;
	return 0;
}

/* Notes all maps and makes each one that libbpf can handle without asking the system. */
static int maps_begin(struct link_step *step, struct bpf_object *object) {
	struct linked *linked = &step->output->linked;
	const struct btf *btf = bpf_object__btf(object);
	struct bpf_map *m;
	int32_t number = -1;
	int r;

	linked->n_maps = 0;
	linked->thread = 0;
	step->thread = -1;
	bpf_object__for_each_map(m, object) {
		number++;
		if (step->marked && !strcmp(bpf_map__name(m), THREAD_LINKED_SECTION)) {
			r = thread_note(step, btf, m, number);
			if (r)
				return r;
			continue;
		}
		if (linked->n_maps == LINKED_MAPS_MAX)
			return refuse(step, "more than %d maps", LINKED_MAPS_MAX);
		if (bpf_map__type(m) == BPF_MAP_TYPE_STRUCT_OPS)
			return refuse(step, "map %s: struct_ops is nothing for a GPU",
				      bpf_map__name(m));
		r = map_note(step, btf, m, &linked->maps[linked->n_maps]);
		if (r)
			return r;
		linked->n_maps++;
		bpf_map__set_pin_path(m, NULL);
		if (bpf_map__is_internal(m))
			continue;
		if (bpf_map__set_type(m, BPF_MAP_TYPE_ARRAY) < 0 ||
		    bpf_map__set_key_size(m, 4) < 0 || bpf_map__set_value_size(m, 8) < 0 ||
		    bpf_map__set_max_entries(m, 1) < 0)
			return refuse(step, "map %s cannot be linked", bpf_map__name(m));
	}
	return 0;
}

/* How many subprograms follow the program's own instructions: the distinct targets of its calls. */
static int subprograms_count(const struct bpf_insn *insns, size_t n, uint32_t *countp) {
	uint32_t count = 0;
	uint8_t *seen;

	seen = calloc(n ? n : 1, 1);
	if (!seen)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		bool call = insns[i].code == (BPF_JMP | BPF_CALL) &&
			    insns[i].src_reg == BPF_PSEUDO_CALL;
		bool load = insns[i].code == (BPF_LD | BPF_IMM | BPF_DW);
		int64_t to = (int64_t)i + 1 + insns[i].imm;

		if ((call || (load && insns[i].src_reg == BPF_PSEUDO_FUNC)) && to > 0 &&
		    to < (int64_t)n && !seen[to]) {
			seen[to] = 1;
			count++;
		}
		i += load;
	}
	free(seen);
	*countp = count;
	return 0;
}

/* Whether instructions name something that only GPUs have. */
static bool uses_gpu(const struct linked *linked, const struct bpf_insn *insns, size_t n) {
	for (size_t i = 0; i < n; i++) {
		const struct bpf_insn *insn = &insns[i];

		if (insn->code == (BPF_JMP | BPF_CALL) && !insn->src_reg &&
		    helper_is_gpu(insn->imm))
			return true;
		if (insn->code != (BPF_LD | BPF_IMM | BPF_DW))
			continue;
		if (insn->src_reg == BPF_PSEUDO_MAP_IDX_VALUE && insn->imm == LINKED_THREAD)
			return true;
		if ((insn->src_reg == BPF_PSEUDO_MAP_IDX ||
		     insn->src_reg == BPF_PSEUDO_MAP_IDX_VALUE) &&
		    insn->imm >= 0 && (size_t)insn->imm < linked->n_maps &&
		    map_type_is_gpu(linked->maps[insn->imm].type))
			return true;
		i++;
	}
	return false;
}

/* Whether instructions write to the log. */
static bool uses_log(const struct bpf_insn *insns, size_t n) {
	for (size_t i = 0; i < n; i++) {
		if (insns[i].code == (BPF_JMP | BPF_CALL) && !insns[i].src_reg &&
		    helper_logs(insns[i].imm))
			return true;
		i += insns[i].code == (BPF_LD | BPF_IMM | BPF_DW);
	}
	return false;
}

/*
 * Adds the log, if a program writes to it: one for the GPU, or any where none is known to be for
 * one, as it may become that.
 */
static int log_add(struct link_step *step) {
	struct linked *linked = &step->output->linked;
	bool any, gpu = false, gpu_logs = false, logs = false;

	for (size_t i = 0; i < linked->n_programs; i++) {
		const struct linked_program *program = &linked->programs[i];

		if (!program->insns.count)
			continue;
		any = uses_log((const struct bpf_insn *)(const void *)(step->output->blob +
								       program->insns.offset),
			       program->insns.count);
		logs |= any;
		gpu |= program->gpu;
		gpu_logs |= any && program->gpu;
	}
	if (!(gpu ? gpu_logs : logs))
		return 0;
	if (linked->n_maps == LINKED_MAPS_MAX)
		return refuse(step, "more than %d maps, with that of the log", LINKED_MAPS_MAX);
	linked->maps[linked->n_maps++] = (struct linked_map){
		.name = LOG_MAP_NAME,
		.type = BPF_MAP_TYPE_GPU_RINGBUF_MAP,
		.key_size = 4,
		.value_size = MAP_RECORD_SIZE_MAX,
		.max_entries = 1,
		.internal = LINKED_MAP_LOG,
	};
	return 0;
}

/* After linking: every program asked for is there; which are for the GPU. */
static int programs_finish(struct link_step *step) {
	struct linked *linked = &step->output->linked;
	int r;

	for (size_t i = 0; i < linked->n_programs; i++) {
		struct linked_program *program = &linked->programs[i];
		const struct bpf_insn *insns;

		program->gpu = is_certainly_gpu(program);
		if (!program->insns.count) {
			if (program->gpu)
				return refuse(step, "program %s was not linked", program->name);
			continue;
		}
		insns = (const struct bpf_insn *)(const void *)(step->output->blob +
								program->insns.offset);
		program->gpu |= uses_gpu(linked, insns, program->insns.count);
		r = subprograms_count(insns, program->insns.count, &program->n_subprograms);
		if (r)
			return r;
	}
	return 0;
}

/* Copies the object's BTF, with the function that stands for helpers in shadow programs. */
static int btf_finish(struct link_step *step, struct bpf_object *object) {
	struct linked *linked = &step->output->linked;
	struct btf *btf = bpf_object__btf(object);
	const void *data;
	uint32_t size;
	int u64, prototype, stub;

	if (!btf)
		return 0;
	u64 = btf__add_int(btf, "gpuprobe_u64", 8, 0);
	if (u64 < 0)
		return u64;
	prototype = btf__add_func_proto(btf, u64);
	if (prototype < 0)
		return prototype;
	stub = btf__add_func(btf, STUB_NAME, BTF_FUNC_STATIC, prototype);
	if (stub < 0)
		return stub;
	data = btf__raw_data(btf, &size);
	if (!data)
		return -ENOMEM;
	linked->helper_stub_type = (uint32_t)stub;
	return blob_append(step, data, size, 1, &linked->btf);
}

/* Copies the text of the section "license", if there is one. libbpf keeps it to itself. */
static void license_read(struct link_step *step) {
	struct linked *linked = &step->output->linked;
	const void *text;
	size_t size;

	text = elf_section(step->elf, step->size, "license", &size);
	if (text)
		memcpy(linked->license, text,
		       size < sizeof(linked->license) ? size : sizeof(linked->license) - 1);
	for (char *c = linked->license; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
}

static struct bpf_object *object_open(struct link_step *step) {
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = OBJECT_NAME);

	return bpf_object__open_mem(step->elf, step->size, &options);
}

/* Opens, notes, links, copies. */
static int step_link(struct link_step *step) {
	LIBBPF_OPTS(gen_loader_opts, loader);
	struct bpf_object *object;
	int r;

	step->output->linked.size = 0;
	object = object_open(step);
	if (!object)
		return refuse_by_libbpf(step, "libbpf", -errno);
	r = programs_begin(step, object);
	if (!r)
		r = core_check(step);
	if (!r)
		r = maps_begin(step, object);
	if (r)
		goto out;
	r = bpf_object__gen_loader(object, &loader);
	if (!r)
		r = bpf_object__load(object);
	if (step->error) {
		r = step->error;
		goto out;
	}
	if (r) {
		r = refuse_by_libbpf(step, "the object cannot be linked", r);
		goto out;
	}
	r = programs_finish(step);
	if (!r)
		r = log_add(step);
	if (!r)
		r = btf_finish(step, object);
	if (r < 0 && r != -ENOMEM)
		r = refuse_by_libbpf(step, "the object's BTF cannot be used", r);
out:
	bpf_object__close(object);
	return r;
}

/* Whether leaving out the programs that may be for the host makes a difference. */
static bool worth_another_try(const struct link_step *step) {
	const struct linked *linked = &step->output->linked;
	size_t certain = 0, other = 0;

	for (size_t i = 0; i < linked->n_programs; i++) {
		if (is_certainly_gpu(&linked->programs[i]))
			certain++;
		else if (may_be_gpu(&linked->programs[i]))
			other++;
	}
	return certain && other;
}

/* Shows libbpf the section .thread under a name that it knows. */
static int thread_mark(struct link_step *step) {
	switch (thread_section_mark(step->elf, step->size)) {
	case THREAD_SECTION_FOUND:
		step->marked = true;
		return 0;
	case THREAD_SECTION_E_TAKEN:
		return refuse(step, "an object with a section " THREAD_SECTION
				    " can have none of the name " THREAD_LINKED_SECTION);
	case THREAD_SECTION_E_POINTERS:
		return refuse(step, "the variables in " THREAD_SECTION
				    " begin as 0 in each thread: none can begin as an address");
	default:
		return 0;
	}
}

static int step_run(struct link_step *step) {
	char error[ELF_CHECK_ERROR_SIZE];
	struct bpf_object *object;
	int r;

	if (elf_check(step->elf, step->size, error))
		return refuse(step, "%s", error);
	if (kfunc_mark(step->elf, step->size))
		return -ENOMEM;
	r = thread_mark(step);
	if (r)
		return r;
	if (elf_check(step->elf, step->size, error))
		return refuse(step, "%s", error);
	object = object_open(step);
	if (!object)
		return refuse_by_libbpf(step, "libbpf", -errno);
	r = handlers_register(step, object);
	bpf_object__close(object);
	if (r < 0)
		r = refuse_by_libbpf(step, "libbpf", r);
	if (!r) {
		license_read(step);
		r = step_link(step);
	}
	if (r == LINK_E_OBJECT && worth_another_try(step)) {
		step->only_certain = true;
		step->error = 0;
		r = step_link(step);
	}
	handlers_unregister(step);
	return r;
}

int link_object(const void *elf, size_t size, const char *only, struct link_output **outputp,
		struct link_failure *failure) {
	struct link_step step = { .size = size, .only = only, .failure = failure };
	libbpf_print_fn_t print;
	void *copy;
	int r;

	*failure = (struct link_failure){};
	if (!size || size > LINK_OBJECT_MAX)
		return refuse(&step, "%zu bytes cannot be a BPF object", size);
	copy = malloc(size); /* libelf may write to it */
	step.output = calloc(1, sizeof(*step.output));
	if (!copy || !step.output) {
		free(copy);
		free(step.output);
		return -ENOMEM;
	}
	memcpy(copy, elf, size);
	step.elf = copy;

	current_log = &step.log;
	print = libbpf_set_print(log_print);
	r = step_run(&step);
	libbpf_set_print(print);
	current_log = NULL;

	free(copy);
	if (r) {
		link_output_free(step.output);
		if (r == LINK_E_OBJECT)
			failure->log = step.log.text;
		else
			free(step.log.text);
		return r;
	}
	free(step.log.text);
	*outputp = step.output;
	return 0;
}

struct link_output *link_output_free(struct link_output *output) {
	if (output) {
		free(output->blob);
		free(output);
	}
	return NULL;
}

void link_failure_deinit(struct link_failure *failure) {
	free(failure->log);
	*failure = (struct link_failure){};
}
