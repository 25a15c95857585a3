/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the relocations of a cubin (cubin-relocation.h). The file may be anything: lib/base/elf
 * checks each offset.
 */

#include "cubin-relocation.h"

#include <errno.h>
#include <string.h>

bool cubin_relocations_init(struct cubin_relocations *relocations, const void *data, size_t size) {
	*relocations = (struct cubin_relocations){};
	return elf_view_init(&relocations->view, data, size) &&
	       relocations->view.header.e_machine == EM_CUDA;
}

/* The symbol of that index in the table of a section of relocations. */
static bool read_symbol(const struct elf_view *view, const Elf64_Shdr *relocations, uint64_t index,
			struct cubin_relocation *out) {
	Elf64_Shdr table, strings, section;
	const char *place;
	Elf64_Sym symbol;

	if (!elf_view_section(view, relocations->sh_link, &table) || table.sh_type != SHT_SYMTAB ||
	    !elf_view_record(view, &table, index, &symbol, sizeof(symbol)) ||
	    !elf_view_section(view, table.sh_link, &strings))
		return false;
	out->symbol = elf_view_string(view, &strings, symbol.st_name);
	if (!out->symbol)
		return false;
	if ((ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT &&
	     ELF64_ST_TYPE(symbol.st_info) != STT_SECTION) ||
	    !elf_view_section(view, symbol.st_shndx, &section))
		return true;
	place = elf_view_name(view, &section);
	out->variable = place && !strncmp(place, ".nv.global", 10);
	return true;
}

/* One entry of a section of relocations, Elf64_Rel or (with an addend) Elf64_Rela. */
static bool read_entry(const struct elf_view *view, const Elf64_Shdr *relocations, uint64_t index,
		       size_t size, struct cubin_relocation *out) {
	const uint8_t *content;
	Elf64_Rela entry = {};
	Elf64_Shdr target;

	if (!elf_view_record(view, relocations, index, &entry, size) ||
	    !elf_view_section(view, relocations->sh_info, &target))
		return false;
	*out = (struct cubin_relocation){
		.section = elf_view_name(view, &target),
		.type = ELF64_R_TYPE(entry.r_info),
		.addend = entry.r_addend,
		.entry = relocations->sh_offset + index * size,
	};
	if (!out->section || !read_symbol(view, relocations, ELF64_R_SYM(entry.r_info), out))
		return false;
	content = target.sh_type == SHT_NOBITS ? NULL : elf_view_content(view, &target);
	if (!content || target.sh_size < sizeof(uint64_t) ||
	    entry.r_offset > target.sh_size - sizeof(uint64_t))
		return true;
	out->at = target.sh_offset + entry.r_offset;
	if (size == sizeof(Elf64_Rel) && out->type == CUBIN_RELOCATION_64)
		memcpy(&out->addend, content + entry.r_offset, sizeof(out->addend));
	return true;
}

int cubin_relocations_next(struct cubin_relocations *relocations,
			   struct cubin_relocation *relocation) {
	const struct elf_view *view = &relocations->view;
	Elf64_Shdr section;

	for (; elf_view_section(view, relocations->section, &section);
	     relocations->section++, relocations->index = 0) {
		const size_t size =
			section.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);

		if (section.sh_type != SHT_REL && section.sh_type != SHT_RELA)
			continue;
		if (!elf_view_content(view, &section))
			return -EINVAL;
		if (relocations->index < section.sh_size / size)
			return read_entry(view, &section, relocations->index++, size, relocation)
				       ? 1
				       : -EINVAL;
	}
	return 0;
}

void cubin_relocation_drop(uint8_t *data, const struct cubin_relocation *relocation) {
	uint64_t info;

	memcpy(&info, data + relocation->entry + offsetof(Elf64_Rel, r_info), sizeof(info));
	info = ELF64_R_INFO(ELF64_R_SYM(info), CUBIN_RELOCATION_NONE);
	memcpy(data + relocation->entry + offsetof(Elf64_Rel, r_info), &info, sizeof(info));
}
