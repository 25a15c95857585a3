// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator: its value has a type that is nested too deeply for the search for
 * integers.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct s0 {
	__u64 n;
};
#define NEST(INNER, OUTER)       \
	struct OUTER {           \
		struct INNER in; \
	}
#define NEST_4(A, B, C, D, E) \
	NEST(A, B);           \
	NEST(B, C);           \
	NEST(C, D);           \
	NEST(D, E)
NEST_4(s0, s1, s2, s3, s4);
NEST_4(s4, s5, s6, s7, s8);
NEST_4(s8, s9, s10, s11, s12);
NEST_4(s12, s13, s14, s15, s16);
NEST_4(s16, s17, s18, s19, s20);
NEST_4(s20, s21, s22, s23, s24);
NEST_4(s24, s25, s26, s27, s28);
NEST_4(s28, s29, s30, s31, s32);
NEST_4(s32, s33, s34, s35, s36);

struct s36 deep; /* .bss */

SEC("kprobe/vectorAdd")
int cuda__nested(void *ctx) {
	__sync_fetch_and_add((__u64 *)&deep, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
