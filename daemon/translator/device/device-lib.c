/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device library: what a program calls while it runs on the GPU. Compiled to NVPTX bitcode when
 * the project is built, linked into each program and inlined; what its arguments fix is folded then
 * (the sizes of a map are constants).
 *
 * Adding to a map value costs one memory operation a warp wherever the lanes that are together add
 * to the same address: the mask of these lanes is read once, exactly one of them (the lowest) adds
 * the sum for all. Lanes that are not together read different masks and add for themselves, so the
 * total is exact however the warp is split.
 *   - an operand that is the same in all lanes, as a constant is: the number of lanes times it;
 *   - another: a butterfly of shuffles if the warp is whole (10 shuffles for 8 bytes; 32 lanes on
 * one address take the memory system longer than that), otherwise each lane adds for itself;
 *   - an address that may differ: the lanes compare theirs with the leader's first.
 *
 * Additions whose result is not used order nothing (relaxed, of the GPU's scope). Operations that
 * return the old value are fully ordered, as the Linux memory model has it for them: a fence on
 * both sides.
 */

#include "device-lib.h"

/*
 * Whether the lanes of the mask have the same address in a map. The low half tells: an instance is
 * of 4 GiB at most, and all lanes mean the same instance.
 */
static inline _Bool is_same_in(u32 mask, u64 address) {
	u32 leader =
		(u32)__nvvm_shfl_sync_idx_i32(mask, (int)(u32)address, __builtin_ctz(mask), 31);

	return __nvvm_vote_all_sync(mask, leader == (u32)address);
}

static inline _Bool is_same_address(u32 mask, u64 address) {
	return mask == WARP ? is_same_in(WARP, address) : is_same_in(part_mask(mask), address);
}

/* Whether a whole warp has the same number. */
static inline _Bool is_same32(u32 mask, u32 number) {
	return mask == WARP && is_same_in(WARP, number);
}

static inline _Bool is_same64(u32 mask, u64 number) {
	u32 low, high;

	if (mask != WARP)
		return 0;
	low = (u32)__nvvm_shfl_sync_idx_i32(WARP, (int)(u32)number, 0, 31);
	high = (u32)__nvvm_shfl_sync_idx_i32(WARP, (int)(u32)(number >> 32), 0, 31);
	return __nvvm_vote_all_sync(WARP, ((u64)high << 32 | low) == number);
}

static inline u32 warp_sum32(u32 value) {
#pragma unroll
	for (int distance = 16; distance; distance >>= 1)
		value += (u32)__nvvm_shfl_sync_bfly_i32(WARP, (int)value, distance, 31);
	return value;
}

static inline u64 warp_sum64(u64 value) {
#pragma unroll
	for (int distance = 16; distance; distance >>= 1) {
		u32 low = (u32)__nvvm_shfl_sync_bfly_i32(WARP, (int)(u32)value, distance, 31);
		u32 high =
			(u32)__nvvm_shfl_sync_bfly_i32(WARP, (int)(u32)(value >> 32), distance, 31);

		value += (u64)high << 32 | low;
	}
	return value;
}

/*
 * Additions to a map value without the old value:
 *   constant: the address and the operand are the same in all threads
 *   uniform: the address is
 *   varying: neither need be
 *   varying_constant: the operand is
 *   uniform_place, varying_place: the operand is if `s`; else a whole warp is looked at
 *   own: no two threads have the same address
 * "_sys": in host memory, which others see, too.
 */
#define DEFINE_ADD(bits, suffix, scope, type, register)                                    \
	static inline void red_add##bits##suffix(GLOBAL type *p, type v) {                 \
		__asm__ volatile("red" scope ".global.add.u" #bits " [%0], %1;" ::"l"(p),  \
				 register(v)                                               \
				 : "memory");                                              \
	}                                                                                  \
	void gpuprobe_add##bits##_own##suffix(GLOBAL type *p, type v);                     \
	void gpuprobe_add##bits##_own##suffix(GLOBAL type *p, type v) {                    \
		red_add##bits##suffix(p, v);                                               \
	}                                                                                  \
	void gpuprobe_add##bits##_constant##suffix(GLOBAL type *p, type v);                \
	void gpuprobe_add##bits##_constant##suffix(GLOBAL type *p, type v) {               \
		u32 mask = lane_mask();                                                    \
                                                                                           \
		if (is_leader(mask))                                                       \
			red_add##bits##suffix(p, lanes(mask) * v);                         \
	}                                                                                  \
	static inline void add##bits##_whole##suffix(u32 mask, GLOBAL type *p, type v) {   \
		if (mask != WARP) {                                                        \
			red_add##bits##suffix(p, v);                                       \
			return;                                                            \
		}                                                                          \
		v = warp_sum##bits(v);                                                     \
		if (is_leader(mask))                                                       \
			red_add##bits##suffix(p, v);                                       \
	}                                                                                  \
	void gpuprobe_add##bits##_uniform##suffix(GLOBAL type *p, type v);                 \
	void gpuprobe_add##bits##_uniform##suffix(GLOBAL type *p, type v) {                \
		add##bits##_whole##suffix(lane_mask(), p, v);                              \
	}                                                                                  \
	void gpuprobe_add##bits##_varying##suffix(GLOBAL type *p, type v);                 \
	void gpuprobe_add##bits##_varying##suffix(GLOBAL type *p, type v) {                \
		u32 mask = lane_mask();                                                    \
                                                                                           \
		if (is_same_address(mask, (u64)p))                                         \
			add##bits##_whole##suffix(mask, p, v);                             \
		else                                                                       \
			red_add##bits##suffix(p, v);                                       \
	}                                                                                  \
	static inline void add##bits##_same##suffix(u32 mask, GLOBAL type *p, type v,      \
						    _Bool same) {                          \
		if (!same)                                                                 \
			red_add##bits##suffix(p, v);                                       \
		else if (is_leader(mask))                                                  \
			red_add##bits##suffix(p, lanes(mask) * v);                         \
	}                                                                                  \
	void gpuprobe_add##bits##_varying_constant##suffix(GLOBAL type *p, type v);        \
	void gpuprobe_add##bits##_varying_constant##suffix(GLOBAL type *p, type v) {       \
		u32 mask = lane_mask();                                                    \
                                                                                           \
		add##bits##_same##suffix(mask, p, v, is_same_address(mask, (u64)p));       \
	}                                                                                  \
	void gpuprobe_add##bits##_uniform_place##suffix(GLOBAL type *p, type v, _Bool s);  \
	void gpuprobe_add##bits##_uniform_place##suffix(GLOBAL type *p, type v, _Bool s) { \
		u32 mask = lane_mask();                                                    \
                                                                                           \
		add##bits##_same##suffix(mask, p, v, s || is_same##bits(mask, v));         \
	}                                                                                  \
	void gpuprobe_add##bits##_varying_place##suffix(GLOBAL type *p, type v, _Bool s);  \
	void gpuprobe_add##bits##_varying_place##suffix(GLOBAL type *p, type v, _Bool s) { \
		u32 mask = lane_mask();                                                    \
                                                                                           \
		add##bits##_same##suffix(mask, p, v,                                       \
					 is_same_address(mask, (u64)p) &&                  \
						 (s || is_same##bits(mask, v)));           \
	}

DEFINE_ADD(32, , "", u32, "r")
DEFINE_ADD(64, , "", u64, "l")
DEFINE_ADD(32, _sys, ".sys", u32, "r")
DEFINE_ADD(64, _sys, ".sys", u64, "l")

/* The other operations without the old value, in global memory: a reduction for each lane. */
#define DEFINE_REDUCTION(name, bits, suffix, scope, type, register)                             \
	void gpuprobe_##name##bits##suffix(GLOBAL type *p, type v);                             \
	void gpuprobe_##name##bits##suffix(GLOBAL type *p, type v) {                            \
		__asm__ volatile("red" scope ".global." #name ".b" #bits " [%0], %1;" ::"l"(p), \
				 register(v)                                                    \
				 : "memory");                                                   \
	}
#define DEFINE_REDUCTIONS(name)                            \
	DEFINE_REDUCTION(name, 32, , "", u32, "r")         \
	DEFINE_REDUCTION(name, 64, , "", u64, "l")         \
	DEFINE_REDUCTION(name, 32, _sys, ".sys", u32, "r") \
	DEFINE_REDUCTION(name, 64, _sys, ".sys", u64, "l")

DEFINE_REDUCTIONS(or)
DEFINE_REDUCTIONS(and)
DEFINE_REDUCTIONS(xor)

/*
 * With the old value. `gpuprobe_fetch_...` in global memory, `gpuprobe_generic_...` at an address
 * that may as well be of this thread's own memory, which atomic instructions do not reach. Without
 * `ordered`, no fences.
 */
#define DEFINE_FETCH(name, bits, type, atomic, plain)                             \
	type gpuprobe_fetch_##name##bits(GLOBAL type *p, type v, _Bool ordered);  \
	type gpuprobe_fetch_##name##bits(GLOBAL type *p, type v, _Bool ordered) { \
		type old;                                                         \
                                                                                  \
		if (ordered)                                                      \
			fence();                                                  \
		old = atomic(p, v, __ATOMIC_RELAXED);                             \
		if (ordered)                                                      \
			fence();                                                  \
		return old;                                                       \
	}                                                                         \
	type gpuprobe_generic_##name##bits(type *p, type v, _Bool ordered);       \
	type gpuprobe_generic_##name##bits(type *p, type v, _Bool ordered) {      \
		type old;                                                         \
                                                                                  \
		if (__nvvm_isspacep_local(p)) {                                   \
			old = *p;                                                 \
			*p = plain;                                               \
			return old;                                               \
		}                                                                 \
		if (ordered)                                                      \
			fence();                                                  \
		old = atomic(p, v, __ATOMIC_RELAXED);                             \
		if (ordered)                                                      \
			fence();                                                  \
		return old;                                                       \
	}

DEFINE_FETCH(add, 32, u32, __atomic_fetch_add, old + v)
DEFINE_FETCH(add, 64, u64, __atomic_fetch_add, old + v)
DEFINE_FETCH(or, 32, u32, __atomic_fetch_or, old | v)
DEFINE_FETCH(or, 64, u64, __atomic_fetch_or, old | v)
DEFINE_FETCH(and, 32, u32, __atomic_fetch_and, old &v)
DEFINE_FETCH(and, 64, u64, __atomic_fetch_and, old &v)
DEFINE_FETCH(xor, 32, u32, __atomic_fetch_xor, old ^ v)
DEFINE_FETCH(xor, 64, u64, __atomic_fetch_xor, old ^ v)
DEFINE_FETCH(xchg, 32, u32, __atomic_exchange_n, v)
DEFINE_FETCH(xchg, 64, u64, __atomic_exchange_n, v)

#define DEFINE_CMPXCHG(bits, type)                                                 \
	type gpuprobe_fetch_cmpxchg##bits(GLOBAL type *p, type expected, type v);  \
	type gpuprobe_fetch_cmpxchg##bits(GLOBAL type *p, type expected, type v) { \
		fence();                                                           \
		__atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_RELAXED,  \
					    __ATOMIC_RELAXED);                     \
		fence();                                                           \
		return expected;                                                   \
	}                                                                          \
	type gpuprobe_generic_cmpxchg##bits(type *p, type expected, type v);       \
	type gpuprobe_generic_cmpxchg##bits(type *p, type expected, type v) {      \
		if (__nvvm_isspacep_local(p)) {                                    \
			type old = *p;                                             \
                                                                                   \
			if (old == expected)                                       \
				*p = v;                                            \
			return old;                                                \
		}                                                                  \
		fence();                                                           \
		__atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_RELAXED,  \
					    __ATOMIC_RELAXED);                     \
		fence();                                                           \
		return expected;                                                   \
	}

DEFINE_CMPXCHG(32, u32)
DEFINE_CMPXCHG(64, u64)

/*
 * The same in host memory, or where that is possible. The compiler's own atomic operations are of
 * the GPU's scope, whatever they are asked for.
 */
#define DEFINE_SYSTEM_FETCH(name, operation, bits, type, register, plain)                       \
	type gpuprobe_fetch_##name##bits##_sys(GLOBAL type *p, type v, _Bool ordered);          \
	type gpuprobe_fetch_##name##bits##_sys(GLOBAL type *p, type v, _Bool ordered) {         \
		type old;                                                                       \
                                                                                                \
		if (ordered)                                                                    \
			__nvvm_membar_sys();                                                    \
		__asm__ volatile("atom.sys.global." operation #bits " %0, [%1], %2;"            \
				 : "=" register(old)                                            \
				 : "l"(p), register(v)                                          \
				 : "memory");                                                   \
		if (ordered)                                                                    \
			__nvvm_membar_sys();                                                    \
		return old;                                                                     \
	}                                                                                       \
	type gpuprobe_generic_##name##bits##_sys(type *p, type v, _Bool ordered);               \
	type gpuprobe_generic_##name##bits##_sys(type *p, type v, _Bool ordered) {              \
		type old;                                                                       \
                                                                                                \
		if (!__nvvm_isspacep_local(p))                                                  \
			return gpuprobe_fetch_##name##bits##_sys((GLOBAL type *)p, v, ordered); \
		old = *p;                                                                       \
		*p = plain;                                                                     \
		return old;                                                                     \
	}
#define DEFINE_SYSTEM_FETCHES(name, operation, plain)             \
	DEFINE_SYSTEM_FETCH(name, operation, 32, u32, "r", plain) \
	DEFINE_SYSTEM_FETCH(name, operation, 64, u64, "l", plain)

DEFINE_SYSTEM_FETCHES(add, "add.u", old + v)
DEFINE_SYSTEM_FETCHES(or, "or.b", old | v)
DEFINE_SYSTEM_FETCHES(and, "and.b", old &v)
DEFINE_SYSTEM_FETCHES(xor, "xor.b", old ^ v)
DEFINE_SYSTEM_FETCHES(xchg, "exch.b", v)

#define DEFINE_SYSTEM_CMPXCHG(bits, type, register)                                               \
	type gpuprobe_fetch_cmpxchg##bits##_sys(GLOBAL type *p, type expected, type v);           \
	type gpuprobe_fetch_cmpxchg##bits##_sys(GLOBAL type *p, type expected, type v) {          \
		type old;                                                                         \
                                                                                                  \
		__nvvm_membar_sys();                                                              \
		__asm__ volatile("atom.sys.global.cas.b" #bits " %0, [%1], %2, %3;"               \
				 : "=" register(old)                                              \
				 : "l"(p), register(expected), register(v)                        \
				 : "memory");                                                     \
		__nvvm_membar_sys();                                                              \
		return old;                                                                       \
	}                                                                                         \
	type gpuprobe_generic_cmpxchg##bits##_sys(type *p, type expected, type v);                \
	type gpuprobe_generic_cmpxchg##bits##_sys(type *p, type expected, type v) {               \
		type old;                                                                         \
                                                                                                  \
		if (!__nvvm_isspacep_local(p))                                                    \
			return gpuprobe_fetch_cmpxchg##bits##_sys((GLOBAL type *)p, expected, v); \
		old = *p;                                                                         \
		if (old == expected)                                                              \
			*p = v;                                                                   \
		return old;                                                                       \
	}

DEFINE_SYSTEM_CMPXCHG(32, u32, "r")
DEFINE_SYSTEM_CMPXCHG(64, u64, "l")

/*
 * A pointer that was loaded from constant memory, for good: something is added that is 0, or ptxas
 * would load it again where it is used. By then it may be 0, if its map is taken away while kernels
 * run, though it was not when it was compared with that. And each load comes from another cache,
 * which misses at the start of a kernel.
 */
u64 gpuprobe_load_once(u64 pointer);
u64 gpuprobe_load_once(u64 pointer) {
	u32 number;
	u64 zero;

	__asm__("mov.u32 %0, %%laneid;\n\tshr.u32 %0, %0, 5;" : "=r"(number));
	__asm__("mul.wide.u32 %0, %1, 8;" : "=l"(zero) : "r"(number));
	return pointer + zero;
}

/* 8 bytes of the struct gpuprobe_process that a patch has a pointer to; 0 if there is none yet. */
u64 gpuprobe_process_word(u64 process, u64 offset);
u64 gpuprobe_process_word(u64 process, u64 offset) {
	return process ? *(GLOBAL const u64 *)(process + offset) : 0;
}

/* The address of a value of an array that has it. See proto/map-layout.h. */
u64 gpuprobe_array_address(u64 base, u32 index, u64 value_stride, u32 shard_mask, u64 shard_stride);
u64 gpuprobe_array_address(u64 base, u32 index, u64 value_stride, u32 shard_mask,
			   u64 shard_stride) {
	return base + ((u32)__nvvm_read_ptx_sreg_smid() & shard_mask) * shard_stride +
	       index * value_stride;
}

/*
 * The number of the calling thread in the grid: that of its block times the block's size, plus its
 * own. Most grids and blocks have one dimension; to look at the others takes longer than the rest
 * of a lookup.
 */
u64 gpuprobe_thread_number(void);
u64 gpuprobe_thread_number(void) {
	u32 width = __nvvm_read_ptx_sreg_ntid_x(), height = __nvvm_read_ptx_sreg_ntid_y(),
	    depth = __nvvm_read_ptx_sreg_ntid_z(), rows = __nvvm_read_ptx_sreg_nctaid_y(),
	    thread = __nvvm_read_ptx_sreg_tid_x();
	u64 block = (u32)__nvvm_read_ptx_sreg_ctaid_x(), row, number;

	/* LLVM would make one of it with the end */
	__asm__("mad.wide.u32 %0, %1, %2, %3;"
		: "=l"(number)
		: "r"((u32)block), "r"(width), "l"((u64)thread));
	if (__builtin_expect((height | depth | rows | (u32)__nvvm_read_ptx_sreg_nctaid_z()) == 1,
			     1))
		return number;
	row = (u32)__nvvm_read_ptx_sreg_ctaid_y() + (u64)rows * (u32)__nvvm_read_ptx_sreg_ctaid_z();
	block += row * (u32)__nvvm_read_ptx_sreg_nctaid_x();
	thread +=
		width * (__nvvm_read_ptx_sreg_tid_y() + height * (u32)__nvvm_read_ptx_sreg_tid_z());
	return block * (width * height * depth) + thread;
}

/* Stores a value of at most 8 bytes and when, at once. */
void gpuprobe_store_latest(u64 to, u64 value);
void gpuprobe_store_latest(u64 to, u64 value) {
	__asm__ volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(value),
			 "l"((u64)__nvvm_read_ptx_sreg_globaltimer())
			 : "memory");
}

/* The calling thread ends. The compiler takes it that it goes on, and adds nothing of its own. */
void gpuprobe_exit(void);
void gpuprobe_exit(void) {
	__asm__ volatile("exit;" ::: "memory");
}

/* Stores a value in pieces of 8 bytes and a rest. `aligned`: the source is, to 8 bytes. */
void gpuprobe_copy(u64 to, const void *from, u64 size, _Bool aligned);
void gpuprobe_copy(u64 to, const void *from, u64 size, _Bool aligned) {
	const char *source = from;
	u64 i = 0, piece;

	for (; i + 8 <= size; i += 8) {
		if (aligned)
			piece = *(const u64 *)(source + i);
		else
			__builtin_memcpy(&piece, source + i, 8);
		*(GLOBAL u64 *)(to + i) = piece;
	}
	for (; i < size; i++)
		*(GLOBAL char *)(to + i) = source[i];
}

u64 gpuprobe_globaltimer(void);
u64 gpuprobe_globaltimer(void) {
	return (u64)__nvvm_read_ptx_sreg_globaltimer();
}

u64 gpuprobe_sm_id(void);
u64 gpuprobe_sm_id(void) {
	return (u32)__nvvm_read_ptx_sreg_smid();
}

u64 gpuprobe_warp_id(void);
u64 gpuprobe_warp_id(void) {
	return (u32)__nvvm_read_ptx_sreg_warpid();
}

u64 gpuprobe_lane_id(void);
u64 gpuprobe_lane_id(void) {
	return (u32)__nvvm_read_ptx_sreg_laneid();
}

/*
 * No state: the clocks and the place of the thread, mixed so that each bit of them moves each bit
 * of the result. Lanes that run together differ in their lane, calls of one thread in the SM's
 * clock.
 */
u64 gpuprobe_prandom(void);
u64 gpuprobe_prandom(void) {
	u64 x = gpuprobe_globaltimer() ^ gpuprobe_lane_id() << 59 ^ gpuprobe_sm_id() << 48 ^
		gpuprobe_warp_id() << 40;

	x += (u64)__nvvm_read_ptx_sreg_clock64() * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	return (u32)(x ^ x >> 32);
}

void gpuprobe_membar(void);
void gpuprobe_membar(void) {
	__nvvm_membar_sys();
}

#define DEFINE_TRIPLE(name, sreg)                              \
	u64 gpuprobe_##name##_x(void);                         \
	u64 gpuprobe_##name##_x(void) {                        \
		return (u32)__nvvm_read_ptx_sreg_##sreg##_x(); \
	}                                                      \
	u64 gpuprobe_##name##_y(void);                         \
	u64 gpuprobe_##name##_y(void) {                        \
		return (u32)__nvvm_read_ptx_sreg_##sreg##_y(); \
	}                                                      \
	u64 gpuprobe_##name##_z(void);                         \
	u64 gpuprobe_##name##_z(void) {                        \
		return (u32)__nvvm_read_ptx_sreg_##sreg##_z(); \
	}

DEFINE_TRIPLE(block_idx, ctaid)
DEFINE_TRIPLE(block_dim, ntid)
DEFINE_TRIPLE(thread_idx, tid)
DEFINE_TRIPLE(grid_dim, nctaid)

/* As text: the compiler takes the name only where the whole library is for sm_90. */
#define DEFINE_CLUSTER_ID(axis)                                           \
	u64 gpuprobe_cluster_id_##axis(void);                             \
	u64 gpuprobe_cluster_id_##axis(void) {                            \
		u32 id;                                                   \
                                                                          \
		__asm__("mov.u32 %0, %%clusterid." #axis ";" : "=r"(id)); \
		return id;                                                \
	}

DEFINE_CLUSTER_ID(x)
DEFINE_CLUSTER_ID(y)
DEFINE_CLUSTER_ID(z)
