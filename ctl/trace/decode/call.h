/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls of the CUDA driver, by the table of all its functions (lib/function.h). */

#include <stdbool.h>

#include "decode.h"

/*
 * Fills in name, base, class, result_name, size, stream, context, kernel (trace_decoder_kernel() of
 * the handle that a launch has) and the values. Times, process, thread, result, has_result, failed
 * and sequence are there already. The record is whole (trace_record_is_whole()), but words and
 * extras may be fewer than the function has, or others. False: a function that the table does not
 * have; then only result_name is filled in.
 */
bool trace_decode_call(struct trace_decoder *decoder, const struct trace_call *call,
		       struct trace_item *item);

/* Name, base and class alone. False: a function that the table does not have. */
bool trace_decode_function(uint16_t function, struct trace_item *item);

/* Whether a call of the function puts work on the GPU: launches, and copies and sets that kernels
 * may be. */
bool trace_call_launches(uint16_t function);
