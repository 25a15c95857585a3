/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Parameters of kernel nodes of graphs: as the driver has them, and copies that we keep. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/driver.h"
#include "shim/module/launch-block.h"

/* CUDA_KERNEL_NODE_PARAMS; the first version ends before `kernel`. */
struct node_kernel {
	driver_handle function; /* NULL: `kernel` is launched */
	unsigned grid[3], block[3], shared;
	void **parameters, **extra;
	driver_handle kernel, context;
};
#define NODE_KERNEL_SIZE_1 offsetof(struct node_kernel, kernel)
#define NODE_KERNEL_SIZE_2 sizeof(struct node_kernel)

#define NODE_TYPE_KERNEL 0
#define NODE_TYPE_GRAPH 4
#define NODE_TYPE_CONDITIONAL 13

/* CUgraphNodeParams: of a node of any type. */
struct node_any {
	int type, reserved[3];
	union {
		struct node_kernel kernel;
		uint64_t space[29];
	};
	uint64_t reserved_2;
};
/* A copy, with the values of the kernel's parameters. All zeros: an empty one. */
struct kernel_copy {
	struct node_kernel node; /* its `parameters` point to the values; no `extra` */
	driver_handle
		known; /* the kernel's handle that has an original (handles.h); NULL: none has */
	size_t count; /* of parameters */
	unsigned char *values;
	size_t *offsets; /* of the parameters in the values; the last one is the size of all */
	driver_handle sized; /* the handle that these are of, */
	uint64_t sized_version; /* and handles_gone_version then */
};

/* Why there is no copy. */
enum kernel_copied {
	KERNEL_COPIED,
	KERNEL_NOT_OURS, /* nothing is known of its kernel: it cannot have a twin */
	KERNEL_UNREADABLE, /* the driver does not say how large its parameters are */
};

/*
 * Copies what an application gave to the driver (size: NODE_KERNEL_SIZE_1 or 2), or what a node
 * has.
 */
enum kernel_copied kernel_copy_take(struct kernel_copy *copy, const struct node_kernel *given,
				    size_t size);
enum kernel_copied kernel_copy_read(struct kernel_copy *copy, driver_handle node);
void kernel_copy_deinit(struct kernel_copy *copy);

/* The kernel of a twin for a node; all zeros: none. */
struct kernel_twin {
	driver_handle function; /* stands for copy->known */
	struct launch_form form;
	uint64_t node; /* the node's number in its executable graph, from 1, for that block */
};

/* Gives them to a node of an executable graph: with this kernel, or as they are. */
driver_result kernel_copy_give(const struct kernel_copy *copy, driver_handle exec,
			       driver_handle node, const struct kernel_twin *twin);
