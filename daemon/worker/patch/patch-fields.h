/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to patch-compose.c: the fields of a context in a patch function. */

#include <stdio.h>

#include "patch-point.h"

#define PATCH_REGISTER "%%gpuprobe_" /* registers of ours are named after this */
#define PATCH_ARGUMENT_SIZE 24

/* The parameters of a function of this class, in PTX. */
void patch_parameters_write(FILE *stream, const struct patch_class *class);

/*
 * What comes before the first attachment: the parameters in registers; of memory, a prefetch goes
 * to the label `end`, and the kind of access.
 */
void patch_prologue_write(FILE *stream, const struct patch_class *class, const char *end);

/*
 * Computes the field at `offset`, which the class has (patch_context_has()), in a register of its
 * own if need be, and says in `argument` what stands for it: a register, or a number.
 */
void patch_field_write(FILE *stream, const struct patch_class *class, uint32_t offset,
		       char argument[PATCH_ARGUMENT_SIZE]);
