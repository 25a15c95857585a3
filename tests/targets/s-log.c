/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Loads PTX with all outputs of the driver's compiler asked for, as
 * a module and as a library, good PTX and bad; says what came back, and what the kernel computes.
 * Then some of the outputs, and options that are none. Also for a GPU: tests/gpu/suite.py.
 */

#include "s.h"

#define TEXT_MAX 4096

static const char bad[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry " S_KERNEL
			  "(.param .u64 a, .param .u64 b, .param .u64 c) { bogus.u32 %r1; ret; }\n";

static char info[TEXT_MAX], error[TEXT_MAX];

static CUresult load(struct s_loaded *loaded, enum s_load how, const void *image, unsigned count,
		     CUjit_option *names, void **values) {
	*loaded = (struct s_loaded){ 0 };
	if (how == S_LIBRARY)
		return driver.library_load_data(&loaded->library, image, names, values, count, NULL,
						NULL, 0);
	return driver.module_load_data_ex(&loaded->module, image, count, names, values);
}

/* The options from first on, so many. */
static void try(enum s_load how, const void *image, unsigned first, unsigned count) {
	CUjit_option names[] = { CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
				 CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				 CU_JIT_WALL_TIME,        CU_JIT_LOG_VERBOSE };
	void *values[] = { info,  (void *)(size_t)TEXT_MAX,
			   error, (void *)(size_t)TEXT_MAX,
			   NULL,  (void *)1 };
	struct s_loaded loaded;
	CUresult result;
	float ms;

	memset(info, '#', TEXT_MAX - 1);
	memset(error, '#', TEXT_MAX - 1);
	result = load(&loaded, how, image, count, names + first, values + first);
	memcpy(&ms, &values[4], sizeof(ms));
	/* how long it is may depend on a time in it */
	printf("%s, options %u to %u: %d; info %d [%.40s], error %d [%.40s], time %d\n",
	       how == S_LIBRARY ? "library" : "module", first, first + count, (int)result,
	       values[1] != NULL, info, values[3] != NULL, error, ms > 0);
	if (result)
		return;
	s_get_function(&loaded);
	printf("%d\n", s_launch(&loaded));
	s_unload(&loaded);
}

int main(int argc, char **argv) {
	driver_start(false);
	for (enum s_load how = S_MODULE; how <= S_LIBRARY; how++) {
		try(how, vec_add_image, 0, 6);
		try(how, bad, 0, 6);
		try(how, vec_add_image, 0, 2);
		try(how, vec_add_image, 2, 2);
		try(how, bad, 2, 2);
		try(how, vec_add_image, 4, 1);
		try(how, vec_add_image, 5, 1);
		try(how, vec_add_image, 0, 0);
	}
	return 0;
}
