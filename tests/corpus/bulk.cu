// SPDX-License-Identifier: Apache-2.0
// corpus: only=90a nvrtc flags= -lineinfo -G
// Copies in bulk without and with a tensor's map, with mbarriers, to other blocks of a cluster, and back with a reduction.
struct alignas(64) tensor_map {
	unsigned long long opaque[16];
};

extern "C" __global__ __cluster_dims__(4, 1, 1) __launch_bounds__(128) void
bulk(const __grid_constant__ tensor_map map, const unsigned char *in, float *out, int bytes)
{
	extern __shared__ __align__(128) unsigned char stage[];
	__shared__ __align__(8) unsigned long long barrier[2];
	unsigned int tile = __cvta_generic_to_shared(stage), full = __cvta_generic_to_shared(&barrier[0]), remote, rank;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; mbarrier.init.shared::cta.b64 [%0+8], 128;" :: "r"(full) : "memory");
		asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
	}
	asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
	asm volatile("griddepcontrol.wait;" ::: "memory");
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(full), "r"(bytes * 3) : "memory");
		asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
			     :: "r"(tile), "l"(in), "r"(bytes), "r"(full) : "memory");
		asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %3}], [%4], %5;"
			     :: "r"(tile + 4096), "l"(&map), "r"(rank), "r"(0), "r"(full), "h"((short)15) : "memory");
		asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %3, %3}], [%4], {%5, %5};"
			     :: "r"(tile + 8192), "l"(&map), "r"(rank), "r"(1), "r"(full), "h"((short)2) : "memory");
		asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %1}];" :: "l"(&map), "r"(3));
		asm volatile("cp.async.bulk.prefetch.L2.global [%0], 256;" :: "l"(in));
		asm volatile("prefetch.tensormap [%0];" :: "l"(&map));
	}
	asm volatile("{ .reg .pred P1; LAB_WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1, 1000; @P1 bra.uni DONE;\n"
		     "bra.uni LAB_WAIT; DONE: }" :: "r"(full), "r"(0) : "memory");
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(full), "r"(rank ^ 1));
	asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %1}, [%2];" :: "r"(remote + 64), "r"(rank), "r"(remote) : "memory");
	asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], 1, [%1];"
		     :: "r"(remote + 72), "r"(remote) : "memory");
	asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(remote + 8) : "memory");
	asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
		     :: "r"(remote + 1024), "r"(tile), "r"(remote) : "memory");
	if (threadIdx.x == 0) {
		asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(out), "r"(tile), "r"(bytes) : "memory");
		asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %1}], [%2];" :: "l"(&map), "r"(0), "r"(tile) : "memory");
		asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], 64, %2;" :: "l"(out + 64), "r"(tile), "l"(0x12f0000000000000) : "memory");
		asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
	}
	asm volatile("griddepcontrol.launch_dependents;");
	asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
