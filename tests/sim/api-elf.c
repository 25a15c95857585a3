/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). The ELF that stands for a module's cubin: no code, and
 * a symbol for each function, marked as in real ones where it is a kernel.
 */

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define MACHINE_CUDA 190
#define OTHER_ENTRY 0x10 /* st_other: STO_CUDA_ENTRY */

enum {
	SECTION_NONE,
	SECTION_TEXT,
	SECTION_STRINGS,
	SECTION_SYMBOLS,
	SECTION_COUNT
};

struct layout {
	size_t symbols, strings, sections, size; /* offsets */
	size_t strings_size;
};

/* Does a kernel call that function, which is not in the module? Then the module has its name. */
static bool sets_conditions(const struct sim_program *program) {
	for (uint32_t n = 0; n < program->module_count; n++)
		if (ptx_module_find_function(&program->modules[n], SIM_SET_CONDITION,
					     strlen(SIM_SET_CONDITION)))
			return true;
	return false;
}

static void fill_symbols(const struct sim_program *program, char *elf, const struct layout *layout,
			 size_t name) {
	Elf64_Sym *symbol = (Elf64_Sym *)(elf + layout->symbols) + 1;

	for (uint32_t n = 0; n < program->function_count; n++, symbol++) {
		const struct sim_function *function = program->functions[n];

		*symbol = (Elf64_Sym){
			.st_name = name,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_other = function->entry ? OTHER_ENTRY : 0,
			.st_shndx = SECTION_TEXT,
			.st_value = (Elf64_Addr)n << 12,
			.st_size = 16,
		};
		strcpy(elf + layout->strings + name, function->name);
		name += strlen(function->name) + 1;
	}
	if (sets_conditions(program)) {
		*symbol = (Elf64_Sym){ .st_name = name,
				       .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC) };
		strcpy(elf + layout->strings + name, SIM_SET_CONDITION);
	}
}

void *api_module_elf(const struct sim_program *program, size_t *size) {
	static const char names[] = "\0.text\0.strtab\0.symtab";
	struct layout layout = { .symbols = sizeof(Elf64_Ehdr), .strings_size = sizeof(names) };
	Elf64_Shdr *sections;
	char *elf;

	for (uint32_t n = 0; n < program->function_count; n++)
		layout.strings_size += strlen(program->functions[n]->name) + 1;
	layout.strings_size += sets_conditions(program) ? sizeof(SIM_SET_CONDITION) : 0;
	layout.strings = layout.symbols + (program->function_count + 1 + sets_conditions(program)) *
						  sizeof(Elf64_Sym);
	layout.sections = (layout.strings + layout.strings_size + 7) & ~(size_t)7;
	layout.size = layout.sections + SECTION_COUNT * sizeof(Elf64_Shdr);
	elf = calloc(1, layout.size);
	if (!elf)
		return NULL;
	*(Elf64_Ehdr *)elf = (Elf64_Ehdr){
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = MACHINE_CUDA,
		.e_version = EV_CURRENT,
		.e_shoff = layout.sections,
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = SECTION_COUNT,
		.e_shstrndx = SECTION_STRINGS,
	};
	memcpy(elf + layout.strings, names, sizeof(names));
	fill_symbols(program, elf, &layout, sizeof(names));
	sections = (Elf64_Shdr *)(elf + layout.sections);
	sections[SECTION_TEXT] = (Elf64_Shdr){ .sh_name = 1,
					       .sh_type = SHT_NOBITS,
					       .sh_flags = SHF_ALLOC | SHF_EXECINSTR };
	sections[SECTION_STRINGS] = (Elf64_Shdr){
		.sh_name = 7,
		.sh_type = SHT_STRTAB,
		.sh_offset = layout.strings,
		.sh_size = layout.strings_size,
	};
	sections[SECTION_SYMBOLS] = (Elf64_Shdr){
		.sh_name = 15,
		.sh_type = SHT_SYMTAB,
		.sh_offset = layout.symbols,
		.sh_size = layout.strings - layout.symbols,
		.sh_link = SECTION_STRINGS,
		.sh_info = 1,
		.sh_entsize = sizeof(Elf64_Sym),
		.sh_addralign = 8,
	};
	*size = layout.size;
	return elf;
}
