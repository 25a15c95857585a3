/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds out what is in the nodes of an executable graph (graph-exec.h). Each node has the
 * parameters of the last of: the graph that was instantiated, graphs that it was updated from (its
 * *sources*), and a call for the node alone. A source has a number; what is in it is used only if
 * it was not changed since.
 */

#include "graph-exec.h"

#include <stdlib.h>
#include <string.h>

#include "graph-source.h"

#define NO_PARENT SIZE_MAX
#define ATTRIBUTE_COOPERATIVE 2
#define ATTRIBUTE_CLUSTER 4
#define ATTRIBUTE_DEVICE_UPDATABLE 13
#define ATTRIBUTE_WORDS 16 /* more than the driver's */

struct exec_inner {
	driver_handle node;
	size_t parent;
	bool child; /* it can be given another graph */
};

struct exec_source {
	driver_handle node; /* whose graph was given; NULL: all nodes are from it */
	driver_handle graph;
	uint64_t number;
	struct graph_pairs pairs; /* nodes of exec->graph and of this one; not of the same graph */
	bool paired, failed;
};

struct graph_exec *graph_exec_new(driver_handle graph, uint64_t number) {
	struct graph_exec *exec = calloc(1, sizeof(*exec));
	struct exec_source *first = calloc(1, sizeof(*first));

	if (!exec || !first || !graph_source_use(graph)) {
		free(exec);
		free(first);
		return NULL;
	}
	if (!graph_source_use(graph)) { /* as the source, too */
		graph_source_unuse(graph);
		free(exec);
		free(first);
		return NULL;
	}
	*first = (struct exec_source){ .graph = graph, .number = number };
	*exec = (struct graph_exec){
		.graph = graph, .number = number, .sources = first, .source_count = 1
	};
	return exec;
}

static void drop_sources(struct graph_exec *exec, size_t from) {
	while (exec->source_count > from) {
		struct exec_source *source = &exec->sources[--exec->source_count];

		graph_pairs_deinit(&source->pairs);
		graph_source_unuse(source->graph);
	}
}

void graph_exec_lose(struct graph_exec *exec, enum graph_reason reason) {
	exec->lost = reason;
	drop_sources(exec, 0);
	if (exec->graph)
		graph_source_unuse(exec->graph);
	exec->graph = NULL;
}

void graph_exec_free(struct graph_exec *exec) {
	graph_exec_lose(exec, GRAPH_REASON_NONE);
	for (size_t i = 0; i < exec->count; i++)
		kernel_copy_deinit(&exec->nodes[i].copy);
	free(exec->nodes);
	free(exec->inner);
	free(exec->graphs);
	free(exec->sources);
	free(exec);
}

/* ---- sources ---------------------------------------------------------------------------- */

void graph_exec_updated(struct graph_exec *exec, driver_handle graph, uint64_t number) {
	if (exec->lost)
		return;
	if (!graph_source_use(graph)) {
		graph_exec_lose(exec, GRAPH_REASON_UPDATED);
		return;
	}
	drop_sources(exec, 0);
	exec->sources[0] = (struct exec_source){ .graph = graph, .number = number };
	exec->source_count = 1;
}

void graph_exec_given(struct graph_exec *exec, driver_handle node, driver_handle graph,
		      uint64_t number) {
	struct exec_source *larger;
	size_t at = 1;

	if (exec->lost)
		return;
	while (at < exec->source_count && exec->sources[at].node != node)
		at++;
	larger = reallocarray(exec->sources, exec->source_count + 1, sizeof(*larger));
	if (larger)
		exec->sources = larger;
	if (!larger || !graph_source_use(graph)) {
		graph_exec_lose(exec, GRAPH_REASON_UPDATED);
		return;
	}
	if (at < exec->source_count) { /* it comes in place of an earlier one */
		graph_pairs_deinit(&larger[at].pairs);
		graph_source_unuse(larger[at].graph);
		exec->source_count--;
		memmove(larger + at, larger + at + 1, (exec->source_count - at) * sizeof(*larger));
	}
	larger[exec->source_count++] =
		(struct exec_source){ .node = node, .graph = graph, .number = number };
}

bool graph_exec_uses(const struct graph_exec *exec, driver_handle graph) {
	bool used = exec->graph == graph;

	for (size_t i = 0; i < exec->source_count; i++)
		used = used || exec->sources[i].graph == graph;
	return used;
}

bool graph_exec_is_within(const struct graph_exec *exec, const struct exec_node *node,
			  driver_handle ancestor) {
	size_t parent = node->parent;

	while (parent != NO_PARENT && exec->inner[parent].node != ancestor)
		parent = exec->inner[parent].parent;
	return parent != NO_PARENT;
}

/* The last one that the node is from. */
static struct exec_source *source_of(const struct graph_exec *exec, const struct exec_node *node) {
	for (size_t i = exec->source_count; i-- > 1;)
		if (graph_exec_is_within(exec, node, exec->sources[i].node))
			return &exec->sources[i];
	return &exec->sources[0];
}

uint64_t graph_exec_number(const struct graph_exec *exec, const struct exec_node *node) {
	return exec->lost ? 0 : source_of(exec, node)->number;
}

/* ---- the list of nodes -------------------------------------------------------------------- */

static bool list_graph(struct graph_exec *exec, driver_handle graph, size_t parent, unsigned depth);

static bool add_node(struct graph_exec *exec, driver_handle node, size_t parent) {
	struct exec_node *larger = exec->nodes;

	if (!(exec->count & (exec->count - 1))) /* full: powers of two */
		larger = reallocarray(larger, exec->count ? 2 * exec->count : 1, sizeof(*larger));
	if (!larger)
		return false;
	exec->nodes = larger;
	larger[exec->count++] = (struct exec_node){ .node = node, .parent = parent };
	return true;
}

static bool add_inner(struct graph_exec *exec, driver_handle node, size_t parent, bool child) {
	struct exec_inner *larger =
		reallocarray(exec->inner, exec->inner_count + 1, sizeof(*larger));

	if (!larger)
		return false;
	exec->inner = larger;
	larger[exec->inner_count++] = (struct exec_inner){ node, parent, child };
	return true;
}

/* The graphs in a node. */
static bool list_inner(struct graph_exec *exec, driver_handle node, int type, size_t parent,
		       unsigned depth) {
	const struct driver *driver = driver_own();
	const driver_handle *graphs;
	size_t count = 1, at = exec->inner_count;
	driver_handle child;
	bool good;

	good = add_inner(exec, node, parent, type == NODE_TYPE_GRAPH);
	if (type == NODE_TYPE_GRAPH) {
		graphs = &child;
		good = good && driver->graph_child && driver->graph_child(node, &child) == 0;
	} else {
		exec->has_conditions = true;
		graphs = graph_source_bodies(node, &count);
		if (!graphs)
			exec->lost = GRAPH_REASON_BODIES;
		good = good && graphs;
	}
	for (size_t i = 0; i < count && good; i++)
		good = list_graph(exec, graphs[i], at, depth + 1);
	return good;
}

static bool list_graph(struct graph_exec *exec, driver_handle graph, size_t parent,
		       unsigned depth) {
	const struct driver *driver = driver_own();
	size_t count = 0;
	driver_handle *nodes, *larger;
	bool good;
	int type;

	if (graph_source_is_changed(graph, exec->number)) {
		exec->lost = GRAPH_REASON_CHANGED;
		return false;
	}
	larger = reallocarray(exec->graphs, exec->graph_count + 1, sizeof(*larger));
	if (larger) {
		exec->graphs = larger;
		larger[exec->graph_count++] = graph;
	}
	nodes = larger && depth <= GRAPH_DEPTH_MAX ? graph_nodes(graph, &count) : NULL;
	good = nodes;
	for (size_t i = 0; i < count && good; i++) {
		good = driver->graph_node_get_type(nodes[i], &type) == 0;
		if (good && type == NODE_TYPE_KERNEL)
			good = add_node(exec, nodes[i], parent);
		else if (good && (type == NODE_TYPE_GRAPH || type == NODE_TYPE_CONDITIONAL))
			good = list_inner(exec, nodes[i], type, parent, depth);
	}
	free(nodes);
	return good;
}

static int compare(const void *a, const void *b) {
	uintptr_t x = (uintptr_t)((const struct exec_node *)a)->node;
	uintptr_t y = (uintptr_t)((const struct exec_node *)b)->node;

	return x < y ? -1 : x > y;
}

bool graph_exec_list(struct graph_exec *exec) {
	const struct driver *driver = driver_own();
	enum graph_reason reason;

	if (exec->listed || exec->lost)
		return !exec->lost;
	if (driver->graph_get_nodes && driver->graph_node_get_type &&
	    (driver->exec_set_kernel || driver->exec_set_kernel_v2) &&
	    list_graph(exec, exec->graph, NO_PARENT, 0)) {
		if (exec->count)
			qsort(exec->nodes, exec->count, sizeof(*exec->nodes), compare);
		exec->listed = true;
		return true;
	}
	reason = exec->lost ? exec->lost : GRAPH_REASON_UNREADABLE;
	exec->count = 0;
	graph_exec_lose(exec, reason);
	return false;
}

struct exec_node *graph_exec_find(const struct graph_exec *exec, driver_handle node) {
	const struct exec_node key = { .node = node };

	return exec->count ? bsearch(&key, exec->nodes, exec->count, sizeof(key), compare) : NULL;
}

/* ---- what is in a node -------------------------------------------------------------------- */

/* Are graphs that were given the same as when they were? pairs: of their nodes. */
static bool are_unchanged(const struct graph_exec *exec, const struct exec_source *source) {
	const struct driver *driver = driver_own();
	bool good = !graph_source_is_changed(source->graph, source->number);
	driver_handle node, child;

	for (size_t i = 0; i < exec->graph_count && good; i++)
		good = !graph_source_is_changed(exec->graphs[i], exec->number);
	for (size_t i = 0; i < exec->inner_count && good; i++) {
		node = graph_pairs_find(&source->pairs, exec->inner[i].node);
		if (node)
			good = driver->graph_child && driver->graph_child(node, &child) == 0 &&
			       !graph_source_is_changed(child, source->number);
	}
	return good;
}

/* Pairs the nodes of a source with those that were instantiated, once. */
static bool make_pairs(const struct graph_exec *exec, struct exec_source *source) {
	const struct driver *driver = driver_own();
	driver_handle from = exec->graph;

	if (source->paired || source->failed)
		return source->paired;
	/* how bodies of conditional nodes are paired is not known */
	source->failed = exec->has_conditions ||
			 (source->node && (!driver->graph_child ||
					   driver->graph_child(source->node, &from) != 0)) ||
			 !graph_pairs_make(&source->pairs, from, source->graph) ||
			 !are_unchanged(exec, source);
	source->paired = !source->failed;
	return source->paired;
}

/* The node that has its parameters; NULL: it is not known. */
static driver_handle from_of(const struct graph_exec *exec, const struct exec_node *node,
			     struct exec_source *source) {
	if (source->graph == exec->graph && !source->node)
		return node->node;
	return make_pairs(exec, source) ? graph_pairs_find(&source->pairs, node->node) : NULL;
}

/* Is one of the numbers that an attribute consists of that large? */
static bool has_attribute(driver_handle node, int attribute, size_t words, uint32_t least) {
	const struct driver *driver = driver_own();
	uint32_t value[2 * ATTRIBUTE_WORDS] = { 0 };
	bool has = false;

	if (driver->node_get_attribute && driver->node_get_attribute(node, attribute, value) == 0)
		for (size_t i = 0; i < words; i++)
			has = has || value[i] >= least;
	return has;
}

static void read_attributes(struct exec_node *node, driver_handle from, uint64_t number) {
	node->attributes_number = number;
	node->special = true;
	if (!from || graph_source_attributes_changed(from, number))
		return;
	if (has_attribute(from, ATTRIBUTE_DEVICE_UPDATABLE, 1, 1))
		node->reason = GRAPH_REASON_DEVICE;
	node->special = has_attribute(from, ATTRIBUTE_COOPERATIVE, 1, 1) ||
			has_attribute(from, ATTRIBUTE_CLUSTER, 3, 2);
}

static enum graph_reason reason_of(enum kernel_copied copied) {
	return copied == KERNEL_COPIED     ? GRAPH_REASON_NONE
	       : copied == KERNEL_NOT_OURS ? GRAPH_REASON_NOT_OURS
					   : GRAPH_REASON_UNREADABLE;
}

bool graph_exec_is_read(const struct graph_exec *exec, const struct exec_node *node) {
	uint64_t number = graph_exec_number(exec, node);

	return node->number >= number && node->attributes_number >= number;
}

void graph_exec_read(struct graph_exec *exec, struct exec_node *node) {
	struct exec_source *source = source_of(exec, node);
	driver_handle from = from_of(exec, node, source);

	if (node->number < source->number) {
		if (!from)
			node->reason = GRAPH_REASON_UPDATED;
		else if (graph_source_is_changed(from, source->number))
			node->reason = GRAPH_REASON_CHANGED;
		else
			node->reason = reason_of(kernel_copy_read(&node->copy, from));
		node->number = source->number;
	}
	if (node->attributes_number < source->number)
		read_attributes(node, from, source->number);
}

void graph_exec_set(struct exec_node *node, const struct node_kernel *given, size_t size,
		    uint64_t number) {
	bool device = node->reason == GRAPH_REASON_DEVICE;

	node->reason = reason_of(kernel_copy_take(&node->copy, given, size));
	if (device)
		node->reason = GRAPH_REASON_DEVICE;
	node->number = number;
}
