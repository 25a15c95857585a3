/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The SASS engine in this process: libgpuprobe-sass.so beside the shim, if a daemon wants it. */

struct sass_engine;
struct sass_events;

/*
 * Before the first cuInit() reaches the driver, in the thread that calls it. Returns the engine if
 * it was loaded now, else NULL.
 */
const struct sass_engine *sass_start(const struct sass_events *events);

/* Why the process runs without the engine although a daemon wants it; or NULL. */
const char *sass_why_not(void);
