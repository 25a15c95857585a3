/* SPDX-License-Identifier: Apache-2.0 */

/* Reads ELF files that lie in memory (elf.h). */

#include "elf.h"

#include <string.h>

static bool is_within(const struct elf_view *view, uint64_t offset, uint64_t size) {
	return offset <= view->size && size <= view->size - offset;
}

bool elf_is_readable(const Elf64_Ehdr *header) {
	return !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
	       header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == ELFDATA2LSB;
}

/* Numbers that do not fit into the file's header are in that of the first section. */
static bool read_counts(struct elf_view *view) {
	const Elf64_Ehdr *header = &view->header;
	Elf64_Shdr first;

	view->n_sections = header->e_shnum;
	view->names = header->e_shstrndx;
	if (!header->e_shoff)
		return !header->e_shnum;
	if (header->e_shentsize != sizeof(first) ||
	    !is_within(view, header->e_shoff, sizeof(first)))
		return false;
	memcpy(&first, view->bytes + header->e_shoff, sizeof(first));
	if (!header->e_shnum)
		view->n_sections = first.sh_size;
	if (header->e_shstrndx == SHN_XINDEX)
		view->names = first.sh_link;
	return view->n_sections <= (view->size - header->e_shoff) / sizeof(first);
}

bool elf_view_init(struct elf_view *view, const void *bytes, size_t size) {
	*view = (struct elf_view){ .bytes = bytes, .size = size };
	if (size < sizeof(view->header))
		return false;
	memcpy(&view->header, bytes, sizeof(view->header));
	return elf_is_readable(&view->header) && read_counts(view);
}

bool elf_view_section(const struct elf_view *view, uint64_t index, Elf64_Shdr *section) {
	if (index >= view->n_sections)
		return false;
	memcpy(section, view->bytes + view->header.e_shoff + index * sizeof(*section),
	       sizeof(*section));
	return true;
}

bool elf_view_find(const struct elf_view *view, const char *name, Elf64_Shdr *section) {
	for (uint64_t i = 1; elf_view_section(view, i, section); i++) {
		const char *found = elf_view_name(view, section);

		if (section->sh_type != SHT_NOBITS && found && !strcmp(found, name))
			return true;
	}
	return false;
}

const uint8_t *elf_view_content(const struct elf_view *view, const Elf64_Shdr *section) {
	return section->sh_type != SHT_NOBITS &&
			       is_within(view, section->sh_offset, section->sh_size)
		       ? view->bytes + section->sh_offset
		       : NULL;
}

bool elf_view_record(const struct elf_view *view, const Elf64_Shdr *section, uint64_t index,
		     void *record, size_t size) {
	const uint8_t *content = elf_view_content(view, section);

	if (!content || index >= section->sh_size / size)
		return false;
	memcpy(record, content + index * size, size);
	return true;
}

const char *elf_view_string(const struct elf_view *view, const Elf64_Shdr *strings,
			    uint64_t offset) {
	const uint8_t *content = elf_view_content(view, strings);

	return content && strings->sh_type == SHT_STRTAB && offset < strings->sh_size &&
			       !content[strings->sh_size - 1]
		       ? (const char *)content + offset
		       : NULL;
}

const char *elf_view_name(const struct elf_view *view, const Elf64_Shdr *section) {
	Elf64_Shdr names;

	return elf_view_section(view, view->names, &names)
		       ? elf_view_string(view, &names, section->sh_name)
		       : NULL;
}
