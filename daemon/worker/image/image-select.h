/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which entries of a fatbin matter for a device. `capability` is 90 for compute capability 9.0.
 *
 * The driver takes machine code that runs on the device if there is some, else the newest PTX that
 * it may compile. A probe must not change which *source* runs: code for compute_80 and compute_90
 * of one file may differ by more than speed (kernels of libraries that only trap when compiled for
 * another architecture). So where machine code would run, only the PTX that it was made from stands
 * for it.
 */

#include "daemon/worker/fatbin/fatbin.h"

/* The machine code that the driver runs on this device; NULL if there is none. */
const struct fatbin_entry *image_select_code(const struct fatbin *fatbin, unsigned int capability);

/* The PTX that the driver compiles where there is no machine code; NULL if there is none. */
const struct fatbin_entry *image_select_ptx(const struct fatbin *fatbin, unsigned int capability);

/* The PTX that `code` was made from, compute_<virtual_sm> (0: not known, its own sm); NULL if the
 * image lacks it. */
const struct fatbin_entry *image_select_source(const struct fatbin *fatbin, unsigned int capability,
					       const struct fatbin_entry *code,
					       uint32_t virtual_sm);

/* "a", "f" or "" */
const char *image_entry_suffix(const struct fatbin_entry *entry);
