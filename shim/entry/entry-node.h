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
#include "shim/graph/graph-kernel.h"

/*
 * What the driver is to be given in place of an application's parameters: themselves, or *copy with
 * another kernel.
 */
const void *node_choose_kernel(const void *given, size_t size, struct node_kernel *copy);
void *node_choose_any(void *given, struct node_any *copy);
