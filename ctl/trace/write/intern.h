/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Texts that get a number, in a table that is emptied when it is full: the numbers begin anew then.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERN_TEXT_MAX 1024 /* longer ones are worth no number */

struct intern;

int intern_new(struct intern **internp);
struct intern *intern_free(struct intern *intern);
bool intern_is_full(const struct intern *intern);
void intern_clear(struct intern *intern);
uint64_t intern_get(struct intern *intern, unsigned kind, const char *text, bool *newp);
