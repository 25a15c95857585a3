/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct abi_row {
	const char *name;
	unsigned long long value;
};

extern const struct abi_row abi_ours[], abi_real[];
