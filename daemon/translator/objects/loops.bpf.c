// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator: loops whose number of rounds is not known before they run. Each
 * thread adds 0 + 1 + ... + (rounds - 1) to its program's sum.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u32 rounds = 100;
__u64 by_helper, by_iterator, by_may_goto;

static long add(__u32 i, void *sum) {
	*(__u64 *)sum += i;
	return i + 1 == rounds; /* stops where there would be more */
}

SEC("kprobe/vectorAdd")
int cuda__helper(void *ctx) {
	__u64 sum = 0;
	long n = bpf_loop(rounds + 5, add, &sum, 0);

	if (n == rounds)
		__sync_fetch_and_add(&by_helper, sum);
	return 0;
}

#ifndef bpf_for /* older headers have neither the type nor the functions */
struct bpf_iter_num {
	__u64 numbers;
} __attribute__((aligned(8)));
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
#endif

/* A function that is not inlined, so that libbpf moves its calls behind the program. */
static __attribute__((noinline)) __u64 sum_to(__u32 n) {
	struct bpf_iter_num it;
	__u64 sum = 0;
	int *i;

	bpf_iter_num_new(&it, 0, n);
	while ((i = bpf_iter_num_next(&it)))
		sum += *i;
	bpf_iter_num_destroy(&it);
	return sum;
}

SEC("kprobe/vectorAdd")
int cuda__iterator(void *ctx) {
	__sync_fetch_and_add(&by_iterator, sum_to(rounds));
	return 0;
}

#define can_loop                                                   \
	({                                                         \
		__label__ end, more;                               \
		_Bool loop = 1;                                    \
		asm volatile goto("may_goto %l[end]" : : : : end); \
		goto more;                                         \
end:                                                               \
		loop = 0;                                          \
more:;                                                             \
		loop;                                              \
	})

SEC("kprobe/vectorAdd")
int cuda__may_goto(void *ctx) {
	__u64 sum = 0;

	for (__u32 i = 0; i < rounds && can_loop; i++)
		sum += i;
	__sync_fetch_and_add(&by_may_goto, sum);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
