// SPDX-License-Identifier: Apache-2.0
// corpus: nvrtc clang flags= -lineinfo -G
// Kernels that call a function which stands for a probe, with and without arguments and result, in branches and loops.
__device__ __noinline__ void __bpftime_cuda__kernel_trace() { asm volatile(""); }

struct event {
	double value[3];
};

extern "C" __device__ __noinline__ float2 __gpuprobe_stub(event what, short n, const char *name)
{
	asm volatile("" ::"d"(what.value[2]), "h"(n), "l"(name));
	return make_float2(1, 2);
}

__global__ void traced(int *out, int n)
{
	for (int i = 0; i < n; i++) {
		if (out[i] > threadIdx.x)
			__bpftime_cuda__kernel_trace();
		out[i] += i;
	}
	__bpftime_cuda__kernel_trace();
}

__global__ void with_result(float *out, short n)
{
	event what = { { out[0], out[1], out[2] } };
	float2 sum = __gpuprobe_stub(what, n, "a name");
	out[3] = sum.x;
	out[4] = sum.y;
	if (n > 3) {
		sum = __gpuprobe_stub(what, 4, "another");
		out[5] = sum.x;
	}
}

__global__ void untraced(int *out)
{
	out[threadIdx.x] = 1;
}
