/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests what is known of executable graphs (graph-exec.h) and of the graphs that they are made of
 * (graph-source.h), with a driver that has two graphs of kernel nodes in a chain.
 */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph-exec.h"
#include "graph-source.h"
#include "shim/module/handles.h"

#define NODES 3

struct fake_node {
	int value; /* the only parameter of its kernel */
	unsigned blocks;
	size_t index;
	struct fake_graph *graph;
	bool device, by_buffer;
};

struct fake_graph {
	struct fake_node nodes[NODES];
	unsigned destroyed;
};

static struct fake_graph graphs[2];
static int kernel, stranger; /* handles: the first one has an original */
static bool has_sizes;

static void *parameters[1];
static size_t buffer_size = sizeof(int);
static void *extra[5];

static driver_result get_nodes(driver_handle handle, driver_handle *nodes, size_t *count) {
	struct fake_graph *graph = handle;

	for (size_t i = 0; nodes && i < *count && i < NODES; i++)
		nodes[i] = &graph->nodes[i];
	*count = NODES;
	return 0;
}

static driver_result get_type(driver_handle node, int *type) {
	(void)node;
	*type = NODE_TYPE_KERNEL;
	return 0;
}

static driver_result get_kernel(driver_handle handle, void *into) {
	struct fake_node *node = handle;
	struct node_kernel *found = into;

	*found = (struct node_kernel){ .function = node->index == NODES - 1 ? &stranger : &kernel,
				       .grid = { node->blocks, 1, 1 },
				       .block = { 32, 2, 1 } };
	parameters[0] = &node->value;
	extra[0] = (void *)1;
	extra[1] = &node->value;
	extra[2] = (void *)2;
	extra[3] = &buffer_size;
	extra[4] = NULL;
	if (node->by_buffer)
		found->extra = extra;
	else
		found->parameters = parameters;
	return 0;
}

static driver_result get_attribute(driver_handle handle, int attribute, void *value) {
	const struct fake_node *node = handle;

	if (attribute == 13 && node->device)
		*(int *)value = 1;
	return 0;
}

/* Each node but the first depends on the one before it. */
static driver_result get_dependencies(driver_handle handle, driver_handle *list, void *edges,
				      size_t *count) {
	const struct fake_node *node = handle;

	(void)edges;
	if (list && node->index)
		list[0] = &node->graph->nodes[node->index - 1];
	*count = node->index > 0;
	return 0;
}

static driver_result get_dependents(driver_handle handle, driver_handle *list, void *edges,
				    size_t *count) {
	const struct fake_node *node = handle;

	(void)list;
	(void)edges;
	*count = node->index < NODES - 1;
	return 0;
}

static driver_result get_parameter(driver_handle function, size_t index, size_t *offset,
				   size_t *size) {
	(void)function;
	if (index)
		return 1;
	*offset = 0;
	*size = sizeof(int);
	return 0;
}

static const struct node_kernel *given; /* by the last call, */
static int given_value;

static driver_result set_kernel(driver_handle exec, driver_handle node, const void *from) {
	static struct node_kernel copy;

	(void)exec;
	(void)node;
	copy = *(const struct node_kernel *)from;
	given = &copy;
	memcpy(&given_value, copy.parameters[0], sizeof(given_value));
	return 0;
}

static driver_result destroy(driver_handle graph) {
	((struct fake_graph *)graph)->destroyed++;
	return 0;
}

const struct driver *driver_own(void) {
	static struct driver driver;

	driver = (struct driver){ .graph_get_nodes = get_nodes,
				  .graph_node_get_type = get_type,
				  .graph_dependencies_v2 = get_dependencies,
				  .graph_dependents_v2 = get_dependents,
				  .graph_destroy = destroy,
				  .node_get_kernel_v2 = get_kernel,
				  .node_get_attribute = get_attribute,
				  .exec_set_kernel_v2 = set_kernel,
				  .function_get_parameter = has_sizes ? get_parameter : NULL };
	return &driver;
}

uint64_t handles_gone_version;

struct original *handles_original(driver_handle handle, driver_handle context) {
	return handle == &kernel ? (struct original *)&kernel : NULL;
}

bool handles_is_kernel(driver_handle handle) {
	(void)handle;
	return false;
}

static int set_up(void **state) {
	(void)state;
	memset(graphs, 0, sizeof(graphs));
	has_sizes = true;
	for (size_t i = 0; i < 2 * NODES; i++)
		graphs[i / NODES].nodes[i % NODES] =
			(struct fake_node){ .value = 100 + (int)i,
					    .blocks = 1 + (unsigned)(i / NODES),
					    .index = i % NODES,
					    .graph = &graphs[i / NODES] };
	return 0;
}

static struct graph_exec *make(void) {
	struct graph_exec *exec = graph_exec_new(&graphs[0], graph_source_number());

	assert_non_null(exec);
	return exec;
}

/* Reads a node, and checks what it has. */
static struct exec_node *read_node(struct graph_exec *exec, size_t index, enum graph_reason reason,
				   int value) {
	struct exec_node *node;

	assert_true(graph_source_read());
	assert_true(graph_exec_list(exec));
	node = graph_exec_find(exec, &graphs[0].nodes[index]);
	assert_non_null(node);
	graph_exec_read(exec, node);
	graph_source_read_end();
	assert_true(graph_exec_is_read(exec, node));
	assert_int_equal(node->reason, reason);
	if (!reason) {
		assert_int_equal(
			kernel_copy_give(&node->copy, NULL, NULL, &(struct kernel_twin){ 0 }), 0);
		assert_int_equal(given_value, value);
		assert_ptr_equal(given->function, &kernel);
	}
	return node;
}

static void change(void *handle) {
	graph_source_change(handle);
	graph_source_change_end();
}

static void test_instantiated(void **state) {
	struct graph_exec *exec = make();
	struct exec_node *node;
	int twin;

	(void)state;
	graphs[0].nodes[1].by_buffer = true;
	node = read_node(exec, 0, GRAPH_REASON_NONE, 100);
	graphs[0].nodes[0].value = 7; /* a copy is a copy */
	assert_int_equal(kernel_copy_give(&node->copy, NULL, NULL,
					  &(struct kernel_twin){ .function = &twin }),
			 0);
	assert_ptr_equal(given->function, &twin);
	assert_int_equal(given_value, 100);
	read_node(exec, 1, GRAPH_REASON_NONE, 101);
	read_node(exec, 2, GRAPH_REASON_NOT_OURS, 0);
	assert_null(graph_exec_find(exec, &graphs[1].nodes[0]));
	graph_exec_free(exec);
}

static void test_changed(void **state) {
	struct graph_exec *exec = make();
	struct exec_node *node;
	struct node_kernel own = { .function = &kernel, .parameters = parameters };
	int value = 55;

	(void)state;
	read_node(exec, 1, GRAPH_REASON_NONE, 101);
	change(&graphs[0].nodes[0]);
	change(&graphs[0].nodes[1]);
	read_node(exec, 0, GRAPH_REASON_CHANGED, 0);
	node = read_node(exec, 1, GRAPH_REASON_NONE, 101); /* it was read before */
	parameters[0] = &value;
	graph_exec_set(node, &own, NODE_KERNEL_SIZE_2, graph_source_number());
	read_node(exec, 1, GRAPH_REASON_NONE, 55);
	graph_exec_free(exec);
}

static void test_structure_changed(void **state) {
	struct graph_exec *exec = make();

	(void)state;
	change(&graphs[0]);
	assert_true(graph_source_read());
	assert_false(graph_exec_list(exec));
	graph_source_read_end();
	assert_int_equal(exec->lost, GRAPH_REASON_CHANGED);
	graph_exec_free(exec);
}

static void test_updated(void **state) {
	struct graph_exec *exec = make();

	(void)state;
	read_node(exec, 0, GRAPH_REASON_NONE, 100);
	graph_exec_updated(exec, &graphs[1], graph_source_number());
	read_node(exec, 0, GRAPH_REASON_NONE, 103);
	graph_exec_updated(exec, &graphs[0], graph_source_number());
	read_node(exec, 0, GRAPH_REASON_NONE, 100);
	graph_exec_updated(exec, &graphs[1], graph_source_number());
	change(&graphs[1]); /* its nodes cannot be paired any more */
	read_node(exec, 0, GRAPH_REASON_UPDATED, 0);
	graph_exec_free(exec);
}

static void test_without_sizes(void **state) {
	struct graph_exec *exec = make();

	(void)state;
	has_sizes = false;
	read_node(exec, 0, GRAPH_REASON_UNREADABLE, 0);
	graph_exec_free(exec);
}

static void test_device(void **state) {
	struct graph_exec *exec = make();

	(void)state;
	graphs[0].nodes[0].device = true;
	read_node(exec, 0, GRAPH_REASON_DEVICE, 0);
	graph_exec_free(exec);
}

static void test_destruction(void **state) {
	struct graph_exec *exec = make();

	(void)state;
	assert_int_equal(graph_source_destroy(&graphs[1]), GRAPH_DESTROY_NOW);
	assert_int_equal(graph_source_destroy(&graphs[0]), GRAPH_DESTROY_LATER);
	assert_int_equal(graph_source_destroy(&graphs[0]), GRAPH_DESTROY_AGAIN);
	graph_exec_updated(exec, &graphs[1], graph_source_number());
	assert_int_equal(graph_source_destroy(&graphs[1]), GRAPH_DESTROY_LATER);
	graph_exec_updated(exec, &graphs[0], graph_source_number());
	assert_int_equal(graphs[1].destroyed, 1);
	assert_int_equal(graphs[0].destroyed, 0);
	graph_exec_free(exec);
	assert_int_equal(graphs[0].destroyed, 1);
}

static void test_two_executables(void **state) {
	struct graph_exec *first = make(), *second = make();

	(void)state;
	assert_int_equal(graph_source_destroy(&graphs[0]), GRAPH_DESTROY_LATER);
	graph_exec_free(first);
	assert_int_equal(graphs[0].destroyed, 0);
	graph_exec_free(second);
	assert_int_equal(graphs[0].destroyed, 1);
}

static void test_objects(void **state) {
	struct graph_exec *exec = make();

	(void)state;
	graph_source_has_objects(&graphs[0]);
	assert_int_equal(graph_source_destroy(&graphs[0]), GRAPH_DESTROY_LOST);
	assert_true(graph_exec_uses(exec, &graphs[0]));
	graph_exec_lose(exec, GRAPH_REASON_OBJECTS);
	assert_false(graph_exec_uses(exec, &graphs[0]));
	graph_exec_free(exec);
	assert_int_equal(graphs[0].destroyed, 0); /* the caller does it */
}

/* More changes than are remembered: everything before counts as changed, and nothing after. */
static void test_many_changes(void **state) {
	struct graph_exec *exec = make(), *later;
	char *handles = malloc(100000);

	(void)state;
	assert_non_null(handles);
	for (size_t i = 0; i < 100000; i++)
		change(handles + i);
	assert_true(graph_source_read());
	assert_false(graph_exec_list(exec));
	graph_source_read_end();
	later = make();
	read_node(later, 0, GRAPH_REASON_NONE, 100);
	assert_int_equal(graph_source_destroy(&graphs[0]), GRAPH_DESTROY_LATER);
	graph_exec_free(exec);
	graph_exec_free(later);
	assert_int_equal(graphs[0].destroyed, 1);
	free(handles);
}

#define ROUNDS 20000

static int in_change; /* threads */
static bool ended;

static void *change_always(void *userdata) {
	for (int i = 0; i < ROUNDS; i++) {
		graph_source_change(userdata);
		__atomic_add_fetch(&in_change, 1, __ATOMIC_SEQ_CST);
		__atomic_sub_fetch(&in_change, 1, __ATOMIC_SEQ_CST);
		graph_source_change_end();
	}
	__atomic_store_n(&ended, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Graphs are changed while none is read, and the other way round. */
static void test_threads(void **state) {
	pthread_t threads[2];
	unsigned long reads = 0;

	(void)state;
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, change_always, &graphs[i]), 0);
	while (!__atomic_load_n(&ended, __ATOMIC_SEQ_CST) || !reads) {
		if (!graph_source_read())
			continue;
		for (int i = 0; i < 100; i++)
			assert_int_equal(__atomic_load_n(&in_change, __ATOMIC_SEQ_CST), 0);
		reads++;
		graph_source_read_end();
	}
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_instantiated, set_up),
		cmocka_unit_test_setup(test_changed, set_up),
		cmocka_unit_test_setup(test_structure_changed, set_up),
		cmocka_unit_test_setup(test_updated, set_up),
		cmocka_unit_test_setup(test_without_sizes, set_up),
		cmocka_unit_test_setup(test_device, set_up),
		cmocka_unit_test_setup(test_destruction, set_up),
		cmocka_unit_test_setup(test_two_executables, set_up),
		cmocka_unit_test_setup(test_objects, set_up),
		cmocka_unit_test_setup(test_many_changes, set_up),
		cmocka_unit_test_setup(test_threads, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
