/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Nodes of graphs are launched by the driver. So the kernel that a node with large blocks gets is
 * chosen when the node is made or changed: the bare one, where the probed one could not be launched
 * (bare.h).
 */

#include <stddef.h>
#include <stdint.h>

#include "shim/driver/driver.h"

/* CUDA_KERNEL_NODE_PARAMS; the first version ends before `kernel`. */
struct node_kernel {
	driver_handle function; /* NULL: `kernel` is launched */
	unsigned grid[3], block[3], shared;
	void **parameters, **extra;
	driver_handle kernel, context;
};
#define NODE_KERNEL_SIZE_1 offsetof(struct node_kernel, kernel)
#define NODE_KERNEL_SIZE_2 sizeof(struct node_kernel)

/* CUgraphNodeParams: of a node of any type. */
struct node_any {
	int type, reserved[3];
	union {
		struct node_kernel kernel;
		uint64_t space[29];
	};
	uint64_t reserved_2;
};

/*
 * What the driver is to be given in place of an application's parameters: themselves, or *copy with
 * another kernel.
 */
const void *node_choose_kernel(const void *given, size_t size, struct node_kernel *copy);
void *node_choose_any(void *given, struct node_any *copy);
