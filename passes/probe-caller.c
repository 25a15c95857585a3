/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes functions that call programs, and calls of them (probe-caller.h).
 *
 * Such a function has a parameter for each field and each word of a thread's variables that one of
 * its programs has, and gives the words back in an array. ptxas passes all of that in registers.
 */

#include "probe-caller.h"

#include "lib/ptx/ptx-inline.h"

uint32_t probe_program_fields(const struct probe_program *program) {
	uint32_t fields = 0;

	for (uint32_t i = 0; i < program->context_count; i++)
		if (!point_is_thread(program->context[i]))
			fields |= 1u << program->context[i] / 8;
	return fields;
}

/* The list of fields and words, as parameters of a call or a declaration. */
static void write_list(FILE *stream, uint32_t fields, uint32_t words, const char *before,
		       const char *field_name, const char *word_name) {
	const char *separator = "";

	for (unsigned int field = 0; field < PROBE_FIELDS; field++) {
		if (!(fields & 1u << field))
			continue;
		fprintf(stream, "%s%s%s%u", separator, before, field_name, field);
		separator = ", ";
	}
	for (uint32_t word = 0; word < words; word++) {
		fprintf(stream, "%s%s%s%u", separator, before, word_name, word);
		separator = ", ";
	}
}

/* The call of one program; what it gives back of the words is kept. */
static void write_program(FILE *stream, const struct probe_program *program,
			  const struct probe_words *words) {
	const uint32_t n = probe_thread_words(program);
	uint32_t result = 8;

	fputs("\t{\n", stream);
	if (n)
		fprintf(stream, "\t.param .align 8 .b8 " PROBE_NAME "r[%u];\n", 8 * (1 + n));
	else
		fputs("\t.param .b64 " PROBE_NAME "r;\n", stream);
	for (uint32_t j = 0; j < program->context_count; j++) {
		const uint16_t offset = program->context[j];

		fprintf(stream, "\t.param .b64 " PROBE_NAME "a%u;\n", j);
		if (point_is_thread(offset))
			fprintf(stream, "\tst.param.b64 [" PROBE_NAME "a%u], %%w%u;\n", j,
				probe_words_find(words, program, offset));
		else
			fprintf(stream, "\tst.param.b64 [" PROBE_NAME "a%u], %%c%u;\n", j,
				offset / 8);
	}
	fprintf(stream, "\tcall (" PROBE_NAME "r), %s", program->symbol);
	for (uint32_t j = 0; j < program->context_count; j++)
		fprintf(stream, "%s" PROBE_NAME "a%u", j ? ", " : ", (", j);
	fputs(program->context_count ? ");\n" : ";\n", stream);
	for (uint32_t j = 0; j < program->context_count; j++) {
		if (!point_is_thread(program->context[j]))
			continue;
		fprintf(stream, "\tld.param.b64 %%w%u, [" PROBE_NAME "r+%u];\n",
			probe_words_find(words, program, program->context[j]), result);
		result += 8;
	}
	fputs("\t}\n", stream);
}

void probe_caller_write(FILE *stream, const struct program_set *set, const char *name,
			const uint32_t *programs, uint32_t count, const struct probe_words *words) {
	uint32_t fields = 0;
	bool loops = false;

	for (uint32_t i = 0; i < count; i++) {
		fields |= probe_program_fields(&set->programs[programs[i]]);
		loops |= set->parsed[programs[i]].loops;
	}
	fputs(".func ", stream);
	if (words->count)
		fprintf(stream, "(.param .align 8 .b8 " PROBE_NAME "w[%u]) ", 8 * words->count);
	fprintf(stream, "%s(", name);
	write_list(stream, fields, words->count, ".param .b64 ", PROBE_NAME "c", PROBE_NAME "t");
	fputs(")\n{\n", stream);
	if (loops)
		fputs(PTX_LANES_BEGIN, stream);
	if (fields)
		fprintf(stream, "\t.reg .b64 %%c<%u>;\n", PROBE_FIELDS);
	if (words->count)
		fprintf(stream, "\t.reg .b64 %%w<%u>;\n", words->count);
	for (unsigned int field = 0; field < PROBE_FIELDS; field++)
		if (fields & 1u << field)
			fprintf(stream, "\tld.param.b64 %%c%u, [" PROBE_NAME "c%u];\n", field,
				field);
	for (uint32_t word = 0; word < words->count; word++)
		fprintf(stream, "\tld.param.b64 %%w%u, [" PROBE_NAME "t%u];\n", word, word);
	for (uint32_t i = 0; i < count; i++)
		write_program(stream, &set->programs[programs[i]], words);
	if (loops)
		fputs(PTX_LANES_END, stream);
	for (uint32_t word = 0; word < words->count; word++)
		fprintf(stream, "\tst.param.b64 [" PROBE_NAME "w+%u], %%w%u;\n", 8 * word, word);
	fputs("\tret;\n}\n", stream);
}

void probe_caller_call(FILE *stream, const char *name, const struct probe_context *context,
		       const struct probe_words *words, const struct probe_words *of_kernel) {
	if (!context->wanted && !words->count) {
		fprintf(stream, "\tcall %s;\n", name);
		return;
	}
	fputs("\t{\n\t.param .b64 ", stream);
	write_list(stream, context->wanted, words->count, "", PROBE_NAME "a", PROBE_NAME "t");
	fputs(";\n", stream);
	if (words->count)
		fprintf(stream, "\t.param .align 8 .b8 " PROBE_NAME "w[%u];\n", 8 * words->count);
	for (unsigned int field = 0; field < PROBE_FIELDS; field++)
		if (context->wanted & 1u << field)
			fprintf(stream, "\tst.param.b64 [" PROBE_NAME "a%u], %s;\n", field,
				context->arguments[field]);
	for (uint32_t word = 0; word < words->count; word++)
		fprintf(stream, "\tst.param.b64 [" PROBE_NAME "t%u], " PROBE_WORD ";\n", word,
			probe_words_match(of_kernel, &words->words[word]));
	fprintf(stream, words->count ? "\tcall (" PROBE_NAME "w), %s, (" : "\tcall %s, (", name);
	write_list(stream, context->wanted, words->count, "", PROBE_NAME "a", PROBE_NAME "t");
	fputs(");\n", stream);
	for (uint32_t word = 0; word < words->count; word++)
		fprintf(stream, "\tld.param.b64 " PROBE_WORD ", [" PROBE_NAME "w+%u];\n",
			probe_words_match(of_kernel, &words->words[word]), 8 * word);
	fputs("\t}\n", stream);
}
