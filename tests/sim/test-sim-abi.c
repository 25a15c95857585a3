/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Compares sim-cuda.h, the declarations of the CPU driver, with a real <cuda.h>, row by row. Built
 * only where there is one.
 */

#include <stdio.h>
#include <string.h>

#include "sim-cuda.h"

#include "test-sim-abi.h"

#define ABI_TABLE abi_ours
#include "test-sim-abi-table.h"

int main(void) {
	int wrong = 0, n;

	for (n = 0; abi_ours[n].name && abi_real[n].name; n++)
		if (strcmp(abi_ours[n].name, abi_real[n].name) ||
		    abi_ours[n].value != abi_real[n].value) {
			printf("%s: %llu, the real one is %llu\n", abi_ours[n].name,
			       abi_ours[n].value, abi_real[n].value);
			wrong++;
		}
	printf("%d rows, %d wrong\n", n, wrong);
	return wrong || n < 100;
}
