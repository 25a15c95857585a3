// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, written as objects of other projects are: a section whose name is
 * as long as that of a template, types of arguments of all kinds, a uprobe that a loader attaches
 * by hand.
 */

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

#define LONG                                                                                      \
	"_Z121scale_rows_by_vector_with_a_long_but_ordinary_name_of_a_kernel_whose_template_has_" \
	"many_arguments_and_more_of_them_still_xPf"
#define TEN(x) x x x x x x x x x x

SEC("kprobe/" LONG)
int cuda__long(void *ctx) {
	return 0;
}

/* longer than a section may be: the others can be attached all the same */
SEC("kprobe/" TEN(TEN("0123456789012345678901234")))
int cuda__too_long(void *ctx) {
	return 0;
}

SEC("kprobe/f")
int cuda__regs(struct pt_regs *ctx) {
	return 0;
}

typedef const struct gpuprobe_kernel_ctx context;

SEC("kretprobe/f")
int cuda__typedef(context *const ctx) {
	return ctx->pid == 1;
}

SEC("kprobe/f")
int cuda__memory(struct gpuprobe_memory_ctx *ctx) {
	return ctx->address == 1;
}

SEC("kprobe/f")
int cuda__number(unsigned long ctx) {
	return 0;
}

SEC("uprobe")
int on_launch(struct pt_regs *ctx) {
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
