/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What live_driver.c does with graphs beyond launching and updating them. */

#include "driver.h"

struct live_graph {
	CUgraph *graph; /* NULL in it: it was destroyed */
	CUgraphExec *exec;
	CUstream stream;
	CUcontext context;
	CUdeviceptr data;
	unsigned blocks;
};

/* False: it is no command of these, or it did not go as it should. `ok` and numbers are printed. */
bool live_graph_run(const struct live_graph *live, const char *verb, int number);
/* With a kernel; a graph that it makes is put into *made, to be instantiated. */
bool live_graph_run_kernel(const struct live_graph *live, const char *verb, CUfunction function,
			   int number, CUgraph *made);
