/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the maps that the host programs of an object use, by its relocations (host-maps.h). A
 * relocation names a map by its symbol and lies in the bytes of a program's symbol.
 */

#include "host-maps.h"

#include <elf.h>
#include <string.h>

#include "lib/bpf/elf-check.h"

/* The bytes of a program. */
struct range {
	uint32_t section;
	uint64_t start, end;
};

/* What is looked for in an object. */
struct search {
	const uint8_t *bytes;
	const Elf64_Shdr *sections;
	const char *section_names;
	struct range programs[LINKED_PROGRAMS_MAX];
	size_t n_programs;
	uint32_t maps[LINKED_MAPS_MAX]; /* symbol of each; 0: it has none */
};

/* Notes where the programs are, and the symbols of maps. */
static void read_symbols(struct search *search, const Elf64_Shdr *table,
			 const struct linked *linked, uint64_t programs) {
	const Elf64_Sym *symbols = (const void *)(search->bytes + table->sh_offset);
	const char *names =
		(const char *)search->bytes + search->sections[table->sh_link].sh_offset;

	for (uint32_t s = 0; s < table->sh_size / sizeof(*symbols); s++) {
		const char *name = names + symbols[s].st_name;

		for (size_t i = 0;
		     i < linked->n_maps && ELF64_ST_TYPE(symbols[s].st_info) == STT_OBJECT; i++)
			if (linked->maps[i].internal == LINKED_MAP_DECLARED &&
			    !strcmp(name, linked->maps[i].name))
				search->maps[i] = s;
		for (size_t i = 0;
		     i < linked->n_programs && ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC; i++)
			if (programs >> i & 1 && search->n_programs < LINKED_PROGRAMS_MAX &&
			    !strcmp(name, linked->programs[i].name))
				search->programs[search->n_programs++] =
					(struct range){ symbols[s].st_shndx, symbols[s].st_value,
							symbols[s].st_value + symbols[s].st_size };
	}
}

/* Whether an instruction is one of the programs, or of a function in .text. */
static bool is_ours(const struct search *search, uint32_t section, uint64_t offset) {
	if (!strcmp(search->section_names + search->sections[section].sh_name, ".text"))
		return true;
	for (size_t i = 0; i < search->n_programs; i++)
		if (search->programs[i].section == section && offset >= search->programs[i].start &&
		    offset < search->programs[i].end)
			return true;
	return false;
}

static uint64_t read_relocations(const struct search *search, const Elf64_Shdr *table) {
	const Elf64_Rel *relocations = (const void *)(search->bytes + table->sh_offset);
	uint64_t maps = 0;

	for (size_t r = 0; r < table->sh_size / sizeof(*relocations); r++)
		for (size_t i = 0; i < LINKED_MAPS_MAX; i++)
			if (search->maps[i] &&
			    search->maps[i] == ELF64_R_SYM(relocations[r].r_info) &&
			    is_ours(search, table->sh_info, relocations[r].r_offset))
				maps |= UINT64_C(1) << i;
	return maps;
}

int host_maps_find(const void *elf, size_t size, const struct linked *linked, uint64_t programs,
		   uint64_t *maps, char error[static 192]) {
	struct search search = { .bytes = elf };
	const Elf64_Ehdr *header = elf;

	*maps = 0;
	if (elf_check(elf, size, error))
		return 1;
	search.sections = (const void *)(search.bytes + header->e_shoff);
	search.section_names =
		(const char *)search.bytes + search.sections[header->e_shstrndx].sh_offset;
	for (size_t i = 1; i < header->e_shnum; i++)
		if (search.sections[i].sh_type == SHT_SYMTAB)
			read_symbols(&search, &search.sections[i], linked, programs);
	for (size_t i = 1; i < header->e_shnum; i++)
		if (search.sections[i].sh_type == SHT_REL)
			*maps |= read_relocations(&search, &search.sections[i]);
	return 0;
}
