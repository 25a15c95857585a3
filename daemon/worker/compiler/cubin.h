/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a cubin (an ELF file of machine code) says about itself: the names of its kernels, and what
 * it was made from. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cubin_error {
	_CUBIN_E_SUCCESS,
	CUBIN_E_MALFORMED, /* not an ELF64 file, or its tables lie outside of it */
};

struct cubin {
	const char **kernels; /* owned; the names point into the file */
	size_t n_kernels;
	uint32_t virtual_sm; /* the compute_XX that it was made from; 0: not said */
	bool relocatable; /* to be linked with others before it can run (-rdc=true) */
	uint8_t abi_version; /* 7 is CUDA 12's, 8 is CUDA 13's */
};

/* `data` stays the caller's and has to outlive *cubin. On success: cubin_deinit(). */
int cubin_parse(struct cubin *cubin, const void *data, size_t size);
void cubin_deinit(struct cubin *cubin);

/* The registers of a function, 0 if the file does not say. */
uint32_t cubin_registers(const void *data, size_t size, const char *symbol);
