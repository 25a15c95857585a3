/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads ELF files that lie in memory: 64 bits, little-endian. The bytes may be anybody's, so each
 * offset is checked before it is followed. They need no alignment: headers and records are copied
 * out. Nothing is allocated. Files that must not be read as a whole: lib/elf-symbols.h.
 */

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_view {
	const uint8_t *bytes; /* borrowed */
	size_t size;
	Elf64_Ehdr header;
	uint64_t n_sections; /* their headers lie in the file */
	uint64_t names; /* index of the section with the names of sections; may be of none */
};

/* Whether it is the header of an ELF file that can be read here. */
bool elf_is_readable(const Elf64_Ehdr *header);

/* False: it is no such file, or the headers of its sections are not all there. */
bool elf_view_init(struct elf_view *view, const void *bytes, size_t size);

/* Copies the header of a section. False: there is none of that index. */
bool elf_view_section(const struct elf_view *view, uint64_t index, Elf64_Shdr *section);

/* The first section of a name that is in the file. False: there is none. */
bool elf_view_find(const struct elf_view *view, const char *name, Elf64_Shdr *section);

/* The sh_size bytes of a section. NULL: they are not in the file. */
const uint8_t *elf_view_content(const struct elf_view *view, const Elf64_Shdr *section);

/* Copies one of the records that a section consists of. False: there is none of that index. */
bool elf_view_record(const struct elf_view *view, const Elf64_Shdr *section, uint64_t index,
		     void *record, size_t size);

/* The text at an offset of a string table, which must end with NUL. NULL: there is none. */
const char *elf_view_string(const struct elf_view *view, const Elf64_Shdr *strings,
			    uint64_t offset);

/* The name of a section, or NULL. */
const char *elf_view_name(const struct elf_view *view, const Elf64_Shdr *section);
