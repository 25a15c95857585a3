/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The block behind a kernel's parameters (proto/launch.h): where it is, and how it gets there. */

#include <stdbool.h>
#include <stdint.h>

#include "lib/ptx/ptx-edit.h"

/*
 * Can a kernel have the block behind its parameters? False: they leave no room, their size is not
 * known, or the name is taken.
 */
bool probe_launch_fits(const struct ptx_module *module, const struct ptx_function *kernel);

/* Adds the block. 0, -ENOMEM or -EFBIG; 1: the text between name and parameters is not
 * understood. */
int probe_launch_add(struct ptx_edit *edit, const struct ptx_module *module,
		     const struct ptx_function *kernel);

/* Does a kernel have the block? *size: bytes of the parameters before it; *offset: of the block. */
bool probe_launch_has(const struct ptx_module *module, const struct ptx_function *kernel,
		      uint32_t *size, uint32_t *offset);
