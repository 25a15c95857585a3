/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* What a helper of the kernel is called ("bpf_loop"); NULL if the headers of this build know none.
 */
const char *helper_kernel_name(uint32_t id);

/*
 * Functions of the kernel (kfuncs) that a GPU has, too. A linked program calls them by these
 * numbers (src_reg 2), as the kernel's own, ids of its BTF, mean nothing on a GPU.
 */
enum kfunc {
	KFUNC_ITER_NUM_NEW = 1,
	KFUNC_ITER_NUM_NEXT,
	KFUNC_ITER_NUM_DESTROY,
	_KFUNC_N,
};

/* "bpf_iter_num_new"; NULL if there is no such number. */
const char *kfunc_name(int32_t number);

/* The number of a name; 0: a GPU has no such function. */
int32_t kfunc_find(const char *name);
