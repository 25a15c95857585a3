/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How many registers the kernels of an edited module may have. */

#include <stddef.h>
#include <stdint.h>

#include "lib/ptx/ptx-module.h"

/*
 * A block has 65536 registers, so with 64 for each thread it can have 1024 threads, as many as
 * there may be; programs that do not say how large their blocks are (.maxntid) count on it where it
 * is so without probes.
 *
 * `compiled` is what became of the module, `original` the machine code that stood in its place
 * (NULL: there was none). *out is the module's text with a limit in each kernel that has got more
 * than 64 and had not: the caller's to free(), with a NUL behind it; NULL if there is no such
 * kernel. 0 or -ENOMEM and the like.
 */
int image_registers_limit(char **out, size_t *length, const struct ptx_module *module,
			  const void *compiled, size_t compiled_size, const void *original,
			  size_t original_size);
