/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sanitizer engine in this process: libgpuprobe-sass.so beside the shim, if a daemon wants it.
 */

#include <stdbool.h>

struct sass_engine;
struct sass_events;

/*
 * Before the first cuInit() reaches the driver, in the thread that calls it. Returns the engine if
 * it was loaded now, else NULL.
 */
const struct sass_engine *sass_start(const struct sass_events *events);

/* Is the engine in this process, or will it come with cuInit()? NVIDIA's tools exclude each other.
 */
bool sass_claims_process(void);

/* Why the process runs without the engine although a daemon wants it; or NULL. */
const char *sass_why_not(void);
