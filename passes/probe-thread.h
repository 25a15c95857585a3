/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the pass `probe`: variables of a thread (proto/point.h). Each word of them that a
 * kernel's programs use is a register that the kernel declares. A program gets it as a parameter
 * and gives it back as a part of its result.
 */

#include <stdio.h>

#include "probe-program.h"

#define PROBE_WORD "%%gpuprobe_thread%u" /* the register of a word, by its number */

/* Words of programs of any number of objects, each once. */
struct probe_words {
	struct probe_word {
		const char *object; /* borrowed: begins with its name */
		size_t length; /* of that name */
		uint16_t offset; /* as of a field */
	} *words;
	uint32_t count, capacity;
};

/* How many words a program has: the last of its parameters. */
uint32_t probe_thread_words(const struct probe_program *program);

/* Adds those of a program that are not there yet. 0 or -ENOMEM. */
int probe_words_add(struct probe_words *words, const struct probe_program *program);

/* The number of the word that the program has at this offset, or PTX_NONE. */
uint32_t probe_words_find(const struct probe_words *words, const struct probe_program *program,
			  uint16_t offset);

/* The same of a word of another set. */
uint32_t probe_words_match(const struct probe_words *words, const struct probe_word *word);

void probe_words_deinit(struct probe_words *words);

/* Declares the registers of a kernel's words, 0 each, at its first statement. 0 or -ENOMEM. */
int probe_words_declare(const struct probe_words *words, struct ptx_edit *edit, uint32_t offset);
