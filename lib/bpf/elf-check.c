/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks the structure of a stranger's eBPF object file before libbpf reads it (elf-check.h).
 *
 * libbpf takes the inside of an object file on trust in many places: a symbol of a section that is
 * not there, an empty .BTF.ext or a type that refers to nothing make it crash. The worker may
 * crash, but its user should read what is wrong. So each number that leads somewhere is looked at
 * before libbpf sees it. Nothing is said about what the object means.
 *
 * What no GPU program can use is refused here too: relocations in maps (maps of maps, arrays of
 * programs).
 */

#include "elf-check.h"

#include <bpf/btf.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "btf-check.h"
#include "lib/base/elf.h"

#ifndef EM_BPF
#define EM_BPF 247
#endif
#define SECTIONS_MAX 4096
#define NOBITS_MAX ((uint64_t)16 << 20)

struct elf_file {
	struct elf_view view;
	uint64_t symbols; /* index of the symbol table */
	size_t n_symbols;
	char *error;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct elf_file *f, const char *format,
							...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(f->error, ELF_CHECK_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return false;
}

static bool check_header(struct elf_file *f, const void *bytes, size_t size) {
	const Elf64_Ehdr *header = bytes;

	if (size < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG))
		return wrong(f, "not an ELF file");
	if (!elf_is_readable(header) || header->e_ident[EI_VERSION] != EV_CURRENT ||
	    header->e_machine != EM_BPF || header->e_type != ET_REL)
		return wrong(f,
			     "not a valid eBPF object file: compile it with clang -target bpf -c");
	if (header->e_ehsize != sizeof(*header) || header->e_phnum || header->e_shnum < 2 ||
	    header->e_shnum > SECTIONS_MAX || header->e_shoff % 8 ||
	    !elf_view_init(&f->view, bytes, size))
		return wrong(f, "malformed ELF file: its section headers");
	return true;
}

/* Whether a section is a string table: texts that end with NUL. */
static bool is_strings(const struct elf_file *f, uint64_t i) {
	Elf64_Shdr section;
	const char *first;

	if (!i || !elf_view_section(&f->view, i, &section))
		return false;
	first = elf_view_string(&f->view, &section, 0);
	return first && !*first;
}

static bool check_section(struct elf_file *f, uint64_t i, const Elf64_Shdr *section) {
	const uint64_t file_size = section->sh_type == SHT_NOBITS ? 0 : section->sh_size;

	if (section->sh_offset > f->view.size || file_size > f->view.size - section->sh_offset ||
	    section->sh_size > NOBITS_MAX || (section->sh_flags & SHF_COMPRESSED))
		return wrong(f, "malformed ELF file: section %" PRIu64, i);
	if (file_size && section->sh_offset % 8 &&
	    (section->sh_type == SHT_SYMTAB || section->sh_type == SHT_REL ||
	     (section->sh_flags & SHF_EXECINSTR)))
		return wrong(f, "malformed ELF file: section %" PRIu64 " is not aligned", i);
	return true;
}

/* Every section lies in the file and has a name. */
static bool check_sections(struct elf_file *f) {
	Elf64_Shdr section;

	if (!elf_view_section(&f->view, 0, &section) || section.sh_type != SHT_NULL)
		return wrong(f, "malformed ELF file: its first section");
	for (uint64_t i = 1; elf_view_section(&f->view, i, &section); i++)
		if (!check_section(f, i, &section))
			return false;
	if (!is_strings(f, f->view.header.e_shstrndx))
		return wrong(f, "malformed ELF file: the names of its sections");
	for (uint64_t i = 1; elf_view_section(&f->view, i, &section); i++)
		if (!elf_view_name(&f->view, &section))
			return wrong(f, "malformed ELF file: the name of section %" PRIu64, i);
	return true;
}

/* A symbol lies in its section. */
static bool check_symbol(struct elf_file *f, uint64_t i, const Elf64_Sym *symbol) {
	Elf64_Shdr section;

	if (symbol->st_shndx == SHN_ABS)
		return true;
	if (symbol->st_shndx >= SHN_LORESERVE ||
	    !elf_view_section(&f->view, symbol->st_shndx, &section))
		return wrong(f, "malformed ELF file: the section of symbol %" PRIu64, i);
	if (symbol->st_shndx && (symbol->st_value > section.sh_size ||
				 symbol->st_size > section.sh_size - symbol->st_value))
		return wrong(
			f, "malformed ELF file: symbol %" PRIu64 " lies outside of its section", i);
	return true;
}

/* There is one symbol table, and its symbols have names. */
static bool check_symbols(struct elf_file *f) {
	Elf64_Shdr section, table = {}, strings;
	Elf64_Sym symbol;

	for (uint64_t i = 1; elf_view_section(&f->view, i, &section); i++)
		if (section.sh_type == SHT_SYMTAB) {
			if (f->symbols)
				return wrong(f, "malformed ELF file: two symbol tables");
			f->symbols = i;
			table = section;
		} else if (section.sh_type == SHT_DYNSYM || section.sh_type == SHT_SYMTAB_SHNDX)
			return wrong(f, "malformed ELF file: unusual symbols");
	if (!f->symbols)
		return wrong(f, "it has no symbols: strip it with -g at most");
	if (table.sh_entsize != sizeof(symbol) || table.sh_size % sizeof(symbol) ||
	    !is_strings(f, table.sh_link) || !elf_view_section(&f->view, table.sh_link, &strings))
		return wrong(f, "malformed ELF file: its symbol table");
	f->n_symbols = table.sh_size / sizeof(symbol);
	for (uint64_t i = 0; elf_view_record(&f->view, &table, i, &symbol, sizeof(symbol)); i++) {
		if (symbol.st_name >= strings.sh_size)
			return wrong(f, "malformed ELF file: the name of symbol %" PRIu64, i);
		if (!check_symbol(f, i, &symbol))
			return false;
	}
	return true;
}

/* One relocation table: of a section that is there, with symbols that are. */
static bool check_relocations(struct elf_file *f, const Elf64_Shdr *table) {
	Elf64_Rel relocation;
	Elf64_Shdr target;
	const char *name;

	if (table->sh_entsize != sizeof(relocation) || table->sh_size % sizeof(relocation) ||
	    !table->sh_info || table->sh_link != f->symbols ||
	    !elf_view_section(&f->view, table->sh_info, &target))
		return wrong(f, "malformed ELF file: a relocation table");
	name = elf_view_name(&f->view, &target);
	if (!strcmp(name, ".maps") || !strcmp(name, ".struct_ops") ||
	    !strcmp(name, ".struct_ops.link"))
		return wrong(f, "maps of maps, of programs or of operations do not exist on a GPU");
	for (uint64_t i = 0; elf_view_record(&f->view, table, i, &relocation, sizeof(relocation));
	     i++)
		if (ELF64_R_SYM(relocation.r_info) >= f->n_symbols ||
		    relocation.r_offset >= target.sh_size)
			return wrong(f, "malformed ELF file: relocation %" PRIu64 " of %.64s", i,
				     name);
	return true;
}

/* Marks the instructions of a section that are relocated. */
static void mark_relocated(const struct elf_file *f, uint64_t index, uint8_t *marks) {
	Elf64_Rel relocation;
	Elf64_Shdr table;

	for (uint64_t i = 1; elf_view_section(&f->view, i, &table); i++) {
		if (table.sh_type != SHT_REL || table.sh_info != index)
			continue;
		for (uint64_t r = 0;
		     elf_view_record(&f->view, &table, r, &relocation, sizeof(relocation)); r++)
			if (relocation.r_offset % sizeof(struct bpf_insn) == 0)
				marks[relocation.r_offset / sizeof(struct bpf_insn)] = 1;
	}
}

/*
 * Programs call functions in .text, by relocations. A call without one leads to another program of
 * the section: libbpf before 1.2 frees memory twice if there are several. All relocations have been
 * checked.
 */
static bool check_calls(struct elf_file *f, uint64_t index, const Elf64_Shdr *section) {
	const char *name = elf_view_name(&f->view, section);
	struct bpf_insn insn;
	bool ok = true;
	uint8_t *marks;

	if (!strcmp(name, ".text"))
		return true;
	marks = calloc(section->sh_size / sizeof(insn) + 1, 1);
	if (!marks)
		return wrong(f, "no memory");
	mark_relocated(f, index, marks);
	for (uint64_t i = 0; ok && elf_view_record(&f->view, section, i, &insn, sizeof(insn)); i++)
		if (insn.code == (BPF_JMP | BPF_CALL) && insn.src_reg == BPF_PSEUDO_CALL &&
		    !marks[i])
			ok = wrong(f,
				   "a program in section %.64s calls another program; only "
				   "functions can be called",
				   name);
	free(marks);
	return ok;
}

static bool check_btf(struct elf_file *f, bool btf, bool ext) {
	const void *bytes = f->view.bytes, *data, *ext_data;
	size_t size = 0, ext_size = 0;
	char error[BTF_CHECK_ERROR_SIZE];
	struct btf *opened;

	if (!btf)
		return !ext || wrong(f, "malformed ELF file: .BTF.ext without .BTF");
	data = elf_section(bytes, f->view.size, ".BTF", &size);
	if (btf_open(&opened, data, size, error))
		return wrong(f, "malformed BTF: %s", error);
	btf__free(opened);
	if (!ext)
		return true;
	ext_data = elf_section(bytes, f->view.size, ".BTF.ext", &ext_size);
	return btf_ext_check(ext_data, ext_size, data, error) || wrong(f, "%s", error);
}

static bool check_contents(struct elf_file *f) {
	bool btf = false, ext = false;
	Elf64_Shdr section;

	for (uint64_t i = 1; elf_view_section(&f->view, i, &section); i++) {
		const char *name = elf_view_name(&f->view, &section);

		if (section.sh_type == SHT_RELA)
			return wrong(f, "malformed ELF file: relocations of an unusual kind");
		if (section.sh_type == SHT_REL && !check_relocations(f, &section))
			return false;
		if ((section.sh_flags & SHF_EXECINSTR) &&
		    (section.sh_type != SHT_PROGBITS || section.sh_size % 8))
			return wrong(f, "section %.64s holds no whole number of instructions",
				     name);
		if (!strcmp(name, ".BTF") || !strcmp(name, ".BTF.ext")) {
			bool *seen = name[4] ? &ext : &btf;

			if (*seen || section.sh_type != SHT_PROGBITS)
				return wrong(f, "malformed ELF file: its BTF");
			*seen = true;
		}
	}
	for (uint64_t i = 1; elf_view_section(&f->view, i, &section); i++)
		if ((section.sh_flags & SHF_EXECINSTR) && !check_calls(f, i, &section))
			return false;
	return check_btf(f, btf, ext);
}

const char *elf_check(const void *elf, size_t size, char error[static ELF_CHECK_ERROR_SIZE]) {
	struct elf_file f = { .error = error };

	return check_header(&f, elf, size) && check_sections(&f) && check_symbols(&f) &&
			       check_contents(&f)
		       ? NULL
		       : error;
}

const void *elf_section(const void *elf, size_t elf_size, const char *name, size_t *size) {
	struct elf_view view;
	Elf64_Shdr section;

	if (!elf_view_init(&view, elf, elf_size) || !elf_view_find(&view, name, &section))
		return NULL;
	*size = section.sh_size;
	return *size ? elf_view_content(&view, &section) : NULL;
}
