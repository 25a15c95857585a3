/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How much memory of GPUs each process has in use, from its calls. A bounded number of allocations
 * is remembered, and only these count. If there are more, the result is too low, but it goes back
 * to 0.
 */

#include <stdbool.h>
#include <stdint.h>

#include "ctl/trace/base/item.h"

struct trace_in_use;

int trace_in_use_new(struct trace_in_use **in_usep);
struct trace_in_use *trace_in_use_free(struct trace_in_use *in_use);
bool trace_in_use_item(struct trace_in_use *in_use, const struct trace_item *item,
		       uint64_t *bytesp);
