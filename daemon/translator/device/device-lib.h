/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the parts of the device library share: the lanes of a warp that are together. */

#define GLOBAL __attribute__((address_space(1)))

typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 0xffffffffu

static inline u32 lane_mask(void) {
	return __nvvm_activemask();
}

/*
 * The mask of a part of a warp, for lanes that exchange something later. ptxas (13.0) believes that
 * lanes which meet again have the same activemask, and asks one of them for all; but a lane of
 * another group, a turn of a loop ahead, may have come to the same place meanwhile, and then lanes
 * read what nobody gives them. That the mask has the lane's own bit hides from it what this was;
 * for a mask of which it knows nothing it does the right thing. WARP as a constant needs none of
 * this.
 */
static inline u32 part_mask(u32 mask) {
	return mask | __nvvm_read_ptx_sreg_lanemask_eq();
}

/* True in the lowest lane of the mask. */
static inline _Bool is_leader(u32 mask) {
	return !(mask & __nvvm_read_ptx_sreg_lanemask_lt());
}

/*
 * The number of lanes in the mask, for the leader. Written so that the CUDA compiler cannot tell
 * that it is the same in all lanes: if it could, it would aggregate the one addition that is left
 * over the warp once more.
 */
static inline u32 lanes(u32 mask) {
	return (u32)__builtin_popcount(mask & ~__nvvm_read_ptx_sreg_lanemask_lt());
}

static inline void fence(void) {
	__nvvm_membar_gl();
}
