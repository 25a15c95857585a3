/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of libgpuprobe-sass.so. start() against NVIDIA's own library, where it is, and the stand-in
 * (tests/sim): finds it by its path, beside a toolkit that is loaded and by $CUDA_HOME, subscribes
 * without a GPU, and steps back where another tool is.
 *
 *   test-start LIBGPUPROBE-SASS LIBSANITIZER-PUBLIC EMPTY-LIBRARY
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitizer-abi.h"
#include "shim/engine/sass.h"

static const char *engine_path, *real_path, *empty_path;
static char folder[] = "/tmp/gpuprobe-test-start-XXXXXX";

static void ignore(void *userdata, int domain, uint32_t id, const void *data) {
}

static const struct sass_engine *engine(void) {
	void *library = dlopen(engine_path, RTLD_NOW);
	sass_entry entry = library ? (sass_entry)dlsym(library, SASS_ENTRY) : NULL;

	return entry && entry()->abi == SASS_ABI ? entry() : NULL;
}

/* Does start(path) answer with a line that has this in it (NULL: with success)? */
static bool starts(const char *path, const char *wanted) {
	static const struct sass_events none;
	const struct sass_engine *table = engine();
	const char *line = table ? table->start(path, &none) : "no engine";

	if (!line)
		table->stop();
	if (wanted ? line && strstr(line, wanted) : !line)
		return true;
	printf("%s instead of %s: ", line ? line : "success", wanted ? wanted : "success");
	return false;
}

static bool by_path(void) {
	return starts(real_path, NULL) && starts(real_path, "has been started");
}

static bool missing(void) {
	return starts("/nowhere/" SANITIZER_LIBRARY, "cannot be loaded");
}

static bool not_that_library(void) {
	return starts(empty_path, "has no sanitizer");
}

static bool relative(void) {
	return starts(SANITIZER_LIBRARY, "not absolute");
}

static bool link_to(const char *place, const char *target) {
	char path[512];

	snprintf(path, sizeof(path), "%s%s", folder, place);
	for (char *p = path + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(path, 0700);
		*p = '/';
	}
	return !symlink(target, path);
}

/* A toolkit that is loaded: something named like its runtime, with the library beside it. */
static bool by_loaded(const char *runtime, const char *library) {
	char path[512];

	snprintf(path, sizeof(path), "%s%s", folder, runtime);
	return link_to(runtime, empty_path) && link_to(library, real_path) &&
	       dlopen(path, RTLD_NOW) && starts("", NULL);
}

static bool by_toolkit(void) {
	return by_loaded("/a/targets/x/lib/libcudart.so.13",
			 "/a/compute-sanitizer/" SANITIZER_LIBRARY);
}

static bool by_wheels_12(void) {
	return by_loaded("/b/nvidia/cuda_runtime/lib/libcudart.so.12",
			 "/b/nvidia/cuda_sanitizer_api/lib/" SANITIZER_LIBRARY);
}

static bool by_wheels_13(void) {
	return by_loaded("/c/nvidia/cu13/lib/libcublas.so.13",
			 "/c/nvidia/cu13/lib/" SANITIZER_LIBRARY);
}

static bool by_environment(void) {
	char path[512];

	snprintf(path, sizeof(path), "%s/d", folder);
	setenv("CUDA_HOME", path, 1);
	return link_to("/d/compute-sanitizer/" SANITIZER_LIBRARY, real_path) && starts("", NULL);
}

static bool other_subscriber(void) {
	void *library = dlopen(real_path, RTLD_NOW);
	sanitizer_result (*subscribe)(driver_handle *, sanitizer_callback, void *);
	driver_handle subscriber;

	subscribe = library ? (__typeof__(subscribe))dlsym(library, "sanitizerSubscribe") : NULL;
	return subscribe && !subscribe(&subscriber, ignore, NULL) &&
	       starts(real_path, "another tool");
}

static bool injection(void) {
	setenv("CUDA_INJECTION64_PATH", "/opt/tool.so", 1);
	return starts(
		real_path,
		"another tool has the patching interface: a library in CUDA_INJECTION64_PATH");
}

/* Each in a process of its own: the engine starts once. */
static int run(const char *name, bool (*test)(void)) {
	pid_t pid = fork();
	int status;

	if (!pid) {
		bool good = test();

		fflush(stdout);
		_exit(!good);
	}
	waitpid(pid, &status, 0);
	printf("%s: %s\n", name, status ? "failed" : "ok");
	return status != 0;
}

int main(int argc, char **argv) {
	int failed = 0;
	char command[128];

	if (argc != 4 || !mkdtemp(folder))
		return 2;
	engine_path = argv[1];
	real_path = argv[2];
	empty_path = argv[3];
	unsetenv("CUDA_INJECTION64_PATH");
	setvbuf(stdout, NULL, _IOLBF, 0);
#define RUN(name) failed += run(#name, name)
	RUN(missing);
	RUN(not_that_library);
	RUN(relative);
	RUN(injection);
	if (!access(real_path, R_OK)) {
		RUN(by_path);
		RUN(by_toolkit);
		RUN(by_wheels_12);
		RUN(by_wheels_13);
		RUN(by_environment);
		RUN(other_subscriber);
	}
	snprintf(command, sizeof(command), "rm -r %s 2>/dev/null", folder);
	if (system(command))
		rmdir(folder);
	return failed != 0;
}
