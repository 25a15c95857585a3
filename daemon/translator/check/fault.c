/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Formats what is wrong with a program: program, instruction, source line (fault.h). All steps of
 * the translator use it to refuse a program.
 */

#include "fault.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/translator/translate.h"

static void fault_format(struct fault *fault, int used, const char *format, va_list args) {
	if (used < 0 || (size_t)used >= sizeof(fault->text))
		return;
	vsnprintf(fault->text + used, sizeof(fault->text) - (size_t)used, format, args);
}

static const char *string_at(const struct translate_lines *lines, uint32_t offset) {
	return offset < lines->strings_size ? lines->strings + offset : "";
}

/* Appends the source line of an instruction: the record's that begins at it, or last before it. */
static void add_line(struct fault *fault, size_t pc) {
	const struct translate_lines *lines = fault->lines;
	struct bpf_line_info record, found = { 0 };
	size_t used = strlen(fault->text);
	const char *text, *file, *slash;

	for (size_t i = 0; lines && i < lines->n; i++) {
		memcpy(&record, lines->records + i * lines->record_size, sizeof(record));
		if (record.insn_off <= pc && record.insn_off >= found.insn_off)
			found = record;
	}
	text = lines ? string_at(lines, found.line_off) : "";
	text += strspn(text, " \t");
	if (!*text)
		return;
	file = string_at(lines, found.file_name_off);
	slash = strrchr(file, '/');
	snprintf(fault->text + used, sizeof(fault->text) - used, ": %.192s @ %.64s:%u", text,
		 slash ? slash + 1 : file, found.line_col >> 10);
	for (char *c = fault->text + used; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
}

int fault_at(struct fault *fault, size_t pc, const char *format, ...) {
	va_list args;

	va_start(args, format);
	fault_format(fault,
		     snprintf(fault->text, sizeof(fault->text),
			      "program %.128s, instruction %zu: ", fault->program, pc),
		     format, args);
	va_end(args);
	add_line(fault, pc);
	return TRANSLATE_E_PROGRAM;
}

int fault_whole(struct fault *fault, const char *format, ...) {
	va_list args;

	va_start(args, format);
	fault_format(fault,
		     snprintf(fault->text, sizeof(fault->text), "program %.128s: ", fault->program),
		     format, args);
	va_end(args);
	return TRANSLATE_E_PROGRAM;
}
