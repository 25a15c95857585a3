/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a trace gets from NVIDIA's driver itself (its resource manager), while the trace runs. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rm_driver;
struct trace_watch;

/* ctxsw: context switches, not the clocks of GPUs alone. The driver is needed until the thread has
 * ended. Returns 0 or negative errno. */
int trace_watch_new(struct trace_watch **watchp, const struct rm_driver *driver, bool ctxsw);
/* Does not wait: if the driver is in a call, the thread ends behind that. */
struct trace_watch *trace_watch_free(struct trace_watch *watch);
/* Waits until it is on, for so long. */
void trace_watch_wait(struct trace_watch *watch, uint64_t milliseconds);
/* No more: waits for the last records, for so long. */
void trace_watch_stop(struct trace_watch *watch, uint64_t milliseconds);
/*
 * Whole records that came since the last time, and lines about what is not available; NULL: none.
 * The caller frees both. Returns 0 or -ENOMEM.
 */
int trace_watch_take(struct trace_watch *watch, void **bytesp, size_t *np, char **linesp);
