/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of test-sim-abi. The ABI as NVIDIA's own header has it. Our declarations of the functions
 * follow it: they must agree, or this does not compile.
 */

#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include "sim-cuda.h"

#include "test-sim-abi.h"

#define ABI_TABLE abi_real
#include "test-sim-abi-table.h"
