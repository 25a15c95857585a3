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

#include <elf.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "btf-check.h"

#ifndef EM_BPF
#define EM_BPF 247
#endif
#define SECTIONS_MAX 4096
#define NOBITS_MAX ((uint64_t)16 << 20)

struct elf_file {
	const uint8_t *bytes;
	size_t size;
	const Elf64_Shdr *sections;
	size_t n_sections;
	const char *names; /* of sections */
	size_t names_size;
	const Elf64_Sym *symbols;
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

static bool check_header(struct elf_file *f) {
	const Elf64_Ehdr *header = (const void *)f->bytes;

	if (f->size < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG))
		return wrong(f, "not an ELF file");
	if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
	    header->e_ident[EI_VERSION] != EV_CURRENT || header->e_machine != EM_BPF ||
	    header->e_type != ET_REL)
		return wrong(f,
			     "not a valid eBPF object file: compile it with clang -target bpf -c");
	if (header->e_ehsize != sizeof(*header) || header->e_shentsize != sizeof(Elf64_Shdr) ||
	    header->e_phnum || header->e_shnum < 2 || header->e_shnum > SECTIONS_MAX ||
	    header->e_shoff % 8 || header->e_shoff > f->size ||
	    header->e_shnum * sizeof(Elf64_Shdr) > f->size - header->e_shoff)
		return wrong(f, "malformed ELF file: its section headers");
	f->sections = (const void *)(f->bytes + header->e_shoff);
	f->n_sections = header->e_shnum;
	return true;
}

/* Whether a section is a string table: texts that end with NUL. */
static bool is_strings(const struct elf_file *f, size_t i) {
	const Elf64_Shdr *section;

	if (!i || i >= f->n_sections)
		return false;
	section = &f->sections[i];
	return section->sh_type == SHT_STRTAB && section->sh_size &&
	       !f->bytes[section->sh_offset] &&
	       !f->bytes[section->sh_offset + section->sh_size - 1];
}

/* Every section lies in the file and has a name. */
static bool check_sections(struct elf_file *f) {
	const Elf64_Ehdr *header = (const void *)f->bytes;

	if (f->sections[0].sh_type != SHT_NULL)
		return wrong(f, "malformed ELF file: its first section");
	for (size_t i = 1; i < f->n_sections; i++) {
		const Elf64_Shdr *section = &f->sections[i];
		uint64_t file_size = section->sh_type == SHT_NOBITS ? 0 : section->sh_size;

		if (section->sh_offset > f->size || file_size > f->size - section->sh_offset ||
		    section->sh_size > NOBITS_MAX || (section->sh_flags & SHF_COMPRESSED))
			return wrong(f, "malformed ELF file: section %zu", i);
		if (file_size && section->sh_offset % 8 &&
		    (section->sh_type == SHT_SYMTAB || section->sh_type == SHT_REL ||
		     (section->sh_flags & SHF_EXECINSTR)))
			return wrong(f, "malformed ELF file: section %zu is not aligned", i);
	}
	if (!is_strings(f, header->e_shstrndx))
		return wrong(f, "malformed ELF file: the names of its sections");
	f->names = (const char *)f->bytes + f->sections[header->e_shstrndx].sh_offset;
	f->names_size = f->sections[header->e_shstrndx].sh_size;
	for (size_t i = 1; i < f->n_sections; i++)
		if (f->sections[i].sh_name >= f->names_size)
			return wrong(f, "malformed ELF file: the name of section %zu", i);
	return true;
}

/* Symbols have names and lie in their sections. */
static bool check_symbols(struct elf_file *f) {
	const Elf64_Shdr *table = NULL;
	uint64_t names_size;

	for (size_t i = 1; i < f->n_sections; i++)
		if (f->sections[i].sh_type == SHT_SYMTAB) {
			if (table)
				return wrong(f, "malformed ELF file: two symbol tables");
			table = &f->sections[i];
		} else if (f->sections[i].sh_type == SHT_DYNSYM ||
			   f->sections[i].sh_type == SHT_SYMTAB_SHNDX)
			return wrong(f, "malformed ELF file: unusual symbols");
	if (!table)
		return wrong(f, "it has no symbols: strip it with -g at most");
	if (table->sh_entsize != sizeof(Elf64_Sym) || table->sh_size % sizeof(Elf64_Sym) ||
	    !is_strings(f, table->sh_link))
		return wrong(f, "malformed ELF file: its symbol table");
	names_size = f->sections[table->sh_link].sh_size;
	f->symbols = (const void *)(f->bytes + table->sh_offset);
	f->n_symbols = table->sh_size / sizeof(Elf64_Sym);
	for (size_t i = 0; i < f->n_symbols; i++) {
		const Elf64_Sym *symbol = &f->symbols[i];
		uint64_t size;

		if (symbol->st_name >= names_size)
			return wrong(f, "malformed ELF file: the name of symbol %zu", i);
		if (symbol->st_shndx >= SHN_LORESERVE) {
			if (symbol->st_shndx != SHN_ABS)
				return wrong(f, "malformed ELF file: the section of symbol %zu", i);
			continue;
		}
		if (symbol->st_shndx >= f->n_sections)
			return wrong(f, "malformed ELF file: the section of symbol %zu", i);
		size = f->sections[symbol->st_shndx].sh_size;
		if (symbol->st_shndx &&
		    (symbol->st_value > size || symbol->st_size > size - symbol->st_value))
			return wrong(
				f, "malformed ELF file: symbol %zu lies outside of its section", i);
	}
	return true;
}

/* One relocation table: of a section that is there, with symbols that are. */
static bool check_relocations(struct elf_file *f, const Elf64_Shdr *table, size_t symbols) {
	const Elf64_Rel *relocations = (const void *)(f->bytes + table->sh_offset);
	const Elf64_Shdr *target;
	const char *name;

	if (table->sh_entsize != sizeof(*relocations) || table->sh_size % sizeof(*relocations) ||
	    !table->sh_info || table->sh_info >= f->n_sections || table->sh_link != symbols)
		return wrong(f, "malformed ELF file: a relocation table");
	target = &f->sections[table->sh_info];
	name = f->names + target->sh_name;
	if (!strcmp(name, ".maps") || !strcmp(name, ".struct_ops") ||
	    !strcmp(name, ".struct_ops.link"))
		return wrong(f, "maps of maps, of programs or of operations do not exist on a GPU");
	for (size_t i = 0; i < table->sh_size / sizeof(*relocations); i++)
		if (ELF64_R_SYM(relocations[i].r_info) >= f->n_symbols ||
		    relocations[i].r_offset >= target->sh_size)
			return wrong(f, "malformed ELF file: relocation %zu of %.64s", i, name);
	return true;
}

/* Marks the instructions of a section that are relocated. */
static void mark_relocated(const struct elf_file *f, size_t section, uint8_t *marks) {
	for (size_t i = 1; i < f->n_sections; i++) {
		const Elf64_Rel *relocations = (const void *)(f->bytes + f->sections[i].sh_offset);

		if (f->sections[i].sh_type != SHT_REL || f->sections[i].sh_info != section)
			continue;
		for (size_t r = 0; r < f->sections[i].sh_size / sizeof(*relocations); r++)
			if (relocations[r].r_offset % sizeof(struct bpf_insn) == 0)
				marks[relocations[r].r_offset / sizeof(struct bpf_insn)] = 1;
	}
}

/*
 * Programs call functions in .text, by relocations. A call without one leads to another program of
 * the section: libbpf before 1.2 frees memory twice if there are several. All relocations have been
 * checked.
 */
static bool check_calls(struct elf_file *f, size_t i) {
	const Elf64_Shdr *section = &f->sections[i];
	const struct bpf_insn *insns = (const void *)(f->bytes + section->sh_offset);
	const char *name = f->names + section->sh_name;
	size_t n = section->sh_size / sizeof(*insns);
	bool ok = true;
	uint8_t *marks;

	if (!strcmp(name, ".text"))
		return true;
	marks = calloc(n + 1, 1);
	if (!marks)
		return wrong(f, "no memory");
	mark_relocated(f, i, marks);
	for (size_t k = 0; k < n && ok; k++)
		if (insns[k].code == (BPF_JMP | BPF_CALL) && insns[k].src_reg == BPF_PSEUDO_CALL &&
		    !marks[k])
			ok = wrong(f,
				   "a program in section %.64s calls another program; only "
				   "functions can be called",
				   name);
	free(marks);
	return ok;
}

static bool check_contents(struct elf_file *f) {
	bool btf = false, ext = false;
	size_t symbols = 0;
	char error[BTF_CHECK_ERROR_SIZE];

	for (size_t i = 1; i < f->n_sections; i++)
		if (f->sections[i].sh_type == SHT_SYMTAB)
			symbols = i;
	for (size_t i = 1; i < f->n_sections; i++) {
		const Elf64_Shdr *section = &f->sections[i];
		const char *name = f->names + section->sh_name;

		if (section->sh_type == SHT_RELA)
			return wrong(f, "malformed ELF file: relocations of an unusual kind");
		if (section->sh_type == SHT_REL && !check_relocations(f, section, symbols))
			return false;
		if ((section->sh_flags & SHF_EXECINSTR) &&
		    (section->sh_type != SHT_PROGBITS || section->sh_size % 8))
			return wrong(f, "section %.64s holds no whole number of instructions",
				     name);
		if (!strcmp(name, ".BTF") || !strcmp(name, ".BTF.ext")) {
			bool *seen = name[4] ? &ext : &btf;

			if (*seen || section->sh_type != SHT_PROGBITS)
				return wrong(f, "malformed ELF file: its BTF");
			*seen = true;
		}
	}
	for (size_t i = 1; i < f->n_sections; i++)
		if ((f->sections[i].sh_flags & SHF_EXECINSTR) && !check_calls(f, i))
			return false;
	if (btf) {
		size_t size, ext_size = 0;
		const void *data = elf_section(f->bytes, ".BTF", &size);
		const void *ext_data = ext ? elf_section(f->bytes, ".BTF.ext", &ext_size) : NULL;

		if (!btf_check(data, data ? size : 0, error))
			return wrong(f, "malformed BTF: %s", error);
		if (ext && !btf_ext_check(ext_data, ext_data ? ext_size : 0, data, error))
			return wrong(f, "%s", error);
	} else if (ext)
		return wrong(f, "malformed ELF file: .BTF.ext without .BTF");
	return true;
}

const char *elf_check(const void *elf, size_t size, char error[static ELF_CHECK_ERROR_SIZE]) {
	struct elf_file f = { .bytes = elf, .size = size, .error = error };

	return check_header(&f) && check_sections(&f) && check_symbols(&f) && check_contents(&f)
		       ? NULL
		       : error;
}

const void *elf_section(const void *elf, const char *name, size_t *size) {
	const uint8_t *bytes = elf;
	const Elf64_Ehdr *header = elf;
	const Elf64_Shdr *sections = (const void *)(bytes + header->e_shoff);
	const char *names = (const char *)bytes + sections[header->e_shstrndx].sh_offset;

	for (size_t i = 1; i < header->e_shnum; i++)
		if (sections[i].sh_type != SHT_NOBITS &&
		    !strcmp(names + sections[i].sh_name, name)) {
			*size = sections[i].sh_size;
			return *size ? bytes + sections[i].sh_offset : NULL;
		}
	return NULL;
}
