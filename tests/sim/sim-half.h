/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Half precision by its bits: 1-5-10 (f16) and 1-8-7 (bf16). Rounding is one of SIM_RN ... of
 * sim-op.h. */

#include <stdint.h>

float sim_half_to_float(uint64_t bits);
float sim_bfloat_to_float(uint64_t bits);
uint64_t sim_half_from_double(double value, uint32_t rounding);
uint64_t sim_bfloat_from_double(double value, uint32_t rounding);
