/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Ids of kernels and instructions, computed alike by daemon, workers, passes and shim. A kernel (or
 * device function) has the FNV-1a hash, 64 bits, of its mangled name.
 */

#include <stddef.h>
#include <stdint.h>

static inline uint64_t kernel_id(const char *mangled, size_t length) {
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)mangled[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/*
 * The id of an instrumented instruction. Upper half: the image's number (1 ... 2^31-1), which the
 * daemon assigns; it is the same for all processes that load the image with the same attachments.
 * Lower half: the number of the instruction within the image.
 */
static inline uint64_t instruction_id(uint32_t image, uint32_t index) {
	return (uint64_t)image << 32 | index;
}
