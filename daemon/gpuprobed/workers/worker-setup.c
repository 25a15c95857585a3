/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the executables of the workers, and makes their options from the configuration
 * (worker-setup.h).
 */

#include "worker-setup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKER_CPU_SECONDS 60 /* their default */

/*
 * Finds an executable: in --worker-dir; else where it is installed, seen from our own file; else in
 * the folder that meson builds it in, likewise.
 */
static int worker_find(char path[static PATH_MAX], const struct config *config, const char *name,
		       const char *folder) {
	char self[PATH_MAX], *slash;
	ssize_t n;

	if (config->worker_dir) {
		if (!realpath(config->worker_dir, self) ||
		    snprintf(path, PATH_MAX, "%s/%s", self, name) >= PATH_MAX)
			return -ENOENT;
		return access(path, X_OK) == 0 ? 0 : -errno;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return -errno;
	self[n] = '\0';
	slash = strrchr(self, '/');
	*slash = '\0';
	if (snprintf(path, PATH_MAX, "%s/../libexec/gpuprobe/%s", self, name) < PATH_MAX &&
	    access(path, X_OK) == 0)
		return 0;
	if (snprintf(path, PATH_MAX, "%s/../%s/%s", self, folder, name) < PATH_MAX &&
	    access(path, X_OK) == 0)
		return 0;
	return -ENOENT;
}

/* Makes the workers' environment: what they need to load their libraries, and no more. */
static void worker_make_environment(struct worker_setup *setup, const struct config *config) {
	const char *toolkit = config->toolkit ? config->toolkit : getenv("CUDA_HOME");
	const char *libraries = config->session ? getenv("LD_LIBRARY_PATH") : NULL;
	const char *sanitizer = config->session ? getenv("ASAN_OPTIONS") : NULL;
	const char *const names[3] = { "CUDA_HOME", "LD_LIBRARY_PATH", "ASAN_OPTIONS" };
	const char *const values[3] = { toolkit, libraries, sanitizer };
	size_t n = 0;

	setup->environment[n++] = "LANG=C";
	setup->environment[n++] = "PATH=/usr/bin:/bin";
	for (size_t i = 0; i < 3; i++)
		if (values[i]) {
			snprintf(setup->storage[i], sizeof(setup->storage[i]), "%s=%s", names[i],
				 values[i]);
			setup->environment[n++] = setup->storage[i];
		}
	setup->environment[n] = NULL;
}

/* Workers limit the processor time of a job by themselves: not to less than we wait for. */
static void worker_allow_time(struct worker_setup *setup, const struct config *config) {
	const unsigned int ms =
		config->compile_ms > config->deadline_ms ? config->compile_ms : config->deadline_ms;
	size_t n;

	for (n = 0; n < config->image_arguments.n; n++)
		setup->image_arguments[n] = config->image_arguments.items[n];
	if (ms > WORKER_CPU_SECONDS * 1000) {
		snprintf(setup->cpu, sizeof(setup->cpu), "--cpu=%u", ms / 1000 + 1);
		setup->image_arguments[n++] = setup->cpu;
	}
	setup->image_arguments[n] = NULL;
}

int worker_setup(struct worker_setup *setup, const struct config *config,
		 struct worker_pool_options *image, struct worker_pool_options *program,
		 struct worker_pool_options *pass) {
	if (worker_find(setup->image_path, config, "gpuprobe-image-worker", "worker") < 0 ||
	    worker_find(setup->program_path, config, "gpuprobe-program-worker", "translator") < 0)
		return -ENOENT;
	worker_make_environment(setup, config);
	worker_allow_time(setup, config);
	image->path = setup->image_path;
	image->arguments = setup->image_arguments;
	program->path = setup->program_path;
	program->arguments = (const char *const *)config->program_arguments.items;
	if (worker_find(setup->pass_path, config, "gpuprobe-pass-worker", "worker/ptxpass") == 0)
		pass->path = setup->pass_path;
	pass->arguments = (const char *const *)config->pass_arguments.items;
	image->environment = program->environment = pass->environment = setup->environment;
	return 0;
}
