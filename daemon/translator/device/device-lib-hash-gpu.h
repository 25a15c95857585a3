/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What device-lib-hash.c does to memory, on a GPU; test-hash.c has the same for a CPU. Nothing here
 * orders anything but fence_all(), which is sequentially consistent. Maps in host memory are shared
 * by processes: of the system's scope.
 */

#include "device-lib.h"

#define SCOPED(system, before, after, ...)                                              \
	do {                                                                            \
		if (system)                                                             \
			__asm__ volatile(before ".sys" after : __VA_ARGS__ : "memory"); \
		else                                                                    \
			__asm__ volatile(before ".gpu" after : __VA_ARGS__ : "memory"); \
	} while (0)

static inline u64 load_scoped(_Bool system, u64 address) {
	u64 value;

	SCOPED(system, "ld.relaxed", ".global.b64 %0, [%1];", "=l"(value) : "l"(address));
	return value;
}

static inline void load_pair_scoped(_Bool system, u64 address, _Bool strong, u64 *a, u64 *b) {
	if (strong)
		SCOPED(system, "ld.relaxed", ".global.v2.b64 {%0, %1}, [%2];", "=l"(*a),
		       "=l"(*b) : "l"(address));
	else
		__asm__ volatile("ld.global.v2.b64 {%0, %1}, [%2];"
				 : "=l"(*a), "=l"(*b)
				 : "l"(address)
				 : "memory");
}

static inline void store_scoped(_Bool system, u64 address, u64 value) {
	SCOPED(system, "st.relaxed", ".global.b64 [%0], %1;", : "l"(address), "l"(value));
}

static inline u64 compare_and_swap_scoped(_Bool system, u64 address, u64 expected, u64 value) {
	u64 old;

	SCOPED(system, "atom.relaxed", ".global.cas.b64 %0, [%1], %2, %3;",
	       "=l"(old) : "l"(address), "l"(expected), "l"(value));
	return old;
}

static inline u64 add_scoped(_Bool system, u64 address, u64 value) {
	u64 old;

	SCOPED(system, "atom.relaxed", ".global.add.u64 %0, [%1], %2;", "=l"(old) : "l"(address),
	       "l"(value));
	return old;
}

static inline void fence_scoped(_Bool system) {
	if (system)
		__asm__ volatile("fence.sc.sys;" ::: "memory");
	else
		__asm__ volatile("fence.sc.gpu;" ::: "memory");
}

#define load(h, address) load_scoped((h)->system, address)
#define load_pair(h, address, strong, a, b) load_pair_scoped((h)->system, address, strong, a, b)
#define store(h, address, value) store_scoped((h)->system, address, value)
#define compare_and_swap(h, address, expected, value) \
	compare_and_swap_scoped((h)->system, address, expected, value)
#define add(h, address, value) add_scoped((h)->system, address, value)
#define fence_all(h) fence_scoped((h)->system)

static inline void look_again(void) {
	__asm__ volatile("nanosleep.u32 100;");
}

static inline u32 shard(void) {
	return (u32)__nvvm_read_ptx_sreg_smid();
}
