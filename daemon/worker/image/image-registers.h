/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How many registers the kernels of an edited module may have. */

#include <stddef.h>
#include <stdint.h>

#include "lib/ptx/ptx-module.h"

/* A cubin. data NULL: there is none. */
struct image_code {
	const void *data;
	size_t size;
};

/* Machine code that says how many registers the kernels of one module have. */
struct image_codes {
	struct image_code compiled; /* of the module with its edits, without a limit of ours */
	struct image_code original; /* that would run without us */
	struct image_code unedited; /* compiled from the text without edits */
};

/*
 * A block has 65536 registers, so with 64 for each thread it can have 1024 threads, as many as
 * there may be; programs that do not say how large their blocks are (.maxntid) count on it where it
 * is so without probes.
 *
 * *out is the module's text with a limit in each kernel that has got more than 64 and had not: the
 * caller's to free(), with a NUL behind it; NULL if there is no such kernel. What a kernel had is
 * read from the original code, else from the unedited one. 0 or -ENOMEM and the like.
 */
int image_registers_limit(char **out, size_t *length, const struct ptx_module *module,
			  const struct image_codes *codes);

/*
 * What has to be compiled for that: *out is the text of `unedited` with those kernels alone that
 * have got more than 64 registers and of which no code says how many they had. NULL: there are
 * none. Else as above.
 */
int image_registers_wanted(char **out, size_t *length, const struct ptx_module *module,
			   const struct ptx_module *unedited, const struct image_codes *codes);
