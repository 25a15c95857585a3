/* SPDX-License-Identifier: Apache-2.0 */

#include "helper-name.h"

#include <linux/bpf.h>
#include <stddef.h>

#define HELPER_NAME(name) "bpf_" #name

static const char *const names[] = { __BPF_FUNC_MAPPER(HELPER_NAME) };

const char *helper_kernel_name(uint32_t id)
{
	return id && id < sizeof(names) / sizeof(names[0]) ? names[id] : NULL;
}
