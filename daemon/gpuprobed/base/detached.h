/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A small detached thread, for what may never come back. It handles no signal but that one, or none
 * at all with 0. 0 or -errno. */
int detached_start(void *(*run)(void *userdata), void *userdata, int signal);
