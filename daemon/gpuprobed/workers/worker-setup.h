/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the workers are, and what they are started with. */

#include <limits.h>

#include "daemon/gpuprobed/settings/config.h"
#include "worker-pool.h"

/* What the options of the pools point into. */
struct worker_setup {
	char image_path[PATH_MAX], program_path[PATH_MAX], pass_path[PATH_MAX];
	char storage[3][PATH_MAX + 32], cpu[32];
	const char *environment[8];
	const char *image_arguments[CONFIG_LIST_MAX + 2]; /* and one of our own */
};

/* Fills in the options of the pools: path, arguments, environment. 0, or -ENOENT: they are not
 * found. */
int worker_setup(struct worker_setup *setup, const struct config *config,
		 struct worker_pool_options *image, struct worker_pool_options *program,
		 struct worker_pool_options *pass);
