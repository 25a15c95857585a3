/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Modules and libraries from files; files that are not there,
 * empty, or folders. errno stays.
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "s.h"

static char path[] = "/tmp/s-file-XXXXXX";

static void put(const void *bytes, size_t size) {
	int fd = open(path, O_WRONLY | O_TRUNC);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || close(fd))
		exit(1);
}

int main(void) {
	__typeof__(cuModuleLoad) *module_load;
	__typeof__(cuLibraryLoadFromFile) *library_load;
	struct s_loaded loaded = { 0 };
	void *handle;

	driver_start(false);
	handle = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&module_load = dlsym(handle, "cuModuleLoad");
	*(void **)&library_load = dlsym(handle, "cuLibraryLoadFromFile");
	close(mkstemp(path));
	put(vec_add_image, strlen((const char *)vec_add_image));
	errno = 4242;
	CHECK(module_load(&loaded.module, path));
	printf("errno %d\n", errno);
	s_get_function(&loaded);
	printf("%d\n", s_launch(&loaded));
	s_unload(&loaded);
	CHECK(library_load(&loaded.library, path, NULL, NULL, 0, NULL, NULL, 0));
	s_get_function(&loaded);
	printf("%d\n", s_launch(&loaded));
	s_unload(&loaded);
	put("", 0);
	printf("empty: %d\n", module_load(&loaded.module, path) != 0);
	unlink(path);
	printf("none: %d %d\n", module_load(&loaded.module, path),
	       library_load(&loaded.library, path, NULL, NULL, 0, NULL, NULL, 0));
	printf("folder: %d\n", module_load(&loaded.module, "/tmp") != 0);
	return 0;
}
