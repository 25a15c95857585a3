/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads what a cubin says about itself (cubin.h).
 *
 * Kernels are the functions that are marked as entries in st_other. In a file without symbols every
 * .text.<name> section counts, be it a kernel's or a function's.
 */

#include "cubin.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/elf.h"

#define STO_CUDA_ENTRY 0x10
#define NAME_MAX_LENGTH ((size_t)64 << 10) /* each is searched for its end */
#define NOTE_CUINFO \
	1000 /* type of the note in .note.nv.cuinfo: {u16 version, u16 virtual sm, u32 toolkit} */

/*
 * Attributes of .nv.info: a byte of format, one of kind, two of size; a value of that many bytes
 * follows in this format alone.
 */
#define INFO_FORMAT_SIZED 4
#define INFO_REGISTERS 0x2f /* {u32 index of a symbol, u32 count} */

/*
 * A section's header. Only those types whose contents are read here are checked to lie inside the
 * file: cubins have some of NVIDIA's own that take no room in it, as SHT_NOBITS does.
 */
static bool read_section(const struct elf_view *file, uint64_t index, Elf64_Shdr *section) {
	if (!elf_view_section(file, index, section))
		return false;
	return (section->sh_type != SHT_SYMTAB && section->sh_type != SHT_STRTAB &&
		section->sh_type != SHT_NOTE) ||
	       elf_view_content(file, section);
}

static int add_kernel(struct cubin *cubin, const char *name) {
	if (!name || strnlen(name, NAME_MAX_LENGTH) == NAME_MAX_LENGTH)
		return CUBIN_E_MALFORMED;
	/* Grows at powers of two. */
	if (!(cubin->n_kernels & (cubin->n_kernels - 1))) {
		size_t n = cubin->n_kernels ? 2 * cubin->n_kernels : 1;
		const char **kernels = reallocarray(cubin->kernels, n, sizeof(*kernels));

		if (!kernels)
			return -ENOMEM;
		cubin->kernels = kernels;
	}
	cubin->kernels[cubin->n_kernels++] = name;
	return 0;
}

static int read_symbols(const struct elf_view *file, const Elf64_Shdr *table, struct cubin *cubin) {
	Elf64_Shdr strings;
	Elf64_Sym symbol;

	if (table->sh_entsize != sizeof(symbol) || !read_section(file, table->sh_link, &strings))
		return CUBIN_E_MALFORMED;
	for (uint64_t i = 0; elf_view_record(file, table, i, &symbol, sizeof(symbol)); i++) {
		int r;

		if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
		    !(symbol.st_other & STO_CUDA_ENTRY) || symbol.st_shndx == SHN_UNDEF)
			continue;
		r = add_kernel(cubin, elf_view_string(file, &strings, symbol.st_name));
		if (r)
			return r;
	}
	return 0;
}

static int read_text_sections(const struct elf_view *file, struct cubin *cubin) {
	Elf64_Shdr section;

	for (uint64_t i = 0; elf_view_section(file, i, &section); i++) {
		const char *name = elf_view_name(file, &section);
		int r;

		if (!name || strncmp(name, ".text.", 6) || section.sh_type != SHT_PROGBITS)
			continue;
		r = add_kernel(cubin, name + 6);
		if (r)
			return r;
	}
	return 0;
}

static void read_note(const struct elf_view *file, const Elf64_Shdr *section, struct cubin *cubin) {
	const uint8_t *note = elf_view_content(file, section);
	Elf64_Nhdr header;
	uint64_t description;
	uint16_t virtual_sm;

	if (section->sh_size < sizeof(header))
		return;
	memcpy(&header, note, sizeof(header));
	description = sizeof(header) + (((uint64_t)header.n_namesz + 3) & ~UINT64_C(3));
	if (header.n_type != NOTE_CUINFO || header.n_descsz < 8 ||
	    description + 8 > section->sh_size)
		return;
	memcpy(&virtual_sm, note + description + 2, sizeof(virtual_sm));
	cubin->virtual_sm = virtual_sm;
}

static int read_sections(const struct elf_view *file, struct cubin *cubin) {
	Elf64_Shdr section;
	bool has_symbols = false;

	if (!read_section(file, file->names, &section))
		return CUBIN_E_MALFORMED;
	for (uint64_t i = 0; i < file->n_sections; i++) {
		const char *name;
		int r;

		if (!read_section(file, i, &section))
			return CUBIN_E_MALFORMED;
		name = elf_view_name(file, &section);
		if (section.sh_type == SHT_NOTE && name && !strcmp(name, ".note.nv.cuinfo"))
			read_note(file, &section, cubin);
		if (section.sh_type != SHT_SYMTAB)
			continue;
		if (has_symbols) /* ELF has one; thousands of the same would take minutes */
			return CUBIN_E_MALFORMED;
		has_symbols = true;
		r = read_symbols(file, &section, cubin);
		if (r)
			return r;
	}
	return has_symbols ? 0 : read_text_sections(file, cubin);
}

/* False: it is no cubin. */
static bool file_open(struct elf_view *file, const void *data, size_t size) {
	return elf_view_init(file, data, size) && file->header.e_machine == EM_CUDA;
}

int cubin_parse(struct cubin *cubin, const void *data, size_t size) {
	struct cubin found = {};
	struct elf_view file;
	int r;

	if (!file_open(&file, data, size))
		return CUBIN_E_MALFORMED;
	found.relocatable = file.header.e_type == ET_REL;
	found.abi_version = file.header.e_ident[EI_ABIVERSION];
	if (found.abi_version < 8)
		found.virtual_sm = file.header.e_flags >> 16 & 0xff;
	r = file.n_sections ? read_sections(&file, &found) : 0;
	if (r) {
		cubin_deinit(&found);
		return r;
	}
	*cubin = found;
	return 0;
}

void cubin_deinit(struct cubin *cubin) {
	if (!cubin)
		return;
	free(cubin->kernels);
	*cubin = (struct cubin){};
}

/* The index of a symbol in the table; 0: it is not there. */
static uint64_t find_symbol(const struct elf_view *file, const Elf64_Shdr *table,
			    const char *symbol) {
	Elf64_Shdr strings;
	Elf64_Sym entry;

	if (table->sh_type != SHT_SYMTAB || table->sh_entsize != sizeof(entry) ||
	    !elf_view_section(file, table->sh_link, &strings))
		return 0;
	for (uint64_t i = 1; elf_view_record(file, table, i, &entry, sizeof(entry)); i++) {
		const char *name = elf_view_string(file, &strings, entry.st_name);

		if (name && !strcmp(name, symbol))
			return i;
	}
	return 0;
}

/* The registers of the symbol of that index, as a section of attributes says. */
static uint32_t read_registers(const struct elf_view *file, const Elf64_Shdr *section,
			       uint64_t index) {
	const uint8_t *info = elf_view_content(file, section);
	uint32_t value[2];
	uint16_t size;

	if (!info)
		return 0;
	for (uint64_t at = 0; at + 4 <= section->sh_size;
	     at += info[at] == INFO_FORMAT_SIZED ? 4 + (uint64_t)size : 4) {
		memcpy(&size, info + at + 2, sizeof(size));
		if (info[at] != INFO_FORMAT_SIZED || info[at + 1] != INFO_REGISTERS ||
		    size != sizeof(value) || section->sh_size - at < 4 + sizeof(value))
			continue;
		memcpy(value, info + at + 4, sizeof(value));
		if (value[0] == index)
			return value[1];
	}
	return 0;
}

uint32_t cubin_registers(const void *data, size_t size, const char *symbol) {
	Elf64_Shdr section, table;
	struct elf_view file;
	uint64_t index;

	if (!file_open(&file, data, size) || !elf_view_find(&file, ".nv.info", &section) ||
	    !elf_view_section(&file, section.sh_link, &table))
		return 0;
	index = find_symbol(&file, &table, symbol);
	return index ? read_registers(&file, &section, index) : 0;
}
