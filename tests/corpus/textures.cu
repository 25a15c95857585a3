// SPDX-License-Identifier: Apache-2.0
// corpus: nvrtc flags= -G
#include <cuda_runtime.h>

__global__ void reads(cudaTextureObject_t image, cudaTextureObject_t layers, cudaSurfaceObject_t surface, float4 *out, int n)
{
	float x = threadIdx.x / float(n), y = threadIdx.y / float(n);
	float4 a = tex2D<float4>(image, x, y), b = tex2DLayered<float4>(layers, x, y, 3), c = tex2DLod<float4>(image, x, y, 1.5f);
	float4 d = tex2Dgather<float4>(image, x, y, 2), e = tex3D<float4>(image, x, y, x), f = texCubemap<float4>(layers, x, y, x);
	uchar4 g;
	bool resident;

	surf2Dread(&g, surface, threadIdx.x * 4, threadIdx.y, cudaBoundaryModeClamp);
	surf3Dwrite(make_float2(a.x, b.y), surface, threadIdx.x * 8, threadIdx.y, 1);
	float4 h = tex2D<float4>(image, x, y, &resident);
	out[threadIdx.x] = make_float4(a.x + b.y, c.z + d.w, e.x + f.y + g.x, resident ? h.x : 0);
	int4 one = tex1Dfetch<int4>(image, n);
	out[n] = make_float4(one.x, one.y, one.z, one.w);
}
