/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* What a helper of the kernel is called ("bpf_loop"); NULL if the headers of this build know none. */
const char *helper_kernel_name(uint32_t id);
