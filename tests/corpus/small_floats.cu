// SPDX-License-Identifier: Apache-2.0
// corpus: min=75 nvrtc flags= -lineinfo -use_fast_math
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

template <typename T> __device__ T changed(T a, T b)
{
	return __hfma2(a, b, __hmax2(a, b)) + h2sqrt(b) * h2rcp(a);
}

extern "C" __global__ void halves(__half2 *a, __nv_bfloat162 *b, uint4 *both)
{
	int i = threadIdx.x;

	a[i] = changed(a[i], a[i + 1]);
	b[i] = changed(b[i], b[i + 1]);
	atomicAdd(a, a[i]);
	atomicAdd(b, b[i]);
	both[i].x = __half_as_ushort(__float2half_rz(both[i].y)) | __bfloat16_as_ushort(__ldcg((__nv_bfloat16 *)both + i)) << 16;
	both[i + 1] = __ldcs(both + 2);
	__stwt(both + 3, __ldlu(both + 4));
	if (__hgt(__low2half(a[i]), __high2half(a[2])) && __hisnan(__ldg((__half *)a + 3)))
		((__half *)a)[i] = hexp2(hlog(__shfl_xor_sync(~0u, __low2half(a[i]), 3)));
}

extern "C" __global__ void eighths(__nv_fp8_e4m3 *a, __nv_fp8x2_e5m2 *b, __nv_fp8x4_e4m3 *c, float4 *out)
{
	int i = threadIdx.x;
	float4 four = float4(c[i]);
	float2 two = float2(b[i]);

	out[i] = make_float4(four.x + two.y, four.w * float(a[i]), two.x, 0);
	a[i + 1] = __nv_fp8_e4m3(out[3].x);
	b[i + 1] = __nv_fp8x2_e5m2(make_float2(out[1].y, 3));
	c[i + 1] = __nv_fp8x4_e4m3(out[2]);
}

extern "C" __global__ void vectors(char4 *a, short2 *b, longlong2 *c, double2 *d, uchar3 *e, ushort4 *f)
{
	int i = threadIdx.x;

	a[i].z = a[i].x + b[i].y;
	c[i] = make_longlong2(c[1].y, d[i].x);
	d[i + 1] = d[2];
	e[i] = make_uchar3(e[i].z, f[i].w, a[2].y);
	f[i].x = *(const volatile unsigned short *)f;
	b[i] = __ldg(b + 3);
}
