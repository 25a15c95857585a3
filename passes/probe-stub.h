/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the pass `probe`: replaces a call. */

#include "probe-names.h"
#include "lib/ptx/ptx-edit.h"

/*
 * Puts bytes where a direct call stands. Its arguments stay declared and written, which does no
 * harm; what it would have returned reads as 0. Returns 0, PROBE_E_FUNCTION if a read of the result
 * is not understood, or -ENOMEM.
 */
int probe_stub_replace(struct ptx_edit *edit, const struct probe_names *names, uint32_t statement,
		       const char *bytes, size_t length, struct ptx_error *error);
