/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the instruction of a function at which a uprobe is cheapest (site.h).
 *
 * A decoder for what compilers put before a function's first push: endbr64, moves, address
 * computations, comparisons. Whatever else comes ends the search. What is harmless writes rax, r10
 * or r11 (others must be saved first, or hold arguments) or nothing but flags.
 */

#include "site.h"

#define REX_W 8
#define REX_R 4
#define REX_B 1

struct instruction {
	uint8_t rex; /* low four bits */
	bool operand16; /* prefix 66 */
	size_t at; /* of the opcode, then of what follows it */
};

/* The length of ModRM, SIB and displacement; 0: cut off. */
static size_t modrm_length(const uint8_t *bytes, size_t n, size_t at) {
	size_t length = 1;
	unsigned int mod, rm;

	if (at >= n)
		return 0;
	mod = bytes[at] >> 6;
	rm = bytes[at] & 7;
	if (mod == 3)
		return 1;
	if (rm == 4) {
		if (at + 1 >= n)
			return 0;
		length++;
		if (mod == 0 && (bytes[at + 1] & 7) == 5)
			length += 4;
	} else if (mod == 0 && rm == 5) {
		length += 4;
	}
	return length + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

/* Whether a register that is written is nobody's at a function's entry. */
static bool register_is_free(unsigned int number) {
	return number == 0 || number == 10 || number == 11;
}

/* Prefixes 66 and REX. */
static void read_prefixes(struct instruction *instruction, const uint8_t *bytes, size_t n) {
	if (instruction->at < n && bytes[instruction->at] == 0x66) {
		instruction->operand16 = true;
		instruction->at++;
	}
	if (instruction->at < n && (bytes[instruction->at] & 0xf0) == 0x40)
		instruction->rex = bytes[instruction->at++] & 0x0f;
}

enum form {
	FORM_NONE,
	FORM_WRITES_REG, /* the operand of ModRM.reg is written */
	FORM_WRITES_RM, /* that of ModRM.rm: harmless if it is a register */
	FORM_READS,
	FORM_GROUP, /* ModRM.reg says which: 7 is a comparison, else rm is written */
	FORM_MOVE_IMMEDIATE, /* mov $imm, rm: ModRM.reg is 0 */
	FORM_TEST_IMMEDIATE, /* test $imm, rm: likewise */
};

/* Opcodes of one byte that have a ModRM; how many bytes follow that. */
static enum form form_of(uint8_t opcode, size_t *immediatep) {
	*immediatep = 0;
	switch (opcode) {
	case 0x03:
	case 0x0b:
	case 0x23:
	case 0x2b:
	case 0x33: /* add, or, and, sub, xor: reg, rm */
	case 0x8b: /* mov */
	case 0x8d: /* lea */
	case 0x63: /* movslq */
		return FORM_WRITES_REG;
	case 0x01:
	case 0x09:
	case 0x21:
	case 0x29:
	case 0x31:
	case 0x89:
		return FORM_WRITES_RM;
	case 0x38:
	case 0x39:
	case 0x3a:
	case 0x3b: /* cmp */
	case 0x84:
	case 0x85: /* test */
		return FORM_READS;
	case 0x80:
	case 0x83:
		*immediatep = 1;
		return FORM_GROUP;
	case 0x81:
		*immediatep = 4;
		return FORM_GROUP;
	case 0xc7:
		*immediatep = 4;
		return FORM_MOVE_IMMEDIATE;
	case 0xf6:
		*immediatep = 1;
		return FORM_TEST_IMMEDIATE;
	case 0xf7:
		*immediatep = 4;
		return FORM_TEST_IMMEDIATE;
	}
	return FORM_NONE;
}

/* Whether an instruction of that form is harmless. */
static bool form_is_harmless(enum form form, uint8_t modrm, uint8_t rex) {
	unsigned int reg = (modrm >> 3 & 7) | (rex & REX_R ? 8 : 0),
		     rm = (modrm & 7) | (rex & REX_B ? 8 : 0);

	switch (form) {
	case FORM_READS:
	case FORM_TEST_IMMEDIATE:
		return true;
	case FORM_WRITES_REG:
		return register_is_free(reg);
	case FORM_GROUP:
		if ((modrm >> 3 & 7) == 7)
			return true;
		return modrm >> 6 == 3 && register_is_free(rm);
	case FORM_WRITES_RM:
	case FORM_MOVE_IMMEDIATE:
		return modrm >> 6 == 3 && register_is_free(rm);
	case FORM_NONE:
		break;
	}
	return false;
}

/* 0f b6, b7, be, bf: movzx, movsx. */
static size_t extending_move(const struct instruction *instruction, const uint8_t *bytes, size_t n,
			     bool *harmlessp) {
	size_t at = instruction->at + 2, length;

	if (at >= n || ((bytes[at - 1] | 1) != 0xb7 && (bytes[at - 1] | 1) != 0xbf))
		return 0;
	length = modrm_length(bytes, n, at);
	if (!length || at + length > n)
		return 0;
	*harmlessp = form_is_harmless(FORM_WRITES_REG, bytes[at], instruction->rex);
	return at + length;
}

size_t site_instruction(const uint8_t *bytes, size_t n, bool *harmlessp) {
	struct instruction instruction = {};
	size_t length, immediate;
	enum form form;
	uint8_t opcode;

	if (n >= 4 && bytes[0] == 0xf3 && bytes[1] == 0x0f && bytes[2] == 0x1e &&
	    bytes[3] == 0xfa) { /* endbr64 */
		*harmlessp = true;
		return 4;
	}
	read_prefixes(&instruction, bytes, n);
	if (instruction.at >= n)
		return 0;
	opcode = bytes[instruction.at];
	if (opcode == 0x0f)
		return extending_move(&instruction, bytes, n, harmlessp);
	if ((opcode & 0xf8) == 0xb8) { /* mov $imm, reg */
		length = instruction.at + 1 +
			 (instruction.rex & REX_W ? 8
			  : instruction.operand16 ? 2
						  : 4);
		*harmlessp = register_is_free((opcode & 7) | (instruction.rex & REX_B ? 8 : 0));
		return length <= n ? length : 0;
	}
	form = form_of(opcode, &immediate);
	if (form == FORM_NONE || ((form == FORM_MOVE_IMMEDIATE || form == FORM_TEST_IMMEDIATE) &&
				  instruction.at + 1 < n && bytes[instruction.at + 1] & 0x38))
		return 0;
	if (immediate == 4 && instruction.operand16 && !(instruction.rex & REX_W))
		immediate = 2;
	length = modrm_length(bytes, n, instruction.at + 1);
	if (!length || instruction.at + 1 + length + immediate > n)
		return 0;
	if (opcode == 0x8d && bytes[instruction.at + 1] >> 6 == 3)
		return 0; /* lea of a register: there is none */
	*harmlessp = form_is_harmless(form, bytes[instruction.at + 1], instruction.rex);
	return instruction.at + 1 + length + immediate;
}

#ifdef __x86_64__
/* Whether the kernel emulates the instruction: push, nop, jump, call. */
static bool is_emulated(const uint8_t *bytes, size_t n) {
	size_t at = 0;

	if (n >= 2 && bytes[0] == 0x41) /* push %r8 to %r15 */
		return (bytes[1] & 0xf8) == 0x50;
	if (n >= 5 && bytes[0] == 0x0f && bytes[1] == 0x1f && bytes[2] == 0x44 && !bytes[3] &&
	    !bytes[4])
		return true; /* nop5: kernels from 6.18 on turn it into a call of their own */
	while (at < n && at < 3 && bytes[at] == 0x66)
		at++;
	if (at < n && bytes[at] == 0x90)
		return true;
	if (at || !n)
		return false;
	return (bytes[0] & 0xf8) == 0x50 ||
	       (n >= 2 && (bytes[0] == 0xeb || (bytes[0] & 0xf0) == 0x70)) ||
	       (n >= 5 && (bytes[0] == 0xe8 || bytes[0] == 0xe9)) ||
	       (n >= 6 && bytes[0] == 0x0f && (bytes[1] & 0xf0) == 0x80);
}

enum site_kind site_select(const uint8_t *bytes, size_t n, size_t *offsetp) {
	size_t at = 0;

	while (at < n) {
		bool harmless = false;
		size_t length;

		if (is_emulated(bytes + at, n - at)) {
			*offsetp = at;
			return SITE_EMULATED;
		}
		length = site_instruction(bytes + at, n - at, &harmless);
		if (!length || !harmless)
			break;
		at += length;
	}
	*offsetp = 0;
	return SITE_STEPPED;
}
#else
enum site_kind site_select(const uint8_t *bytes, size_t n, size_t *offsetp) {
	*offsetp = 0;
	return SITE_EMULATED;
}
#endif
