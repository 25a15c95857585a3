// SPDX-License-Identifier: Apache-2.0
// corpus: min=80 nvrtc clang flags= -G
// What people write in asm(): scopes, labels, comments with braces, vectors, predicates, several instructions in a line.
#define TEXT(x) #x

__global__ void scopes(unsigned int *data, unsigned long long *wide)
{
	unsigned int a = data[threadIdx.x], b, c;

	asm volatile("{ .reg .pred p, q; setp.eq.and.u32 p|q, %1, 1, 1; // } ret;\n"
		     "@p bra L_one; @!q bra L_two;\n"
		     "/* } } ret; */ L_one: add.u32 %0, %1, 1; bra.uni L_end; L_two: { .reg .b32 t<4>; mov.u32 t3, %1;\n"
		     "{ .reg .b32 t; mov.u32 t, t3; mov.u32 %0, t; } } L_end: }"
		     : "=r"(b) : "r"(a));
	asm volatile("{\n\t.reg .b32 lo, hi;\n\tmov.b64 {lo, hi}, %1;\n\tmov.b64 {_, hi}, %1;\n\tmov.b64 %1, {hi, lo};\n\txor.b32 %0, lo, hi; }"
		     : "=r"(c), "+l"(wide[threadIdx.x]));
	asm volatile("{.reg .b32 %%odd$name_1;mov.u32 %%odd$name_1,%%clock;st.global.u32 [%0+ 4 ], %%odd$name_1;}" :: "l"(data));
	asm volatile("{ ts: .branchtargets a0, a1, a2; .reg .u32 i; and.b32 i, %0, 1; brx.idx i, ts; a0: a1: trap; a2: }" :: "r"(c | 2));
	data[threadIdx.x] = b + c;
}

__global__ void modifiers(const float4 *__restrict__ in, float4 *out, unsigned int *words)
{
	float4 v;
	unsigned int w, vote, s;

	asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
		     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(in + threadIdx.x));
	asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(in));
	asm volatile("{ .reg .pred p; elect_like: shfl.sync.bfly.b32 %0|p, %1, 0x1, 31, -1; @p add.s32 %0, %0, 1; }"
		     : "=r"(w) : "r"(words[0]));
	asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(vote) : "r"(w));
	asm volatile("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(s) : "r"(w), "r"(vote), "r"(1));
	asm volatile("prmt.b32.f4e %0, %1, %2, %3; lop3.b32 %0, %1, %2, %3, 0b11101000;" : "+r"(s) : "r"(w), "r"(vote), "r"(5u));
	asm volatile("mov.f32 %0, 0F3f800000; add.rn.ftz.f32 %0, %0, 1.5e-3; fma.rn.f32 %0, %0, .5, 2.;" : "+f"(v.x));
	out[threadIdx.x] = v;
	words[threadIdx.x] = s;
}
