/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the maps that the host programs of an object use, by its relocations (host-maps.h). A
 * relocation names a map by its symbol and lies in the bytes of a program's symbol.
 */

#include "host-maps.h"

#include <string.h>

#include "lib/base/elf.h"
#include "lib/bpf/elf-check.h"

/* The bytes of a program. */
struct range {
	uint32_t section;
	uint64_t start, end;
};

/* What is looked for in an object. */
struct search {
	struct elf_view elf;
	struct range programs[LINKED_PROGRAMS_MAX];
	size_t n_programs;
	uint32_t maps[LINKED_MAPS_MAX]; /* symbol of each; 0: it has none */
};

/* Notes where the programs are, and the symbols of maps. */
static void read_symbols(struct search *search, const Elf64_Shdr *table,
			 const struct linked *linked, uint64_t programs) {
	Elf64_Shdr strings;
	Elf64_Sym symbol;

	if (!elf_view_section(&search->elf, table->sh_link, &strings))
		return;
	for (uint32_t s = 0; elf_view_record(&search->elf, table, s, &symbol, sizeof(symbol));
	     s++) {
		const char *name = elf_view_string(&search->elf, &strings, symbol.st_name);
		const unsigned char type = ELF64_ST_TYPE(symbol.st_info);

		for (size_t i = 0; i < linked->n_maps && name && type == STT_OBJECT; i++)
			if (linked->maps[i].internal == LINKED_MAP_DECLARED &&
			    !strcmp(name, linked->maps[i].name))
				search->maps[i] = s;
		for (size_t i = 0; i < linked->n_programs && name && type == STT_FUNC; i++)
			if (programs >> i & 1 && search->n_programs < LINKED_PROGRAMS_MAX &&
			    !strcmp(name, linked->programs[i].name))
				search->programs[search->n_programs++] =
					(struct range){ symbol.st_shndx, symbol.st_value,
							symbol.st_value + symbol.st_size };
	}
}

/* Whether an instruction is one of the programs, or of a function in .text. */
static bool is_ours(const struct search *search, uint32_t index, uint64_t offset) {
	Elf64_Shdr section;
	const char *name;

	if (!elf_view_section(&search->elf, index, &section))
		return false;
	name = elf_view_name(&search->elf, &section);
	if (name && !strcmp(name, ".text"))
		return true;
	for (size_t i = 0; i < search->n_programs; i++)
		if (search->programs[i].section == index && offset >= search->programs[i].start &&
		    offset < search->programs[i].end)
			return true;
	return false;
}

static uint64_t read_relocations(const struct search *search, const Elf64_Shdr *table) {
	Elf64_Rel relocation;
	uint64_t maps = 0;

	for (uint64_t r = 0;
	     elf_view_record(&search->elf, table, r, &relocation, sizeof(relocation)); r++)
		for (size_t i = 0; i < LINKED_MAPS_MAX; i++)
			if (search->maps[i] && search->maps[i] == ELF64_R_SYM(relocation.r_info) &&
			    is_ours(search, table->sh_info, relocation.r_offset))
				maps |= UINT64_C(1) << i;
	return maps;
}

int host_maps_find(const void *elf, size_t size, const struct linked *linked, uint64_t programs,
		   uint64_t *maps, char error[static 192]) {
	struct search search = {};
	Elf64_Shdr section;

	*maps = 0;
	if (elf_check(elf, size, error) || !elf_view_init(&search.elf, elf, size))
		return 1;
	for (uint64_t i = 1; elf_view_section(&search.elf, i, &section); i++)
		if (section.sh_type == SHT_SYMTAB)
			read_symbols(&search, &section, linked, programs);
	for (uint64_t i = 1; elf_view_section(&search.elf, i, &section); i++)
		if (section.sh_type == SHT_REL)
			*maps |= read_relocations(&search, &section);
	return 0;
}
