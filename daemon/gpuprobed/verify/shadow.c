/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes the shadow of a GPU program (shadow.h).
 *
 * Each call of a helper that the kernel lacks, or that means something else there, becomes a call
 * of a small subprogram appended to the program: one instruction for one, so nothing moves and all
 * offsets, lines and jumps stay. A subprogram has the helper's effect on memory and, for everything
 * it returns or writes, a number that the verifier knows nothing about (what ktime_get_ns returns).
 * Each such number must come from a call of its own: the verifier links copies of one unknown
 * number, and what a program finds out about one would then hold for another.
 *
 * proto/helper.h says which helper has which subprogram. The GPU's rings and perf event arrays
 * become ring buffers.
 *
 * A helper that no GPU has, a function of the kernel, or one through a pointer, becomes the call of
 * a helper that no kernel has, with a number that says where. So it is the verifier that refuses
 * it, with the source line, and does not where it knows that nobody comes there (a configuration in
 * .rodata); shadow_explain() says what it means.
 *
 * Map types become kernel types with the same values. Arrays and hashes, percpu or not, become
 * small hashes: newer verifiers know that the lookup of a constant index in an array is never NULL,
 * but on a GPU it is NULL as long as the probe's map is not there. Data sections stay arrays, whose
 * values can be pointed to; variables of a thread are one more. Maps get few entries: they are
 * never used, and fewer entries never let the verifier prove more.
 *
 * The input comes from a worker that has seen a stranger's object: instructions and records are
 * checked as far as this transformation relies on them; the kernel checks the rest.
 */

#include "shadow.h"

#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bpf/helper-name.h"
#include "proto/helper.h"
#include "proto/map-layout.h"

#define PUTS_MAX 255
#define STUB_INSNS_MAX (2 * PUTS_MAX + 8)
#define MISSING 0x40000000 /* plus the number of an instruction: a helper that no kernel has */

#define INSN(CODE, DST, SRC, OFF, IMM) \
	((struct bpf_insn){            \
		.code = (CODE), .dst_reg = (DST), .src_reg = (SRC), .off = (OFF), .imm = (IMM) })
#define MOV_REG(DST, SRC) INSN(BPF_ALU64 | BPF_MOV | BPF_X, DST, SRC, 0, 0)
#define MOV32_REG(DST, SRC) INSN(BPF_ALU | BPF_MOV | BPF_X, DST, SRC, 0, 0)
#define CALL(HELPER) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, HELPER)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

__attribute__((format(printf, 3, 4))) static int fail(char *error, int result, const char *format,
						      ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, SHADOW_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return result;
}

/* `number` *= 1: a register that was never set, or holds an address, is refused. */
static struct bpf_insn take_number(uint8_t number) {
	return INSN(BPF_ALU64 | BPF_MUL | BPF_K, number, 0, 0, 1);
}

/* Writes a stub's instructions; returns how many. */
static size_t stub_emit(enum helper_stub stub, struct bpf_insn *out) {
	size_t n = 0;

	switch (stub) {
	case HELPER_STUB_WRITE3:
		for (uint8_t i = 0; i < 3; i++)
			out[n++] = MOV_REG(BPF_REG_6 + i, BPF_REG_1 + i);
		for (uint8_t i = 0; i < 3; i++) {
			out[n++] = CALL(BPF_FUNC_ktime_get_ns);
			out[n++] = MOV32_REG(BPF_REG_0, BPF_REG_0);
			out[n++] = INSN(BPF_STX | BPF_MEM | BPF_DW, BPF_REG_6 + i, BPF_REG_0, 0, 0);
		}
		out[n++] = CALL(BPF_FUNC_ktime_get_ns);
		break;
	case HELPER_STUB_SCALAR:
	case HELPER_STUB_NUMBER1:
	case HELPER_STUB_NUMBER2:
	case HELPER_STUB_NUMBER3:
		for (uint8_t i = 1; i <= (int)stub - HELPER_STUB_SCALAR; i++)
			out[n++] = take_number(i);
		out[n++] = CALL(BPF_FUNC_ktime_get_ns);
		break;
	case HELPER_STUB_BIT:
		out[n++] = take_number(BPF_REG_1);
		out[n++] = CALL(BPF_FUNC_ktime_get_ns);
		out[n++] = INSN(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_0, 0, 0, 63);
		break;
	case HELPER_STUB_ATOMIC: /* of an atomic addition the verifier wants alignment, too */
		out[n++] = take_number(BPF_REG_2);
		out[n++] = INSN(BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_1, BPF_REG_2, 0, BPF_ADD);
		out[n++] = CALL(BPF_FUNC_ktime_get_ns);
		break;
	case HELPER_STUB_LANE:
		out[n++] = CALL(BPF_FUNC_ktime_get_ns);
		out[n++] = INSN(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_0, 0, 0, 31);
		break;
	case HELPER_STUB_PUTS:
		for (int16_t i = 0; i < PUTS_MAX; i++) {
			out[n++] = INSN(BPF_LDX | BPF_MEM | BPF_B, BPF_REG_0, BPF_REG_1, i, 0);
			out[n++] = INSN(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0,
					(int16_t)(2 * (PUTS_MAX - 1 - i)), 0);
		}
		out[n++] = CALL(BPF_FUNC_ktime_get_ns);
		break;
	case HELPER_STUB_RING:
		out[n++] = MOV_REG(BPF_REG_1, BPF_REG_2);
		out[n++] = MOV_REG(BPF_REG_2, BPF_REG_4);
		out[n++] = MOV_REG(BPF_REG_3, BPF_REG_5);
		out[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_4, 0, 0, 0);
		out[n++] = CALL(BPF_FUNC_ringbuf_output);
		break;
	default:
		return 0;
	}
	out[n++] = EXIT();
	return n;
}

/*
 * A load of a 64-bit constant, which may be a declared map or a place in a data section; or a
 * function, as bpf_loop takes it. i: of n instructions.
 */
static int check_load(const struct linked *linked, const struct bpf_insn *insn, size_t i, size_t n,
		      struct shadow *shadow, char *error) {
	int64_t to = (int64_t)i + 1 + insn->imm;
	const struct linked_map *map;

	if (!insn->src_reg)
		return 0;
	if (insn->src_reg == BPF_PSEUDO_FUNC && to >= 0 && to < (int64_t)n)
		return 0;
	if (insn->src_reg != BPF_PSEUDO_MAP_IDX && insn->src_reg != BPF_PSEUDO_MAP_IDX_VALUE)
		return fail(error, SHADOW_E_REFUSED,
			    "insn %zu: the address of a function or of a symbol of the kernel is "
			    "no use on a GPU",
			    i);
	if (insn->src_reg == BPF_PSEUDO_MAP_IDX_VALUE && insn->imm == LINKED_THREAD &&
	    linked->thread) {
		shadow->thread = true;
		return 0;
	}
	if (insn->imm < 0 || (size_t)insn->imm >= linked->n_maps)
		return fail(error, SHADOW_E_INVALID, "there is no map %d", insn->imm);
	map = &linked->maps[insn->imm];
	if ((insn->src_reg == BPF_PSEUDO_MAP_IDX_VALUE) != (map->internal != LINKED_MAP_DECLARED))
		return fail(error, SHADOW_E_INVALID, "map %s is referred to in the wrong way",
			    map->name);
	shadow->maps |= UINT64_C(1) << insn->imm;
	return 0;
}

/*
 * Checks the copied instructions and replaces helpers; stubs go behind them, which there is room
 * for.
 */
static int transform(const struct linked *linked, struct shadow *shadow, bool allow_exit,
		     size_t at[static _HELPER_STUB_N], char *error) {
	struct bpf_insn *insns = shadow->insns;
	size_t n = shadow->n_insns;
	const struct helper *helper;
	enum helper_stub stub;
	int r;

	for (size_t i = 0; i < n; i++) {
		struct bpf_insn *insn = &insns[i];

		if (insn->code == (BPF_LD | BPF_IMM | BPF_DW)) {
			if (i + 1 == n)
				return fail(error, SHADOW_E_INVALID,
					    "insn %zu: half an instruction", i);
			r = check_load(linked, insn, i, n, shadow, error);
			if (r)
				return r;
			i++;
			continue;
		}
		if (insn->code == (BPF_JMP | BPF_CALL | BPF_X)) {
			*insn = CALL(MISSING + (int32_t)i);
			continue;
		}
		if (insn->code != (BPF_JMP | BPF_CALL))
			continue;
		if (insn->src_reg == BPF_PSEUDO_CALL) {
			int64_t to = (int64_t)i + 1 + insn->imm;

			if (to < 0 || to >= (int64_t)n)
				return fail(error, SHADOW_E_INVALID, "insn %zu: call of nothing",
					    i);
			continue;
		}
		if (insn->src_reg == BPF_PSEUDO_KFUNC_CALL && kfunc_name(insn->imm)) {
			shadow->kfuncs |= UINT32_C(1) << insn->imm;
			continue;
		}
		helper = insn->src_reg ? NULL : helper_find(insn->imm);
		if (!helper) {
			*insn = CALL(MISSING + (int32_t)i);
			continue;
		}
		if (helper->kind == HELPER_EXIT && !allow_exit)
			return fail(
				error, SHADOW_E_REFUSED,
				"bpf_cuda_exit stops threads of the application, which this daemon "
				"does not allow: see gpuprobed --allow-exit");
		stub = helper->stub;
		if (stub == HELPER_STUB_NONE)
			continue;
		if (!at[stub]) {
			at[stub] = shadow->n_insns;
			shadow->n_insns += stub_emit(stub, &insns[shadow->n_insns]);
		}
		insn->src_reg = BPF_PSEUDO_CALL;
		insn->imm = (int32_t)(at[stub] - i - 1);
	}
	return 0;
}

/*
 * A copy of a table of the blob with room for a record for each stub, which get words[0] = their
 * start.
 */
static void *table_extend(const struct linked_table *table, const uint8_t *blob,
			  const size_t at[static _HELPER_STUB_N], uint32_t second_word,
			  size_t record_min, uint32_t *count) {
	uint8_t *copy, *record;

	copy = calloc((size_t)table->count + _HELPER_STUB_N, table->record_size);
	if (!copy)
		return NULL;
	memcpy(copy, blob + table->offset, (size_t)table->count * table->record_size);
	record = copy + (size_t)table->count * table->record_size;
	*count = table->count;
	for (size_t done = 0;;) { /* in order of instructions */
		size_t next = SIZE_MAX;
		uint32_t words[2];

		for (size_t s = 0; s < _HELPER_STUB_N; s++)
			if (at[s] > done && at[s] < next)
				next = at[s];
		if (next == SIZE_MAX)
			break;
		words[0] = (uint32_t)next;
		words[1] = second_word;
		memcpy(record, words, sizeof(words) < record_min ? sizeof(words) : record_min);
		record += table->record_size;
		++*count;
		done = next;
	}
	return copy;
}

/*
 * Function and line records, those of the stubs included: a function that stands for helpers, and a
 * line without text.
 */
static int infos_make(const struct linked *linked, const struct linked_program *program,
		      const uint8_t *blob, const size_t at[static _HELPER_STUB_N],
		      struct shadow *shadow) {
	const struct linked_table *functions = &program->func_info, *lines = &program->line_info;

	if (!linked->btf.count || !linked->helper_stub_type || !functions->count ||
	    functions->record_size < sizeof(struct bpf_func_info))
		return 0;
	shadow->func_info = table_extend(functions, blob, at, linked->helper_stub_type,
					 sizeof(struct bpf_func_info), &shadow->n_func_info);
	if (!shadow->func_info)
		return -ENOMEM;
	shadow->func_info_size = functions->record_size;
	if (!lines->count || lines->record_size < sizeof(struct bpf_line_info))
		return 0;
	shadow->line_info = table_extend(lines, blob, at, 0, sizeof(struct bpf_line_info),
					 &shadow->n_line_info);
	if (!shadow->line_info)
		return -ENOMEM;
	shadow->line_info_size = lines->record_size;
	return 0;
}

/* Whether a table lies inside the blob. */
static bool inside(const struct linked *linked, const struct linked_table *table) {
	return table->offset <= linked->size &&
	       (uint64_t)table->count * table->record_size <= linked->size - table->offset;
}

int shadow_make(const struct linked *linked, const void *blob, size_t index, bool allow_exit,
		struct shadow *shadowp, char error[static SHADOW_ERROR_SIZE]) {
	const struct linked_program *program;
	struct shadow shadow = {};
	size_t at[_HELPER_STUB_N] = {};
	int r;

	if (index >= linked->n_programs || linked->n_programs > LINKED_PROGRAMS_MAX ||
	    linked->n_maps > LINKED_MAPS_MAX)
		return fail(error, SHADOW_E_INVALID, "there is no program %zu", index);
	program = &linked->programs[index];
	if (!program->insns.count || program->insns.record_size != sizeof(struct bpf_insn) ||
	    !inside(linked, &program->insns) || !inside(linked, &program->func_info) ||
	    !inside(linked, &program->line_info))
		return fail(error, SHADOW_E_INVALID, "program %s has no instructions",
			    program->name);
	if (program->insns.count > LINKED_INSNS_MAX)
		return fail(error, SHADOW_E_REFUSED, "%u instructions, %d are allowed",
			    program->insns.count, LINKED_INSNS_MAX);

	shadow.n_insns = program->insns.count;
	shadow.insns = calloc(shadow.n_insns + (size_t)_HELPER_STUB_N * STUB_INSNS_MAX,
			      sizeof(*shadow.insns));
	if (!shadow.insns)
		return -ENOMEM;
	memcpy(shadow.insns, (const uint8_t *)blob + program->insns.offset,
	       shadow.n_insns * sizeof(*shadow.insns));
	r = transform(linked, &shadow, allow_exit, at, error);
	if (!r)
		r = infos_make(linked, program, blob, at, &shadow);
	if (r) {
		shadow_deinit(&shadow);
		return r;
	}
	*shadowp = shadow;
	return 0;
}

void shadow_bind(struct shadow *shadow, const int32_t ids[static _KFUNC_N]) {
	for (size_t i = 0; i < shadow->n_insns; i++) {
		struct bpf_insn *insn = &shadow->insns[i];

		if (insn->code == (BPF_LD | BPF_IMM | BPF_DW))
			i++;
		else if (insn->code == (BPF_JMP | BPF_CALL) &&
			 insn->src_reg == BPF_PSEUDO_KFUNC_CALL)
			insn->imm = ids[insn->imm];
	}
}

#define TOO_OLD_V4                                                                        \
	"this kernel's verifier does not know all instructions of clang -mcpu=v4 (Linux " \
	"6.6 or newer): compile with -mcpu=v3"

/* What an older kernel says of what it does not know, and what it means. */
static const struct {
	const char *conclusion, *text;
} too_old[] = {
	{ "unknown opcode e5",
	  "this kernel's verifier does not know may_goto (Linux 6.9 or newer)" },
	{ "unknown opcode 06", TOO_OLD_V4 }, /* gotol */
	{ "unknown opcode 81", TOO_OLD_V4 }, /* loads that extend the sign */
	{ "unknown opcode 89", TOO_OLD_V4 },
	{ "unknown opcode 91", TOO_OLD_V4 },
	{ "unknown opcode d7", TOO_OLD_V4 }, /* bswap */
	{ "unknown func bpf_loop#181",
	  "this kernel's verifier does not know bpf_loop (Linux 5.17 or newer)" },
	{ "invalid func bpf_loop#181",
	  "this kernel's verifier does not know bpf_loop (Linux 5.17 or newer)" },
	{ "invalid func unknown#181",
	  "this kernel's verifier does not know bpf_loop (Linux 5.17 or newer)" },
};

bool shadow_explain(const struct linked *linked, const void *blob, size_t index,
		    const char *conclusion, char text[static SHADOW_ERROR_SIZE]) {
	static const char start[] = "invalid func unknown#";
	const struct linked_table *insns = &linked->programs[index].insns;
	const struct bpf_insn *insn;
	const char *name;
	long number;

	for (size_t i = 0; i < sizeof(too_old) / sizeof(too_old[0]); i++)
		if (!strcmp(conclusion, too_old[i].conclusion)) {
			fail(text, 0, "%s", too_old[i].text);
			return true;
		}
	if (strncmp(conclusion, start, sizeof(start) - 1))
		return false;
	number = strtol(conclusion + sizeof(start) - 1, NULL, 10) - MISSING;
	if (number < 0 || number >= (long)insns->count)
		return false;
	insn = (const struct bpf_insn *)(const void *)((const uint8_t *)blob + insns->offset) +
	       number;
	name = helper_kernel_name((uint32_t)insn->imm);
	if (insn->code & BPF_X)
		fail(text, 0, "functions cannot be called through pointers");
	else if (insn->src_reg)
		fail(text, 0, "functions of the kernel cannot be called on a GPU");
	else if (name)
		fail(text, 0, "there is no %s (helper %d) on a GPU", name, insn->imm);
	else
		fail(text, 0, "there is no helper %d on a GPU", insn->imm);
	return true;
}

void shadow_deinit(struct shadow *shadow) {
	free(shadow->insns);
	free(shadow->func_info);
	free(shadow->line_info);
	*shadow = (struct shadow){};
}

/*
 * The kernel's type that stands for a map's; 0 if there is none. Lookups in a hash map may be NULL.
 * Memory is taken for all entries at once, and in one that does not drop the oldest for one more on
 * each CPU.
 */
static uint32_t kernel_type(const struct linked_map *map) {
	if (map->internal != LINKED_MAP_DECLARED && map->type == BPF_MAP_TYPE_ARRAY)
		return BPF_MAP_TYPE_ARRAY;
	switch (map_kind_of(map->type)) {
	case MAP_KIND_ARRAY:
	case MAP_KIND_THREADS:
	case MAP_KIND_HASH:
		return BPF_MAP_TYPE_LRU_HASH;
	case MAP_KIND_RING:
		return BPF_MAP_TYPE_RINGBUF;
	}
	return 0;
}

/* Whether a map's sizes make sense, as far as the verifier is to rely on them. */
static bool sizes_valid(const struct linked_map *map) {
	bool hash = map_kind_of(map->type) == MAP_KIND_HASH;
	uint32_t value_max =
		map->internal == LINKED_MAP_DECLARED ? SHADOW_VALUE_SIZE_MAX : SHADOW_DATA_SIZE_MAX;

	if (!map->max_entries || !map->value_size || map->value_size > value_max)
		return false;
	if (map->internal != LINKED_MAP_DECLARED && map->max_entries != 1)
		return false;
	return hash ? map->key_size && map->key_size <= SHADOW_KEY_SIZE_MAX : map->key_size == 4;
}

struct shadow_map shadow_thread_make(const struct linked *linked) {
	return (struct shadow_map){ .name = "thread",
				    .type = BPF_MAP_TYPE_ARRAY,
				    .key_size = 4,
				    .value_size = linked->thread,
				    .max_entries = 1 };
}

int shadow_map_make(const struct linked_map *map, uint32_t page_size, struct shadow_map *shadow,
		    char error[static SHADOW_ERROR_SIZE]) {
	const char *type = libbpf_bpf_map_type_str((enum bpf_map_type)map->type);
	struct shadow_map s = { .type = kernel_type(map) };
	size_t n = 0;

	if (!s.type && type)
		return fail(error, SHADOW_E_REFUSED, "map %s: a GPU has no maps of type %u (%s)",
			    map->name, map->type, type);
	if (!s.type)
		return fail(error, SHADOW_E_REFUSED, "map %s: a GPU has no maps of type %u",
			    map->name, map->type);
	if (s.type == BPF_MAP_TYPE_RINGBUF)
		s.max_entries = page_size;
	else {
		if (!sizes_valid(map))
			return fail(error, SHADOW_E_INVALID,
				    "map %s: %u entries with keys of %u and values of %u bytes "
				    "make no sense",
				    map->name, map->max_entries, map->key_size, map->value_size);
		s.key_size = map->key_size;
		s.value_size = map->value_size;
		s.max_entries = 1;
		s.flags = map->flags & (BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG);
	}
	if (map->internal == LINKED_MAP_RODATA) {
		s.flags = BPF_F_RDONLY_PROG;
		s.freeze = true;
	}
	for (const char *c = map->name; *c && n < sizeof(s.name) - 1; c++)
		s.name[n++] = isalnum((unsigned char)*c) || *c == '_' || *c == '.' ? *c : '_';
	*shadow = s;
	return 0;
}
