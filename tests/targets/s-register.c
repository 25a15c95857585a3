/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A program with registered host memory of its own, before and
 * after modules are loaded: what the driver says of it, a launch that reads and writes it, a child
 * that looks for memory that is not its.
 */

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "s.h"

#define SIZE 12288

static __typeof__(cuMemHostRegister_v2) *host_register;
static __typeof__(cuMemHostUnregister) *host_unregister;
static __typeof__(cuMemHostGetDevicePointer_v2) *get_pointer;
static __typeof__(cuMemHostGetFlags) *get_flags;

/* One launch of the kernel on the memory: in, two, out. */
static int launch_on(const struct s_loaded *loaded, float *memory) {
	CUdeviceptr a = 0, b, c;
	void *arguments[] = { &a, &b, &c };
	float sum = 0;

	for (int i = 0; i < S_THREADS; i++) {
		memory[i] = i;
		memory[1024 + i] = 2;
	}
	CHECK(get_pointer(&a, memory, 0));
	b = a + 4096;
	c = b + 4096;
	CHECK(driver.launch_kernel(loaded->function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, NULL,
				   arguments, NULL));
	CHECK(driver.ctx_synchronize());
	for (int i = 0; i < S_THREADS; i++)
		sum += memory[2048 + i];
	return (int)sum;
}

/* How many mappings are the daemon's memory for maps. */
static int daemon_mappings(void) {
	FILE *file = fopen("/proc/self/maps", "re");
	char line[4096];
	int count = 0;

	while (file && fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:instance") || strstr(line, "bpf-map");
	if (file)
		fclose(file);
	return count;
}

int main(void) {
	void *handle, *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				     -1, 0);
	struct s_loaded library, module;
	unsigned flags = 0;
	int status = -1;
	pid_t child;

	driver_start(false);
	handle = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&host_register = dlsym(handle, "cuMemHostRegister_v2");
	*(void **)&host_unregister = dlsym(handle, "cuMemHostUnregister");
	*(void **)&get_pointer = dlsym(handle, "cuMemHostGetDevicePointer_v2");
	*(void **)&get_flags = dlsym(handle, "cuMemHostGetFlags");
	CHECK(host_register(memory, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
	library = s_load(S_LIBRARY);
	printf("library: %d\n", launch_on(&library, memory));
	printf("again: %d\n", host_register(memory, SIZE, 0));
	CHECK(get_flags(&flags, memory));
	printf("flags: %u\n", flags);
	fflush(stdout);
	child = fork();
	if (!child)
		_exit(daemon_mappings());
	waitpid(child, &status, 0);
	printf("the child has %d\n", status);
	CHECK(host_unregister(memory));
	printf("unregistered again: %d\n", host_unregister(memory));
	module = s_load(S_MODULE);
	CHECK(host_register(memory, SIZE, CU_MEMHOSTREGISTER_PORTABLE));
	printf("module: %d\n", launch_on(&module, memory));
	s_unload(&module);
	printf("library again: %d\n", launch_on(&library, memory));
	CHECK(host_unregister(memory));
	return 0;
}
