/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs. A node can only depend on nodes that are there already, so the order of adding is an order of execution and edges are
 * checked, not kept. An executable graph is a copy, and so is a clone; each of its nodes remembers which one it is a copy of.
 * GPUPROBE_SIM_NO_CLONE=1: graphs cannot be cloned, as if they allocated memory.
 */

#include <stdlib.h>
#include <string.h>

#include "api.h"

CUgraph api_graph_new(void)
{
	return calloc(1, sizeof(struct CUgraph_st));
}

static void graph_deinit(struct CUgraph_st *graph)
{
	for (size_t n = 0; n < graph->count; n++) {
		api_live_remove(graph->nodes[n]);
		api_node_deinit(graph->nodes[n]);
		free(graph->nodes[n]);
	}
	free(graph->nodes);
}

void api_graph_free(CUgraph graph)
{
	if (!graph)
		return;
	graph_deinit(graph);
	api_live_remove(graph);
	free(graph);
}

/* A copy with memory of its own. */
static bool copy_node(struct CUgraphNode_st *to, const struct CUgraphNode_st *from)
{
	const struct sim_function *function;

	*to = *from;
	to->frozen = NULL;
	if (from->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return true;
	function = from->function->function;
	to->parameters = malloc(function->parameter_bytes + 1);
	to->pointers = calloc(function->parameter_count + 1, sizeof(*to->pointers));
	if (!to->parameters || !to->pointers) {
		api_node_deinit(to);
		return false;
	}
	memcpy(to->parameters, from->parameters, function->parameter_bytes);
	for (uint32_t n = 0; n < function->parameter_count; n++)
		to->pointers[n] = to->parameters + function->parameters[n].buffer_offset;
	return true;
}

CUgraphNode api_graph_add(struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
	CUgraphNode copy;

	if (graph->count == graph->allocated) {
		size_t allocated = graph->allocated ? graph->allocated * 2 : 16;
		CUgraphNode *nodes = realloc(graph->nodes, allocated * sizeof(*nodes));

		if (!nodes)
			return NULL;
		graph->nodes = nodes;
		graph->allocated = allocated;
	}
	copy = malloc(sizeof(*copy));
	if (!copy || !copy_node(copy, node)) {
		free(copy);
		return NULL;
	}
	copy->graph = graph;
	if (!api_live_add(copy, API_NODE)) {
		api_node_deinit(copy);
		free(copy);
		return NULL;
	}
	graph->nodes[graph->count++] = copy;
	return copy;
}

API_EXPORT CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	CUresult r = api_initialized();
	CUgraph graph;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	graph = api_graph_new();
	api_lock();
	if (!graph || !api_live_add(graph, API_GRAPH))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	api_unlock();
	if (r == CUDA_SUCCESS)
		*phGraph = graph;
	else
		free(graph);
	return r;
}

API_EXPORT CUresult cuGraphDestroy(CUgraph hGraph)
{
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (api_live(hGraph, API_GRAPH))
		api_graph_free(hGraph);
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

/* Under the lock. */
static CUresult check_dependencies(CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
	if (!api_live(graph, API_GRAPH) || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t n = 0; n < count; n++)
		if (!api_live(dependencies[n], API_NODE) || dependencies[n]->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* The node that parameters describe; func or, in the second version, kern. */
static CUresult node_from(struct CUgraphNode_st *node, const CUDA_KERNEL_NODE_PARAMS *params, bool second)
{
	const unsigned int grid[] = {params->gridDimX, params->gridDimY, params->gridDimZ};
	const unsigned int block[] = {params->blockDimX, params->blockDimY, params->blockDimZ};
	CUfunction function = params->func;

	if (!function && second)
		function = (CUfunction)(void *)params->kern;
	return api_kernel_node(node, function, grid, block, params->sharedMemBytes, params->kernelParams, params->extra);
}

static CUresult add_kernel_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
				const CUDA_KERNEL_NODE_PARAMS *params, bool second)
{
	struct CUgraphNode_st node;
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !params)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = check_dependencies(graph, dependencies, count);
	if (r == CUDA_SUCCESS)
		r = node_from(&node, params, second);
	if (r == CUDA_SUCCESS) {
		*out = api_graph_add(graph, &node);
		if (!*out)
			r = CUDA_ERROR_OUT_OF_MEMORY;
		api_node_deinit(&node);
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					    size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams, true);
}

/* The first version's parameters end before `kern`. */
API_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams, false);
}

API_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					size_t numDependencies)
{
	const struct CUgraphNode_st node = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraphNode)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = check_dependencies(hGraph, dependencies, numDependencies);
	if (r == CUDA_SUCCESS) {
		*phGraphNode = api_graph_add(hGraph, &node);
		if (!*phGraphNode)
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	api_unlock();
	return r;
}

static bool kernel_node(CUgraphNode node)
{
	return api_live(node, API_NODE) && node->type == CU_GRAPH_NODE_TYPE_KERNEL;
}

static CUresult get_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params, size_t size)
{
	CUDA_KERNEL_NODE_PARAMS full;
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (kernel_node(node)) {
		full = (CUDA_KERNEL_NODE_PARAMS){
			.func = node->function, .gridDimX = node->grid[0], .gridDimY = node->grid[1], .gridDimZ = node->grid[2],
			.blockDimX = node->block[0], .blockDimY = node->block[1], .blockDimZ = node->block[2],
			.sharedMemBytes = node->shared, .kernelParams = node->pointers,
		};
		memcpy(params, &full, size);
	} else {
		r = CUDA_ERROR_INVALID_VALUE;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return get_params(hNode, nodeParams, sizeof(*nodeParams));
}

API_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return get_params(hNode, nodeParams, offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
}

/* Gives a node new parameters. Under the lock. */
static CUresult set_params(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, bool second)
{
	struct CUgraphNode_st fresh;
	CUresult r = node_from(&fresh, params, second);

	if (r != CUDA_SUCCESS)
		return r;
	if (node->frozen && fresh.function == node->function) {
		fresh.frozen = node->frozen; /* other parameters do not make it another kernel */
		node->frozen = NULL;
	} else if (node->frozen && !api_freeze(&fresh)) {
		api_node_deinit(&fresh);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	api_node_deinit(node);
	fresh.graph = node->graph;
	fresh.original = node->original;
	fresh.disabled = node->disabled;
	*node = fresh;
	return CUDA_SUCCESS;
}

static CUresult node_set_params(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, bool second)
{
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = kernel_node(node) ? set_params(node, params, second) : CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return node_set_params(hNode, nodeParams, true);
}

API_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return node_set_params(hNode, nodeParams, false);
}

API_EXPORT CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (type && api_live(hNode, API_NODE))
		*type = hNode->type;
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (!numNodes || !api_live(hGraph, API_GRAPH)) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else {
		for (size_t n = 0; nodes && n < *numNodes; n++)
			nodes[n] = n < hGraph->count ? hGraph->nodes[n] : NULL;
		if (!nodes || *numNodes > hGraph->count)
			*numNodes = hGraph->count;
	}
	api_unlock();
	return r;
}

/* --- executable graphs --- */

/* Copies all nodes. Under the lock. */
static bool copy_graph(struct CUgraph_st *to, CUgraph graph, bool executable)
{
	for (size_t n = 0; n < graph->count; n++) {
		CUgraphNode node;

		if (graph->nodes[n]->type == CU_GRAPH_NODE_TYPE_KERNEL && !api_live(graph->nodes[n]->function, API_FUNCTION))
			return false;
		node = api_graph_add(to, graph->nodes[n]);
		if (!node)
			return false;
		node->original = graph->nodes[n];
		if (executable && node->type == CU_GRAPH_NODE_TYPE_KERNEL && api_patchable() && !api_freeze(node))
			return false;
	}
	return true;
}

API_EXPORT CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	CUresult r = api_initialized();
	CUgraph graph;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraphClone || getenv("GPUPROBE_SIM_NO_CLONE"))
		return CUDA_ERROR_INVALID_VALUE;
	graph = api_graph_new();
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_lock();
	if (!api_live(originalGraph, API_GRAPH))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!copy_graph(graph, originalGraph, false) || !api_live_add(graph, API_GRAPH))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		*phGraphClone = graph;
	else
		api_graph_free(graph);
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = CUDA_ERROR_INVALID_VALUE;
	for (size_t n = 0; phNode && api_live(hClonedGraph, API_GRAPH) && n < hClonedGraph->count; n++) {
		if (hClonedGraph->nodes[n]->original != hOriginalNode)
			continue;
		*phNode = hClonedGraph->nodes[n];
		r = CUDA_SUCCESS;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	CUresult r = api_enter();
	CUgraphExec exec;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraphExec)
		return CUDA_ERROR_INVALID_VALUE;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_lock();
	if (!api_live(hGraph, API_GRAPH) || !copy_graph(&exec->graph, hGraph, true))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!api_live_add(exec, API_EXEC))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		graph_deinit(&exec->graph);
		free(exec);
	} else {
		*phGraphExec = exec;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
						 CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUresult r;

	if (!instantiateParams)
		return CUDA_ERROR_INVALID_VALUE;
	r = cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
	instantiateParams->hErrNode_out = NULL;
	instantiateParams->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	return r;
}
API_ALIAS(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams);

/* The older form: a node and a log for errors. */
API_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size);
API_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size)
{
	if (node)
		*node = NULL;
	if (log && size)
		log[0] = '\0';
	return cuGraphInstantiateWithFlags(exec, graph, 0);
}
API_ALIAS(cuGraphInstantiate, cuGraphInstantiate_v2);

static CUresult exec_set_params(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, bool second)
{
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = CUDA_ERROR_INVALID_VALUE;
	if (api_live(exec, API_EXEC))
		for (size_t n = 0; n < exec->graph.count; n++)
			if (exec->graph.nodes[n]->original == node && kernel_node(exec->graph.nodes[n]))
				r = set_params(exec->graph.nodes[n], params, second);
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
						      const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return exec_set_params(hGraphExec, hNode, nodeParams, true);
}

API_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						   const CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return exec_set_params(hGraphExec, hNode, nodeParams, false);
}

/* Gives every node of an executable graph what the same of another graph has. Under the lock. */
static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphNode *different)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t n = 0; n < exec->graph.count; n++)
		if (n >= graph->count || graph->nodes[n]->type != exec->graph.nodes[n]->type) {
			*different = n < graph->count ? graph->nodes[n] : NULL;
			return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
		}
	if (graph->count != exec->graph.count)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	for (size_t n = 0; r == CUDA_SUCCESS && n < graph->count; n++) {
		CUgraphNode to = exec->graph.nodes[n], from = graph->nodes[n];
		CUDA_KERNEL_NODE_PARAMS params = {
			.func = from->function, .gridDimX = from->grid[0], .gridDimY = from->grid[1], .gridDimZ = from->grid[2],
			.blockDimX = from->block[0], .blockDimY = from->block[1], .blockDimZ = from->block[2],
			.sharedMemBytes = from->shared, .kernelParams = from->pointers,
		};

		if (from->type == CU_GRAPH_NODE_TYPE_KERNEL) {
			r = set_params(to, &params, true);
			continue;
		}
		to->destination = from->destination;
		to->source = from->source;
		to->size = from->size;
		to->element = from->element;
		to->value = from->value;
		to->host = from->host;
		to->userdata = from->userdata;
	}
	return r;
}

static CUresult exec_update(CUgraphExec exec, CUgraph graph, CUgraphNode *different)
{
	CUresult r = api_enter();

	*different = NULL;
	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = api_live(exec, API_EXEC) && api_live(graph, API_GRAPH) ? update(exec, graph, different) : CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	CUgraphNode different;
	CUresult r;

	if (!resultInfo)
		return CUDA_ERROR_INVALID_VALUE;
	r = exec_update(hGraphExec, hGraph, &different);
	*resultInfo = (CUgraphExecUpdateResultInfo){
		.result = r == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR, .errorNode = different};
	return r;
}

/* The older form. */
API_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result);
API_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result)
{
	CUresult r;

	if (!node || !result)
		return CUDA_ERROR_INVALID_VALUE;
	r = exec_update(exec, graph, node);
	*result = r == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
	return r;
}

API_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = CUDA_ERROR_INVALID_VALUE;
	for (size_t n = 0; api_live(hGraphExec, API_EXEC) && n < hGraphExec->graph.count; n++) {
		if (hGraphExec->graph.nodes[n]->original != hNode)
			continue;
		hGraphExec->graph.nodes[n]->disabled = !isEnabled;
		r = CUDA_SUCCESS;
	}
	api_unlock();
	return r;
}

/* Checks an executable graph and the stream it is for. *capture is set if the stream captures. Under the lock. */
static CUresult check_launch(CUgraphExec exec, CUstream handle, CUstream *capture)
{
	CUstream stream;

	*capture = NULL;
	if (!api_live(exec, API_EXEC))
		return CUDA_ERROR_INVALID_VALUE;
	if (!api_stream(handle, &stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream && stream->capture)
		*capture = stream;
	return CUDA_SUCCESS;
}

/* Launching into a capture adds the nodes; else they run, without the lock. The caller keeps the exec alive, as the API asks. */
API_EXPORT CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	CUresult r = api_enter();
	CUstream capture;
	int captured = 1;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = check_launch(hGraphExec, hStream, &capture);
	for (size_t n = 0; r == CUDA_SUCCESS && capture && captured > 0 && n < hGraphExec->graph.count; n++)
		captured = api_capture(capture, hGraphExec->graph.nodes[n]);
	api_unlock();
	if (r != CUDA_SUCCESS || capture)
		return r != CUDA_SUCCESS ? r : captured < 0 ? (CUresult)-captured : CUDA_SUCCESS;
	for (size_t n = 0; r == CUDA_SUCCESS && n < hGraphExec->graph.count; n++) {
		if (hGraphExec->graph.nodes[n]->disabled)
			continue;
		r = api_node_run(hGraphExec->graph.nodes[n], hStream);
		if (api_enter() != CUDA_SUCCESS)
			break; /* a kernel failed: what follows does not run */
	}
	return r;
}
API_ALIAS(cuGraphLaunch_ptsz, cuGraphLaunch);

API_EXPORT CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
	CUresult r = api_enter();
	CUstream capture;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = check_launch(hGraphExec, hStream, &capture);
	api_unlock();
	return r;
}
API_ALIAS(cuGraphUpload_ptsz, cuGraphUpload);

API_EXPORT CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (api_live(hGraphExec, API_EXEC)) {
		api_live_remove(hGraphExec);
		graph_deinit(&hGraphExec->graph);
		free(hGraphExec);
	} else {
		r = CUDA_ERROR_INVALID_VALUE;
	}
	api_unlock();
	return r;
}
