/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. CUDA graphs with conditional nodes: IF, IF with ELSE, WHILE,
 * SWITCH, one in another's body, one in a child graph. Kernels set the conditions; bodies add to
 * numbers, which are said after each launch. "apart": the kernels of bodies are in a module of
 * their own. "library": as the runtime does it, one kernel is launched before, by a handle that
 * makes the driver load the module. Also for a GPU: tests/gpu/suite.py.
 */

#include <dlfcn.h>

#include "s.h"

#define LAUNCHES 3
#define NUMBERS 8

enum {
	IF,
	WHILE,
	SWITCH
};

#define HEAD ".version 8.4\n.target sm_75\n.address_size 64\n"
#define SETS                                                                                     \
	".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"        \
	".visible .entry set(.param .u64 handle, .param .u64 at, .param .u32 step)\n{\n"         \
	"\t.reg .b64 %h, %a;\n\t.reg .b32 %v, %s;\n"                                             \
	"\tld.param.u64 %h, [handle];\n\tld.param.u64 %a, [at];\n\tld.param.u32 %s, [step];\n"   \
	"\tld.global.u32 %v, [%a];\n\tsub.u32 %v, %v, %s;\n\tst.global.u32 [%a], %v;\n"          \
	"\t{\n\t.param .b64 p0;\n\tst.param.b64 [p0+0], %h;\n\t.param .b32 p1;\n\tst.param.b32 " \
	"[p1+0], %v;\n"                                                                          \
	"\tcall.uni cudaGraphSetConditional, (p0, p1);\n\t}\n\tret;\n}\n"
#define ADDS                                                           \
	".visible .entry add(.param .u64 at, .param .u32 number)\n{\n" \
	"\t.reg .b64 %a;\n\t.reg .b32 %n, %v;\n"                       \
	"\tld.param.u64 %a, [at];\n\tld.param.u32 %n, [number];\n"     \
	"\tld.global.u32 %v, [%a];\n\tadd.u32 %v, %v, %n;\n\tst.global.u32 [%a], %v;\n\tret;\n}\n"

/* CUgraphNodeParams, which has 256 bytes. */
union node_params {
	struct {
		unsigned type, reserved[3];
		unsigned long long handle;
		unsigned kind, size;
		CUgraph *bodies;
		CUcontext context;
	};
	char bytes[256];
};

static __typeof__(cuGraphConditionalHandleCreate) *handle_create;
static __typeof__(cuGraphAddNode_v2) *add_node;
static CUfunction set, add;
static CUcontext context;
static CUdeviceptr numbers; /* NUMBERS of them; then one that a condition is made of */

static CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, CUfunction function,
			      void **arguments) {
	CUDA_KERNEL_NODE_PARAMS params = { .func = function,
					   .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = arguments };
	CUgraphNode node;

	CHECK(driver.graph_add_kernel_node(&node, graph, after ? &after : NULL, after != NULL,
					   &params));
	return node;
}

static CUgraphNode adds(CUgraph graph, CUgraphNode after, unsigned which, unsigned number) {
	CUdeviceptr at = numbers + 4 * which;

	return add_kernel(graph, after, add, (void *[]){ &at, &number });
}

static CUgraphNode sets(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
			unsigned step) {
	CUdeviceptr at = numbers + 4 * NUMBERS;

	return add_kernel(graph, after, set, (void *[]){ &handle, &at, &step });
}

/* A condition, what sets it, and the node; its bodies are to be filled in. */
static CUgraph *condition(CUgraph graph, unsigned kind, unsigned size, CUgraphNode *node,
			  CUgraphConditionalHandle *handle) {
	union node_params params = { .type = 13 };
	CUgraphNode first;

	CHECK(handle_create(handle, graph, context, 0, 1));
	first = sets(graph, NULL, *handle, 0);
	params.handle = *handle;
	params.kind = kind;
	params.size = size;
	params.context = context;
	CHECK(add_node(node, graph, &first, NULL, 1, (CUgraphNodeParams *)&params));
	return params.bodies;
}

static void say(const char *what, unsigned value) {
	unsigned found[NUMBERS];

	CHECK(driver.memcpy_to_host(found, numbers, sizeof(found)));
	printf("%s of %u:", what, value);
	for (int i = 0; i < NUMBERS; i++)
		printf(" %u", found[i]);
	printf("\n");
}

/* Launches it with each value. */
static void launch(const char *what, CUgraph graph, unsigned values) {
	CUgraphExec exec;

	CHECK(driver.graph_instantiate(&exec, graph, 0));
	for (unsigned value = 0; value < values; value++)
		for (int i = 0; i < LAUNCHES; i++) {
			CHECK(driver.memcpy_to_device(numbers + 4 * NUMBERS, &value,
						      sizeof(value)));
			CHECK(driver.graph_launch(exec, NULL));
			CHECK(driver.ctx_synchronize());
			say(what, value);
		}
	CHECK(driver.graph_exec_destroy(exec));
}

static CUgraph make(unsigned kind, unsigned size) {
	CUgraphConditionalHandle handle, inner;
	CUgraphNode node, last, within;
	CUgraph graph, *bodies, *in;

	CHECK(driver.graph_create(&graph, 0));
	bodies = condition(graph, kind, size, &node, &handle);
	for (unsigned i = 0; i < size; i++) {
		last = adds(bodies[i], NULL, i, 1);
		if (kind == WHILE)
			sets(bodies[i], last, handle, 1);
		if (kind == SWITCH && i == 1) { /* another one in it */
			in = condition(bodies[i], IF, 1, &within, &inner);
			adds(in[0], NULL, 6, 1);
		}
	}
	adds(graph, node, 7, 1);
	return graph;
}

static CUfunction function_of(CUkernel kernel) {
	CUfunction function;

	CHECK(driver.kernel_get_function(&function, kernel));
	return function;
}

static void load_library(void) {
	CUdeviceptr at = numbers + 4 * (NUMBERS - 1);
	CUkernel setting, adding;
	CUlibrary library;
	unsigned number = 1;

	CHECK(driver.library_load_data(&library, HEAD SETS ADDS, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(driver.library_get_kernel(&adding, library, "add"));
	CHECK(driver.library_get_kernel(&setting, library, "set"));
	CHECK(driver.launch_kernel((CUfunction)adding, 1, 1, 1, 1, 1, 1, 0, NULL,
				   (void *[]){ &at, &number }, NULL));
	add = function_of(adding);
	set = function_of(setting);
}

static void load_modules(bool apart) {
	CUmodule module;

	CHECK(driver.module_load_data(&module, apart ? HEAD SETS : HEAD SETS ADDS));
	CHECK(driver.module_get_function(&set, module, "set"));
	if (apart)
		CHECK(driver.module_load_data(&module, HEAD ADDS));
	CHECK(driver.module_get_function(&add, module, "add"));
}

int main(int argc, char **argv) {
	CUgraph graph, child;
	CUgraphNode node;
	CUdevice device;
	void *library;

	driver_start(false);
	library = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&handle_create = dlsym(library, "cuGraphConditionalHandleCreate");
	*(void **)&add_node = dlsym(library, "cuGraphAddNode_v2");
	if (!handle_create || !add_node)
		return 1;
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	CHECK(driver.mem_alloc(&numbers, 4 * NUMBERS + 4));
	CHECK(driver.memset_d8(numbers, 0, 4 * NUMBERS + 4));
	if (argc > 1 && !strcmp(argv[1], "library"))
		load_library();
	else
		load_modules(argc > 1);
	launch("if", make(IF, 1), 2);
	launch("if or else", make(IF, 2), 2);
	launch("while", make(WHILE, 1), 4);
	launch("switch", make(SWITCH, 3), 5);
	CHECK(driver.graph_create(&graph, 0));
	child = make(IF, 1);
	if (!driver.graph_add_child_node(&node, graph, NULL, 0,
					 child)) /* newer drivers take that, or do not */
		launch("child", graph, 2);
	return 0;
}
