/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pairs the nodes of two graphs in the order in which the driver updates one from the other
 * (graph-pair.h). It asks the driver for nodes and edges and changes nothing.
 */

#include "graph-pair.h"

#include <stdint.h>
#include <stdlib.h>

#define TYPE_CHILD 4
#define EDGE_DATA 8 /* bytes */

driver_handle *graph_nodes(driver_handle graph, size_t *count) {
	const struct driver *driver = driver_own();
	driver_handle *nodes;

	if (driver->graph_get_nodes(graph, NULL, count) != 0)
		return NULL;
	nodes = calloc(*count + 1, sizeof(*nodes));
	if (nodes && (!*count || driver->graph_get_nodes(graph, nodes, count) == 0))
		return nodes;
	free(nodes);
	return NULL;
}

/* The graph in a node; NULL if it has none. */
static driver_handle child_of(driver_handle node) {
	const struct driver *driver = driver_own();
	driver_handle child;
	int type;

	if (driver->graph_node_get_type(node, &type) != 0 || type != TYPE_CHILD ||
	    !driver->graph_child || driver->graph_child(node, &child) != 0)
		return NULL;
	return child;
}

static driver_handle find_in_clone(driver_handle clone, driver_handle node, bool *inner,
				   unsigned depth) {
	const struct driver *driver = driver_own();
	driver_handle found = NULL, child, *nodes;
	size_t count = 0;

	if (depth > GRAPH_DEPTH_MAX || !driver->graph_find_in_clone)
		return NULL;
	if (driver->graph_find_in_clone(&found, node, clone) == 0) {
		*inner = depth > 0;
		return found;
	}
	found = NULL;
	nodes = graph_nodes(clone, &count);
	for (size_t i = 0; nodes && i < count && !found; i++) {
		child = child_of(nodes[i]);
		if (child)
			found = find_in_clone(child, node, inner, depth + 1);
	}
	free(nodes);
	return found;
}

driver_handle graph_node_in_clone(driver_handle clone, driver_handle node, bool *inner) {
	return find_in_clone(clone, node, inner, 0);
}

/* ---- pairs
 * -------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
	uintptr_t x = (uintptr_t)((const struct graph_pair *)a)->from;
	uintptr_t y = (uintptr_t)((const struct graph_pair *)b)->from;

	return x < y ? -1 : x > y;
}

static int compare_handles(const void *a, const void *b) {
	uintptr_t x = (uintptr_t)*(const driver_handle *)a;
	uintptr_t y = (uintptr_t)*(const driver_handle *)b;

	return x < y ? -1 : x > y;
}

static struct graph_pair *find(struct graph_pair *list, size_t count, driver_handle from) {
	const struct graph_pair key = { .from = from };

	return count ? bsearch(&key, list, count, sizeof(*list), compare) : NULL;
}

/* What a node depends on, by its edges, to be freed. */
static driver_handle *dependencies_of(driver_handle node, size_t *count) {
	const struct driver *driver = driver_own();
	driver_handle *list = NULL;
	void *edges = NULL;
	bool done = false;

	*count = 0;
	if (driver->graph_dependencies_v2 ? driver->graph_dependencies_v2(node, NULL, NULL, count)
					  : driver->graph_dependencies(node, NULL, count))
		return NULL;
	list = calloc(*count + 1, sizeof(*list));
	edges = calloc(*count + 1, EDGE_DATA);
	if (list && edges)
		done = !*count || (driver->graph_dependencies_v2
					   ? driver->graph_dependencies_v2(node, list, edges, count)
					   : driver->graph_dependencies(node, list, count)) == 0;
	free(edges);
	if (done)
		return list;
	free(list);
	return NULL;
}

/* Moves what no other node depends on to the front, in its order. SIZE_MAX: it
 * cannot be known. */
static size_t take_sinks(driver_handle *nodes, size_t count) {
	const struct driver *driver = driver_own();
	size_t sinks = 0;

	for (size_t i = 0; i < count; i++) {
		size_t dependents = 0;

		if (driver->graph_dependents_v2
			    ? driver->graph_dependents_v2(nodes[i], NULL, NULL, &dependents)
			    : driver->graph_dependents(nodes[i], NULL, &dependents))
			return SIZE_MAX;
		if (!dependents)
			nodes[sinks++] = nodes[i];
	}
	return sinks;
}

/* The nodes of one graph. */
struct level {
	struct graph_pair *pairs; /* by `from` */
	size_t count;
	struct graph_pair **walk; /* those that have `to`, as they got it */
	size_t walked;
};

static bool join(struct level *level, driver_handle from, driver_handle to) {
	struct graph_pair *pair = find(level->pairs, level->count, from);

	if (!pair || pair->to)
		return pair && pair->to == to;
	pair->to = to;
	level->walk[level->walked++] = pair;
	return true;
}

/* What two nodes that are a pair depend on. */
static bool join_dependencies(struct level *level, const struct graph_pair *pair) {
	const struct driver *driver = driver_own();
	size_t count = 0, others = 0;
	driver_handle *from, *to;
	int type, other;
	bool same;

	if (driver->graph_node_get_type(pair->from, &type) != 0 ||
	    driver->graph_node_get_type(pair->to, &other) != 0 || type != other)
		return false;
	from = dependencies_of(pair->from, &count);
	to = dependencies_of(pair->to, &others);
	same = from && to && count == others;
	for (size_t i = 0; i < count && same; i++)
		same = join(level, from[i], to[i]);
	free(from);
	free(to);
	return same;
}

/* Is every node in one pair? */
static bool is_complete(const struct level *level, driver_handle *scratch) {
	for (size_t i = 0; i < level->count; i++)
		scratch[i] = level->pairs[i].to;
	qsort(scratch, level->count, sizeof(*scratch), compare_handles);
	for (size_t i = 0; i < level->count; i++)
		if (!scratch[i] || (i && scratch[i] == scratch[i - 1]))
			return false;
	return true;
}

/* from and to are nodes of two graphs, and used up. */
static bool pair_level(struct level *level, driver_handle *from, driver_handle *to) {
	size_t sinks, others;
	bool same;

	for (size_t i = 0; i < level->count; i++)
		level->pairs[i] = (struct graph_pair){ .from = from[i] };
	qsort(level->pairs, level->count, sizeof(*level->pairs), compare);
	sinks = take_sinks(from, level->count);
	others = take_sinks(to, level->count);
	same = sinks != SIZE_MAX && sinks == others;
	for (size_t i = 0; same && i < sinks; i++)
		same = join(level, from[i], to[i]);
	for (size_t i = 0; same && i < level->walked; i++)
		same = join_dependencies(level, level->walk[i]);
	return same && is_complete(level, to);
}

static bool pair_graphs(struct graph_pairs *pairs, driver_handle from, driver_handle to,
			unsigned depth) {
	size_t count = 0, others = 0, first = pairs->count;
	driver_handle *nodes = graph_nodes(from, &count), *other_nodes = graph_nodes(to, &others);
	struct level level = { .count = count };
	struct graph_pair *list = NULL;
	bool same = false;

	if (depth <= GRAPH_DEPTH_MAX && nodes && other_nodes && count == others) {
		list = reallocarray(pairs->list, first + count + 1, sizeof(*list));
		level.walk = calloc(count + 1, sizeof(*level.walk));
	}
	if (list) {
		pairs->list = list;
		pairs->count = first + count;
		level.pairs = list + first;
		same = level.walk && pair_level(&level, nodes, other_nodes);
	}
	free(level.walk);
	free(nodes);
	free(other_nodes);
	for (size_t i = first; same && i < first + count; i++) {
		driver_handle child = child_of(pairs->list[i].from);
		driver_handle other = child ? child_of(pairs->list[i].to) : NULL;

		if (child)
			same = other && pair_graphs(pairs, child, other, depth + 1);
	}
	return same;
}

bool graph_pairs_make(struct graph_pairs *pairs, driver_handle from, driver_handle to) {
	const struct driver *driver = driver_own();

	if ((driver->graph_dependencies_v2 || driver->graph_dependencies) &&
	    (driver->graph_dependents_v2 || driver->graph_dependents) &&
	    pair_graphs(pairs, from, to, 0)) {
		qsort(pairs->list, pairs->count, sizeof(*pairs->list), compare);
		return true;
	}
	graph_pairs_deinit(pairs);
	return false;
}

driver_handle graph_pairs_find(const struct graph_pairs *pairs, driver_handle from) {
	const struct graph_pair *pair = find(pairs->list, pairs->count, from);

	return pair ? pair->to : NULL;
}

void graph_pairs_deinit(struct graph_pairs *pairs) {
	free(pairs->list);
	*pairs = (struct graph_pairs){ 0 };
}
