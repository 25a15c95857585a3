/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The patches of test-sass: PTX functions that count what kernels do, for test-sass-counts.c and
 * test-sass-failures.c.
 */

#include "test-sass-patches.h"

/* clang-format off */
#define PATCH(name, parameters, body)                                                                             \
	".visible .func (.param .b32 r) " name "(.param .b64 data, .param .b64 pc" parameters ") {\n"             \
	" .reg .b64 %d; .reg .b64 %x; .reg .b32 %a; .reg .b32 %b; .reg .pred %p;\n"                               \
	" ld.param.u64 %d, [data]; setp.eq.u64 %p, %d, 0; @%p bra OUT;\n" body "\n OUT: st.param.b32 [r], 0; ret; }\n"

#define ADD(offset, value) " red.global.add.u64 [%d+" offset "], " value ";"

/* At the counters' offset: an access of two kinds at once is an atomic and has no value. */
#define MEMORY(name, at)                                                                                          \
	PATCH(name, ", .param .b64 address, .param .b32 size, .param .b32 flags, .param .b64 value",              \
	      " add.u64 %d, %d, " at ";" ADD("0", "1")                                                            \
	      " ld.param.u32 %a, [size]; cvt.u64.u32 %x, %a;" ADD("8", "%x")                                      \
	      " ld.param.u64 %x, [address];" ADD("56", "%x")                                                      \
	      " ld.param.u32 %b, [flags]; ld.param.u64 %x, [value]; setp.eq.u32 %p, %b, 1; @%p bra READ;\n"       \
	      " setp.eq.u32 %p, %b, 2; @%p bra WRITE; setp.ne.u64 %p, %x, 0; @%p bra OUT;" ADD("32", "1") " bra OUT;\n" \
	      " READ:" ADD("16", "1") " bra OUT;\n"                                                               \
	      " WRITE:" ADD("24", "1") " ld.u8 %b, [%x]; cvt.u64.u32 %x, %b;" ADD("48", "%x")                     \
	      " setp.ne.u32 %p, %a, 4; @%p bra OUT; ld.param.u64 %x, [value]; ld.u32 %b, [%x]; cvt.u64.u32 %x, %b;" ADD("40", "%x"))

const char patches[] =
	".version 7.8\n.target sm_70\n.address_size 64\n"
	PATCH("p_enter", "", ADD("0", "1") " activemask.b32 %a; mov.u32 %b, %lanemask_lt; and.b32 %a, %a, %b; setp.ne.u32 %p, %a, 0;"
	      " @%p bra OUT;" ADD("16", "1"))
	PATCH("p_exit", "", ADD("8", "1"))
	PATCH("p_barrier", ", .param .b32 index, .param .b32 threads, .param .b32 flags", ADD("24", "1")
	      " ld.param.u32 %a, [threads]; cvt.u64.u32 %x, %a;" ADD("32", "%x"))
	PATCH("p_sync", ", .param .b32 mask", ADD("40", "1") " ld.param.u32 %a, [mask]; cvt.u64.u32 %x, %a;" ADD("48", "%x"))
	PATCH("p_shfl", "", ADD("56", "1"))
	PATCH("p_call", ", .param .b64 target, .param .b32 flags", ADD("64", "1") " ld.param.u64 %x, [target];" ADD("72", "%x"))
	PATCH("p_ret", "", ADD("80", "1"))
	MEMORY("p_global", "128") MEMORY("p_shared", "192") MEMORY("p_local", "256")
	".visible .func (.param .b32 r) p_error(.param .b64 data, .param .b64 pc) { st.param.b32 [r], 1; ret; }\n";

/* Kernels with one of each that the committed ones lack. */
const char kernels[] =
	".version 7.8\n.target sm_70\n.address_size 64\n"
	".func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %a; ld.param.u32 %a, [a]; add.u32 %a, %a, %a; st.param.b32 [r], %a; ret; }\n"
	/* every other thread leaves early; the others: two calls, bar.warp.sync, generic accesses of three spaces, vectors, bytes */
	".visible .entry mixed(.param .u64 out) { .reg .b64 %o; .reg .b64 %a; .reg .b64 %s; .reg .b32 %t; .reg .b32 %x; .reg .b32 %y;\n"
	" .reg .b32 %z; .reg .pred %p; .reg .f32 %f<4>; .shared .align 16 .b8 sh[512]; .local .align 16 .b8 lo[16];\n"
	" BEGIN: mov.u32 %t, %tid.x; and.b32 %x, %t, 1; setp.ne.u32 %p, %x, 0; @%p ret;\n"
	" { .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %t; call (r0), twice, (a0); ld.param.b32 %x, [r0]; }\n"
	" { .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %x; call.uni (r0), twice, (a0); ld.param.b32 %x, [r0]; }\n"
	" bar.warp.sync 0x55555555; ld.param.u64 %o, [out]; mul.wide.u32 %a, %t, 16; add.u64 %o, %o, %a;\n"
	" st.u32 [%o], %x; ld.u32 %y, [%o]; mov.u64 %s, sh; cvta.shared.u64 %s, %s; mul.wide.u32 %a, %t, 4; add.u64 %s, %s, %a;\n"
	" st.u32 [%s], %y; mov.u64 %a, lo; cvta.local.u64 %a, %a; st.u32 [%a], %y; ld.local.u32 %z, [lo];\n"
	" mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F800000; mov.f32 %f3, 0f3F800000;\n"
	" st.global.v4.f32 [%o], {%f0, %f1, %f2, %f3}; ld.global.v2.f32 {%f0, %f1}, [%o+8]; st.global.u8 [%o], %z; exit; }\n"
	/* the first instruction is a loop's: its entry is entered once */
	".visible .entry loop(.param .u64 out) { .reg .b64 %o; .reg .b32 %n; .reg .pred %p;\n"
	" AGAIN: add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 10; @%p bra AGAIN; ld.param.u64 %o, [out]; st.global.u32 [%o], %n; ret; }\n"
	/* tells that it runs, waits until it may end */
	".visible .entry spin(.param .u64 out) { .reg .b64 %o; .reg .b32 %n; .reg .pred %p; ld.param.u64 %o, [out]; mov.u32 %n, 1;\n"
	" st.volatile.global.u32 [%o], %n; WAIT: ld.volatile.global.u32 %n, [%o+4]; setp.eq.u32 %p, %n, 0; @%p bra WAIT; ret; }\n";
