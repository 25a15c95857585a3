/* SPDX-License-Identifier: Apache-2.0 */

/* The table of driver functions that all target programs of tests share (driver.h). */

#include <dlfcn.h>

#include "driver.h"

struct driver driver;

void driver_check(CUresult result, const char *call) {
	const char *text = NULL;

	if (result == CUDA_SUCCESS)
		return;
	if (!driver.get_error_string || driver.get_error_string(result, &text) != CUDA_SUCCESS ||
	    !text)
		text = "unknown error";
	fprintf(stderr, "%s: %s (%d)\n", call, text, (int)result);
	exit(1);
}

#ifdef DRIVER_WEAK
#define DRIVER_DECLARE(member, symbol, name) extern __typeof__(symbol) symbol __attribute__((weak));
DRIVER_FUNCTIONS(DRIVER_DECLARE)
#undef DRIVER_DECLARE
#endif

#ifdef DRIVER_TABLE

void driver_open(bool by_proc_address) {
#define DRIVER_ADDRESS(member, symbol, name) .member = symbol,
	static const struct driver table = { DRIVER_FUNCTIONS(DRIVER_ADDRESS) };
#undef DRIVER_ADDRESS

	driver = *(const volatile struct driver *)&table; /* it is in memory, and not in the code */
}

#elif defined(DRIVER_LINKED)

void driver_open(bool by_proc_address) {
#define DRIVER_FILL(member, symbol, name) driver.member = symbol;
	DRIVER_FUNCTIONS(DRIVER_FILL)
#undef DRIVER_FILL
}

#else

static void *driver_library;

static void *by_name(const char *symbol) {
	void *function = dlsym(driver_library, symbol);

	if (!function) {
		fprintf(stderr, "libcuda.so.1: %s is missing\n", symbol);
		exit(1);
	}
	return function;
}

static void *by_address(const char *name) {
	static __typeof__(cuGetProcAddress_v2) *get_proc_address;
	void *function = NULL;

	if (!get_proc_address)
		*(void **)&get_proc_address = by_name("cuGetProcAddress_v2");
	if (get_proc_address(name, &function, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, NULL) !=
		    CUDA_SUCCESS ||
	    !function) {
		fprintf(stderr, "cuGetProcAddress: %s is missing\n", name);
		exit(1);
	}
	return function;
}

void driver_open(bool by_proc_address) {
	driver_library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver_library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define DRIVER_FILL(member, symbol, name) \
	*(void **)&driver.member = by_proc_address ? by_address(name) : by_name(#symbol);
	DRIVER_FUNCTIONS(DRIVER_FILL)
#undef DRIVER_FILL
}

#endif

void driver_start(bool by_proc_address) {
	CUcontext context;
	CUdevice device;

	driver_open(by_proc_address);
	CHECK(driver.init(0));
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	CHECK(driver.ctx_set_current(context));
}

void driver_dump(const char *path, const void *bytes, size_t size) {
	FILE *file;

	if (!path)
		return;
	file = fopen(path, "wb");
	if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) {
		perror(path);
		exit(1);
	}
}
