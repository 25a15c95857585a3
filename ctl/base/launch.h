/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What gpuprobectl and gpuprobe-launch share. */

#define LAUNCH_KERNEL \
	"__gpuprobe_directly_run" /* the kernel that programs of kprobe/__directly_run stand in */
#define LAUNCH_NO_DEVICE 69 /* exit status: no driver, or no such device */
