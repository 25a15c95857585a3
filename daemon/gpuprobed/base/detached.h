/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Threads that nobody waits for. Any room of the daemon may use it. */

/* Starts a detached thread with a small stack, for calls that may never return. It handles `signal`
 * alone; 0: no signal. Returns 0 or -errno. */
int detached_start(void *(*run)(void *userdata), void *userdata, int signal);
