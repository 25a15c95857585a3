/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any instructions and any maps through the translator: it refuses them with a line,
 * or makes PTX. The input:
 *
 *     byte 0       bit 7: instructions are shaped; bits 0-1: number of maps
 *     each map     4 bytes: type, value size, entries, log2 of entries
 *     the rest     instructions of 8 bytes; or shaped ones of 4 bytes, which pass validation more
 *                  often: opcode from a table, registers, offset, immediate
 *
 * 256 instructions at most: LLVM's time, not ours, is what more of them would test.
 */

#include <linux/bpf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/translator/check/insn.h"
#include "daemon/translator/translate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAPS_MAX 3
#define INSNS_MAX 256

static const uint8_t opcodes[] = {
	0x07, 0x0f, 0x17, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x47, 0x4f, 0x57, 0x5f, 0x67, 0x6f,
	0x77, 0x7f, 0x87, 0x97, 0x9f, 0xa7, 0xaf, 0xb7, 0xbf, 0xc7, 0xcf, 0xd7, 0x04, 0x0c,
	0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c,
	0x84, 0x94, 0x9c, 0xa4, 0xac, 0xb4, 0xbc, 0xc4, 0xcc, 0xd4, 0xdc, 0x61, 0x69, 0x71,
	0x79, 0x81, 0x89, 0x91, 0x62, 0x6a, 0x72, 0x7a, 0x63, 0x6b, 0x73, 0x7b, 0xc3, 0xdb,
	0x05, 0x06, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x55, 0x5d, 0x65, 0x6d,
	0x75, 0x7d, 0xa5, 0xad, 0xb5, 0xbd, 0xc5, 0xcd, 0xd5, 0xdd, 0x16, 0x1e, 0x26, 0x2e,
	0x85, 0x85, 0x85, 0x85, 0x95, 0x18, 0x18, 0x18, 0xe5,
};
static const int32_t atomics[] = { 0x00, 0x40, 0x50, 0xa0, 0x01, 0x41, 0x51, 0xa1, 0xe1, 0xf1 };
static const char *const names[MAPS_MAX] = { "m0", "m1", "m2" };

#define PICK(array, n) ((array)[(n) % (sizeof(array) / sizeof((array)[0]))])

/* A helper of the table, or one that no GPU has. */
static int32_t pick_helper(uint8_t byte) {
	size_t row = byte % (HELPER_COUNT + 1);

	return row < HELPER_COUNT ? (int32_t)helper_table[row].id : 12;
}

/* An instruction of 4 bytes; returns the slots that it takes. */
static size_t shape(const uint8_t *b, struct bpf_insn *insn, unsigned n_maps) {
	*insn = (struct bpf_insn){ .code = PICK(opcodes, b[0]),
				   .dst_reg = b[1] % 11,
				   .src_reg = (b[1] >> 4) % 11 };
	insn[1] = (struct bpf_insn){ 0 };
	switch (INSN_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		insn->dst_reg %= 10;
		if (INSN_SOURCE(insn->code) == BPF_K || insn_is_byte_order(insn)) {
			insn->src_reg = 0;
			insn->imm = insn_is_byte_order(insn)         ? 16 << b[2] % 3
				    : INSN_OP(insn->code) == BPF_NEG ? 0
								     : (int8_t)b[3];
		}
		if (INSN_OP(insn->code) == BPF_DIV || INSN_OP(insn->code) == BPF_MOD)
			insn->off = b[2] & 1;
		return 1;
	case BPF_JMP:
	case BPF_JMP32:
		insn->off = b[2] % 16 - 3;
		if (INSN_SOURCE(insn->code) == BPF_K) {
			insn->src_reg = 0;
			insn->imm = (int8_t)b[3];
		}
		if (insn_is_may_goto(insn))
			*insn = (struct bpf_insn){ .code = insn->code, .off = insn->off };
		if (insn_is_goto(insn) || insn_is_exit(insn) || insn_is_call(insn)) {
			insn->dst_reg = 0;
			insn->imm = insn->code == 0x06 ? insn->off : 0;
			insn->off = insn->code == 0x05 ? insn->off : 0;
		}
		if (insn_is_call(insn)) {
			insn->src_reg = b[1] % 3;
			insn->imm = insn->src_reg == INSN_CALL_BPF     ? b[2] % 32 - 4
				    : insn->src_reg == INSN_CALL_KFUNC ? b[2] % 5
								       : pick_helper(b[2]);
		}
		return 1;
	case BPF_LD:
		insn->dst_reg %= 10;
		insn->src_reg = n_maps && b[2] & 1 ? (b[2] & 2 ? INSN_PSEUDO_MAP_IDX_VALUE
							       : INSN_PSEUDO_MAP_IDX)
						   : 0;
		insn->imm = insn->src_reg ? (int)(b[3] % n_maps) : (int8_t)b[3];
		if (b[2] & 4) {
			insn->src_reg = INSN_PSEUDO_FUNC;
			insn->imm = b[3] % 32 - 4;
		}
		if (b[2] & 8) {
			insn->src_reg = INSN_PSEUDO_MAP_IDX_VALUE;
			insn->imm = TRANSLATE_THREAD;
			insn[1].imm = b[3] % 64;
		}
		return 2;
	default:
		insn->off = -8 * (b[2] % 65) + (b[3] & 7);
		if (INSN_CLASS(insn->code) == BPF_ST) {
			insn->src_reg = 0;
			insn->imm = (int8_t)b[3];
		}
		if (INSN_CLASS(insn->code) == BPF_LDX)
			insn->dst_reg %= 10;
		if (insn_is_atomic(insn)) {
			insn->imm = PICK(atomics, b[3]);
			insn->src_reg %= 10;
		}
		return 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct bpf_insn insns[INSNS_MAX + 3] = { 0 };
	struct translate_map maps[MAPS_MAX];
	struct translate_program program = { .name = "fuzz", .symbol = "fuzz", .insns = insns };
	struct translate_result result;
	const uint8_t *end = data + size;
	char *error = NULL;
	size_t n = 0;
	unsigned n_maps;
	bool shaped;
	int r;

	if (size < 1)
		return 0;
	shaped = data[0] & 0x80;
	program.takes_memory = data[0] & 0x40;
	program.patch = data[0] & 0x20;
	n_maps = data[0] & 3;
	program.thread = (struct translate_thread){ .size = data[0] & 0x10 ? 40 : 0 };
	for (unsigned i = 0; i < n_maps; i++) {
		const uint8_t *b = data + 1 + 4 * i;

		if (end - b < 4)
			return 0;
		maps[i] = (struct translate_map){ .name = names[i], .slot_symbol = names[i] };
		maps[i].type = (b[0] & 15) < MAP_TYPE_COUNT ? map_types[b[0] & 15].type : 7;
		maps[i].place = (b[0] >> 4 & 3) % 3;
		maps[i].log =
			(b[0] >> 6 & 1) &&
			maps[i].type == BPF_MAP_TYPE_GPU_RINGBUF_MAP; /* the linker makes it so */
		maps[i].threads = b[1];
		maps[i].ring_bytes = (uint64_t)b[2] << (b[3] & 31);
		maps[i].key_size = b[0] & 0x80 ? b[1] : 4;
		maps[i].value_size = b[1] == 255 ? UINT32_MAX : b[1] * 3u;
		maps[i].max_entries = (uint32_t)b[2] << (b[3] & 31);
	}
	data += 1 + 4 * n_maps;
	for (; n < INSNS_MAX && end - data >= (shaped ? 4 : 8); data += shaped ? 4 : 8) {
		if (shaped)
			n += shape(data, insns + n, n_maps);
		else
			memcpy(insns + n++, data, 8);
	}
	if (shaped)
		insns[n++] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
	program.n_insns = n;

	r = translate_object(&program, 1, maps, n_maps, &result, &error);
	if (r == TRANSLATE_OK) {
		if (!result.programs[0].ptx ||
		    strlen(result.programs[0].ptx) != result.programs[0].size ||
		    strstr(result.programs[0].ptx, ".version") ||
		    !strstr(result.programs[0].ptx, " fuzz("))
			abort();
		if (!result.programs[0].patch == !result.programs[0].patch_reason && program.patch)
			abort();
		if (result.programs[0].patch && (strstr(result.programs[0].patch, ".visible") ||
						 strstr(result.programs[0].patch, "\texit;")))
			abort();
		translate_result_deinit(&result);
	} else if (r > 0) {
		/* a defect of ours is a finding; every refusal says why, in one line */
		if (r == TRANSLATE_E_INTERNAL || !error || !*error || strchr(error, '\n'))
			abort();
		free(error);
	}
	return 0;
}
