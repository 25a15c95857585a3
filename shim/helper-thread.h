/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* A thread of ours in the application's process: detached, and no signal goes to it. */
bool helper_thread(void *(*run)(void *));
