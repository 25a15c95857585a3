/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Does what it reads, one letter after the other, with one kernel
 * under all the handles that the driver gives out for it: for shim/tests/test-retire.py, which
 * retires modules in between. Prints a line for each. With an argument, there are only `a`, `c` and
 * `d`.
 *
 *   a ... f	launches a handle: see get_handles()
 *   x o g	launches `a` by cuLaunchKernelEx, cooperatively, as a node of a graph made at the
 *   start
 *   h i	launches `a`, `c` with more shared memory than is allowed until
 *   s S	an attribute of `a`, of `c` allows it; w takes it back from `a`
 *   p q	captures a launch of `a`, of `c`, and asks which kernel the node has
 *   n		counts the kernels of the module and of the library
 *   t		two threads launch `a` and `c` 100 times each
 *   u U	unloads and loads the module, the library
 *   y z	a new context, the old one is destroyed: but for the library, with everything new
 */

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "s.h"

#define MORE_SHARED 60000
#define LAUNCHES 100

static struct {
	__typeof__(cuCtxCreate_v4) *context_create;
	__typeof__(cuCtxDestroy_v2) *context_destroy;
	__typeof__(cuFuncSetAttribute) *function_set;
	CUresult (*get_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
	__typeof__(cuKernelSetAttribute) *kernel_set;
	__typeof__(cuLibraryGetModule) *library_module;
	__typeof__(cuModuleEnumerateFunctions) *module_list;
	__typeof__(cuModuleGetFunctionCount) *module_count;
	__typeof__(cuLibraryEnumerateKernels) *library_list;
	__typeof__(cuLibraryGetKernelCount) *library_count;
} more;

static struct s_loaded module, library;
static CUfunction functions[6]; /* a ... f */
static CUgraphExec graph;
static CUcontext context;
static bool few; /* each handle by one way only */

static void find_more(void) {
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);

	*(void **)&more.context_create = dlsym(handle, "cuCtxCreate_v4");
	*(void **)&more.context_destroy = dlsym(handle, "cuCtxDestroy_v2");
	*(void **)&more.function_set = dlsym(handle, "cuFuncSetAttribute");
	*(void **)&more.get_params = dlsym(handle, "cuGraphKernelNodeGetParams");
	*(void **)&more.kernel_set = dlsym(handle, "cuKernelSetAttribute");
	*(void **)&more.library_module = dlsym(handle, "cuLibraryGetModule");
	*(void **)&more.module_list = dlsym(handle, "cuModuleEnumerateFunctions");
	*(void **)&more.module_count = dlsym(handle, "cuModuleGetFunctionCount");
	*(void **)&more.library_list = dlsym(handle, "cuLibraryEnumerateKernels");
	*(void **)&more.library_count = dlsym(handle, "cuLibraryGetKernelCount");
}

static void get_handles(void) {
	CUmodule inner;

	functions[0] = module.function;
	CHECK(driver.library_get_kernel((CUkernel *)&functions[2], library.library, S_KERNEL));
	CHECK(driver.kernel_get_function(&functions[3], (CUkernel)functions[2]));
	if (few)
		return;
	CHECK(more.module_list(&functions[1], 1, module.module));
	CHECK(more.library_module(&inner, library.library));
	CHECK(driver.module_get_function(&functions[4], inner, S_KERNEL));
	CHECK(more.library_list((CUkernel *)&functions[5], 1, library.library));
}

/* A launch of one handle; the driver's answer, and the sum of what came out. */
static void launch(int letter, CUfunction function, unsigned shared) {
	float in[S_THREADS], out[S_THREADS] = { 0 };
	CUlaunchConfig configuration = { .gridDimX = 2,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = S_THREADS / 2,
					 .blockDimY = 1,
					 .blockDimZ = 1 };
	CUdeviceptr a, b, c;
	void *arguments[] = { &a, &b, &c };
	CUresult result;
	float sum = 0;

	for (int i = 0; i < S_THREADS; i++)
		in[i] = i;
	CHECK(driver.mem_alloc(&a, sizeof(in)));
	CHECK(driver.mem_alloc(&b, sizeof(in)));
	CHECK(driver.mem_alloc(&c, sizeof(in)));
	CHECK(driver.memcpy_to_device(a, in, sizeof(in)));
	CHECK(driver.memcpy_to_device(b, in, sizeof(in)));
	if (letter == 'x')
		result = driver.launch_kernel_ex(&configuration, function, arguments, NULL);
	else if (letter == 'o')
		result = driver.launch_cooperative(function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, NULL,
						   arguments);
	else
		result = driver.launch_kernel(function, 2, 1, 1, S_THREADS / 2, 1, 1, shared, NULL,
					      arguments, NULL);
	CHECK(driver.ctx_synchronize());
	CHECK(driver.memcpy_to_host(out, c, sizeof(out)));
	CHECK(driver.mem_free(a));
	CHECK(driver.mem_free(b));
	CHECK(driver.mem_free(c));
	for (int i = 0; i < S_THREADS; i++)
		sum += out[i];
	if (letter)
		printf("%c: %d %d\n", letter, result, result ? 0 : (int)sum);
}

/* A node that computes on memory that stays. */
static void make_graph(void) {
	static CUdeviceptr memory;
	void *arguments[] = { &memory, &memory, &memory };
	CUDA_KERNEL_NODE_PARAMS node = { .func = functions[0],
					 .gridDimX = 2,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = S_THREADS / 2,
					 .blockDimY = 1,
					 .blockDimZ = 1,
					 .kernelParams = arguments };
	CUgraphNode added;
	CUgraph made;

	CHECK(driver.mem_alloc(&memory, S_THREADS * sizeof(float)));
	CHECK(driver.memset_d8(memory, 0, S_THREADS * sizeof(float)));
	CHECK(driver.graph_create(&made, 0));
	CHECK(driver.graph_add_kernel_node(&added, made, NULL, 0, &node));
	CHECK(driver.graph_instantiate(&graph, made, 0));
	CHECK(driver.graph_destroy(made));
}

/* The letter of a handle. */
static char letter_of(CUfunction function) {
	for (int i = 0; i < 6; i++)
		if (functions[i] == function)
			return (char)('a' + i);
	return '?';
}

static void capture(char letter, CUfunction function) {
	CUDA_KERNEL_NODE_PARAMS first = { 0 }, second = { 0 };
	CUdeviceptr memory = 0;
	void *arguments[] = { &memory, &memory, &memory };
	size_t count = 1;
	CUgraphNode node;
	CUstream stream;
	CUgraph made;

	CHECK(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(driver.launch_kernel(function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, stream, arguments,
				   NULL));
	CHECK(driver.stream_end_capture(stream, &made));
	CHECK(driver.graph_get_nodes(made, &node, &count));
	CHECK(more.get_params(node, &first));
	CHECK(driver.graph_get_params(node, &second));
	printf("%c: %zu %c %c %c\n", letter, count, letter_of(first.func), letter_of(second.func),
	       letter_of((CUfunction)second.kern));
	CHECK(driver.graph_destroy(made));
	CHECK(driver.stream_destroy(stream));
}

static void *work(void *function) {
	CHECK(driver.ctx_set_current(context));
	for (int i = 0; i < LAUNCHES; i++)
		launch(0, function, 0);
	return NULL;
}

static void two_threads(void) {
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, work, functions[2 * i]))
			exit(1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("t: done\n");
}

static void count(void) {
	unsigned of_module = 0, of_library = 0;

	CHECK(more.module_count(&of_module, module.module));
	CHECK(more.library_count(&of_library, library.library));
	printf("n: %u %u\n", of_module, of_library);
}

static void unload(enum s_load how) {
	s_unload(how == S_MODULE ? &module : &library);
	*(how == S_MODULE ? &module : &library) = s_load(how);
	get_handles();
	printf("u: %d\n", how);
}

static void new_context(bool all) {
	CUcontext old = context;
	CUdevice device;

	CHECK(driver.device_get(&device, 0));
	if (all)
		s_unload(&library);
	CHECK(more.context_create(&context, NULL, 0, device));
	CHECK(more.context_destroy(old));
	module = s_load(S_MODULE);
	if (all)
		library = s_load(S_LIBRARY);
	get_handles();
	printf("%c: done\n", all ? 'z' : 'y');
}

static void step(char letter) {
	static const enum CUfunction_attribute_enum attribute =
		CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

	if (letter >= 'a' && letter <= 'f')
		launch(letter, functions[letter - 'a'], 0);
	else if (letter == 'x' || letter == 'o')
		launch(letter, functions[0], 0);
	else if (letter == 'g')
		printf("g: %d %d\n", driver.graph_launch(graph, NULL), driver.ctx_synchronize());
	else if (letter == 'h' || letter == 'i')
		launch(letter, functions[letter == 'h' ? 0 : 2], MORE_SHARED);
	else if (letter == 's' || letter == 'w')
		printf("%c: %d\n", letter,
		       more.function_set(functions[0], attribute, letter == 's' ? MORE_SHARED : 0));
	else if (letter == 'S')
		printf("S: %d\n",
		       more.kernel_set(attribute, MORE_SHARED, (CUkernel)functions[2], 0));
	else if (letter == 'p' || letter == 'q')
		capture(letter, functions[letter == 'p' ? 0 : 2]);
	else if (letter == 'n')
		count();
	else if (letter == 't')
		two_threads();
	else if (letter == 'u' || letter == 'U')
		unload(letter == 'u' ? S_MODULE : S_LIBRARY);
	else if (letter == 'y' || letter == 'z')
		new_context(letter == 'z');
	fflush(stdout);
}

int main(int argc, char **argv) {
	CUdevice device;
	char letter;

	few = argc > 1;
	driver_start(false);
	find_more();
	CHECK(driver.device_get(&device, 0));
	CHECK(more.context_create(&context, NULL, 0, device));
	module = s_load(S_MODULE);
	library = s_load(S_LIBRARY);
	get_handles();
	make_graph();
	while (read(STDIN_FILENO, &letter, 1) == 1)
		step(letter);
	return 0;
}
