/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The name of a launch. A twin's kernel (proto/twin.h) whose programs read it takes one parameter
 * more than the original, behind the last one: this block. The shim fills it in at each launch.
 * Programs see it as the struct gpuprobe_launch of gpuprobe.bpf.h, which is the same.
 */

#include <stdint.h>

struct launch_block {
	uint64_t id; /* of this launch; 0: not known. Another launch does not have it */
	uint64_t stream; /* its handle; 1 and 2: the default ones, as traces name them */
	uint64_t thread; /* of the host that launched it: its id in the process's pid namespace */
	uint64_t node; /* of an executable graph; 0: it is in none */
};

#define LAUNCH_BLOCK_PARAMETER "__gpuprobe_launch" /* its name in PTX */
#define LAUNCH_BLOCK_ALIGNMENT 8
#define LAUNCH_BLOCK_FIELDS (sizeof(struct launch_block) / 8)

/* What the parameters of a kernel may take together, in bytes. */
#define LAUNCH_PARAMETERS_MAX UINT32_C(4096)
/* The same from PTX 8.1 and sm_70 on. */
#define LAUNCH_PARAMETERS_MAX_LARGE UINT32_C(32764)
