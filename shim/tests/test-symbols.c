/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of the shim. Who gets which function from dlsym, cuGetProcAddress and the linker, with the
 * shim preloaded and the mock as driver. The program starts itself again under LD_PRELOAD for each
 * case: test-symbols SHIM MOCK-FOLDER INTERPOSER
 */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                               \
	do {                                                                           \
		if (!(condition)) {                                                    \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++;                                                    \
		}                                                                      \
	} while (0)

typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			    unsigned, void *, void **, void **);
typedef int get_v1(const char *, void **, int, uint64_t);
typedef int get_v2(const char *, void **, int, uint64_t, int *);
typedef int simple_function(void *);

static const char **last;

/* The library that a function lies in. */
static const char *home(const void *function) {
	Dl_info info;
	const char *slash;

	if (!function || !dladdr(function, &info))
		return "nowhere";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

#define IS_OURS(function) (!strcmp(home((const void *)(function)), "libgpuprobe-shim.so"))

static void *open_driver(void) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (!driver) {
		printf("%s\n", dlerror());
		exit(1);
	}
	last = (const char **)dlsym(driver, "mock_last");
	return driver;
}

static void case_dlsym(void) {
	void *driver = open_driver();
	launch_function *launch = (launch_function *)dlsym(driver, "cuLaunchKernel");
	launch_function *per_thread = (launch_function *)dlsym(driver, "cuLaunchKernel_ptsz");

	CHECK(!dlerror());
	CHECK(IS_OURS(launch) && IS_OURS(per_thread) && launch != per_thread);
	CHECK(launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0 &&
	      !strcmp(*last, "cuLaunchKernel"));
	CHECK(per_thread(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0 &&
	      !strcmp(*last, "cuLaunchKernel_ptsz"));
	CHECK(IS_OURS(dlsym(driver, "cuDriverGetVersion")));
	CHECK(!dlsym(driver, "cuLaunchKernelX") && strstr(dlerror(), "cuLaunchKernelX"));
	CHECK(!dlsym(driver, "cu") && !dlsym(driver, "c") && !dlsym(driver, ""));
	dlerror();
	/* ours, but not in this driver */
	CHECK(!dlsym(driver, "cuModuleLoadFatBinary"));
	CHECK(strstr(dlerror(), "cuModuleLoadFatBinary"));
	CHECK(dlsym(driver, "cuModuleUnload") && !dlerror());
	/* both forms of one function go to their own */
	CHECK(((simple_function *)dlsym(driver, "cuCtxDestroy"))(NULL) == 0 &&
	      !strcmp(*last, "cuCtxDestroy"));
	CHECK(((simple_function *)dlsym(driver, "cuCtxDestroy_v2"))(NULL) == 0 &&
	      !strcmp(*last, "cuCtxDestroy_v2"));
}

/* Without a driver nobody sees one. */
static void case_no_driver(void) {
	void *self = dlopen(NULL, RTLD_NOW);

	CHECK(!dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
	CHECK(strstr(dlerror(), "cuLaunchKernel"));
	CHECK(!dlsym(self, "cuModuleLoadData"));
	CHECK(dlsym(RTLD_DEFAULT, "printf") && dlsym(self, "printf") && dlsym(RTLD_NEXT, "printf"));
	CHECK(dlsym(RTLD_DEFAULT, "dlsym") && !dlsym(RTLD_DEFAULT, "no_such_function"));
}

/* RTLD_NEXT and RTLD_DEFAULT of whoever calls. */
static void case_next(void) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	last = (const char **)dlsym(driver, "mock_last");
	CHECK(IS_OURS(dlsym(RTLD_DEFAULT, "cuDriverGetVersion")));
	CHECK(IS_OURS(dlsym(RTLD_DEFAULT, "cuLaunchKernel")));
	/* neither the driver nor we know it; we do, and the driver does not */
	CHECK(!dlsym(RTLD_DEFAULT, "cuSomethingNew") && strstr(dlerror(), "cuSomethingNew"));
	CHECK(!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") && strstr(dlerror(), "cuMemAlloc_v2"));
	CHECK(IS_OURS(dlsym(RTLD_NEXT, "cuLaunchKernel")));
	CHECK(!strncmp(home((const void *)dlsym(RTLD_NEXT, "malloc")), "libc.so", 7));
}

static void case_get_proc_address(void) {
	void *driver = open_driver(), *found = NULL;
	get_v2 *two = (get_v2 *)dlsym(driver, "cuGetProcAddress_v2");
	get_v1 *one = (get_v1 *)dlsym(driver, "cuGetProcAddress");
	int status = 7;

	CHECK(IS_OURS(one) && IS_OURS(two));
	CHECK(two("cuLaunchKernel", &found, 12000, 0, &status) == 0 && IS_OURS(found) &&
	      status == 0);
	CHECK(!strcmp(*last, "cuGetProcAddress_v2"));
	((launch_function *)found)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	CHECK(!strcmp(*last, "cuLaunchKernel"));
	CHECK(two("cuLaunchKernel", &found, 12000, 2, NULL) == 0 && IS_OURS(found));
	((launch_function *)found)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	CHECK(!strcmp(*last, "cuLaunchKernel_ptsz"));
	CHECK(one("cuGraphLaunch", &found, 11080, 2) == 0 && IS_OURS(found) &&
	      found == dlsym(driver, "cuGraphLaunch_ptsz"));
	CHECK(!strcmp(*last, "cuGetProcAddress"));
	/* the second version lies under the plain name */
	CHECK(two("cuCtxDestroy", &found, 12000, 0, NULL) == 0 &&
	      found == dlsym(driver, "cuCtxDestroy_v2"));
	CHECK(two("cuCtxDestroy", &found, 12000, 2, NULL) == 0 &&
	      found == dlsym(driver, "cuCtxDestroy_v2"));
	/* one that has another name from CUDA 12 on, and versions that differ in their arguments */
	CHECK(two("cuGraphInstantiate", &found, 12000, 2, NULL) == 0 && IS_OURS(found) &&
	      found == dlsym(driver, "cuGraphInstantiateWithFlags"));
	CHECK(two("cuGraphInstantiate", &found, 11080, 0, NULL) == 0 && IS_OURS(found) &&
	      found == dlsym(driver, "cuGraphInstantiate_v2"));
	CHECK(two("cuGraphExecUpdate", &found, 12000, 0, NULL) == 0 && IS_OURS(found) &&
	      found == dlsym(driver, "cuGraphExecUpdate_v2"));
	CHECK(two("cuGraphExecUpdate", &found, 11080, 0, NULL) == 0 && IS_OURS(found) &&
	      found == dlsym(driver, "cuGraphExecUpdate"));
	/* itself: the versions differ in their arguments */
	CHECK(two("cuGetProcAddress", &found, 12000, 0, NULL) == 0 && found == (void *)two);
	CHECK(two("cuGetProcAddress", &found, 11080, 0, NULL) == 0 && found == (void *)one);
	CHECK(one("cuGetProcAddress", &found, 11080, 0) == 0 && found == (void *)one);
	/* what has no wrapper, is not there, or is nothing */
	CHECK(two("cuDriverGetVersion", &found, 12000, 0, NULL) == 0 && IS_OURS(found) &&
	      found == dlsym(driver, "cuDriverGetVersion"));
	((simple_function *)found)(NULL);
	CHECK(!strcmp(*last, "cuDriverGetVersion"));
	CHECK(two("cuNoSuchFunction", &found, 12000, 0, &status) == 500 && !found && status == 1);
	CHECK(two("cuModuleLoadFatBinary", &found, 12000, 0, &status) == 500 && !found);
	CHECK(two("", &found, 12000, 0, NULL) == 0 && !found);
}

/*
 * Another interposer stands between the program and us, wherever it is in the list: the linker
 * finds it, and what it finds behind itself is ours.
 */
static void case_interposer(void) {
	void *driver = open_driver();
	int *interposed = (int *)dlsym(RTLD_DEFAULT, "interposed");
	simple_function *by_default = (simple_function *)dlsym(RTLD_DEFAULT, "cuCtxDestroy_v2");
	simple_function *by_handle = (simple_function *)dlsym(driver, "cuCtxDestroy_v2");
	simple_function **behind = (simple_function **)dlsym(RTLD_DEFAULT, "interposed_real");
	void *found = NULL;

	CHECK(!strcmp(home((const void *)by_default), "libmock-interposer.so"));
	CHECK(by_default(NULL) == 0 && *interposed == 1 && !strcmp(*last, "cuCtxDestroy_v2"));
	CHECK(behind && *behind == by_handle);
	CHECK(IS_OURS(by_handle) && by_handle(NULL) == 0 && *interposed == 1);
	CHECK(((get_v2 *)dlsym(driver, "cuGetProcAddress_v2"))("cuCtxDestroy", &found, 12000, 0,
							       NULL) == 0 &&
	      found == (void *)by_handle);
	CHECK(by_default(NULL) == 0 && *interposed == 2);
}

/* A library outside of the global scope that links the driver finds it there. */
static void case_local(void) {
	void *user = dlopen("libmock-user.so", RTLD_NOW | RTLD_LOCAL);
	void *(*look)(const char *) =
		user ? (void *(*)(const char *))dlsym(user, "user_look") : NULL;

	CHECK(look);
	if (!look)
		return;
	CHECK(IS_OURS(look("cuLaunchKernel")) && !dlerror());
	CHECK(IS_OURS(look("cuDriverGetVersion")));
	CHECK(!look("cuModuleLoadFatBinary") && strstr(dlerror(), "cuModuleLoadFatBinary"));
	/* but not the program, in whose scope there is none */
	CHECK(!dlsym(RTLD_DEFAULT, "cuLaunchKernel") && dlerror());
	CHECK(!dlsym(RTLD_DEFAULT, "cuInit"));
}

/* A library outside of the global scope that stands for the driver, which it loads itself. */
static void case_stub(void) {
	void *stub = dlopen("libmock-stub.so", RTLD_NOW | RTLD_LOCAL);
	int (*start)(int *) = stub ? (int (*)(int *))dlsym(stub, "stub_start") : NULL;
	int version = 0;

	CHECK(start);
	if (!start)
		return;
	CHECK(start(&version) == 0);
	CHECK(IS_OURS(dlsym(open_driver(), "cuInit")) && !strcmp(*last, "cuDriverGetVersion"));
	CHECK(start(&version) == 0);
}

/* A program that tries a toolkit's stub first, and unloads it: nothing of it is left. */
static void case_two_drivers(void) {
	static const char *const names[] = { "cuInit", "cuDriverGetVersion", "cuModuleUnload",
					     "cuGraphLaunch", "cuGraphNodeSetParams" };
	enum {
		NAMES = sizeof(names) / sizeof(names[0])
	};
	simple_function *first[NAMES], *function;
	void *driver = NULL;
	char path[4096];

	snprintf(path, sizeof(path), "%s/toolkit/libcuda.so.1", getenv("LD_LIBRARY_PATH"));
	for (int round = 0; round < 2; round++) {
		driver = dlopen(path, RTLD_NOW);
		CHECK(driver);
		if (!driver)
			return;
		for (int i = 0; i < NAMES; i++) {
			first[i] = (simple_function *)dlsym(driver, names[i]);
			CHECK(IS_OURS(first[i]) && first[i](NULL) == 34);
		}
		CHECK(IS_OURS(dlsym(driver, "cuModuleLoad")));
		dlclose(driver);
		CHECK(!dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
	}
	driver = open_driver();
	for (int i = 0; i < NAMES; i++) {
		function = (simple_function *)dlsym(driver, names[i]);
		CHECK(function == first[i] && function(NULL) == 0 && !strcmp(*last, names[i]));
	}
	CHECK(!dlsym(driver, "cuModuleLoad"));
	CHECK(first[2](NULL) == 0 && !strcmp(*last, "cuModuleUnload"));
	/* it works, and stays */
	dlclose(driver);
	CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

/* A second driver beside one that is there is as it is, and calls of either get to their own. */
static void case_second_driver(void) {
	void *driver = open_driver(), *second;
	char path[4096];
	simple_function *begin, *own;

	snprintf(path, sizeof(path), "%s/toolkit/libcuda.so.1", getenv("LD_LIBRARY_PATH"));
	second = dlopen(path, RTLD_NOW);
	CHECK(second && second != driver);
	if (!second)
		return;
	begin = (simple_function *)dlsym(driver, "cuDriverGetVersion");
	own = (simple_function *)dlsym(second, "cuDriverGetVersion");
	CHECK(IS_OURS(begin) && begin(NULL) == 0 && !strcmp(*last, "cuDriverGetVersion"));
	CHECK(!IS_OURS(own) && own(NULL) == 34);
}

/* What the linker is shown of the driver is complete: its other symbols, and where it lies. */
static void case_as_it_is(void) {
	void *driver = open_driver();
	Dl_info info;

	CHECK(last && dladdr(last, &info) && info.dli_saddr == (void *)last &&
	      !strcmp(info.dli_sname, "mock_last"));
	CHECK(dladdr((void *)dlsym(driver, "cuInit"), &info) && !info.dli_sname);
	CHECK(!strncmp(home((const void *)last), "libcuda", 7));
}

enum {
	ALONE,
	BEFORE_IT,
	BEHIND_IT
};

static const struct {
	const char *name;
	void (*run)(void);
	int preload; /* the shim, and where another interposer is */
} cases[] = {
	{ "dlsym", case_dlsym, ALONE },
	{ "no-driver", case_no_driver, ALONE },
	{ "next", case_next, ALONE },
	{ "get-proc-address", case_get_proc_address, ALONE },
	{ "interposer", case_interposer, BEFORE_IT },
	{ "interposer-first", case_interposer, BEHIND_IT },
	{ "local", case_local, ALONE },
	{ "stub", case_stub, ALONE },
	{ "two-drivers", case_two_drivers, ALONE },
	{ "second-driver", case_second_driver, ALONE },
	{ "as-it-is", case_as_it_is, ALONE },
};

int main(int argc, char **argv) {
	if (argc == 2) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			if (!strcmp(cases[i].name, argv[1]))
				cases[i].run();
		return failures != 0;
	}
	if (argc != 4)
		return 2;
	setenv("LD_LIBRARY_PATH", argv[2], 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char preload[4096];
		int status = -1;
		pid_t child = fork();

		if (!child) {
			snprintf(preload, sizeof(preload),
				 cases[i].preload == ALONE ? "%s" : "%s:%s",
				 cases[i].preload == BEHIND_IT ? argv[3] : argv[1],
				 cases[i].preload == BEHIND_IT ? argv[1] : argv[3]);
			setenv("LD_PRELOAD", preload, 1);
			execl("/proc/self/exe", argv[0], cases[i].name, (char *)NULL);
			_exit(127);
		}
		waitpid(child, &status, 0);
		if (status) {
			printf("case %s failed: status %#x\n", cases[i].name, status);
			failures++;
		}
	}
	return failures != 0;
}
