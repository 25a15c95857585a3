/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A call that puts work on the GPU. */
struct gpu_launch {
	uint64_t stream, function; /* function 0: a graph, or a copy */
	bool per_thread; /* of the functions whose default stream is the thread's own */
};
