/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Copies parameters of kernel nodes (graph-kernel.h): the driver has no call that reads them out of
 * an executable graph, and wants all of them for each change. How large they are it says itself
 * (CUDA 12.4).
 */

#include "graph-kernel.h"

#include <stdlib.h>
#include <string.h>

#include "shim/module/handles.h"

#define PARAMETERS_MAX 8192 /* there are 32,764 bytes for them */

/* The handle of the kernel that has an original; NULL: none has. */
static driver_handle known_of(const struct node_kernel *node) {
	if (node->function && handles_original(node->function, NULL))
		return node->function;
	return node->kernel && handles_original(node->kernel, NULL) ? node->kernel : NULL;
}

/* Asks where the parameters lie, unless that is known from before. */
static bool take_layout(struct kernel_copy *copy) {
	const struct driver *driver = driver_own();
	driver_result (*get)(driver_handle, size_t, size_t *, size_t *);
	size_t offset, size, count = 0, room = 0, *larger;
	uint64_t version = __atomic_load_n(&handles_gone_version, __ATOMIC_ACQUIRE);

	if (copy->sized == copy->known && copy->sized_version == version)
		return true;
	copy->sized = NULL;
	get = handles_is_kernel(copy->known) ? driver->kernel_get_parameter
					     : driver->function_get_parameter;
	if (!get)
		return false;
	for (;; count++) {
		if (count >= room) {
			room = room ? 2 * room : 16;
			larger = reallocarray(copy->offsets, room + 1, sizeof(*larger));
			if (!larger)
				return false;
			copy->offsets = larger;
		}
		if (!count)
			copy->offsets[0] = 0;
		if (count == PARAMETERS_MAX || get(copy->known, count, &offset, &size) != 0)
			break;
		copy->offsets[count] = offset;
		copy->offsets[count + 1] = offset + size;
	}
	free(copy->values);
	free(copy->node.parameters);
	copy->values = malloc(copy->offsets[count] + 1);
	copy->node.parameters = calloc(count + 1, sizeof(void *));
	if (!copy->values || !copy->node.parameters)
		return false;
	copy->count = count;
	for (size_t i = 0; i < count; i++)
		copy->node.parameters[i] = copy->values + copy->offsets[i];
	copy->sized = copy->known;
	copy->sized_version = version;
	return true;
}

/* Copies the values out of an array of pointers, or out of the one buffer of `extra`. */
static bool take_values(struct kernel_copy *copy, void **parameters, void **extra) {
	const void *buffer;
	size_t size = 0;

	if (!copy->count)
		return true;
	for (size_t i = 0; parameters && i < copy->count; i++) {
		size_t end = copy->offsets[i + 1];

		if (!parameters[i])
			return false;
		memcpy(copy->values + copy->offsets[i], parameters[i], end - copy->offsets[i]);
	}
	if (parameters)
		return true;
	buffer = extra ? launch_block_buffer(extra, &size) : NULL;
	if (!buffer || size < copy->offsets[copy->count])
		return false;
	memcpy(copy->values, buffer, copy->offsets[copy->count]);
	return true;
}

enum kernel_copied kernel_copy_take(struct kernel_copy *copy, const struct node_kernel *given,
				    size_t size) {
	struct node_kernel node = { 0 };

	memcpy(&node, given, size);
	copy->known = known_of(&node);
	if (!copy->known)
		return KERNEL_NOT_OURS;
	if (!take_layout(copy) || !take_values(copy, node.parameters, node.extra)) {
		copy->known = NULL;
		return KERNEL_UNREADABLE;
	}
	node.parameters = copy->node.parameters;
	node.extra = NULL;
	copy->node = node;
	return KERNEL_COPIED;
}

enum kernel_copied kernel_copy_read(struct kernel_copy *copy, driver_handle node) {
	const struct driver *driver = driver_own();
	struct node_kernel found = { 0 };
	bool second = driver->node_get_kernel_v2 != NULL;

	copy->known = NULL;
	if (second ? driver->node_get_kernel_v2(node, &found)
		   : !driver->node_get_kernel || driver->node_get_kernel(node, &found))
		return KERNEL_UNREADABLE;
	return kernel_copy_take(copy, &found, second ? NODE_KERNEL_SIZE_2 : NODE_KERNEL_SIZE_1);
}

void kernel_copy_deinit(struct kernel_copy *copy) {
	free(copy->node.parameters);
	free(copy->values);
	free(copy->offsets);
	*copy = (struct kernel_copy){ 0 };
}

/* The parameters of the twin's node in place of the original's. */
static struct node_kernel twin_node(const struct kernel_copy *copy, driver_handle twin) {
	struct node_kernel node = copy->node;

	if (copy->known == copy->node.function) {
		node.function = twin;
		node.kernel = NULL;
	} else {
		node.function = NULL;
		node.kernel = twin;
	}
	return node;
}

driver_result kernel_copy_give(const struct kernel_copy *copy, driver_handle exec,
			       driver_handle node, const struct kernel_twin *twin) {
	const struct driver *driver = driver_own();
	const struct node_kernel given =
		twin->function ? twin_node(copy, twin->function) : copy->node;
	struct launch_block block;

	if (twin->function && twin->form.has_block) { /* behind the others there is room for it */
		if (twin->form.count != copy->count)
			return DRIVER_ERROR_GRAPH_UPDATE;
		launch_block_fill(&block, 0);
		block.thread = 0;
		block.node = twin->node;
		copy->node.parameters[copy->count] = &block;
	}
	return driver->exec_set_kernel_v2 ? driver->exec_set_kernel_v2(exec, node, &given)
					  : driver->exec_set_kernel(exec, node, &given);
}
