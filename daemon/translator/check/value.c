/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Operations on the values that the analysis works with (value.h).
 *
 * A value climbs: constant, address with a constant offset, address with some offset, scalar (lost,
 * of a context, a record or a thread's variables), any map; and a scalar only loses known low bits
 * and gains maps. So iteration ends. A null pointer is below every pointer to a map value, because
 * `p = NULL` on one way and `p = lookup()` on the other is how compilers write an optional pointer.
 */

#include "value.h"

#include <string.h>

static unsigned low_zeros(uint64_t bits) {
	return bits & 1 ? 0 : bits & 2 ? 1 : bits & 4 ? 2 : 3;
}

static unsigned min_align(unsigned a, unsigned b) {
	return a < b ? a : b;
}

struct value value_scalar(unsigned align, uint64_t maps) {
	return (struct value){ .kind = VALUE_SCALAR,
			       .align = (uint8_t)(align > 3 ? 3 : align),
			       .bits = maps };
}

struct value value_same(enum value_uniform uniform, uint32_t site, uint32_t which) {
	struct value value = value_scalar(0, 0);

	value.known = (uint8_t)uniform;
	if (uniform != VALUE_VARYING) {
		value.site = site;
		value.ref = which;
	}
	return value;
}

enum value_uniform value_uniform(const struct value *value) {
	if (value->kind == VALUE_CONST && value->known == 0xff)
		return VALUE_ALWAYS_UNIFORM;
	return value->kind == VALUE_SCALAR ? (enum value_uniform)value->known : VALUE_VARYING;
}

static enum value_uniform least_uniform(const struct value *a, const struct value *b) {
	enum value_uniform x = value_uniform(a), y = value_uniform(b);

	return x < y ? x : y;
}

struct value value_const(uint64_t bits) {
	return (struct value){ .kind = VALUE_CONST, .known = 0xff, .bits = bits };
}

unsigned value_align(const struct value *value) {
	switch (value->kind) {
	case VALUE_CONST:
		return value->known == 0xff ? low_zeros(value->bits) : 0;
	case VALUE_STACK:
	case VALUE_MAP_VALUE:
	case VALUE_RECORD:
	case VALUE_THREAD:
		return value->exact ? low_zeros(value->bits) : value->align;
	case VALUE_SCALAR:
		return value->align;
	default:
		return 0;
	}
}

uint64_t value_maps(const struct value *value) {
	switch (value->kind) {
	case VALUE_SCALAR:
	case VALUE_LOST:
		return value->bits;
	case VALUE_MAP:
		return value->ref == VALUE_ANY_MAP ? value->bits : 0;
	case VALUE_MAP_VALUE:
		return UINT64_C(1) << value->ref;
	default:
		return 0;
	}
}

/* What comes of a reference to a map and something else. */
static struct value any_map(const struct value *a, const struct value *b) {
	return (struct value){ .kind = VALUE_MAP,
			       .ref = VALUE_ANY_MAP,
			       .bits = value_maps(a) | value_maps(b) };
}

/* An address of the same kind, somewhere in the same stack or map. */
static struct value inexact(const struct value *address, unsigned align) {
	return (struct value){ .kind = address->kind,
			       .align = (uint8_t)align,
			       .ref = address->ref,
			       .site = address->kind == VALUE_RECORD ? address->site : 0,
			       .size = address->size };
}

/* A record's place is what it is; a lookup's is only where its result came from last. */
static struct value without_site(const struct value *value) {
	struct value result = *value;

	if (value->kind != VALUE_RECORD)
		result.site = 0;
	return result;
}

/* An address plus or minus a number. */
static struct value moved(const struct value *address, const struct value *by, bool subtract) {
	struct value result = without_site(address);

	if (address->exact && by->kind == VALUE_CONST) {
		result.bits = subtract ? address->bits - by->bits : address->bits + by->bits;
		return result;
	}
	return inexact(address, min_align(value_align(address), value_align(by)));
}

static bool is_address(const struct value *value) {
	return value->kind == VALUE_STACK || value->kind == VALUE_MAP_VALUE ||
	       value->kind == VALUE_RECORD || value->kind == VALUE_THREAD ||
	       value->kind == VALUE_CONTEXT;
}

bool value_is_symbolic(const struct value *value) {
	return value->kind == VALUE_CONTEXT || value->kind == VALUE_RECORD ||
	       value->kind == VALUE_THREAD || value->kind == VALUE_LOST;
}

/* What comes of two values that are not the same, one of which is an address of that kind. */
static struct value join_symbolic(const struct value *a, const struct value *b) {
	if (a->kind == VALUE_RECORD && value_is_const(b, 0))
		return *a;
	if (b->kind == VALUE_RECORD && value_is_const(a, 0))
		return *b;
	if (a->kind == VALUE_RECORD && b->kind == VALUE_RECORD && a->site == b->site)
		return inexact(a, min_align(value_align(a), value_align(b)));
	if (a->kind == VALUE_THREAD && b->kind == VALUE_THREAD)
		return inexact(a, min_align(value_align(a), value_align(b)));
	return (struct value){ .kind = VALUE_LOST, .bits = value_maps(a) | value_maps(b) };
}

/* A number that is no address, as far as we know. */
static bool is_number(const struct value *value) {
	return value->kind == VALUE_CONST || (value->kind == VALUE_SCALAR && value->bits == 0);
}

/* Mask of the bytes of two words that are the same. */
static uint8_t same_bytes(uint64_t a, uint64_t b) {
	uint8_t mask = 0;

	for (unsigned i = 0; i < 8; i++)
		if ((a >> 8 * i & 0xff) == (b >> 8 * i & 0xff))
			mask |= (uint8_t)(1u << i);
	return mask;
}

/*
 * Numbers of two ways. What an instruction made of uniform values is the same whenever it ran; what
 * two instructions made is not, as lanes may have come either way.
 */
static struct value join_scalars(const struct value *a, const struct value *b) {
	struct value result = value_scalar(min_align(value_align(a), value_align(b)),
					   value_maps(a) | value_maps(b));
	enum value_uniform uniform = least_uniform(a, b);

	if (a->kind == VALUE_SCALAR && b->kind == VALUE_SCALAR && uniform != VALUE_VARYING &&
	    a->site == b->site && a->ref == b->ref) {
		result.known = (uint8_t)uniform;
		result.site = a->site;
		result.ref = a->ref;
	}
	return result;
}

struct value value_join(const struct value *a, const struct value *b, bool slot) {
	if (memcmp(a, b, sizeof(*a)) == 0)
		return *a;
	if (a->kind == VALUE_MAP || b->kind == VALUE_MAP)
		return any_map(a, b);
	if (value_is_symbolic(a) || value_is_symbolic(b))
		return join_symbolic(a, b);
	if (slot && a->kind == VALUE_CONST && b->kind == VALUE_CONST) {
		struct value result = *a;

		result.known = a->known & b->known & same_bytes(a->bits, b->bits);
		for (unsigned i = 0; i < 8; i++)
			if (!(result.known >> i & 1))
				result.bits &= ~(UINT64_C(0xff) << 8 * i);
		if (result.known)
			return result;
	}
	if (is_address(a) && a->kind == b->kind && a->ref == b->ref) {
		struct value x = without_site(a), y = without_site(b);

		if (memcmp(&x, &y, sizeof(x)) == 0)
			return x;
		return inexact(a, min_align(value_align(a), value_align(b)));
	}
	if (a->kind == VALUE_MAP_VALUE && value_is_const(b, 0))
		return without_site(a);
	if (b->kind == VALUE_MAP_VALUE && value_is_const(a, 0))
		return without_site(b);
	return join_scalars(a, b);
}

static uint64_t sign_extended(uint64_t bits, unsigned width) {
	return (uint64_t)((int64_t)(bits << (64 - width)) >> (64 - width));
}

/* Division by 0 gives 0, and leaves what there is; nothing overflows. */
static uint64_t divided(uint64_t a, uint64_t b, bool sign, bool modulo) {
	if (!b)
		return modulo ? a : 0;
	if (!sign)
		return modulo ? a % b : a / b;
	if (b == UINT64_MAX)
		return modulo ? 0 : -a;
	return (uint64_t)(modulo ? (int64_t)a % (int64_t)b : (int64_t)a / (int64_t)b);
}

/* The low bytes of a constant, in the order that the instruction wants. */
static uint64_t ordered(const struct bpf_insn *insn, uint64_t a) {
	unsigned width = (unsigned)insn->imm;

	if (INSN_CLASS(insn->code) == BPF_ALU64 || INSN_SOURCE(insn->code) == BPF_TO_BE)
		return __builtin_bswap64(a) >> (64 - width);
	return width == 64 ? a : a & ((UINT64_C(1) << width) - 1);
}

/* The result of arithmetic on two constants. */
static uint64_t fold(const struct bpf_insn *insn, uint64_t a, uint64_t b) {
	bool wide = INSN_CLASS(insn->code) == BPF_ALU64, sign = insn->off == 1;
	unsigned shift = (unsigned)(b & (wide ? 63 : 31));
	uint64_t r;

	if (INSN_OP(insn->code) == BPF_END)
		return ordered(insn, a);
	if (!wide) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	switch (INSN_OP(insn->code)) {
	case BPF_ADD:
		r = a + b;
		break;
	case BPF_SUB:
		r = a - b;
		break;
	case BPF_MUL:
		r = a * b;
		break;
	case BPF_DIV:
	case BPF_MOD:
		if (sign && !wide) {
			a = sign_extended(a, 32);
			b = sign_extended(b, 32);
		}
		r = divided(a, b, sign, INSN_OP(insn->code) == BPF_MOD);
		break;
	case BPF_AND:
		r = a & b;
		break;
	case BPF_OR:
		r = a | b;
		break;
	case BPF_XOR:
		r = a ^ b;
		break;
	case BPF_LSH:
		r = a << shift;
		break;
	case BPF_RSH:
		r = a >> shift;
		break;
	case BPF_ARSH:
		r = (uint64_t)((int64_t)(wide ? a : sign_extended(a, 32)) >> shift);
		break;
	case BPF_NEG:
		r = -a;
		break;
	default: /* BPF_MOV: it has been validated */
		r = insn->off ? sign_extended(b, (unsigned)insn->off) : b;
	}
	return wide ? r : (uint32_t)r;
}

/* Known low zero bits of the result on scalars. */
static unsigned alu_align(const struct bpf_insn *insn, const struct value *a,
			  const struct value *b) {
	unsigned x = value_align(a), y = value_align(b);

	switch (INSN_OP(insn->code)) {
	case BPF_ADD:
	case BPF_SUB:
	case BPF_OR:
	case BPF_XOR:
		return min_align(x, y);
	case BPF_AND:
		return x > y ? x : y;
	case BPF_MUL:
		return x + y;
	case BPF_LSH:
		return b->kind == VALUE_CONST ? x + (unsigned)(b->bits & 31) : x;
	case BPF_MOV:
		return y;
	default:
		return 0;
	}
}

struct value value_alu(const struct bpf_insn *insn, uint32_t site, const struct value *a,
		       const struct value *b) {
	bool wide = INSN_CLASS(insn->code) == BPF_ALU64;
	uint8_t op = INSN_OP(insn->code);
	struct value result;
	uint64_t maps;

	if (wide && op == BPF_MOV && insn->off == 0)
		return *b;
	if (b->kind == VALUE_CONST && (a->kind == VALUE_CONST || op == BPF_MOV))
		return value_const(fold(insn, a->bits, b->bits));

	if (wide && (op == BPF_ADD || op == BPF_SUB) && is_address(a) && is_number(b))
		return moved(a, b, op == BPF_SUB);
	if (wide && op == BPF_ADD && is_number(a) && is_address(b))
		return moved(b, a, false);
	if (wide && op == BPF_ADD && (a->kind == VALUE_MAP || b->kind == VALUE_MAP))
		return any_map(a, b); /* plus 0, as the verifier has it */
	maps = (op == BPF_MOV ? 0 : value_maps(a)) |
	       (op == BPF_NEG || op == BPF_END ? 0 : value_maps(b));
	result = value_same(op == BPF_MOV ? value_uniform(b) : least_uniform(a, b), site, 0);
	result.align = (uint8_t)min_align(alu_align(insn, a, b), 3);
	result.bits = maps;
	return result;
}

bool value_branches(const struct bpf_insn *insn, uint64_t a, uint64_t b) {
	int64_t x = (int64_t)a, y = (int64_t)b;

	if (INSN_CLASS(insn->code) == BPF_JMP32) {
		x = (int32_t)a;
		y = (int32_t)b;
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	switch (INSN_OP(insn->code)) {
	case BPF_JEQ:
		return a == b;
	case BPF_JNE:
		return a != b;
	case BPF_JGT:
		return a > b;
	case BPF_JGE:
		return a >= b;
	case BPF_JLT:
		return a < b;
	case BPF_JLE:
		return a <= b;
	case BPF_JSGT:
		return x > y;
	case BPF_JSGE:
		return x >= y;
	case BPF_JSLT:
		return x < y;
	case BPF_JSLE:
		return x <= y;
	default: /* BPF_JSET: it has been validated */
		return a & b;
	}
}

static uint8_t byte_mask(unsigned at, unsigned n) {
	return (uint8_t)(((1u << n) - 1) << at);
}

static uint64_t low_bytes(uint64_t bits, unsigned n) {
	return n == 8 ? bits : bits & ((UINT64_C(1) << 8 * n) - 1);
}

struct value value_slot_read(const struct value *slot, unsigned at, unsigned n, bool sign) {
	if (slot->kind == VALUE_CONST) {
		uint64_t bits = low_bytes(slot->bits >> 8 * at, n);

		if ((slot->known & byte_mask(at, n)) != byte_mask(at, n))
			return value_scalar(0, 0);
		if (sign && n < 8 && bits >> (8 * n - 1) & 1)
			bits |= ~UINT64_C(0) << 8 * n;
		return value_const(bits);
	}
	if (n == 8)
		return *slot;
	return value_scalar(0, value_maps(slot));
}

void value_slot_write(struct value *slot, unsigned at, unsigned n, const struct value *value) {
	uint64_t maps = value_maps(slot) | value_maps(value), mask;

	if (n == 8) {
		*slot = *value;
		return;
	}
	if (value->kind == VALUE_CONST && maps == 0) {
		if (slot->kind != VALUE_CONST)
			*slot = (struct value){ .kind = VALUE_CONST };
		mask = low_bytes(~UINT64_C(0), n) << 8 * at;
		slot->bits = (slot->bits & ~mask) | (value->bits << 8 * at & mask);
		slot->known |= byte_mask(at, n);
		return;
	}
	if (slot->kind == VALUE_CONST && maps == 0) {
		slot->known &= (uint8_t)~byte_mask(at, n);
		slot->bits &= ~(low_bytes(~UINT64_C(0), n) << 8 * at);
		if (slot->known)
			return;
	}
	*slot = value_scalar(0, maps);
}
