// SPDX-License-Identifier: Apache-2.0
// sm_90a: wgmma, setmaxnreg, bulk copies (TMA) with an mbarrier.
#include <cuda/barrier>
#include <cuda/ptx>
#include "checksum.h"

namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

__device__ unsigned long long descriptor(const void *shared, unsigned leading, unsigned stride)
{
	unsigned long long address = __cvta_generic_to_shared(shared);

	return (address & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32;
}

/* D = A B of 64x16 and 16x8 tiles, several times; what counts is that the bits are the same. */
__global__ __launch_bounds__(256, 1) void multiply(const unsigned short *in, float *out, int steps)
{
	__shared__ alignas(128) unsigned short a[64 * 16 * 2], b[16 * 8 * 2];

	for (unsigned i = threadIdx.x; i < 64 * 16 * 2; i += blockDim.x)
		a[i] = 0x3f80 | (in[i] & 0x807f);
	for (unsigned i = threadIdx.x; i < 16 * 8 * 2; i += blockDim.x)
		b[i] = 0x3e80 | (in[i + 4096] & 0x807f);
	__syncthreads();
	asm volatile("fence.proxy.async;" ::: "memory");
	if (threadIdx.x >= 128) {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
		return;
	}
	asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
	float d[4] = {0, 0, 0, 0};
	unsigned long long first = descriptor(a, 128, 256), second = descriptor(b, 128, 256);

	for (int i = 0; i < steps; i++) {
		asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
		asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;\n"
			     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
			     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
			     : "l"(first), "l"(second), "r"(i));
		asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
		asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
	}
	for (int i = 0; i < 4; i++)
		out[threadIdx.x * 4 + i] = d[i];
}

__global__ void bulk(const unsigned *in, unsigned *out)
{
	__shared__ alignas(128) unsigned tile[1024];
#pragma nv_diag_suppress static_var_with_dynamic_init
	__shared__ barrier ready;
	barrier::arrival_token token;

	if (threadIdx.x == 0) {
		init(&ready, blockDim.x);
		ptx::fence_proxy_async(ptx::space_shared);
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, in + blockIdx.x * 1024, sizeof(tile),
				   cuda::device::barrier_native_handle(ready));
		token = cuda::device::barrier_arrive_tx(ready, 1, sizeof(tile));
	} else {
		token = ready.arrive();
	}
	ready.wait(cuda::std::move(token));
	for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x)
		tile[i] = tile[i] * 3 + blockIdx.x;
	ptx::fence_proxy_async(ptx::space_shared);
	__syncthreads();
	if (threadIdx.x == 0) {
		ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * 1024, tile, sizeof(tile));
		ptx::cp_async_bulk_commit_group();
		ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
	}
}

int main()
{
	unsigned *in = numbers(65536), *out = allocate<unsigned>(65536);
	float *product = allocate<float>(512);

	multiply<<<1, 256>>>((const unsigned short *)in, product, 5);
	CHECK(cudaGetLastError());
	print_checksum("wgmma", product, 512);
	bulk<<<64, 128>>>(in, out);
	CHECK(cudaGetLastError());
	print_checksum("bulk", out, 65536);
	return 0;
}
