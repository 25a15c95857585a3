/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Closes the driver until that fails, or as often as the argument
 * says, after it has been used; three times.
 */

#include <dlfcn.h>

#include "s.h"

int main(int argc, char **argv) {
	int limit = argc > 1 ? atoi(argv[1]) : 100;

	for (int round = 0; round < 3; round++) {
		void *handle = dlopen("libcuda.so.1",
				      RTLD_NOW); /* and driver_start() opens it once more */
		const char *error;
		int closed = 0;

		driver_start(false);
		printf("%d\n", s_once(S_MODULE));
		while (closed < limit && dlclose(handle) == 0)
			closed++;
		error = dlerror();
		printf("closed %d times, %s\n", closed,
		       !error                      ? "no error"
		       : strstr(error, "not open") ? "not open"
						   : error);
	}
	return 0;
}
