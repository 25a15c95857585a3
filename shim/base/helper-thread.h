/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Threads of the shim in the application's process. */

#include <stdbool.h>
#include <stddef.h>

/*
 * Starts a detached thread that runs `run`, with a stack of `stack` bytes; no signal goes to it.
 * Returns whether it was started.
 */
bool helper_thread(void *(*run)(void *), size_t stack);
