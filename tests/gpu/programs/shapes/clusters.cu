// SPDX-License-Identifier: Apache-2.0
// Clusters of two blocks, which read each other's shared memory. Prints how many threads each
// cluster has had, from the sizes of the launches: tests/gpu/real.py compares these numbers with
// what a probe has counted by the cluster's id.
#include <cooperative_groups.h>
#include "../result.h"

#define PER_CLUSTER 2 /* blocks, all in x */
#define THREADS 64 /* of a block */
#define SIDE 4 /* at most so many clusters in each dimension */

namespace cg = cooperative_groups;

__global__ void __cluster_dims__(PER_CLUSTER, 1, 1) pairs(unsigned *out)
{
	__shared__ unsigned shared[THREADS];
	cg::cluster_group cluster = cg::this_cluster();
	unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;

	shared[threadIdx.x] = block * THREADS + threadIdx.x;
	cluster.sync();
	out[block * THREADS + threadIdx.x] +=
		*cluster.map_shared_rank(shared + threadIdx.x, cluster.block_rank() ^ 1);
	cluster.sync();
}

int main()
{
	static const dim3 grids[] = {dim3(8, 3, 2), dim3(4, 2, 1), dim3(2, 1, 1)};
	unsigned threads[SIDE][SIDE][SIDE] = {};
	unsigned *out;
	int major;

	CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
	if (major < 9)
		skip("GPU of sm_90 or newer");
	out = allocate<unsigned>(48 * THREADS);
	for (dim3 grid : grids) {
		pairs<<<grid, THREADS>>>(out);
		CHECK(cudaGetLastError());
		for (unsigned z = 0; z < grid.z; z++)
			for (unsigned y = 0; y < grid.y; y++)
				for (unsigned x = 0; x < grid.x / PER_CLUSTER; x++)
					threads[z][y][x] += PER_CLUSTER * THREADS;
	}
	print_result("exchanged", out, 48 * THREADS);
	for (unsigned z = 0; z < SIDE; z++)
		for (unsigned y = 0; y < SIDE; y++)
			for (unsigned x = 0; x < SIDE; x++)
				if (threads[z][y][x])
					printf("cluster %u %u %u: %u threads\n", x, y, z,
					       threads[z][y][x]);
	return 0;
}
