/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "ptx-edit.h"

/*
 * Puts a kernel's original behind it, under its name with PROBE_BARE_SUFFIX (probe.h); nothing if that name is taken, or if
 * the original would not be the same kernel there. Returns 0, or as ptx_edit_insert().
 */
int probe_bare_add(struct ptx_edit *edit, const struct ptx_body *body);
