/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Operations on numbers as the host evaluates them; code.c makes instructions that do the same. */

#include <stdint.h>
#include <stdio.h>

#include "format.h"
#include "script.h"
#include "words.h"

int64_t operate(enum op op, int64_t a, int64_t b);
/* The same of floats, which are bits of doubles. NaN is neither equal to anything nor in order. */
int64_t operate_float(enum op op, int64_t a, int64_t b);
/* f32() and its like: bits of a format, as those of a double. */
int64_t float_of(enum builtin_id id, int64_t bits);
/* Integers that are in order as the floats are, and back; both zeros are one. */
int64_t float_order(int64_t bits);
int64_t float_unorder(int64_t order);
double float_real(int64_t bits);
int64_t float_bits(double real);
bool float_is_nan(int64_t bits);
int64_t operate_unary(enum op op, int64_t a);
/* One conversion of printf(). */
void format_number(FILE *out, const struct format_piece *piece, int64_t number);
