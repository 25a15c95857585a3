/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Does what libraries do (the arguments): each loads its module, in
 * all ways, and launches it; then the program does so itself. The same source makes a library.
 */

#include <dlfcn.h>

#include "s.h"

int s_work(int argc, char **argv);

/* From its own memory, from the heap, and as a library. */
int s_work(int argc, char **argv) {
	struct s_loaded loaded = { 0 };
	char *copy;

	driver_start(false);
	copy = strdup((const char *)vec_add_image);
	printf("%d %d", s_once(S_MODULE), s_once(S_LIBRARY));
	CHECK(driver.module_load_data(&loaded.module, copy));
	free(copy);
	s_get_function(&loaded);
	printf(" %d\n", s_launch(&loaded));
	s_unload(&loaded);
	return 0;
}

#ifndef S_SHARED
int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
		int (*work)(int, char **);

		*(void **)&work = library ? dlsym(library, "s_work") : NULL;
		if (!work || work(0, NULL))
			return 1;
	}
	return s_work(0, NULL);
}
#endif
