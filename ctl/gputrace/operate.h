/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Operations on numbers as the host evaluates them; code.c makes instructions that do the same. */

#include <stdint.h>
#include <stdio.h>

#include "format.h"
#include "script.h"

int64_t operate(enum op op, int64_t a, int64_t b);
int64_t operate_unary(enum op op, int64_t a);
/* One conversion of printf(). */
void format_number(FILE *out, const struct format_piece *piece, int64_t number);
