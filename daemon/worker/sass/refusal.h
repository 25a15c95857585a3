/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Why a kernel has no machine-code twin: one line for users, which names the instruction (offset
 * and bits), the section or the attribute. What is not understood is refused, never guessed.
 */

#include <stdint.h>

#define SASS_REFUSED 1 /* what functions return that filled in a refusal; -errno is for others */

struct sass_word;

struct sass_refusal {
	char text[256];
};

/* Writes the line; returns SASS_REFUSED. */
int sass_refuse(struct sass_refusal *refusal, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same about an instruction: what, then its offset and bits. */
int sass_refuse_word(struct sass_refusal *refusal, const char *what, uint64_t offset,
		     struct sass_word word);
