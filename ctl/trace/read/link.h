/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What belongs to what: spans around others in the same thread, and launches with what they put on
 * the GPU. Items come in the order of their start. Memory is bounded: of launches the last quarter
 * of a million is known, of a stream (where only the order tells) the last thousand.
 */

#include <stdbool.h>
#include <stdint.h>

#include "ctl/trace/base/item.h"

struct trace_links;

int trace_links_new(struct trace_links **linksp);
struct trace_links *trace_links_free(struct trace_links *links);

/* A launch was read, though it may still have to wait for its turn. */
void trace_links_expect(struct trace_links *links, uint32_t pid, uint32_t tid, uint64_t sequence,
			uint64_t start);
/* When the launch of that number started, the newest one that was read; 0: not known. */
uint64_t trace_links_started(const struct trace_links *links, uint32_t pid, uint32_t tid,
			     uint64_t sequence);
/* There are kernels that do not say which launch was theirs: the order on their stream tells, of
 * launches from now on. */
void trace_links_by_stream(struct trace_links *links);
/*
 * Sets parent, flow and violation (and the name of a kernel that has none) of an item, which has
 * its id, and a kernel in `launched` what trace_links_started() said when it was read. launch: it
 * puts work on the GPU.
 */
int trace_links_item(struct trace_links *links, struct trace_item *item, bool launch);
