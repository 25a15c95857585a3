/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which GPUs the machine has, without a driver: the daemon has no GPU's device file. */

#include <stddef.h>
#include <stdint.h>

#define GPU_PCI_FOLDER "/sys/bus/pci/devices"

/*
 * The compute capabilities (90 is sm_90) of the NVIDIA GPUs below folder, each once, at most max. A
 * guess by PCI device id, and no more: what is not known is left out, and what is wrong costs its
 * user a little time. How many.
 */
size_t gpu_capabilities(const char *folder, uint32_t *capabilities, size_t max);
