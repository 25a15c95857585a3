/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as an ELF file in memory: what is found of it lies in there, and texts end
 * there.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RECORDS_MAX 4096 /* sections may overlap, so that there are many */

static void check_text(const struct elf_view *view, const char *text) {
	const uint8_t *start = (const uint8_t *)text;

	if (text && (start < view->bytes || start + strlen(text) >= view->bytes + view->size))
		abort();
}

static void read_records(const struct elf_view *view, const Elf64_Shdr *section) {
	Elf64_Shdr strings;
	Elf64_Sym symbol;

	if (!elf_view_section(view, section->sh_link, &strings))
		return;
	for (uint64_t i = 0;
	     i < RECORDS_MAX && elf_view_record(view, section, i, &symbol, sizeof(symbol)); i++)
		check_text(view, elf_view_string(view, &strings, symbol.st_name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct elf_view view;
	Elf64_Shdr section;

	if (!elf_view_init(&view, data, size))
		return 0;
	if (view.n_sections > size / sizeof(section))
		abort();
	for (uint64_t i = 0; elf_view_section(&view, i, &section); i++) {
		const uint8_t *content = elf_view_content(&view, &section);

		if (content && (content < data || section.sh_size > size ||
				content > data + size - section.sh_size))
			abort();
		check_text(&view, elf_view_name(&view, &section));
		if (i < RECORDS_MAX)
			read_records(&view, &section);
	}
	if (elf_view_find(&view, ".symtab", &section) &&
	    strcmp(elf_view_name(&view, &section), ".symtab") != 0)
		abort();
	return 0;
}
