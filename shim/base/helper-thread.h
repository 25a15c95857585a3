/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Threads of the shim in the application's process. */

#include <stdbool.h>
#include <stddef.h>

/* A thread of ours in the application's process: detached, with so much stack, and no signal goes
 * to it. */
bool helper_thread(void *(*run)(void *), size_t stack);
