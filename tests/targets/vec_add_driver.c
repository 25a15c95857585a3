/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests. c = a + b through the driver API: what end-to-end tests probe.
 *
 *   vec_add_driver [--threads N] [--block N] [--launches N] [--how HOW] [--load HOW] [--bound]
 *   [--getproc]
 *                  [--loads N] [--sleep-ms N] [--dump FILE] [--registers N] [--wide N]
 *
 *   --how   launch (default) | ex | cooperative | streams (4 streams) | threads (4 host threads) |
 *           graph (nodes) | capture
 *   --load  module (cuModuleLoadData, default) | moduleex | library (cuLibraryLoadData)
 *   --loads load, run all launches and unload that many times
 *   --registers has the driver compile for N registers a thread (moduleex and library); fails if
 *   the kernel has more
 *   --wide  a kernel that keeps N values in registers meanwhile, each loaded from a and stored to c
 *   --bound the kernel that takes n: vectorAdd(const float *, const float *, float *, int)
 *   --getproc finds all functions by cuGetProcAddress_v2
 *
 * Prints "threads=N launches=M first_us=T sum=S PASS" and exits 0. The grid has exactly N threads
 * (N is rounded up to whole blocks), so a counter of thread entries reads N * M * loads. first_us
 * is the first load with the first launch.
 */

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

extern const unsigned char vec_add_image[], vec_add_bound_image[];

struct options {
	size_t threads;
	unsigned int block, grid;
	int launches, loads, sleep_ms, registers, wide;
	const char *how, *load, *dump;
	bool bound, by_proc_address;
};

struct job {
	const struct options *options;
	CUfunction function;
	CUdeviceptr a, b, c;
	int n;
	CUcontext context;
	CUstream stream;
	int launches;
};

static double now_us(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static void launch_one(struct job *job) {
	const struct options *o = job->options;
	void *arguments[] = { &job->a, &job->b, &job->c, &job->n };

	if (!strcmp(o->how, "ex")) {
		CUlaunchConfig config = {
			.gridDimX = o->grid,
			.gridDimY = 1,
			.gridDimZ = 1,
			.blockDimX = o->block,
			.blockDimY = 1,
			.blockDimZ = 1,
			.hStream = job->stream,
		};

		CHECK(driver.launch_kernel_ex(&config, job->function, arguments, NULL));
	} else if (!strcmp(o->how, "cooperative")) {
		CHECK(driver.launch_cooperative(job->function, o->grid, 1, 1, o->block, 1, 1, 0,
						job->stream, arguments));
	} else {
		CHECK(driver.launch_kernel(job->function, o->grid, 1, 1, o->block, 1, 1, 0,
					   job->stream, arguments, NULL));
	}
	if (o->sleep_ms) {
		CHECK(driver.stream_synchronize(job->stream));
		usleep(o->sleep_ms * 1000);
	}
}

static void *launch_thread(void *userdata) {
	struct job *job = userdata;

	CHECK(driver.ctx_set_current(job->context));
	for (int i = 0; i < job->launches; i++)
		launch_one(job);
	CHECK(driver.stream_synchronize(job->stream));
	return NULL;
}

/* The launches spread over four streams, with a host thread for each if asked. */
static void launch_many(const struct job *base, bool threads) {
	struct job jobs[4];
	pthread_t ids[4];

	for (int i = 0; i < 4; i++) {
		jobs[i] = *base;
		CHECK(driver.stream_create(&jobs[i].stream, CU_STREAM_DEFAULT));
		jobs[i].launches = base->launches / 4 + (i < base->launches % 4);
		if (!threads)
			launch_thread(&jobs[i]);
		else if (pthread_create(&ids[i], NULL, launch_thread, &jobs[i]))
			exit(1);
	}
	for (int i = 0; i < 4; i++) {
		if (threads)
			pthread_join(ids[i], NULL);
		CHECK(driver.stream_destroy(jobs[i].stream));
	}
}

/* All launches as one graph: captured, or put together by hand. */
static void launch_graph(struct job *job, bool capture) {
	const struct options *o = job->options;
	CUgraph graph;
	CUgraphExec exec;

	CHECK(driver.stream_create(&job->stream, CU_STREAM_DEFAULT));
	if (capture) {
		CHECK(driver.stream_begin_capture(job->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		for (int i = 0; i < job->launches; i++)
			launch_one(job);
		CHECK(driver.stream_end_capture(job->stream, &graph));
	} else {
		void *arguments[] = { &job->a, &job->b, &job->c, &job->n };
		CUDA_KERNEL_NODE_PARAMS params = {
			.func = job->function,
			.gridDimX = o->grid,
			.gridDimY = 1,
			.gridDimZ = 1,
			.blockDimX = o->block,
			.blockDimY = 1,
			.blockDimZ = 1,
			.kernelParams = arguments,
		};
		CUgraphNode last = NULL;

		CHECK(driver.graph_create(&graph, 0));
		for (int i = 0; i < job->launches; i++) {
			CUgraphNode node;

			CHECK(driver.graph_add_kernel_node(&node, graph, i ? &last : NULL,
							   i ? 1 : 0, &params));
			last = node;
		}
	}
	CHECK(driver.graph_instantiate(&exec, graph, 0));
	CHECK(driver.graph_launch(exec, job->stream));
	CHECK(driver.stream_synchronize(job->stream));
	CHECK(driver.graph_exec_destroy(exec));
	CHECK(driver.graph_destroy(graph));
	CHECK(driver.stream_destroy(job->stream));
	job->stream = NULL;
}

/* PTX text of a kernel with so many values alive at once. */
static char *make_wide(int values) {
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	if (!stream)
		exit(1);
	fprintf(stream,
		".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry "
		"_Z9vectorAddPKfS0_Pf(.param .u64 p, .param .u64 q, .param .u64 r)\n"
		"{\n.reg .b64 %%a, %%b, %%c, %%o;\n.reg .b32 %%i, %%j, %%k;\n.reg .f32 %%x, %%y, "
		"%%f<%d>;\n"
		"ld.param.u64 %%a, [p];\nld.param.u64 %%b, [q];\nld.param.u64 %%c, [r];\n"
		"mov.u32 %%i, %%ctaid.x;\nmov.u32 %%j, %%ntid.x;\nmov.u32 %%k, "
		"%%tid.x;\nmad.lo.u32 %%i, %%i, %%j, %%k;\n"
		"mul.wide.u32 %%o, %%i, 4;\nadd.s64 %%a, %%a, %%o;\nadd.s64 %%b, %%b, "
		"%%o;\nadd.s64 %%c, %%c, %%o;\n",
		values);
	for (int i = 0; i < values; i++)
		fprintf(stream, "ld.volatile.global.f32 %%f%d, [%%a];\n", i);
	for (int i = values - 1; i >= 0; i--)
		fprintf(stream, "st.volatile.global.f32 [%%c], %%f%d;\n", i);
	fprintf(stream, "ld.global.f32 %%x, [%%a];\nld.global.f32 %%y, [%%b];\nadd.f32 %%x, %%x, "
			"%%y;\nst.global.f32 [%%c], %%x;\nret;\n}\n");
	if (fclose(stream))
		exit(1);
	return text;
}

static void check_registers(const struct job *job) {
	int registers;

	CHECK(driver.function_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, job->function));
	if (registers <= job->options->registers)
		return;
	fprintf(stderr, "vec_add_driver: %d registers\n", registers);
	exit(1);
}

/* Loads the image, launches, unloads. Returns the time of the load and the first launch. */
static double load_and_launch(struct job *job) {
	const struct options *o = job->options;
	char *wide = o->wide > 0 ? make_wide(o->wide) : NULL;
	const void *image = wide ? (void *)wide : o->bound ? vec_add_bound_image : vec_add_image;
	const char *name = o->bound ? "_Z9vectorAddPKfS0_Pfi" : "_Z9vectorAddPKfS0_Pf";
	CUmodule module = NULL;
	CUlibrary library = NULL;
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *value = (void *)(uintptr_t)o->registers;
	unsigned int count = o->registers > 0;
	CUkernel kernel;
	double start = now_us(), first;

	if (!strcmp(o->load, "library")) {
		CHECK(driver.library_load_data(&library, image, &option, &value, count, NULL, NULL,
					       0));
		CHECK(driver.library_get_kernel(&kernel, library, name));
		CHECK(driver.kernel_get_function(&job->function, kernel));
	} else {
		if (!strcmp(o->load, "moduleex"))
			CHECK(driver.module_load_data_ex(&module, image, count, &option, &value));
		else
			CHECK(driver.module_load_data(&module, image));
		CHECK(driver.module_get_function(&job->function, module, name));
	}
	if (count)
		check_registers(job);
	job->launches = o->launches;
	if (!strcmp(o->how, "graph") || !strcmp(o->how, "capture")) {
		launch_graph(job, !strcmp(o->how, "capture"));
		first = now_us() - start;
	} else {
		launch_one(job);
		CHECK(driver.ctx_synchronize());
		first = now_us() - start;
		job->launches--;
		if (!strcmp(o->how, "threads") || !strcmp(o->how, "streams"))
			launch_many(job, !strcmp(o->how, "threads"));
		else
			for (int i = 0; i < job->launches; i++)
				launch_one(job);
	}
	CHECK(driver.ctx_synchronize());
	if (library)
		CHECK(driver.library_unload(library));
	else
		CHECK(driver.module_unload(module));
	free(wide);
	return first;
}

static bool one_of(const char *word, const char *const *words) {
	for (; *words; words++)
		if (!strcmp(word, *words))
			return true;
	return false;
}

static void parse(struct options *o, int argc, char **argv) {
	static const char *const hows[] = { "launch",  "ex",    "cooperative", "streams",
					    "threads", "graph", "capture",     NULL };
	static const char *const loads[] = { "module", "moduleex", "library", NULL };

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--bound"))
			o->bound = true;
		else if (!strcmp(argv[i], "--getproc"))
			o->by_proc_address = true;
		else if (!strcmp(argv[i], "--threads") && ++i)
			o->threads = strtoull(value, NULL, 0);
		else if (!strcmp(argv[i], "--block") && ++i)
			o->block = strtoul(value, NULL, 0);
		else if (!strcmp(argv[i], "--launches") && ++i)
			o->launches = atoi(value);
		else if (!strcmp(argv[i], "--loads") && ++i)
			o->loads = atoi(value);
		else if (!strcmp(argv[i], "--sleep-ms") && ++i)
			o->sleep_ms = atoi(value);
		else if (!strcmp(argv[i], "--registers") && ++i)
			o->registers = atoi(value);
		else if (!strcmp(argv[i], "--wide") && ++i)
			o->wide = atoi(value);
		else if (!strcmp(argv[i], "--how") && ++i)
			o->how = value;
		else if (!strcmp(argv[i], "--load") && ++i)
			o->load = value;
		else if (!strcmp(argv[i], "--dump") && ++i)
			o->dump = value;
		else {
			fprintf(stderr, "vec_add_driver: unknown option %s\n", argv[i]);
			exit(2);
		}
	}
	if (!o->threads || o->threads > UINT32_MAX / 2 || !o->block || o->block > 1024 ||
	    o->launches < 1 || o->loads < 1 || !one_of(o->how, hows) || !one_of(o->load, loads)) {
		fprintf(stderr, "vec_add_driver: an option's value makes no sense\n");
		exit(2);
	}
	o->grid = (o->threads + o->block - 1) / o->block;
	o->threads = (size_t)o->grid * o->block;
}

int main(int argc, char **argv) {
	struct options o = { .threads = 1 << 20,
			     .block = 256,
			     .launches = 1,
			     .loads = 1,
			     .how = "launch",
			     .load = "module" };
	struct job job = { .options = &o };
	float *a, *b, *c;
	double first = 0, sum = 0;
	size_t bytes;
	bool right = true;
	CUdevice device;

	parse(&o, argc, argv);
	bytes = o.threads * sizeof(float);
	a = malloc(bytes);
	b = malloc(bytes);
	c = malloc(bytes);
	if (!a || !b || !c)
		return 1;
	for (size_t i = 0; i < o.threads; i++) {
		a[i] = (float)(i % 1024);
		b[i] = (float)(i % 7);
	}
	driver_start(o.by_proc_address);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&job.context, device));
	CHECK(driver.mem_alloc(&job.a, bytes));
	CHECK(driver.mem_alloc(&job.b, bytes));
	CHECK(driver.mem_alloc(&job.c, bytes));
	CHECK(driver.memcpy_to_device(job.a, a, bytes));
	CHECK(driver.memcpy_to_device(job.b, b, bytes));
	job.n = o.threads;
	for (int i = 0; i < o.loads; i++) {
		double took;

		CHECK(driver.memset_d8(job.c, 0xff, bytes));
		took = load_and_launch(&job);
		if (!i)
			first = took;
	}
	CHECK(driver.memcpy_to_host(c, job.c, bytes));
	for (size_t i = 0; i < o.threads; i++) {
		sum += c[i];
		right = right && c[i] == a[i] + b[i];
	}
	driver_dump(o.dump, c, bytes);
	CHECK(driver.mem_free(job.a));
	CHECK(driver.mem_free(job.b));
	CHECK(driver.mem_free(job.c));
	CHECK(driver.primary_release(device));
	CHECK(driver.primary_release(device));
	printf("threads=%zu launches=%d first_us=%.0f sum=%.0f %s\n", o.threads, o.launches, first,
	       sum, right ? "PASS" : "FAIL");
	free(a);
	free(b);
	free(c);
	return right ? 0 : 1;
}
