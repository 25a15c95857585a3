/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rows that test-sim-abi.c compares: sizes and numbers of the CPU driver (ours) and of NVIDIA's
 * cuda.h (real).
 */

struct abi_row {
	const char *name;
	unsigned long long value;
};

extern const struct abi_row abi_ours[], abi_real[];
