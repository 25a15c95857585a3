/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the relocations of a cubin (cubin-relocation.h). The file may be anything: every table is
 * checked to lie inside before it is read, and structures are copied out, as nothing needs to be
 * aligned.
 */

#include "cubin-relocation.h"

#include <errno.h>
#include <string.h>

static bool within(const struct cubin_relocations *file, uint64_t offset, uint64_t size) {
	return offset <= file->size && size <= file->size - offset;
}

static bool read_section(const struct cubin_relocations *file, uint32_t index,
			 Elf64_Shdr *section) {
	if (index >= file->header.e_shnum)
		return false;
	memcpy(section, file->data + file->header.e_shoff + (uint64_t)index * sizeof(*section),
	       sizeof(*section));
	return true;
}

/* A string of a string section, which must end inside of it; NULL if there is none. */
static const char *read_string(const struct cubin_relocations *file, const Elf64_Shdr *strings,
			       uint32_t offset) {
	const char *string;

	if (strings->sh_type != SHT_STRTAB || !within(file, strings->sh_offset, strings->sh_size) ||
	    offset >= strings->sh_size)
		return NULL;
	string = (const char *)file->data + strings->sh_offset + offset;
	return memchr(string, '\0', strings->sh_size - offset) ? string : NULL;
}

bool cubin_relocations_init(struct cubin_relocations *file, const void *data, size_t size) {
	*file = (struct cubin_relocations){ .data = data, .size = size };
	if (size < sizeof(file->header))
		return false;
	memcpy(&file->header, data, sizeof(file->header));
	return !memcmp(file->header.e_ident, ELFMAG, SELFMAG) &&
	       file->header.e_ident[EI_CLASS] == ELFCLASS64 &&
	       file->header.e_ident[EI_DATA] == ELFDATA2LSB && file->header.e_machine == EM_CUDA &&
	       file->header.e_shentsize == sizeof(Elf64_Shdr) &&
	       within(file, file->header.e_shoff, file->header.e_shnum * sizeof(Elf64_Shdr)) &&
	       read_section(file, file->header.e_shstrndx, &file->names);
}

/* The symbol of that index in the table of a relocation section. */
static bool read_symbol(const struct cubin_relocations *file, uint32_t table_index, uint64_t index,
			struct cubin_relocation *out) {
	Elf64_Shdr table, strings, section;
	const char *place;
	Elf64_Sym symbol;

	if (!read_section(file, table_index, &table) || table.sh_type != SHT_SYMTAB ||
	    !within(file, table.sh_offset, table.sh_size) ||
	    index >= table.sh_size / sizeof(symbol) || !read_section(file, table.sh_link, &strings))
		return false;
	memcpy(&symbol, file->data + table.sh_offset + index * sizeof(symbol), sizeof(symbol));
	out->symbol = read_string(file, &strings, symbol.st_name);
	if (!out->symbol)
		return false;
	if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT ||
	    !read_section(file, symbol.st_shndx, &section))
		return true;
	place = read_string(file, &file->names, section.sh_name);
	out->variable = place && !strncmp(place, ".nv.global", 10);
	return true;
}

/* One entry of a section of relocations. */
static bool read_entry(const struct cubin_relocations *file, const Elf64_Shdr *section,
		       uint64_t index, struct cubin_relocation *out) {
	const bool has_addend = section->sh_type == SHT_RELA;
	const size_t size = has_addend ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
	Elf64_Rela entry = {};
	Elf64_Shdr target;

	*out = (struct cubin_relocation){ .entry = section->sh_offset + index * size };
	memcpy(&entry, file->data + out->entry, size);
	if (!read_section(file, section->sh_info, &target))
		return false;
	out->section = read_string(file, &file->names, target.sh_name);
	out->type = ELF64_R_TYPE(entry.r_info);
	out->addend = entry.r_addend;
	if (!out->section || !read_symbol(file, section->sh_link, ELF64_R_SYM(entry.r_info), out))
		return false;
	if (target.sh_type == SHT_NOBITS || !within(file, target.sh_offset, target.sh_size) ||
	    target.sh_size < sizeof(uint64_t) || entry.r_offset > target.sh_size - sizeof(uint64_t))
		return true;
	out->at = target.sh_offset + entry.r_offset;
	if (!has_addend && out->type == CUBIN_RELOCATION_64)
		memcpy(&out->addend, file->data + out->at, sizeof(out->addend));
	return true;
}

int cubin_relocations_next(struct cubin_relocations *file, struct cubin_relocation *relocation) {
	for (; file->section < file->header.e_shnum; file->section++, file->index = 0) {
		Elf64_Shdr section;
		size_t size;

		if (!read_section(file, file->section, &section))
			return -EINVAL;
		if (section.sh_type != SHT_REL && section.sh_type != SHT_RELA)
			continue;
		size = section.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
		if (!within(file, section.sh_offset, section.sh_size))
			return -EINVAL;
		if (file->index < section.sh_size / size)
			return read_entry(file, &section, file->index++, relocation) ? 1 : -EINVAL;
	}
	return 0;
}

void cubin_relocation_drop(uint8_t *data, const struct cubin_relocation *relocation) {
	uint64_t info;

	memcpy(&info, data + relocation->entry + offsetof(Elf64_Rel, r_info), sizeof(info));
	info = ELF64_R_INFO(ELF64_R_SYM(info), CUBIN_RELOCATION_NONE);
	memcpy(data + relocation->entry + offsetof(Elf64_Rel, r_info), &info, sizeof(info));
}
