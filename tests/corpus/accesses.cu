// SPDX-License-Identifier: Apache-2.0
// corpus: min=80 nvrtc clang flags= -lineinfo -G
// Memory instructions of all forms; 100 KB of dynamic shared memory.
#include <cuda_pipeline_primitives.h>

extern __shared__ __align__(1024) unsigned char dynamic[];

extern "C" __global__ void forms(unsigned int *a, unsigned long long *b, const float4 *__restrict__ c, double *d)
{
	unsigned int i = threadIdx.x, x, y, z, w, local[40];
	unsigned int shared = __cvta_generic_to_shared(dynamic + i * 16 + 90000);
	unsigned long long wide;
	float4 four = __ldg(c + i);

	for (int j = 0; j < 40; j++)
		local[j] = a[j];
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(shared));
	asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1+16];" : "=r"(x) : "r"(shared));
	asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, 8;" :: "r"(shared), "l"(c));
	asm volatile("{ .reg .pred p; setp.eq.u32 p, %2, 3; @p cp.async.cg.shared.global [%0 + 32], [%1], 16; @!p st.shared.u32 [%0], %2; }"
		     :: "r"(shared), "l"(c), "r"(i));
	asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
	__pipeline_memcpy_async(dynamic + 1024, b, 8);
	__pipeline_commit();
	__pipeline_wait_prior(0);
	asm volatile("ldu.global.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(a));
	asm volatile("ld.volatile.shared.v2.b64 {%0, _}, [%1];" : "=l"(wide) : "r"(shared));
	asm volatile("ld.acquire.gpu.global.u64 %0, [%1+-8];" : "=l"(wide) : "l"(b));
	asm volatile("st.release.sys.u32 [%0], %1;" :: "l"(a), "r"(y));
	asm volatile("st.global.wt.v4.f32 [%0], {%1, %1, 0f3F800000, %1};" :: "l"(a), "f"(four.x));
	asm volatile("red.relaxed.gpu.global.max.s64 [%0], %1;" :: "l"(b), "l"(wide));
	asm volatile("red_async: red.shared.add.u32 [%0], 1;" :: "r"(shared)); /* a label that looks like one */
	asm volatile("atom.global.exch.b32 %0, [%1], %2;" : "=r"(z) : "l"(a + 1), "r"(x));
	asm volatile("atom.add.noftz.f16x2 %0, [%1], %2;" : "=r"(w) : "l"(a + 2), "r"(z));
	asm volatile("atom.global.gpu.cas.b16 %0, [%1], %2, %3;" : "=h"(*(short *)&x) : "l"(a + 3), "h"((short)y), "h"((short)z));
	asm volatile("prefetchu.L1 [%0]; discard.global.L2 [%0], 128; applypriority.global.L2::evict_normal [%0], 128;" :: "l"(a));
	d[i] = four.y + local[x & 31] + local[y & 7] + w + wide;
}

extern "C" __global__ void predicated(int *a, int *b)
{
	int i = threadIdx.x, x;

	asm volatile("{ .reg .pred p, q; setp.lt.s32 p|q, %1, 7;\n@p ld.global.u32 %0, [%2]; @!p mov.u32 %0, 4; @q st.global.u32 [%3], %0;\n"
		     "@p atom.global.add.u32 %0, [%2], %0; @!q red.global.add.u32 [%3], %0; @p bra out; ld.global.u32 %0, [%2+4]; out: }"
		     : "=r"(x) : "r"(i), "l"(a), "l"(b));
	a[i] = x;
	if (x == 9)
		asm volatile("exit;");
	b[i] = x;
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void newer(float *a, unsigned int *m, unsigned long long *b)
{
	unsigned int shared = __cvta_generic_to_shared(dynamic), x;
	float f;

	asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" :: "r"(shared), "r"(m[0]), "r"(m[1]));
	asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" :: "l"(a), "f"(a[9]));
	asm volatile("multimem.ld_reduce.global.add.f32 %0, [%1];" : "=f"(f) : "l"(a));
	asm volatile("multimem.red.release.gpu.global.add.u32 [%0], 1;" :: "l"(m));
	asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" :: "l"(a), "f"(f));
	asm volatile("{ .reg .b128 q; mov.b128 q, {%1, %1}; atom.global.exch.b128 q, [%0], q; }" :: "l"(b), "l"(b[1]));
	asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %1, 1; ld.shared::cluster.u32 %0, [r]; atom.shared::cluster.add.u32 %0, [r+4], 2;"
		     " st.shared::cluster.u32 [r+8], %0; red.shared::cluster.inc.u32 [r+12], %0; }" : "=r"(x) : "r"(shared));
	m[2] = x;
}
#endif
