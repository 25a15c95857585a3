/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What function-table.py makes of functions.txt, besides function_all, for function.c. */

#include "function.h"

extern const uint16_t
	function_table_numbers[TRACE_FUNCTION_DYNAMIC]; /* of a number: place in function_all,
							   counted from 1; 0: there is none */
extern const struct function_enum *const function_table_results;
