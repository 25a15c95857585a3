/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). Loads, stores and atomics. A real
 * address is looked up in the table of ranges; each instruction remembers the range that it hit
 * last, so that the common case is one comparison (where several blocks run at once, each has a
 * table of its own). A thread's own stack (local and parameter space) and the block's shared memory
 * are ranges too, tried when the remembered one does not fit.
 */

#include <math.h>

#include "sim-op.h"

static void *real_slow(struct sim_thread *t, const struct sim_insn *i, uintptr_t address,
		       size_t size) {
	struct sim_insn *cache = (struct sim_insn *)i;
	uintptr_t shared = (uintptr_t)t->block->shared;
	struct sim_region region = { 0 }, *own = t->block->ranges;

	if (address - (uintptr_t)t->context->stack <
		    (uintptr_t)(t->context->end - t->context->stack) &&
	    size <= (uintptr_t)t->context->end - address)
		return (void *)address;
	if (address - shared < t->block->shared_size &&
	    size <= t->block->shared_size - (address - shared))
		return (void *)address;
	if (own) {
		own += (uintptr_t)i / sizeof(*i) % SIM_RANGES;
		region = *own;
	}
	if (address - region.base >= region.size && !sim_memory_find(address, &region))
		return NULL;
	if (size > region.base + region.size - address)
		return NULL;
	if (own) {
		*own = region;
		return (void *)address;
	}
	cache->low = region.base;
	cache->span = region.size - size;
	return (void *)address;
}

/* Where the instruction's access goes; NULL after a fault. */
static inline void *real_address(struct sim_thread *t, const struct sim_insn *i, uintptr_t address,
				 size_t size) {
	void *pointer = (void *)address;

	if (__builtin_expect(address - i->low > i->span, 0)) {
		pointer = real_slow(t, i, address, size);
		if (!pointer) {
			sim_fault(t, i, CUDA_ERROR_ILLEGAL_ADDRESS,
				  "%zu bytes at address 0x%zx are nobody's", size, (size_t)address);
			return NULL;
		}
	}
	if (__builtin_expect(address & (size - 1), 0)) {
		sim_fault(t, i, CUDA_ERROR_MISALIGNED_ADDRESS, "%zu bytes at address 0x%zx", size,
			  (size_t)address);
		return NULL;
	}
	return pointer;
}

static inline void *shared_address(struct sim_thread *t, const struct sim_insn *i, uint32_t address,
				   size_t size) {
	if (__builtin_expect(
		    address > t->block->shared_size || size > t->block->shared_size - address, 0)) {
		sim_fault(t, i, CUDA_ERROR_ILLEGAL_ADDRESS,
			  "%zu bytes at shared address 0x%x, of 0x%zx", size, address,
			  t->block->shared_size);
		return NULL;
	}
	if (__builtin_expect(address & (size - 1), 0)) {
		sim_fault(t, i, CUDA_ERROR_MISALIGNED_ADDRESS, "%zu bytes at shared address 0x%x",
			  size, address);
		return NULL;
	}
	return t->block->shared + address;
}

void *sim_shared_address(struct sim_thread *t, const struct sim_insn *i, uint32_t address,
			 size_t size) {
	return shared_address(t, i, address, size);
}

#define ACCESS(type)                                                                \
	SIM_OP(load_real_##type) {                                                  \
		type *p = real_address(t, i, RD(i->a) + i->offset, sizeof(type));   \
		if (!p)                                                             \
			return NULL;                                                \
		RD(i->d) = *(volatile type *)p;                                     \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(store_real_##type) {                                                 \
		type *p = real_address(t, i, RD(i->a) + i->offset, sizeof(type));   \
		if (!p)                                                             \
			return NULL;                                                \
		*(volatile type *)p = (type)RD(i->d);                               \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(load_shared_##type) {                                                \
		type *p = shared_address(t, i, RD(i->a) + i->offset, sizeof(type)); \
		if (!p)                                                             \
			return NULL;                                                \
		RD(i->d) = *p;                                                      \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(store_shared_##type) {                                               \
		type *p = shared_address(t, i, RD(i->a) + i->offset, sizeof(type)); \
		if (!p)                                                             \
			return NULL;                                                \
		*p = (type)RD(i->d);                                                \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(load_frame_##type) {                                                 \
		type value;                                                         \
		memcpy(&value, (char *)t->r + i->offset, sizeof(value));            \
		RD(i->d) = value;                                                   \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(store_frame_##type) {                                                \
		type value = (type)RD(i->d);                                        \
		memcpy((char *)t->r + i->offset, &value, sizeof(value));            \
		return i + 1;                                                       \
	}

/* Signed loads extend the sign: into 64 bits, of which others read as many as they want. */
ACCESS(uint8_t)
ACCESS(uint16_t)
ACCESS(uint32_t)
ACCESS(uint64_t)
ACCESS(int8_t)
ACCESS(int16_t)
ACCESS(int32_t)

#define ACCESS_ROW(what, type) { what##_real_##type, what##_shared_##type, what##_frame_##type }

/* By size and sign: 0-3 unsigned 1, 2, 4, 8; 4-6 signed 1, 2, 4. */
static int access_index(enum ptx_type type) {
	bool is_signed = type >= PTX_TYPE_S8 && type <= PTX_TYPE_S32;

	switch (ptx_type_size(type)) {
	case 1:
		return is_signed ? 4 : 0;
	case 2:
		return is_signed ? 5 : 1;
	case 4:
		return is_signed ? 6 : 2;
	case 8:
		return 3;
	}
	return -1;
}

sim_op sim_op_load(enum sim_access access, enum ptx_type type) {
	static const sim_op table[][3] = {
		ACCESS_ROW(load, uint8_t),  ACCESS_ROW(load, uint16_t), ACCESS_ROW(load, uint32_t),
		ACCESS_ROW(load, uint64_t), ACCESS_ROW(load, int8_t),   ACCESS_ROW(load, int16_t),
		ACCESS_ROW(load, int32_t),
	};
	int index = access_index(type);

	return index < 0 || type == PTX_TYPE_PRED ? NULL : table[index][access];
}

sim_op sim_op_store(enum sim_access access, enum ptx_type type) {
	static const sim_op table[][3] = {
		ACCESS_ROW(store, uint8_t),  ACCESS_ROW(store, uint16_t),
		ACCESS_ROW(store, uint32_t), ACCESS_ROW(store, uint64_t),
		ACCESS_ROW(store, int8_t),   ACCESS_ROW(store, int16_t),
		ACCESS_ROW(store, int32_t),
	};
	int index = access_index(type);

	return index < 0 || type == PTX_TYPE_PRED ? NULL : table[index][access];
}

static char *vector_address(struct sim_thread *t, const struct sim_insn *i,
			    const struct sim_vector *vector) {
	size_t size = vector->count * vector->element;

	switch (vector->access) {
	case SIM_ACCESS_REAL:
		return real_address(t, i, RD(i->a) + vector->offset, size);
	case SIM_ACCESS_SHARED:
		return shared_address(t, i, RD(i->a) + vector->offset, size);
	case SIM_ACCESS_FRAME:
		return (char *)t->r + vector->offset;
	}
	return NULL;
}

/* 16 bytes go at once, as on a GPU: others may look on. */
typedef uint64_t wide __attribute__((vector_size(16), may_alias));

SIM_OP(load_vector) {
	const struct sim_vector *vector = i->data;
	const char *p = vector_address(t, i, vector);
	wide whole;

	if (!p)
		return NULL;
	if (vector->count * vector->element == sizeof(whole) && !((uintptr_t)p % sizeof(whole))) {
		whole = *(const volatile wide *)p;
		p = (const char *)&whole;
	}
	for (uint32_t n = 0; n < vector->count; n++, p += vector->element) {
		uint64_t value = 0;

		memcpy(&value, p, vector->element);
		if (vector->is_signed && vector->element < 8)
			value = (uint64_t)((int64_t)(value << (64 - 8 * vector->element)) >>
					   (64 - 8 * vector->element));
		RD(vector->slots[n]) = value;
	}
	return i + 1;
}

SIM_OP(store_vector) {
	const struct sim_vector *vector = i->data;
	char *p = vector_address(t, i, vector), *to = p;
	wide whole;

	if (!p)
		return NULL;
	if (vector->count * vector->element == sizeof(whole) && !((uintptr_t)p % sizeof(whole)))
		to = (char *)&whole;
	for (uint32_t n = 0; n < vector->count; n++)
		memcpy(to + n * vector->element, &RD(vector->slots[n]), vector->element);
	if (to != p)
		*(volatile wide *)p = whole;
	return i + 1;
}

sim_op sim_op_load_vector(void) {
	return load_vector;
}

sim_op sim_op_store_vector(void) {
	return store_vector;
}

/* The first and the last byte that are read are looked up: always one byte, because what an
 * instruction remembers is for one size. */
SIM_OP(copy) {
	const struct sim_copy *copy = i->data;
	uint32_t read = RD(copy->ignore) ? 0 : RD(copy->read);
	uintptr_t from = RD(i->a) + copy->from_offset;
	char *to = shared_address(t, i, RD(copy->to) + copy->to_offset, copy->size);

	if (!to)
		return NULL;
	if (read > copy->size)
		read = copy->size;
	if (from % copy->size)
		return sim_fault(t, i, CUDA_ERROR_MISALIGNED_ADDRESS, "%u bytes at address 0x%zx",
				 copy->size, (size_t)from);
	if (read && (!real_address(t, i, from, 1) || !real_address(t, i, from + read - 1, 1)))
		return NULL;
	memcpy(to, (const void *)from, read);
	memset(to + read, 0, copy->size - read);
	return i + 1;
}

sim_op sim_op_copy(void) {
	return copy;
}

/* --- atomics --- */

static void *atomic_address(struct sim_thread *t, const struct sim_insn *i, size_t size) {
	if (i->e == SIM_ACCESS_SHARED)
		return shared_address(t, i, RD(i->a) + i->offset, size);
	return real_address(t, i, RD(i->a) + i->offset, size);
}

/*
 * Real atomics: the memory may be host memory that others write, and other processes run kernels on
 * shared memory. b and c are the operands, old what was there.
 */
#define ATOMIC(name, type, expression)                                                     \
	SIM_OP(atom_##name##_##type) {                                                     \
		type *p = atomic_address(t, i, sizeof(type));                              \
		type b = (type)RD(i->b), c = (type)RD(i->c), old, next;                    \
		(void)b;                                                                   \
		(void)c;                                                                   \
		if (!p)                                                                    \
			return NULL;                                                       \
		old = __atomic_load_n(p, __ATOMIC_RELAXED);                                \
		do                                                                         \
			next = (type)(expression);                                         \
		while (!__atomic_compare_exchange_n(p, &old, next, true, __ATOMIC_SEQ_CST, \
						    __ATOMIC_RELAXED));                    \
		RD(i->d) = old;                                                            \
		return i + 1;                                                              \
	}

#define ATOMICS(type)                                        \
	ATOMIC(exch, type, b)                                \
	ATOMIC(cas, type, old == b ? c : old)                \
	ATOMIC(and, type, old &b)                            \
	ATOMIC(or, type, old | b)                            \
	ATOMIC(xor, type, old ^ b)                           \
	ATOMIC(add, type, old + b)                           \
	ATOMIC(inc, type, old >= b ? 0 : old + 1)            \
	ATOMIC(dec, type, old == 0 || old > b ? b : old - 1) \
	ATOMIC(min, type, old < b ? old : b)                 \
	ATOMIC(max, type, old > b ? old : b)

ATOMICS(uint32_t)
ATOMICS(uint64_t)
ATOMIC(cas, uint16_t, old == b ? c : old)
ATOMIC(exch, uint16_t, b)

#define ATOMIC_SIGNED(type, unsigned_type)                         \
	ATOMIC(smin, unsigned_type, (type)old < (type)b ? old : b) \
	ATOMIC(smax, unsigned_type, (type)old > (type)b ? old : b)

ATOMIC_SIGNED(int32_t, uint32_t)
ATOMIC_SIGNED(int64_t, uint64_t)

ATOMIC(fadd, uint32_t, sim_f32_bits(sim_f32(old) + sim_f32(b)))
ATOMIC(fadd, uint64_t, sim_f64_bits(sim_f64(old) + sim_f64(b)))

struct atomic_row {
	const char *operation;
	enum ptx_type types[4];
	sim_op op;
};

#define T(...) { __VA_ARGS__ }
#define BITS_ROWS(name)                                                           \
	{ #name, T(PTX_TYPE_B32, PTX_TYPE_U32, PTX_TYPE_S32, PTX_TYPE_F32),       \
	  atom_##name##_uint32_t },                                               \
	{                                                                         \
		#name, T(PTX_TYPE_B64, PTX_TYPE_U64, PTX_TYPE_S64, PTX_TYPE_F64), \
			atom_##name##_uint64_t                                    \
	}
#define INTEGER_ROWS(name)                                                   \
	{ #name, T(PTX_TYPE_U32, PTX_TYPE_B32), atom_##name##_uint32_t }, {  \
		#name, T(PTX_TYPE_U64, PTX_TYPE_B64), atom_##name##_uint64_t \
	}

sim_op sim_op_atomic(const char *operation, enum ptx_type type) {
	static const struct atomic_row rows[] = {
		BITS_ROWS(exch),
		BITS_ROWS(cas),
		BITS_ROWS(and),
		BITS_ROWS(or),
		BITS_ROWS(xor),
		INTEGER_ROWS(inc),
		INTEGER_ROWS(dec),
		INTEGER_ROWS(min),
		INTEGER_ROWS(max),
		{ "add", T(PTX_TYPE_U32, PTX_TYPE_S32), atom_add_uint32_t },
		{ "add", T(PTX_TYPE_U64, PTX_TYPE_S64), atom_add_uint64_t },
		{ "add", T(PTX_TYPE_F32), atom_fadd_uint32_t },
		{ "add", T(PTX_TYPE_F64), atom_fadd_uint64_t },
		{ "min", T(PTX_TYPE_S32), atom_smin_uint32_t },
		{ "max", T(PTX_TYPE_S32), atom_smax_uint32_t },
		{ "min", T(PTX_TYPE_S64), atom_smin_uint64_t },
		{ "max", T(PTX_TYPE_S64), atom_smax_uint64_t },
		{ "cas", T(PTX_TYPE_B16), atom_cas_uint16_t },
		{ "exch", T(PTX_TYPE_B16), atom_exch_uint16_t },
	};

	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++)
		for (int k = 0; k < 4; k++)
			if (rows[n].types[k] == type && !strcmp(rows[n].operation, operation))
				return rows[n].op;
	return NULL;
}

/* --- addresses --- */

SIM_OP(frame_address) {
	RD(i->d) = (uint64_t)(uintptr_t)((char *)t->r + i->offset);
	return i + 1;
}

sim_op sim_op_frame_address(void) {
	return frame_address;
}

SIM_OP(to_generic_shared) {
	RD(i->d) = (uint64_t)(uintptr_t)t->block->shared + (uint32_t)RD(i->a);
	return i + 1;
}
SIM_OP(from_generic_shared) {
	RD(i->d) = (uint32_t)(RD(i->a) - (uint64_t)(uintptr_t)t->block->shared);
	return i + 1;
}
SIM_OP(same_address) {
	RD(i->d) = RD(i->a);
	return i + 1;
}

sim_op sim_op_copy_register(void) {
	return same_address;
}

static bool in_shared(struct sim_thread *t, uint64_t address) {
	return address - (uint64_t)(uintptr_t)t->block->shared < t->block->shared_size;
}

static bool in_stack(struct sim_thread *t, uint64_t address) {
	return address - (uint64_t)(uintptr_t)t->context->stack <
	       (uint64_t)(t->context->end - t->context->stack);
}

SIM_OP(is_shared) {
	RD(i->d) = in_shared(t, RD(i->a));
	return i + 1;
}

/* A kernel's parameters are at the bottom of its stack. */
static bool in_parameters(struct sim_thread *t, uint64_t address) {
	const struct sim_function *kernel = t->block->launch->function;

	return address - (uint64_t)(uintptr_t)(t->context->stack + sizeof(struct sim_frame)) <
	       kernel->parameters_end;
}

SIM_OP(is_local) {
	RD(i->d) = in_stack(t, RD(i->a)) && !in_parameters(t, RD(i->a));
	return i + 1;
}
SIM_OP(is_parameter) {
	RD(i->d) = in_parameters(t, RD(i->a));
	return i + 1;
}

SIM_OP(is_constant) {
	struct sim_region region;

	RD(i->d) = sim_memory_find(RD(i->a), &region) && region.kind == SIM_REGION_CONSTANT;
	return i + 1;
}

/* What is none of the others, valid or not. */
SIM_OP(is_global) {
	struct sim_region region;
	uint64_t address = RD(i->a);

	RD(i->d) = !in_shared(t, address) && !in_stack(t, address) &&
		   !(sim_memory_find(address, &region) && region.kind == SIM_REGION_CONSTANT);
	return i + 1;
}

const struct sim_op_row sim_op_address[] = {
	{ "cvta.shared", to_generic_shared, "Dt" }, { "cvta.to.shared", from_generic_shared, "Dt" },
	{ "cvta.global", same_address, "Dt" },      { "cvta.to.global", same_address, "Dt" },
	{ "cvta.local", same_address, "Dt" },       { "cvta.to.local", same_address, "Dt" },
	{ "cvta.const", same_address, "Dt" },       { "cvta.to.const", same_address, "Dt" },
	{ "cvta.param", same_address, "Dt" },       { "cvta.to.param", same_address, "Dt" },
	{ "isspacep.shared", is_shared, "Dt" },     { "isspacep.local", is_local, "Dt" },
	{ "isspacep.global", is_global, "Dt" },     { "isspacep.const", is_constant, "Dt" },
	{ "isspacep.param", is_parameter, "Dt" },   { NULL },
};
