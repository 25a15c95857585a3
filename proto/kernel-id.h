/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The number of a kernel or device function, wherever one is shown: FNV-1a, 64 bits, of its mangled
 * name. */

#include <stddef.h>
#include <stdint.h>

static inline uint64_t kernel_id(const char *mangled, size_t length) {
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)mangled[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/*
 * The number of an instrumented instruction: that of the image in the upper half (1 ... 2^31-1,
 * given by the daemon; the same for every process that loads it with the same attachments), in the
 * lower that of the instruction among those of the image.
 */
static inline uint64_t instruction_id(uint32_t image, uint32_t index) {
	return (uint64_t)image << 32 | index;
}
