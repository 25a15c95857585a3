/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The objects behind the driver API's handles, and what its files share.
 *
 * One lock (api_lock) guards all objects. Kernels run without it, under sim_run_lock(): so copies
 * and queries work while a kernel runs, and what takes memory away waits for its end. Every handle
 * is in a table of live ones with its kind, so that a wrong handle is an error and not a crash.
 */

#include "sim.h"

#define API_EXPORT __attribute__((visibility("default")))
/* A second name for a function of the same file. */
#define API_ALIAS(alias_name, function) \
	extern API_EXPORT __typeof__(function) alias_name __attribute__((alias(#function)))

enum api_kind {
	API_CONTEXT = 1,
	API_MODULE,
	API_FUNCTION,
	API_LIBRARY,
	API_KERNEL,
	API_STREAM,
	API_EVENT,
	API_GRAPH,
	API_NODE,
	API_EXEC,
	API_LINK,
	API_USER_OBJECT,
};

/*
 * A function that takes long where a test says so: it tells tests/targets/s-slow.c, if that is
 * preloaded, when it begins and when it has done its work.
 */
extern void s_slow_begin(const char *name) __attribute__((weak));
extern void s_slow_end(const char *name) __attribute__((weak));

static inline const char *api_slow_begin(const char *name) {
	if (s_slow_begin)
		s_slow_begin(name);
	return name;
}

static inline void api_slow_end(const char **name) {
	if (s_slow_end)
		s_slow_end(*name);
}
#define API_SLOW(name) \
	__attribute__((cleanup(api_slow_end))) const char *slow_name = api_slow_begin(#name)

struct CUctx_st {
	uint64_t id;
	unsigned int flags;
	unsigned int primary_references; /* the primary one: how often it was retained */
	unsigned int attached; /* another one: once when it was made, and by cuCtxAttach */
	bool primary;
	bool patchable; /* made while somebody had subscribed */
	unsigned int processors; /* a green one: how many it has; 0: all */
	CUgreenCtx green;
	size_t limits[3];
	CUresult error; /* of a kernel: everything fails with it from then on */
};

struct CUfunc_st {
	struct sim_function *function;
	CUmodule module;
	uint64_t patch_data;
	bool patch_data_said; /* by set_data() */
	bool loaded; /* false: with GPUPROBE_SIM_LAZY, until it is used */
};

struct CUkern_st {
	CUfunction function;
	CUlibrary library;
};

struct CUmod_st {
	struct sim_program *program;
	CUfunction functions; /* one for each kernel, as the program's functions go */
	unsigned int function_count;
	CUlibrary library; /* that owns it, or NULL */
	CUmodule next; /* of the library: that in another context */
	CUcontext home; /* its kernels run there alone; NULL: a library's that no context has used
			   yet */
	uint32_t most_registers; /* of a thread */
	/* api-patch.c */
	CUcontext context; /* where it was seen first */
	bool telling, told; /* of that */
	const struct sim_function *marks[SIM_PATCHES];
	bool patched;
	uint64_t changes; /* how often it was patched and unpatched */
	unsigned int launching, changing; /* threads that launch its kernels, that patch it */
};

struct CUlib_st {
	CUmodule module; /* the first of the list: that of the context that used it first */
	struct CUlib_st *next; /* all libraries */
	CUkernel kernels;
	unsigned int kernel_count;
};

struct CUstream_st {
	uint64_t id;
	unsigned int flags;
	int priority;
	CUcontext context;
	CUgraph capture; /* being captured into */
	CUstreamCaptureMode mode;
	bool invalidated;
	uint64_t thread; /* that began the capture */
	struct CUstream_st *next; /* all streams */
};

struct CUevent_st {
	unsigned int flags;
	bool recorded;
	uint64_t time; /* ns */
};

/* What a kernel of an executable graph was when that was made. */
struct api_frozen {
	const struct sim_function *patches[SIM_PATCHES];
	uint64_t data;
	uint64_t changes; /* of the module, if it was patched: that code goes away at the next; else
			     0 */
};

struct CUgraphNode_st {
	CUgraphNodeType type;
	uint64_t id;
	CUgraph graph;
	/* kernels */
	CUfunction function;
	unsigned int grid[3], block[3], shared;
	unsigned char *parameters; /* function->parameter_bytes, owned */
	void **pointers; /* into parameters, for GetParams */
	struct api_frozen *frozen; /* owned; NULL: as the function is */
	/* copies and sets */
	void *destination;
	const void *source;
	size_t size, element;
	uint32_t value;
	/* host functions */
	CUhostFn host;
	void *userdata;
	CUgraph child; /* owned */
	struct api_condition *condition;
	uint32_t condition_kind, body_count;
	CUgraph *bodies; /* owned */
	struct CUgraphNode_st **dependencies; /* owned, in the order of edges */
	size_t dependency_count, dependent_count;
	struct CUgraphNode_st *original; /* in an exec or a clone: the node it is a copy of */
	uint64_t original_id; /* and its id: that node may be gone */
	struct CUgraphNode_st
		*partner; /* in an exec that is being updated: the node of the other graph */
	bool disabled; /* in an exec */
};

/* References to a user object that a graph has. */
struct api_user_reference {
	struct CUuserObject_st *object;
	unsigned int count;
};

struct CUgraph_st {
	struct api_user_reference *users; /* owned, as are the references */
	size_t user_count;
	CUgraphNode *nodes; /* in an order that respects dependencies: the one they were added in */
	size_t count, allocated;
};

struct CUgraphExec_st {
	struct CUgraph_st graph;
};

/* --- api-context.c --- */

extern pthread_mutex_t api_mutex;
static inline void api_lock(void) {
	pthread_mutex_lock(&api_mutex);
}
static inline void api_unlock(void) {
	pthread_mutex_unlock(&api_mutex);
}

/* Is the driver initialised and a context current that has no error? Else returns why not. */
CUresult api_enter(void);
CUresult api_initialized(void);
CUcontext api_current(void);
/* A new context, which is current nowhere. */
CUresult api_context_new(CUcontext *out, unsigned int flags);
CUresult api_context_destroy(CUcontext context);

/* The table of live handles; under the lock. */
bool api_live_add(void *handle, enum api_kind kind);
void api_live_remove(void *handle);
bool api_live(const void *handle, enum api_kind kind);
uint64_t api_next_id(void);
uint64_t api_thread_id(void);

/* --- api-module.c --- */

/* The function behind a CUfunction, or a CUkernel that was cast to one, in the current context;
 * NULL. Under the lock. */
CUfunction api_function(CUfunction handle);
/* The functions of a program as a module that no handle leads to yet. */
CUresult api_module_make(CUmodule *out, struct sim_program *program, uint32_t most_registers);
/* Under both locks. */
void api_module_free(CUmodule module);
/* Makes a module of an image: PTX text, fatbin, or the wrapper of one; size 0 if not known. Not
 * under the lock. */
CUresult api_module_load(CUmodule *out, const void *image, size_t size, unsigned int options,
			 const CUjit_option *names, void **values);
/* Reads a file, with a NUL behind it; the caller frees. NULL if it cannot. */
char *api_read_file(const char *path, size_t *size);
/* The PTX texts in an image, each freed by the caller; at most max. */
CUresult api_image_texts(const void *image, size_t size, char **texts, size_t *lengths,
			 unsigned int max, unsigned int *count);

/* --- api-library.c --- */

/* The module of a library in a context, which is loaded there if it was not. NULL: no memory. Not
 * under the lock. */
CUmodule api_library_use(CUlibrary library, CUcontext context);
/* The same for a kernel: what is launched in that context. Other handles stay as they are. */
CUfunction api_kernel_use(CUfunction handle, CUcontext context);
/* Under the lock. */
void api_library_add(CUlibrary library);
void api_library_remove(CUlibrary library);
/* What libraries have there goes with a context. Under both locks. */
void api_libraries_end(CUcontext context);

/* --- api-patch.c: what tells of modules and functions is called under no lock --- */

bool api_patchable(void); /* has somebody subscribed? */
void api_module_loaded(CUmodule module); /* the first time */
void api_module_unloading(CUmodule module);
void api_function_used(CUfunction function); /* about to be launched, or looked up */
void api_context_ending(CUcontext context);
bool api_freeze(struct CUgraphNode_st *node); /* false: no memory. Under the lock */
/* Runs a kernel of a node, or what it was when the graph was made. Under sim_run_lock(). */
CUresult api_patched_run(const struct CUgraphNode_st *node, struct sim_launch *launch);
/* Around a launch of a kernel: false if its module is being patched. */
bool api_launch_begin(CUmodule module);
void api_launch_end(CUmodule module);

/* --- api-elf.c --- */

/* What stands for a module's cubin; the caller frees. NULL: no memory. */
void *api_module_elf(const struct sim_program *program, size_t *size);

/* --- api-memory.c --- */

/* Device memory or the like, whatever context is current and whoever captures. */
CUresult api_memory_map(void **out, size_t size, enum sim_region_kind kind, unsigned int flags);
CUresult api_memory_unmap(uintptr_t base, enum sim_region_kind kind);

/* --- api-stream.c --- */

/* Is the handle a stream (or one of the default ones: NULL out)? Under the lock. */
bool api_stream(CUstream handle, CUstream *out);
/* What may not happen while somebody captures: invalidates the captures that forbid it. Takes the
 * lock. */
CUresult api_unsafe_in_capture(void);
/* What waits for a context (NULL: for all): invalidates its captures, in whatever mode they and the
 * thread are. Takes the lock. */
CUresult api_not_in_captures(CUcontext context);
/* Its streams go with a context. Under the lock. */
void api_streams_end(CUcontext context);
/* Adds a node to the graph that the stream captures into. 1: done (the caller returns); 0: not
 * capturing; < 0: -CUresult. Under the lock. */
int api_capture(CUstream stream, const struct CUgraphNode_st *node);

/* --- api-graph.c --- */

/* Copies a node into a graph; NULL: no memory. Under the lock. */
CUgraphNode api_graph_add(struct CUgraph_st *graph, const struct CUgraphNode_st *node,
			  const CUgraphNode *dependencies, size_t count);
CUgraph api_graph_new(void);
/* Do these nodes lie in that graph? Under the lock. */
bool api_graph_check(CUgraph graph, const CUgraphNode *dependencies, size_t count);
/* Gives a node so many empty bodies. Under the lock. */
bool api_graph_add_bodies(CUgraphNode node, uint32_t count);
CUresult api_graph_run(const struct CUgraph_st *graph, CUstream stream);
void api_graph_free(CUgraph graph);

/* --- api-user.c --- */

/* Gives a graph as many references as another one has. Under the lock. */
bool api_user_copy(struct CUgraph_st *to, const struct CUgraph_st *from);
void api_user_release_all(struct CUgraph_st *graph); /* under the lock */
/* Calls the functions of objects without references. Not under the lock. */
void api_user_end(void);

/* --- api-conditional.c --- */

/* The condition of a node begins with its first value, if it has one. */
void api_condition_begin(const struct CUgraphNode_st *node);
CUresult api_condition_run(const struct CUgraphNode_st *node, CUstream stream);

/* --- api-function.c --- */

/* How many blocks a launch has in a cluster; 0: nothing is said. */
uint64_t api_cluster_size(const CUlaunchConfig *config);

/* --- api-launch.c --- */

/* Checks a launch and copies its parameters into node (owned by it). Under the lock. */
CUresult api_kernel_node(struct CUgraphNode_st *node, CUfunction f, const unsigned int grid[3],
			 const unsigned int block[3], unsigned int shared, void **parameters,
			 void **extra);
void api_node_deinit(struct CUgraphNode_st *node);
/* Does what a node says, on a stream. Not under the lock. */
CUresult api_node_run(const struct CUgraphNode_st *node, CUstream stream);
/* May a kernel be running that this stream waits for? One that does not block waits for its own
 * alone. */
bool api_may_run_on(CUstream stream);
