/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The shadow transformation on any instructions and metadata. The input: a struct of
 * numbers, then the blob. What comes out must call only what the kernel has or what was appended,
 * and its records must lie in it, in order.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/verify/shadow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct numbers {
	uint16_t offset, count; /* of instructions */
	uint16_t function_offset, function_count, function_size;
	uint16_t line_offset, line_count, line_size;
	uint16_t flags; /* 1: BTF, 2: exit is allowed, 4: huge numbers, 8: variables of a thread */
	uint16_t n_maps;
	uint16_t map_type, key_size, internal, reserved[3];
	uint32_t value_size, max_entries;
};

/*
 * count: of the program's own instructions; own_records: of its function records, which may say
 * anything.
 */
static void check(const struct shadow *shadow, uint32_t count, uint32_t own_records) {
	size_t last = 0;

	for (size_t i = 0; i < shadow->n_insns; i++) {
		const struct bpf_insn *insn = &shadow->insns[i];

		if (insn->code == (BPF_LD | BPF_IMM | BPF_DW) && i < count) {
			i++;
			continue;
		}
		if (insn->code != (BPF_JMP | BPF_CALL))
			continue;
		if (insn->src_reg == BPF_PSEUDO_CALL) {
			int64_t to = (int64_t)i + 1 + insn->imm;

			if (to < 0 || to >= (int64_t)shadow->n_insns)
				abort();
		} else if (insn->src_reg || ((insn->imm > 211 || insn->imm <= 0) &&
					     (i >= count || insn->imm != 0x40000000 + (int)i)))
			abort(); /* neither a helper nor, at that place, none that there is */
	}
	if (shadow->n_insns > count &&
	    shadow->insns[shadow->n_insns - 1].code != (BPF_JMP | BPF_EXIT))
		abort();
	for (uint32_t i = own_records; i < shadow->n_func_info; i++) {
		uint32_t offset;

		memcpy(&offset,
		       (const uint8_t *)shadow->func_info + (size_t)i * shadow->func_info_size, 4);
		if (offset < count || offset >= shadow->n_insns || offset <= last)
			abort();
		last = offset;
	}
	for (uint32_t i = 0; i < shadow->n_line_info; i++) {
		volatile uint8_t byte =
			((const uint8_t *)
				 shadow->line_info)[(size_t)(i + 1) * shadow->line_info_size - 1];

		(void)byte;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	char error[SHADOW_ERROR_SIZE] = "";
	struct linked *linked;
	struct shadow_map map;
	struct shadow shadow;
	struct numbers n;
	uint32_t factor;
	uint8_t *blob;

	if (size < sizeof(n))
		return 0;
	memcpy(&n, data, sizeof(n));
	data += sizeof(n);
	size -= sizeof(n);
	linked = calloc(1, sizeof(*linked));
	blob = malloc(size ? size : 1); /* of exactly this size, for the sanitizer */
	if (!linked || !blob)
		abort();
	memcpy(blob, data, size);
	factor = n.flags & 4 ? 0x01010101 : 1;
	linked->size = size;
	linked->n_programs = 1;
	linked->n_maps = n.n_maps;
	linked->thread = n.flags & 8 ? 24 : 0;
	if (n.flags & 1) {
		linked->btf = (struct linked_table){ .count = 1, .record_size = 1 };
		linked->helper_stub_type = 7;
	}
	linked->programs[0].insns = (struct linked_table){ n.offset, n.count * factor, 8 };
	linked->programs[0].func_info =
		(struct linked_table){ n.function_offset, n.function_count * factor,
				       n.function_size * factor };
	linked->programs[0].line_info =
		(struct linked_table){ n.line_offset, n.line_count * factor, n.line_size * factor };
	for (size_t i = 0; i < LINKED_MAPS_MAX; i++)
		linked->maps[i] = (struct linked_map){
			.name = "map",
			.type = n.map_type + (uint32_t)i,
			.key_size = n.key_size,
			.value_size = n.value_size,
			.max_entries = n.max_entries,
			.internal = (enum linked_internal)((n.internal + i) % 4),
		};
	if (!shadow_make(linked, blob, 0, n.flags & 2, &shadow, error)) {
		check(&shadow, linked->programs[0].insns.count,
		      linked->programs[0].func_info.count);
		shadow_deinit(&shadow);
	} else if (!*error)
		abort();
	for (size_t i = 0; i < LINKED_MAPS_MAX; i++)
		shadow_map_make(&linked->maps[i], 4096, &map, error);
	free(blob);
	free(linked);
	return 0;
}
