/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One line for a person about what is wrong with a program, and where. */

#include <stddef.h>

struct translate_lines;

struct fault {
	const char *program; /* borrowed: the program under translation */
	const struct translate_lines *lines; /* borrowed: of that program; or NULL */
	char text[768]; /* empty: none */
};

/*
 * Fills in "program NAME, instruction PC: ...: SOURCE LINE @ FILE:NUMBER", as the verifier has it.
 * Returns TRANSLATE_E_PROGRAM, for `return fault_at(...)`.
 */
int fault_at(struct fault *fault, size_t pc, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Fills in "program NAME: ...". Returns TRANSLATE_E_PROGRAM. */
int fault_whole(struct fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
