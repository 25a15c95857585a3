/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests. A process that does what it is told, so that a test knows what was launched
 * before, while and after something was attached. Kernels are those of language.cu, 4 blocks of 64
 * threads if nothing else is said.
 *
 *   load SLOT [library]       loads the module (slots 0 to 7)
 *   file SLOT PATH            loads a module from a file
 *   unload SLOT [refused]     refused: that fails, and the module is there as before
 *   break SLOT KERNEL         launches it with an address that is nobody's, which is the end of the
 *                             context, and unloads the module
 *   launch SLOT KERNEL N      N launches, and waits for them
 *   handle SLOT KERNEL N      as launch, by the handle of a library's kernel: the driver loads its
 *                             module then, if it has not yet
 *   listed SLOT KERNEL N      the same by a handle out of the list of the library's kernels
 *   capture SLOT KERNEL N     captures N launches as the graph
 *   update SLOT KERNEL N      captures N launches, and updates the executable graph from them
 *   misfit SLOT KERNEL N      the same, which must fail
 *   resize N                  gives every node of the executable graph N blocks, by itself
 *   diamond SLOT KERNEL HOW   a graph of nodes with 1 to 4 blocks, of which the second and the
 *                             third depend on the first, and the last on them (HOW 0); with the
 *                             second and the third made in the other order it updates the
 *                             executable graph (1)
 *   nest SLOT KERNEL N        as capture, inside of a node
 *   renest SLOT KERNEL N      captures N launches, and gives the node those
 *   inner N                   gives the first node in the node N blocks
 *   widen NODE                gives a node 8 blocks
 *   disable NODE              leaves a node out, from 0
 *   enable NODE
 *   replay N [T]              launches the graph N times in each of T threads (1), and waits for
 *                             them
 *   forget                    destroys the graph, and the executable one
 *   blocks N                  of every launch from now on
 *   start SLOT KERNEL T       T threads launch, one launch at a time each, until `stop`
 *   counts                    launches that the threads have begun, and that have ended
 *   stop                      waits for the threads; launches that they made
 *   sum                       of the words that kernels wrote: vectorAdd adds 1 to 256 of them
 *   context                   makes another context; it is the current one from then on
 *   refuse SLOT               another thread unloads the module of a library, which is refused and
 *                             takes (s-slow.c) till `refused`
 *   refused
 *   churn                     another thread retains and releases the primary context, until `calm`
 *   calm
 *   sandbox                   kills the process from then on if it looks for files, sockets or
 *                             itself
 *   sandbox 1                 the same, but it may ask who it is
 *
 * More of graphs: live_graph.c.
 *
 * With an argument: another thread calls cuInit(), too, and first. Each command is answered with a
 * line: "ok" and numbers. Exits 0 at the end of its input.
 */

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"
#include "live_graph.h"

#define SLOTS 8
#define THREADS_MAX 16
#define KERNELS 32
#define WORDS 1024
#define VECTORS 256

extern const unsigned char language_image[];

static struct slot {
	CUmodule module;
	CUlibrary library;
} slots[SLOTS];

/* What kernels write; a loop's thread has its own. */
struct buffers {
	CUdeviceptr data, vectors;
};

static struct {
	CUdevice device;
	CUcontext context;
	struct buffers buffers; /* of the current context */
	unsigned long long sum; /* of those that are gone */
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	unsigned blocks;
} state;

static struct {
	pthread_t threads[THREADS_MAX];
	int count;
	CUfunction function;
	char kernel[64];
	atomic_bool stop;
	atomic_ulong begun, ended, sum;
} loop;

static struct {
	pthread_t thread;
	atomic_bool stop;
} churn;

atomic_int s_slow, s_slow_waits; /* s-slow.c */

static struct {
	pthread_t thread;
	CUmodule module;
} refusal;

static struct buffers buffers_new(void) {
	struct buffers buffers;

	CHECK(driver.mem_alloc(&buffers.data, WORDS * 4));
	CHECK(driver.memset_d8(buffers.data, 0, WORDS * 4));
	CHECK(driver.mem_alloc(&buffers.vectors, VECTORS * 16));
	return buffers;
}

static unsigned long long buffers_sum(const struct buffers *buffers) {
	unsigned words[WORDS];
	unsigned long long sum = 0;

	CHECK(driver.memcpy_to_host(words, buffers->data, sizeof(words)));
	for (int i = 0; i < WORDS; i++)
		sum += words[i];
	return sum;
}

static unsigned long long buffers_free(struct buffers *buffers) {
	unsigned long long sum = buffers_sum(buffers);

	CHECK(driver.mem_free(buffers->data));
	CHECK(driver.mem_free(buffers->vectors));
	return sum;
}

static void launch(CUfunction function, const char *kernel, const struct buffers *buffers,
		   CUstream stream) {
	void *plain[] = { (void *)&buffers->data },
	     *wide[] = { (void *)&buffers->vectors, (void *)&buffers->data };

	CHECK(driver.launch_kernel(function, state.blocks, 1, 1, 64, 1, 1, 0, stream,
				   !strcmp(kernel, "accesses") ? wide : plain, NULL));
}

static CUfunction function_of(const struct slot *slot, const char *kernel) {
	CUfunction function;
	CUkernel handle;

	if (!slot->library) {
		CHECK(driver.module_get_function(&function, slot->module, kernel));
		return function;
	}
	CHECK(driver.library_get_kernel(&handle, slot->library, kernel));
	CHECK(driver.kernel_get_function(&function, handle));
	return function;
}

static CUfunction handle_of(const struct slot *slot, const char *kernel) {
	CUkernel handle;

	CHECK(driver.library_get_kernel(&handle, slot->library, kernel));
	return (CUfunction)handle;
}

/* Drivers have such lists from CUDA 12.4 on. */
static CUfunction listed_of(const struct slot *slot, const char *kernel) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(cuLibraryEnumerateKernels) *list =
		(__typeof__(list))dlsym(library, "cuLibraryEnumerateKernels");
	__typeof__(cuKernelGetName) *get_name =
		(__typeof__(get_name))dlsym(library, "cuKernelGetName");
	CUkernel handles[KERNELS] = {}, found = NULL;
	const char *name;

	CHECK(list(handles, KERNELS, slot->library));
	for (unsigned i = 0; i < KERNELS && handles[i]; i++) {
		CHECK(get_name(&name, handles[i]));
		if (!strcmp(name, kernel))
			found = handles[i];
	}
	return (CUfunction)found;
}

static void unload(struct slot *slot) {
	if (slot->library)
		CHECK(driver.library_unload(slot->library));
	else
		CHECK(driver.module_unload(slot->module));
	*slot = (struct slot){};
}

static void *loop_thread(void *userdata) {
	struct buffers buffers;
	CUstream stream;

	(void)userdata;
	CHECK(driver.ctx_set_current(state.context));
	CHECK(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	buffers = buffers_new();
	while (!atomic_load(&loop.stop)) {
		atomic_fetch_add(&loop.begun, 1);
		launch(loop.function, loop.kernel, &buffers, stream);
		CHECK(driver.stream_synchronize(stream));
		atomic_fetch_add(&loop.ended, 1);
	}
	CHECK(driver.stream_destroy(stream));
	atomic_fetch_add(&loop.sum, buffers_free(&buffers));
	return NULL;
}

static void loop_start(const struct slot *slot, const char *kernel, int threads) {
	loop.function = function_of(slot, kernel);
	snprintf(loop.kernel, sizeof(loop.kernel), "%s", kernel);
	atomic_store(&loop.stop, false);
	loop.begun = loop.ended = 0;
	for (loop.count = 0; loop.count < threads; loop.count++)
		if (pthread_create(&loop.threads[loop.count], NULL, loop_thread, NULL))
			exit(1);
}

static unsigned long loop_stop(void) {
	atomic_store(&loop.stop, true);
	for (; loop.count; loop.count--)
		pthread_join(loop.threads[loop.count - 1], NULL);
	return atomic_load(&loop.ended);
}

static void *churn_thread(void *userdata) {
	CUcontext context;

	(void)userdata;
	while (!atomic_load(&churn.stop)) {
		CHECK(driver.primary_retain(&context, state.device));
		CHECK(driver.primary_release(state.device));
	}
	return NULL;
}

static void churn_begin(void) {
	atomic_store(&churn.stop, false);
	if (pthread_create(&churn.thread, NULL, churn_thread, NULL))
		exit(1);
}

static void churn_end(void) {
	atomic_store(&churn.stop, true);
	pthread_join(churn.thread, NULL);
}

static void *find(const char *name) {
	return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

static void *refusal_thread(void *userdata) {
	(void)userdata;
	CHECK(driver.ctx_set_current(state.context));
	s_slow = 1;
	return driver.module_unload(refusal.module) == CUDA_SUCCESS ? &refusal : NULL;
}

static void refuse_begin(const struct slot *slot) {
	__typeof__(cuLibraryGetModule) *get_module =
		(__typeof__(get_module))find("cuLibraryGetModule");

	CHECK(get_module(&refusal.module, slot->library));
	if (pthread_create(&refusal.thread, NULL, refusal_thread, NULL))
		exit(1);
	while (!s_slow_waits)
		usleep(1000);
}

/* Returns whether it was refused. */
static bool refuse_end(void) {
	__typeof__(cuEventSynchronize) *synchronize =
		(__typeof__(synchronize))find("cuEventSynchronize");
	__typeof__(cuEventCreate) *create = (__typeof__(create))find("cuEventCreate");
	void *unloaded;
	CUevent event;

	CHECK(create(&event, 0));
	CHECK(synchronize(event));
	pthread_join(refusal.thread, &unloaded);
	return !unloaded;
}

static CUgraph capture(const struct slot *slot, const char *kernel, int count) {
	CUfunction function = function_of(slot, kernel);
	CUgraph graph;

	CHECK(driver.stream_begin_capture(state.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < count; i++)
		launch(function, kernel, &state.buffers, state.stream);
	CHECK(driver.stream_end_capture(state.stream, &graph));
	return graph;
}

static void forget(void) {
	if (!state.exec)
		return;
	CHECK(driver.graph_exec_destroy(state.exec));
	if (state.graph)
		CHECK(driver.graph_destroy(state.graph));
	state.exec = NULL;
}

static void update(CUgraph graph) {
	CUgraphExecUpdateResultInfo info;

	CHECK(driver.graph_exec_update(state.exec, graph, &info));
	CHECK(driver.graph_destroy(graph));
}

/* Returns whether it was refused. */
static bool misfit(CUgraph graph) {
	CUgraphExecUpdateResultInfo info;
	bool refused = driver.graph_exec_update(state.exec, graph, &info) != CUDA_SUCCESS;

	CHECK(driver.graph_destroy(graph));
	return refused;
}

static CUgraphNode node_in(CUgraph graph, size_t number) {
	CUgraphNode nodes[64];
	size_t count = 64;

	CHECK(driver.graph_get_nodes(graph, nodes, &count));
	return number < count ? nodes[number] : NULL;
}

static CUgraphNode node_of(size_t number) {
	return node_in(state.graph, number);
}

static void resize_node(CUgraphNode node, unsigned blocks) {
	CUDA_KERNEL_NODE_PARAMS params;

	CHECK(driver.graph_get_params(node, &params));
	params.gridDimX = blocks;
	CHECK(driver.graph_set_params(state.exec, node, &params));
}

static void resize(unsigned blocks) {
	CUgraphNode node;

	for (size_t n = 0; (node = node_of(n)); n++)
		resize_node(node, blocks);
}

/* part: of the words, each with half of them: nodes that run at the same time share none. */
static CUgraphNode add(CUgraph graph, CUfunction function, unsigned blocks, unsigned part,
		       const CUgraphNode *after, size_t count) {
	CUdeviceptr data = state.buffers.data + part * (WORDS / 2) * 4;
	void *parameters[] = { &data };
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = function,
		.gridDimX = blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 64,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = parameters,
	};
	CUgraphNode node;

	CHECK(driver.graph_add_kernel_node(&node, graph, after, count, &params));
	return node;
}

static CUgraph diamond(CUfunction function, bool other_order) {
	CUgraphNode first, middle[2];
	CUgraph graph;

	CHECK(driver.graph_create(&graph, 0));
	first = add(graph, function, 1, 0, NULL, 0);
	for (unsigned n = 0; n < 2; n++)
		middle[n ^ other_order] =
			add(graph, function, 2 + (n ^ other_order), n ^ other_order, &first, 1);
	add(graph, function, 4, 0, middle, 2);
	return graph;
}

static CUgraph nest(CUgraph inner) {
	CUgraphNode node;
	CUgraph graph;

	CHECK(driver.graph_create(&graph, 0));
	CHECK(driver.graph_add_child_node(&node, graph, NULL, 0, inner));
	CHECK(driver.graph_destroy(inner));
	return graph;
}

static void renest(CUgraph inner) {
	CHECK(driver.graph_set_child(state.exec, node_of(0), inner));
	CHECK(driver.graph_destroy(inner));
}

static CUgraphNode inner_node(void) {
	CUgraph graph;

	CHECK(driver.graph_get_child(node_of(0), &graph));
	return node_in(graph, 0);
}

/* Instantiates it as the graph. */
static void take(CUgraph graph) {
	forget();
	state.graph = graph;
	CHECK(driver.graph_instantiate(&state.exec, state.graph, 0));
}

static struct live_graph live_graph(void) {
	return (struct live_graph){ &state.graph,  &state.exec,        state.stream,
				    state.context, state.buffers.data, state.blocks };
}

/* More of graphs, with a kernel. */
static bool run_live_graph(const struct slot *slot, const char *verb, const char *kernel,
			   int count) {
	const struct live_graph live = live_graph();
	CUgraph made;

	if (!live_graph_run_kernel(&live, verb, function_of(slot, kernel), count, &made))
		return false;
	if (!made)
		return true;
	take(made);
	puts("ok");
	return true;
}

static void *replay_thread(void *userdata) {
	CUstream stream;

	CHECK(driver.ctx_set_current(state.context));
	CHECK(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < *(int *)userdata; i++)
		CHECK(driver.graph_launch(state.exec, stream));
	CHECK(driver.stream_synchronize(stream));
	CHECK(driver.stream_destroy(stream));
	return NULL;
}

static void replay(int count, int threads) {
	pthread_t started[THREADS_MAX];

	for (int i = 0; i < threads; i++)
		if (pthread_create(&started[i], NULL, replay_thread, &count))
			exit(1);
	for (int i = 0; i < threads; i++)
		pthread_join(started[i], NULL);
	for (int i = 0; !threads && i < count; i++)
		CHECK(driver.graph_launch(state.exec, state.stream));
	CHECK(driver.stream_synchronize(state.stream));
}

/* What has to do with graphs, and needs no slot. */
static bool run_graph(const char *verb, int number, const char *more) {
	const struct live_graph live = live_graph();
	int threads = atoi(more);

	if (!strcmp(verb, "replay") && threads >= 0 && threads <= THREADS_MAX)
		replay(number, threads);
	else if (!strcmp(verb, "resize"))
		resize((unsigned)number);
	else if (!strcmp(verb, "disable") || !strcmp(verb, "enable"))
		CHECK(driver.graph_set_enabled(state.exec, node_of((size_t)number),
					       verb[0] == 'e'));
	else if (!strcmp(verb, "widen"))
		resize_node(node_of((size_t)number), 8);
	else if (!strcmp(verb, "inner"))
		resize_node(inner_node(), (unsigned)number);
	else if (!strcmp(verb, "forget"))
		forget();
	else if (!strcmp(verb, "blocks"))
		state.blocks = (unsigned)number;
	else
		return live_graph_run(&live, verb, number);
	puts("ok");
	return true;
}

/* The buffers of the first one are read while it is still current. */
static void context_new(void) {
	static __typeof__(cuCtxCreate_v4) *create;

	*(void **)&create = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxCreate_v4");
	state.sum += buffers_free(&state.buffers);
	CHECK(create(&state.context, NULL, 0, state.device));
	CHECK(driver.ctx_set_current(state.context));
	state.buffers = buffers_new();
	CHECK(driver.stream_create(&state.stream, CU_STREAM_NON_BLOCKING));
}

#define KILL(number)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static bool sandbox(bool may_ask_itself) {
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		KILL(SYS_openat),
		KILL(SYS_newfstatat),
		KILL(SYS_readlinkat),
#ifdef SYS_readlink
		KILL(SYS_readlink),
#endif
		KILL(SYS_socket),
		KILL(SYS_memfd_create),
		BPF_JUMP(BPF_JMP | BPF_JA, may_ask_itself ? 4 : 0, 0, 0),
		KILL(SYS_getpid),
		KILL(SYS_getuid),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Does what a line says. Returns false if it says nothing known. */
static bool run(const char *line) {
	char verb[16] = "", kernel[64] = "";
	struct slot *slot;
	int words, number, count = 0;

	words = sscanf(line, "%15s %d %63s %d", verb, &number, kernel, &count);
	if (words < 2)
		number = 0;
	if (number < 0 || count < 0)
		return false;
	if (run_graph(verb, number, kernel))
		return true;
	if (number >= SLOTS)
		return false;
	slot = &slots[number];
	if (!strcmp(verb, "load") && !strcmp(kernel, "library")) {
		CHECK(driver.library_load_data(&slot->library, language_image, NULL, NULL, 0, NULL,
					       NULL, 0));
	} else if (!strcmp(verb, "file")) {
		CHECK(driver.module_load(&slot->module, kernel));
	} else if (!strcmp(verb, "load")) {
		CHECK(driver.module_load_data(&slot->module, language_image));
	} else if (!strcmp(verb, "unload") && !strcmp(kernel, "refused")) {
		if (driver.module_unload(slot->module) == CUDA_SUCCESS)
			return false;
	} else if (!strcmp(verb, "unload")) {
		unload(slot);
	} else if (!strcmp(verb, "break") && words == 3) {
		struct buffers nobodys = { .data = 8, .vectors = 8 };

		launch(function_of(slot, kernel), kernel, &nobodys, NULL);
		if (driver.ctx_synchronize() == CUDA_SUCCESS)
			return false;
		driver.module_unload(slot->module); /* a driver refuses it, with the same error */
	} else if ((!strcmp(verb, "launch") ||
		    (slot->library && (!strcmp(verb, "handle") || !strcmp(verb, "listed")))) &&
		   words == 4) {
		CUfunction function = verb[0] == 'h'   ? handle_of(slot, kernel)
				      : verb[1] == 'i' ? listed_of(slot, kernel)
						       : function_of(slot, kernel);

		for (int i = 0; i < count; i++)
			launch(function, kernel, &state.buffers, NULL);
		CHECK(driver.ctx_synchronize());
	} else if (!strcmp(verb, "capture") && words == 4) {
		take(capture(slot, kernel, count));
	} else if (!strcmp(verb, "nest") && words == 4) {
		take(nest(capture(slot, kernel, count)));
	} else if (!strcmp(verb, "renest") && words == 4) {
		renest(capture(slot, kernel, count));
	} else if (!strcmp(verb, "diamond") && words == 4) {
		CUgraph graph = diamond(function_of(slot, kernel), count);

		if (count)
			update(graph);
		else
			take(graph);
	} else if (!strcmp(verb, "update") && words == 4) {
		update(capture(slot, kernel, count));
	} else if (!strcmp(verb, "misfit") && words == 4) {
		if (!misfit(capture(slot, kernel, count)))
			return false;
	} else if (!strcmp(verb, "start") && words == 4 && count <= THREADS_MAX) {
		loop_start(slot, kernel, count);
	} else if (!strcmp(verb, "counts")) {
		unsigned long ended = atomic_load(&loop.ended);

		printf("ok %lu %lu\n", atomic_load(&loop.begun), ended);
		return true;
	} else if (!strcmp(verb, "stop")) {
		printf("ok %lu\n", loop_stop());
		return true;
	} else if (!strcmp(verb, "sum")) {
		printf("ok %llu\n",
		       state.sum + atomic_load(&loop.sum) + buffers_sum(&state.buffers));
		return true;
	} else if (!strcmp(verb, "context")) {
		context_new();
	} else if (!strcmp(verb, "refuse") && slot->library) {
		refuse_begin(slot);
	} else if (!strcmp(verb, "refused")) {
		if (!refuse_end())
			return false;
	} else if (!strcmp(verb, "churn")) {
		churn_begin();
	} else if (!strcmp(verb, "calm")) {
		churn_end();
	} else if (!strcmp(verb, "sandbox")) {
		if (!sandbox(words > 1 && number == 1))
			return false;
	} else if (words >= 3) {
		return run_live_graph(slot, verb, kernel, count);
	} else {
		return false;
	}
	puts("ok");
	return true;
}

static void *init_thread(void *userdata) {
	(void)userdata;
	CHECK(driver.init(0));
	return NULL;
}

/* Two threads call cuInit() at a time, another one first. */
static void start_beside(void) {
	CUcontext context;
	CUdevice device;
	pthread_t other;

	driver_open(false);
	if (pthread_create(&other, NULL, init_thread, NULL))
		exit(1);
	usleep(50000);
	CHECK(driver.init(0));
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	CHECK(driver.ctx_set_current(context));
	pthread_join(other, NULL);
}

int main(int argc, char **argv) {
	char line[256];

	(void)argv;
	if (argc > 1)
		start_beside();
	else
		driver_start(false);
	state.blocks = 4;
	CHECK(driver.device_get(&state.device, 0));
	CHECK(driver.primary_retain(&state.context, state.device));
	state.buffers = buffers_new();
	CHECK(driver.stream_create(&state.stream, CU_STREAM_NON_BLOCKING));
	puts("ok");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!run(line)) {
			fprintf(stderr, "live_driver: %s", line);
			return 2;
		}
		fflush(stdout);
	}
	return 0;
}
