/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether what a worker wrote is a plan (proto/patch.h). */

#include <stddef.h>
#include <stdint.h>

#define PLAN_POINTS_MAX 32
#define PLAN_KERNELS_MAX (UINT32_C(1) << 20)

/*
 * Everything in it lies inside of it, and it is for n_attachments attachments whose data have
 * data_size bytes. *meant gets the bits of those that mean a kernel. NULL, or what is wrong: one
 * line, constant.
 */
const char *plan_check(const void *bytes, size_t size, size_t n_attachments, uint32_t data_size,
		       uint64_t *meant);
