/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. For each line that it reads: loads a module and launches, waits
 * for the next line and (not with an argument) for the kernels, unloads, and prints how much memory
 * of the device is used.
 */

#include <dlfcn.h>

#include "s.h"

int main(int argc, char **argv) {
	__typeof__(cuMemGetInfo_v2) *get_info;
	size_t unused, total;
	char line[16];

	driver_start(false);
	*(void **)&get_info = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemGetInfo_v2");
	while (fgets(line, sizeof(line), stdin)) {
		struct s_loaded loaded = s_load(S_MODULE);

		printf("%d\n", s_launch(&loaded));
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 1;
		if (argc < 2)
			CHECK(driver.ctx_synchronize());
		s_unload(&loaded);
		CHECK(get_info(&unused, &total));
		printf("%zu\n", total - unused);
		fflush(stdout);
	}
	return 0;
}
