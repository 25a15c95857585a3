/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of libgpuprobe-cupti.so. start() against the stand-in (shim/mock/cupti), and NVIDIA's own
 * library where it is: finds it by its path, beside a toolkit that is loaded, and by $CUDA_HOME;
 * takes the one that is loaded already before all others; and the real one, without a driver that
 * it knows, says no.
 *
 *   test-start LIBGPUPROBE-CUPTI LIBCUPTI EMPTY-LIBRARY REAL-LIBCUPTI
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/trace/cupti-source.h"

static const char *source_path, *cupti_path, *empty_path, *real_path;
static char folder[] = "/tmp/gpuprobe-test-cupti-XXXXXX";

static uint64_t now(void) {
	return (uint64_t)time(NULL);
}

static void called(uint32_t correlation, driver_handle context) {
}

/* Does start(path) answer with a line that has this in it (NULL: with success)? */
static bool starts(const char *path, const char *wanted) {
	static const uint32_t calls[] = { 307 };
	static const struct cupti_events events = { .clock = now, .called = called };
	const struct cupti_wish wish = { .path = path, .calls = calls, .call_count = 1 };
	void *library = dlopen(source_path, RTLD_NOW);
	cupti_entry entry = library ? (cupti_entry)dlsym(library, CUPTI_ENTRY) : NULL;
	const struct cupti_source *source = entry ? entry() : NULL;
	const char *line = "no library";

	if (source && source->abi == CUPTI_ABI)
		line = source->start(&wish, &events);
	if (!line)
		source->stop();
	if (wanted ? line && strstr(line, wanted) : !line)
		return true;
	printf("%s instead of %s: ", line ? line : "success", wanted ? wanted : "success");
	return false;
}

static bool by_path(void) {
	return starts(cupti_path, NULL) && starts(cupti_path, NULL);
}

static bool missing(void) {
	return starts("/nowhere/libcupti.so", "CUPTI cannot be loaded: /nowhere");
}

static bool not_that_library(void) {
	return starts(empty_path, "CUPTI has no cuptiGetResultString");
}

static bool relative(void) {
	return starts("libcupti.so", "not absolute");
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
	return link_to(runtime, empty_path) && link_to(library, cupti_path) &&
	       dlopen(path, RTLD_NOW) && starts("", NULL);
}

static bool by_toolkit(void) {
	return by_loaded("/a/targets/x/lib/libcudart.so.13",
			 "/a/extras/CUPTI/lib64/libcupti.so.13");
}

static bool by_wheels_12(void) {
	return by_loaded("/b/nvidia/cuda_runtime/lib/libcudart.so.12",
			 "/b/nvidia/cuda_cupti/lib/libcupti.so.12");
}

static bool by_wheels_13(void) {
	return by_loaded("/c/nvidia/cu13/lib/libcublas.so.13", "/c/nvidia/cu13/lib/libcupti.so.13");
}

static bool by_environment(void) {
	char path[512];

	snprintf(path, sizeof(path), "%s/d", folder);
	setenv("CUDA_HOME", path, 1);
	return link_to("/d/extras/CUPTI/lib64/libcupti.so", cupti_path) && starts("", NULL);
}

/* Whatever path is given: two of them in a process know nothing of each other. */
static bool the_loaded_one(void) {
	return dlopen(cupti_path, RTLD_NOW) && starts("/nowhere/libcupti.so", NULL);
}

static bool without_driver(void) {
	return starts(real_path, "cuptiSubscribe failed") &&
	       starts(real_path, "cuptiSubscribe failed");
}

/* Each in a process of its own: what is loaded stays. */
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

	if (argc != 5 || !mkdtemp(folder))
		return 2;
	source_path = argv[1];
	cupti_path = argv[2];
	empty_path = argv[3];
	real_path = argv[4];
	setvbuf(stdout, NULL, _IOLBF, 0);
#define RUN(name) failed += run(#name, name)
	RUN(missing);
	RUN(not_that_library);
	RUN(relative);
	RUN(by_path);
	RUN(by_toolkit);
	RUN(by_wheels_12);
	RUN(by_wheels_13);
	RUN(by_environment);
	RUN(the_loaded_one);
	if (!access(real_path, R_OK) && access("/dev/nvidiactl", F_OK))
		RUN(without_driver);
	snprintf(command, sizeof(command), "rm -r %s 2>/dev/null", folder);
	if (system(command))
		rmdir(folder);
	return failed != 0;
}
