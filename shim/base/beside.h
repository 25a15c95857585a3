/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Loads libraries of ours that lie beside the shim, when they are needed. */

#include <stdint.h>

enum beside_result {
	BESIDE_OK,
	BESIDE_NO_PLACE, /* the shim does not know where it lies, or too far down */
	BESIDE_MISSING,
	BESIDE_OTHER, /* of another version */
};

/* Fills in *table with what `entry` returns: a struct that begins with the number `abi`. */
enum beside_result beside_load(const char *library, const char *entry, uint32_t abi,
			       const void **table);

/* A handle of it, opened RTLD_NOW | RTLD_LOCAL | mode; NULL: there is none. */
void *beside_open(const char *library, int mode);
