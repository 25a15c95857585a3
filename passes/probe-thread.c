/* SPDX-License-Identifier: Apache-2.0 */

/* Finds and declares the registers that hold variables of a thread (probe-thread.h). */

#include "probe-thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t probe_thread_words(const struct probe_program *program) {
	uint32_t n = 0;

	for (uint32_t i = 0; i < program->context_count; i++)
		n += point_is_thread(program->context[i]);
	return n;
}

/* Programs of one object have symbols that differ behind the last '_' alone. */
static struct probe_word word_of(const struct probe_program *program, uint16_t offset) {
	const char *end = strrchr(program->symbol, '_');

	return (struct probe_word){
		.object = program->symbol,
		.length = end ? (size_t)(end - program->symbol) : strlen(program->symbol),
		.offset = offset,
	};
}

uint32_t probe_words_match(const struct probe_words *words, const struct probe_word *word) {
	for (uint32_t i = 0; i < words->count; i++) {
		const struct probe_word *other = &words->words[i];

		if (other->offset == word->offset && other->length == word->length &&
		    !memcmp(other->object, word->object, word->length))
			return i;
	}
	return PTX_NONE;
}

uint32_t probe_words_find(const struct probe_words *words, const struct probe_program *program,
			  uint16_t offset) {
	const struct probe_word word = word_of(program, offset);

	return probe_words_match(words, &word);
}

int probe_words_add(struct probe_words *words, const struct probe_program *program) {
	for (uint32_t i = 0; i < program->context_count; i++) {
		const struct probe_word word = word_of(program, program->context[i]);
		struct probe_word *larger;

		if (!point_is_thread(word.offset) || probe_words_match(words, &word) != PTX_NONE)
			continue;
		if (words->count == words->capacity) {
			uint32_t capacity = words->capacity ? words->capacity * 2 : 8;

			larger = reallocarray(words->words, capacity, sizeof(*larger));
			if (!larger)
				return -ENOMEM;
			words->words = larger;
			words->capacity = capacity;
		}
		words->words[words->count++] = word;
	}
	return 0;
}

void probe_words_deinit(struct probe_words *words) {
	free(words->words);
	*words = (struct probe_words){ 0 };
}

int probe_words_declare(const struct probe_words *words, struct ptx_edit *edit, uint32_t offset) {
	int r = 0;

	if (words->count)
		r = ptx_edit_insertf(edit, offset, ".reg .b64 %%gpuprobe_thread<%u>;\n\t",
				     words->count);
	for (uint32_t i = 0; !r && i < words->count; i++)
		r = ptx_edit_insertf(edit, offset, "mov.b64 " PROBE_WORD ", 0;\n\t", i);
	return r;
}
