/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the s-*.c programs share. Each does one thing that programs do and that a preloaded library
 * may break, and prints the same with and without the shim (shim/tests/test-targets.py).
 */

#include <string.h>

#include "driver.h"

extern const unsigned char vec_add_image[]; /* PTX text */

#define S_KERNEL "_Z9vectorAddPKfS0_Pf"
#define S_THREADS 256

enum s_load {
	S_MODULE,
	S_LIBRARY
};

struct s_loaded {
	CUmodule module;
	CUlibrary library;
	CUfunction function;
};

static inline void s_get_function(struct s_loaded *loaded) {
	CUkernel kernel;

	if (loaded->library) {
		CHECK(driver.library_get_kernel(&kernel, loaded->library, S_KERNEL));
		CHECK(driver.kernel_get_function(&loaded->function, kernel));
	} else {
		CHECK(driver.module_get_function(&loaded->function, loaded->module, S_KERNEL));
	}
}

static inline struct s_loaded s_load(enum s_load how) {
	struct s_loaded loaded = { 0 };

	if (how == S_LIBRARY)
		CHECK(driver.library_load_data(&loaded.library, vec_add_image, NULL, NULL, 0, NULL,
					       NULL, 0));
	else
		CHECK(driver.module_load_data(&loaded.module, vec_add_image));
	s_get_function(&loaded);
	return loaded;
}

static inline void s_unload(struct s_loaded *loaded) {
	if (loaded->library)
		CHECK(driver.library_unload(loaded->library));
	else
		CHECK(driver.module_unload(loaded->module));
}

/* One launch of S_THREADS threads; returns the sum of what came out: 32640 + 512. */
static inline int s_launch(const struct s_loaded *loaded) {
	float in[S_THREADS], two[S_THREADS], out[S_THREADS];
	CUdeviceptr a, b, c;
	void *arguments[] = { &a, &b, &c };
	float sum = 0;

	for (int i = 0; i < S_THREADS; i++) {
		in[i] = i;
		two[i] = 2;
	}
	CHECK(driver.mem_alloc(&a, sizeof(in)));
	CHECK(driver.mem_alloc(&b, sizeof(in)));
	CHECK(driver.mem_alloc(&c, sizeof(in)));
	CHECK(driver.memcpy_to_device(a, in, sizeof(in)));
	CHECK(driver.memcpy_to_device(b, two, sizeof(in)));
	CHECK(driver.launch_kernel(loaded->function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, NULL,
				   arguments, NULL));
	CHECK(driver.ctx_synchronize());
	CHECK(driver.memcpy_to_host(out, c, sizeof(out)));
	CHECK(driver.mem_free(a));
	CHECK(driver.mem_free(b));
	CHECK(driver.mem_free(c));
	for (int i = 0; i < S_THREADS; i++)
		sum += out[i];
	return (int)sum;
}

/* Load, launch, unload. */
static inline int s_once(enum s_load how) {
	struct s_loaded loaded = s_load(how);
	int sum = s_launch(&loaded);

	s_unload(&loaded);
	return sum;
}
