/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the pass `probe`: functions that call programs, where a place's programs do not stand
 * themselves, and calls of these.
 */

#include <stdio.h>

#include "probe-context.h"
#include "probe-program.h"
#include "probe-thread.h"

#define PROBE_NAME                                                                           \
	"__gpuprobe_" /* of parameters: assemblers do not let a scope hide a kernel's, nor a \
			 function a variable */

/* Bits of the fields that a program reads. */
uint32_t probe_program_fields(const struct probe_program *program);

/*
 * Writes a function that calls programs one after the other, with the fields that each reads and
 * the words that it uses. Words: those of all of them, in the order of the function's parameters.
 */
void probe_caller_write(FILE *stream, const struct program_set *set, const char *name,
			const uint32_t *programs, uint32_t count, const struct probe_words *words);

/* Writes a call of it. of_kernel: the words that the kernel has in registers. */
void probe_caller_call(FILE *stream, const char *name, const struct probe_context *context,
		       const struct probe_words *words, const struct probe_words *of_kernel);
