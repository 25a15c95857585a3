/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the compiler says about a function that it made. */

#include <stddef.h>
#include <stdint.h>

struct patch_report {
	uint32_t registers; /* 0: not said */
	uint32_t stack, spill_stores, spill_loads; /* bytes */
};

/*
 * Of the function `symbol`: from the cubin, and the compiler's words with --verbose (may be NULL).
 */
void patch_report_read(struct patch_report *report, const char *symbol, const void *cubin,
		       size_t size, const char *log);
