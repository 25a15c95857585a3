/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Names of the helpers of Linux and of the kfuncs that GPU programs may call (helper-name.h), and
 * the numbers by which linked programs call kfuncs.
 */

#include "helper-name.h"

#include <linux/bpf.h>
#include <stddef.h>
#include <string.h>

#define HELPER_NAME(name) "bpf_" #name

static const char *const names[] = { __BPF_FUNC_MAPPER(HELPER_NAME) };

const char *helper_kernel_name(uint32_t id) {
	return id && id < sizeof(names) / sizeof(names[0]) ? names[id] : NULL;
}

static const char *const kfuncs[_KFUNC_N] = {
	[KFUNC_ITER_NUM_NEW] = "bpf_iter_num_new",
	[KFUNC_ITER_NUM_NEXT] = "bpf_iter_num_next",
	[KFUNC_ITER_NUM_DESTROY] = "bpf_iter_num_destroy",
};

const char *kfunc_name(int32_t number) {
	return number > 0 && number < _KFUNC_N ? kfuncs[number] : NULL;
}

int32_t kfunc_find(const char *name) {
	for (int32_t i = 1; i < _KFUNC_N; i++)
		if (!strcmp(kfuncs[i], name))
			return i;
	return 0;
}
