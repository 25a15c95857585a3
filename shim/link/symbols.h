/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * Replaces what cuGetProcAddress found by a trampoline, if it is a function of the driver. version,
 * flags: as cuGetProcAddress got them.
 */
void symbols_swap(const char *name, void **found, int version, uint64_t flags);
