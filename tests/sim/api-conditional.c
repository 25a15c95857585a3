/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Conditional nodes of graphs: IF (with an ELSE), WHILE
 * and SWITCH. A handle is the address of its value, which device code sets
 * (cudaGraphSetConditional: SIM_OP(condition)); a GPU does that wrongly from patched code [H100],
 * and so does this. A graph with such nodes cannot be cloned.
 */

#include <stdlib.h>

#include "api.h"

#define MAX_BODIES 64
#define NODE_PARAMS_UNION 16 /* bytes in front of what is of a type */

enum {
	KIND_IF,
	KIND_WHILE,
	KIND_SWITCH
};

struct api_condition {
	uint32_t value; /* first: its address is the handle */
	uint32_t begin;
	bool begins; /* with that, at each launch */
	struct api_condition *next;
};

static struct api_condition *conditions; /* kept for good */

/* cuda.h's, as far as used: a type, then this. */
struct node_params {
	uint32_t type, reserved[3];
	uint64_t handle;
	uint32_t kind, size;
	CUgraph *bodies; /* out: an array of the driver's */
	CUcontext context;
};

_Static_assert(__builtin_offsetof(struct node_params, handle) == NODE_PARAMS_UNION,
	       "as cuda.h has it");

API_EXPORT CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
						   CUcontext context, unsigned int value,
						   unsigned int flags) {
	struct api_condition *condition;
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	condition = calloc(1, sizeof(*condition));
	if (!condition)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*condition = (struct api_condition){ .begin = value, .begins = flags & 1 };
	api_lock();
	condition->next = conditions;
	conditions = condition;
	api_unlock();
	*handle = (uintptr_t)condition;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph,
				      const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
				      size_t count, CUgraphNodeParams *parameters) {
	struct CUgraphNode_st node = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	struct node_params *params = (struct node_params *)parameters;
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !params || params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return params ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	if (!params->handle || params->kind > KIND_SWITCH || !params->size ||
	    params->size > (params->kind == KIND_IF      ? 2
			    : params->kind == KIND_WHILE ? 1
							 : MAX_BODIES))
		return CUDA_ERROR_INVALID_VALUE;
	node.condition = (struct api_condition *)(uintptr_t)params->handle;
	node.condition_kind = params->kind;
	api_lock();
	*out = api_graph_check(graph, dependencies, count)
		       ? api_graph_add(graph, &node, dependencies, count)
		       : NULL;
	r = *out && api_graph_add_bodies(*out, params->size) ? CUDA_SUCCESS
							     : CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	if (r == CUDA_SUCCESS)
		params->bodies = (*out)->bodies;
	return r;
}

void api_condition_begin(const struct CUgraphNode_st *node) {
	if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && node->condition->begins)
		__atomic_store_n(&node->condition->value, node->condition->begin, __ATOMIC_RELAXED);
}

CUresult api_condition_run(const struct CUgraphNode_st *node, CUstream stream) {
	const uint32_t *at = &node->condition->value, value = __atomic_load_n(at, __ATOMIC_RELAXED);
	CUresult r = CUDA_SUCCESS;

	if (node->condition_kind == KIND_IF)
		return value                  ? api_graph_run(node->bodies[0], stream)
		       : node->body_count > 1 ? api_graph_run(node->bodies[1], stream)
					      : r;
	if (node->condition_kind == KIND_SWITCH)
		return value < node->body_count ? api_graph_run(node->bodies[value], stream) : r;
	while (r == CUDA_SUCCESS && __atomic_load_n(at, __ATOMIC_RELAXED))
		r = api_graph_run(node->bodies[0], stream);
	return r;
}
