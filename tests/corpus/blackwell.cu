// SPDX-License-Identifier: Apache-2.0
// corpus: only=100a flags=
// Tensor memory and the fifth generation of tensor cores.
__global__ __launch_bounds__(128) void tensor_memory(unsigned long long a, unsigned long long b, unsigned int *out)
{
	__shared__ unsigned int address;
	__shared__ unsigned long long barrier;
	unsigned int shared = __cvta_generic_to_shared(&address), r0, r1, done;
	unsigned int arrived = __cvta_generic_to_shared(&barrier);

	if (threadIdx.x < 32) {
		asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" :: "r"(shared) : "memory");
		asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
	}
	if (threadIdx.x == 0)
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(arrived) : "memory");
	__syncthreads();
	if (threadIdx.x == 0) {
		asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;\n"
			     "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" :: "r"(address), "l"(a), "l"(b), "r"(0x8100010));
		asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(arrived) : "memory");
	}
	do {
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(arrived) : "memory");
	} while (!done);
	asm volatile("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%0, %1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(address));
	asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
	out[threadIdx.x] = r0 ^ r1;
	__syncthreads();
	if (threadIdx.x < 32)
		asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" :: "r"(address));
}
