/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Wrappers of the driver's functions for executable CUDA graphs. With the sanitizer engine the work
 * is in graph.c, with twins in graph-twin.c; without either only launches do anything. What changes
 * the graphs that these are made from is in entry-source.c.
 */

#include <errno.h>

#include "shim/module/arm.h"
#include "shim/module/handles.h"
#include "entry.h"
#include "shim/base/gate.h"
#include "shim/graph/graph.h"
#include "shim/graph/graph-source.h"
#include "shim/graph/graph-twin.h"
#include "shim/patch/patching.h"

/* A process without the sanitizer engine is done here; with it, patches are brought up to date. */
#define BEGIN(name, arguments)                                       \
	do {                                                         \
		if (__builtin_expect(!(arm_work() & ARM_ENGINE), 1)) \
			return REAL(name) arguments;                 \
		if (patch_needed())                                  \
			patch_launch();                              \
	} while (0)

/* ---- launches ----------------------------------------------------------------------- */

#define LAUNCH(name)                                                    \
	WRAP(name, driver_handle exec, driver_handle stream) {          \
		driver_handle launched = exec;                          \
		struct graph_record *record = NULL;                     \
		driver_result result;                                   \
		unsigned work;                                          \
                                                                        \
		work = arm_work();                                      \
		if (__builtin_expect(!work, 1))                         \
			return REAL(name)(exec, stream);                \
		if ((work & ARM_ENGINE) && patch_needed())              \
			patch_launch();                                 \
		if (work & ARM_LOADS)                                   \
			arm_current(0);                                 \
		if (!(work & ~ARM_LOADS))                               \
			return REAL(name)(exec, stream);                \
		if (work & ARM_TWINS)                                   \
			record = graph_twin_begin(exec);                \
		gate_enter();                                           \
		result = work & ARM_ENGINE ? graph_find(&launched) : 0; \
		if (!result)                                            \
			result = REAL(name)(launched, stream);          \
		if (result && launched != exec && graph_is_sound(exec)) \
			result = REAL(name)(exec, stream);              \
		gate_leave();                                           \
		graph_twin_end(record);                                 \
		if (__atomic_load_n(&handles_unsaid, __ATOMIC_RELAXED)) \
			handles_say();                                  \
		return result;                                          \
	}
LAUNCH(cuGraphLaunch)
LAUNCH(cuGraphLaunch_ptsz)
LAUNCH(cuGraphUpload)
LAUNCH(cuGraphUpload_ptsz)

/* ---- from a graph to what is launched, and its end ------------------------------------ */

#define FLAG_DEVICE_LAUNCH 4u
#define INSTANTIATE(name, FLAGS, arguments, ...)                                \
	WRAP(name, driver_handle *exec, driver_handle graph, __VA_ARGS__) {     \
		driver_result result;                                           \
		uint64_t patches, number;                                       \
                                                                                \
		if (arm_work() & ARM_TWINS) {                                   \
			number = graph_source_number();                         \
			result = REAL(name) arguments;                          \
			if (!result)                                            \
				graph_twin_added(*exec, graph, number,          \
						 (FLAGS) & FLAG_DEVICE_LAUNCH); \
			return result;                                          \
		}                                                               \
		BEGIN(name, arguments);                                         \
		gate_enter();                                                   \
		patches = graph_patches();                                      \
		result = REAL(name) arguments;                                  \
		if (!result)                                                    \
			graph_added(*exec, graph, FLAGS, patches);              \
		gate_leave();                                                   \
		return result;                                                  \
	}
INSTANTIATE(cuGraphInstantiate, 0, (exec, graph, node, text, size), driver_handle *node, char *text,
	    size_t size)
INSTANTIATE(cuGraphInstantiate_v2, 0, (exec, graph, node, text, size), driver_handle *node,
	    char *text, size_t size)
INSTANTIATE(cuGraphInstantiateWithFlags, flags, (exec, graph, flags), unsigned long long flags)
/* The parameters begin with the flags. */
INSTANTIATE(cuGraphInstantiateWithParams, *parameters, (exec, graph, parameters),
	    uint64_t *parameters)
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, *parameters, (exec, graph, parameters),
	    uint64_t *parameters)

WRAP(cuGraphExecDestroy, driver_handle exec) {
	struct graph_exec *removed = NULL;
	driver_result result;

	if (arm_work() & ARM_ENGINE)
		graph_removed(exec);
	if (arm_work() & ARM_TWINS)
		removed = graph_twin_removing(exec);
	result = REAL(cuGraphExecDestroy)(exec);
	graph_twin_removed(removed);
	return result;
}

/* ---- changes of what is launched ------------------------------------------------------ */

#define UPDATE(name, arguments, ...)                                       \
	WRAP(name, driver_handle exec, driver_handle graph, __VA_ARGS__) { \
		driver_result result;                                      \
		uint64_t number;                                           \
                                                                           \
		if (arm_work() & ARM_TWINS) {                              \
			number = graph_source_number();                    \
			result = REAL(name) arguments;                     \
			if (result && graph_twin_update_again(exec))       \
				result = REAL(name) arguments;             \
			graph_twin_updated(exec, graph, number, result);   \
			return result;                                     \
		}                                                          \
		BEGIN(name, arguments);                                    \
		gate_enter();                                              \
		result = REAL(name) arguments;                             \
		if (!result)                                               \
			graph_updated(exec, graph);                        \
		gate_leave();                                              \
		return result;                                             \
	}
UPDATE(cuGraphExecUpdate, (exec, graph, node, status), driver_handle *node, int *status)
UPDATE(cuGraphExecUpdate_v2, (exec, graph, status), void *status)

/*
 * SET: an expression of `found`, and of `node`, which is the clone's then. With twins: GIVE, is it
 * done without the call? TWIN, what is done after success, and `number`.
 */
#define UPDATE_NODE(name, SET, arguments, ...) \
	UPDATE_TWIN(name, false, , SET, arguments, __VA_ARGS__)
#define UPDATE_TWIN(name, GIVE, TWIN, SET, arguments, ...)                                \
	WRAP(name, driver_handle exec, driver_handle node, __VA_ARGS__) {                 \
		driver_handle theirs = exec;                                              \
		struct graph_node found;                                                  \
		driver_result result;                                                     \
                                                                                          \
		if (arm_work() & ARM_TWINS) {                                             \
			__attribute__((unused)) uint64_t number = graph_source_number();  \
                                                                                          \
			if (GIVE)                                                         \
				return 0;                                                 \
			result = REAL(name) arguments;                                    \
			if (!result) {                                                    \
				TWIN;                                                     \
			}                                                                 \
			return result;                                                    \
		}                                                                         \
		BEGIN(name, arguments);                                                   \
		gate_enter();                                                             \
		result = REAL(name) arguments;                                            \
		if (!result && graph_node_begin(exec, node, &found)) {                    \
			bool done;                                                        \
                                                                                          \
			node = found.node;                                                \
			done = SET;                                                       \
			exec = found.own;                                                 \
			node = found.own_node;                                            \
			graph_node_end(theirs, done, !exec || REAL(name) arguments == 0); \
		}                                                                         \
		gate_leave();                                                             \
		return result;                                                            \
	}
#define GIVE_KERNEL(size) graph_twin_node_give(exec, node, parameters, size)
#define TWIN_KERNEL(size) graph_twin_node_set(exec, node, parameters, size, number)
#define SET(function) \
	(node && driver_own()->function && driver_own()->function(node, parameters) == 0)

static bool any_give(driver_handle exec, driver_handle node, const struct node_any *any) {
	return any && any->type == NODE_TYPE_KERNEL &&
	       graph_twin_node_give(exec, node, &any->kernel, NODE_KERNEL_SIZE_2);
}

/* A node of any type has got parameters, in a process with twins. */
static void any_set(driver_handle exec, driver_handle node, const struct node_any *any,
		    uint64_t number) {
	if (any && any->type == NODE_TYPE_KERNEL)
		graph_twin_node_set(exec, node, &any->kernel, NODE_KERNEL_SIZE_2, number);
	else if (any && any->type == NODE_TYPE_GRAPH)
		graph_twin_node_given(exec, node, (driver_handle)any->space[0], number);
}

UPDATE_NODE(cuGraphExecBatchMemOpNodeSetParams, SET(node_set_batch), (exec, node, parameters),
	    const void *parameters)
UPDATE_NODE(cuGraphExecEventRecordNodeSetEvent, SET(node_set_record), (exec, node, parameters),
	    const void *parameters)
UPDATE_NODE(cuGraphExecEventWaitNodeSetEvent, SET(node_set_wait), (exec, node, parameters),
	    const void *parameters)
UPDATE_NODE(cuGraphExecExternalSemaphoresSignalNodeSetParams, SET(node_set_signal),
	    (exec, node, parameters), const void *parameters)
UPDATE_NODE(cuGraphExecExternalSemaphoresWaitNodeSetParams, SET(node_set_wait_external),
	    (exec, node, parameters), const void *parameters)
UPDATE_NODE(cuGraphExecHostNodeSetParams, SET(node_set_host), (exec, node, parameters),
	    const void *parameters)
UPDATE_TWIN(cuGraphExecKernelNodeSetParams, GIVE_KERNEL(NODE_KERNEL_SIZE_1),
	    TWIN_KERNEL(NODE_KERNEL_SIZE_1), SET(node_set_kernel), (exec, node, parameters),
	    const void *parameters)
UPDATE_TWIN(cuGraphExecKernelNodeSetParams_v2, GIVE_KERNEL(NODE_KERNEL_SIZE_2),
	    TWIN_KERNEL(NODE_KERNEL_SIZE_2), SET(node_set_kernel_v2), (exec, node, parameters),
	    const void *parameters)
UPDATE_NODE(cuGraphExecMemcpyNodeSetParams, SET(node_set_copy), (exec, node, parameters, context),
	    const void *parameters, driver_handle context)
UPDATE_NODE(cuGraphExecMemsetNodeSetParams, SET(node_set_memory), (exec, node, parameters, context),
	    const void *parameters, driver_handle context)
UPDATE_TWIN(cuGraphExecNodeSetParams, any_give(exec, node, parameters),
	    any_set(exec, node, parameters, number), SET(node_set_any), (exec, node, parameters),
	    void *parameters)
UPDATE_TWIN(cuGraphExecChildGraphNodeSetParams, false,
	    graph_twin_node_given(exec, node, child, number),
	    graph_node_given(theirs, &found, child), (exec, node, child), driver_handle child)
UPDATE_NODE(cuGraphNodeSetEnabled, graph_node_enabled(theirs, &found, enabled),
	    (exec, node, enabled), unsigned enabled)
