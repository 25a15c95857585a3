/* SPDX-License-Identifier: Apache-2.0 */

/* Reads a cubin section by section and writes it again (cubin-edit.h). */

#include "cubin-edit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECTIONS_MAX 65000 /* less than numbers that mean something else */
#define SIZE_MAX_CUBIN ((uint64_t)1 << 30)
#define ALIGNMENT_MAX 4096

/* The architecture, as the flags of both versions of the ABI say it. */
static uint32_t read_sm(const Elf64_Ehdr *header) {
	return header->e_ident[EI_ABIVERSION] < 8 ? header->e_flags & 0xff
						  : header->e_flags >> 8 & 0xff;
}

/* A type of section that is known to take room in the file as it says. */
static bool is_known_type(uint32_t type) {
	switch (type) {
	case SHT_PROGBITS:
	case SHT_SYMTAB:
	case SHT_STRTAB:
	case SHT_RELA:
	case SHT_NOTE:
	case SHT_REL:
	case SASS_SHT_INFO:
	case SASS_SHT_INFO + 0x01: /* .nv.callgraph */
	case SASS_SHT_INFO + 0x02: /* .nv.prototype */
	case SASS_SHT_INFO + 0x0b: /* .nv.rel.action */
	case SASS_SHT_INFO + 0x86: /* .nv.compat */
		return true;
	}
	return type >= SASS_SHT_INFO + 0x64 && type <= SASS_SHT_INFO + 0x6a; /* banks, CUDA 12 */
}

static int read_section(struct sass_cubin *cubin, size_t index, struct sass_refusal *refusal) {
	struct sass_section *section = &cubin->sections[index];

	elf_view_section(&cubin->view, index, &section->header);
	section->name = index ? elf_view_name(&cubin->view, &section->header) : "";
	if (!section->name)
		return sass_refuse(refusal, "section %zu has no name", index);
	if (section->header.sh_addralign > ALIGNMENT_MAX ||
	    (section->header.sh_addralign & (section->header.sh_addralign - 1)))
		return sass_refuse(refusal, "section %.80s: its alignment is no small power of two",
				   section->name);
	if (section->header.sh_type == SHT_NOBITS || section->header.sh_type == SHT_NULL)
		return 0;
	if (!is_known_type(section->header.sh_type))
		return sass_refuse(refusal, "section %.80s has the unknown type 0x%x",
				   section->name, section->header.sh_type);
	section->content = elf_view_content(&cubin->view, &section->header);
	if (!section->content)
		return sass_refuse(refusal, "section %.80s is not in the file", section->name);
	return 0;
}

static int read_sections(struct sass_cubin *cubin, struct sass_refusal *refusal) {
	for (size_t i = 0; i < cubin->n_sections; i++) {
		const struct sass_section *section = &cubin->sections[i];
		const int r = read_section(cubin, i, refusal);

		if (r)
			return r;
		if (section->header.sh_type != SHT_SYMTAB)
			continue;
		if (cubin->symbols)
			return sass_refuse(refusal, "two tables of symbols");
		if (section->header.sh_entsize != sizeof(Elf64_Sym) ||
		    section->header.sh_link >= cubin->n_sections)
			return sass_refuse(refusal, "the table of symbols is malformed");
		cubin->symbols = i;
		cubin->strings = section->header.sh_link;
	}
	return cubin->symbols ? 0 : sass_refuse(refusal, "no table of symbols");
}

int sass_cubin_init(struct sass_cubin *cubin, const void *data, size_t size,
		    struct sass_refusal *refusal) {
	int r;

	*cubin = (struct sass_cubin){};
	if (!elf_view_init(&cubin->view, data, size) || cubin->view.header.e_machine != EM_CUDA)
		return sass_refuse(refusal, "not a cubin");
	if (size > SIZE_MAX_CUBIN || cubin->view.n_sections > SECTIONS_MAX ||
	    cubin->view.header.e_shstrndx >= cubin->view.n_sections ||
	    cubin->view.header.e_shnum != cubin->view.n_sections)
		return sass_refuse(refusal, "the cubin has too many sections or bytes");
	if (cubin->view.header.e_type != ET_EXEC)
		return sass_refuse(refusal, "the cubin has to be linked with others first");
	cubin->n_sections = cubin->view.n_sections;
	cubin->allocated = cubin->n_sections + 1;
	cubin->sm = read_sm(&cubin->view.header);
	cubin->sections = calloc(cubin->allocated, sizeof(*cubin->sections));
	if (!cubin->sections)
		return -ENOMEM;
	r = read_sections(cubin, refusal);
	if (r)
		sass_cubin_deinit(cubin);
	return r;
}

void sass_cubin_deinit(struct sass_cubin *cubin) {
	for (size_t i = 0; cubin->sections && i < cubin->n_sections; i++)
		free(cubin->sections[i].owned);
	free(cubin->sections);
	*cubin = (struct sass_cubin){};
}

size_t sass_cubin_find(const struct sass_cubin *cubin, const char *prefix, const char *name) {
	const size_t n = strlen(prefix);

	for (size_t i = 1; i < cubin->n_sections; i++)
		if (!strncmp(cubin->sections[i].name, prefix, n) &&
		    !strcmp(cubin->sections[i].name + n, name))
			return i;
	return 0;
}

/* The text at an offset of a string table, changed or not. NULL: there is none. */
static const char *find_string(const struct sass_section *strings, uint64_t offset) {
	const char *text = (const char *)strings->content;

	if (!text || offset >= strings->header.sh_size ||
	    !memchr(text + offset, '\0', strings->header.sh_size - offset))
		return NULL;
	return text + offset;
}

bool sass_cubin_symbol(const struct sass_cubin *cubin, uint64_t index, Elf64_Sym *symbol,
		       const char **name) {
	const struct sass_section *table = &cubin->sections[cubin->symbols];

	if (!table->content || index >= table->header.sh_size / sizeof(*symbol))
		return false;
	memcpy(symbol, table->content + index * sizeof(*symbol), sizeof(*symbol));
	*name = find_string(&cubin->sections[cubin->strings], symbol->st_name);
	return true;
}

uint8_t *sass_cubin_change(struct sass_cubin *cubin, size_t index, size_t size) {
	struct sass_section *section = &cubin->sections[index];
	const size_t before = section->content ? section->header.sh_size : 0;
	uint8_t *content;

	if (section->owned && size == before)
		return section->owned;
	content = calloc(1, size ? size : 1);
	if (!content)
		return NULL;
	if (before)
		memcpy(content, section->content, before < size ? before : size);
	free(section->owned);
	section->owned = content;
	section->content = content;
	section->header.sh_size = size;
	return content;
}

/* Puts a text behind a string table. Its offset; 0: no memory. */
static uint32_t add_string(struct sass_cubin *cubin, size_t index, const char *text) {
	const size_t at = cubin->sections[index].header.sh_size, length = strlen(text) + 1;
	uint8_t *content = sass_cubin_change(cubin, index, at + length);

	if (!content)
		return 0;
	memcpy(content + at, text, length);
	return (uint32_t)at;
}

size_t sass_cubin_add(struct sass_cubin *cubin, const char *name, const Elf64_Shdr *like) {
	const size_t names = cubin->view.header.e_shstrndx;
	struct sass_section section = { .header = *like, .name = name };

	if (cubin->n_sections == cubin->allocated) {
		const size_t allocated = 2 * cubin->allocated;
		struct sass_section *more = reallocarray(cubin->sections, allocated, sizeof(*more));

		if (!more)
			return 0;
		cubin->sections = more;
		cubin->allocated = allocated;
	}
	section.header.sh_name = add_string(cubin, names, name);
	section.header.sh_size = 0;
	if (!section.header.sh_name)
		return 0;
	cubin->sections[cubin->n_sections] = section;
	return cubin->n_sections++;
}

int sass_cubin_add_symbol(struct sass_cubin *cubin, const char *name, Elf64_Sym symbol,
			  uint32_t *index) {
	const size_t size = cubin->sections[cubin->symbols].header.sh_size;
	uint8_t *table;

	symbol.st_name = add_string(cubin, cubin->strings, name);
	table = symbol.st_name ? sass_cubin_change(cubin, cubin->symbols, size + sizeof(symbol))
			       : NULL;
	if (!table)
		return -ENOMEM;
	memcpy(table + size, &symbol, sizeof(symbol));
	*index = (uint32_t)(size / sizeof(symbol));
	return 0;
}

int sass_cubin_resize_symbol(struct sass_cubin *cubin, uint64_t index, uint64_t size) {
	uint8_t *table = sass_cubin_change(cubin, cubin->symbols,
					   cubin->sections[cubin->symbols].header.sh_size);

	if (!table)
		return -ENOMEM;
	memcpy(table + index * sizeof(Elf64_Sym) + offsetof(Elf64_Sym, st_size), &size,
	       sizeof(size));
	return 0;
}

static void mark_relocated(const struct sass_section *table, size_t entry_size, size_t unit,
			   uint64_t n_units, uint8_t *marks) {
	for (uint64_t i = 0; table->content && i < table->header.sh_size / entry_size; i++) {
		Elf64_Rel entry;
		uint64_t at;

		memcpy(&entry, table->content + i * entry_size, sizeof(entry));
		at = entry.r_offset / unit;
		if (at < n_units)
			marks[at / 8] |= 1U << at % 8;
	}
}

uint8_t *sass_cubin_relocated(const struct sass_cubin *cubin, size_t section, size_t unit) {
	const uint64_t n_units = cubin->sections[section].header.sh_size / unit;
	uint8_t *marks = calloc(1, n_units / 8 + 1);

	for (size_t i = 1; marks && i < cubin->n_sections; i++) {
		const struct sass_section *table = &cubin->sections[i];

		if (table->header.sh_info == section && table->header.sh_type == SHT_RELA)
			mark_relocated(table, sizeof(Elf64_Rela), unit, n_units, marks);
		if (table->header.sh_info == section && table->header.sh_type == SHT_REL)
			mark_relocated(table, sizeof(Elf64_Rel), unit, n_units, marks);
	}
	return marks;
}

static uint64_t align_up(uint64_t offset, uint64_t alignment) {
	return alignment ? (offset + alignment - 1) / alignment * alignment : offset;
}

int sass_cubin_write(const struct sass_cubin *cubin, uint8_t **data, size_t *size) {
	Elf64_Ehdr header = cubin->view.header;
	uint64_t offset = sizeof(header), headers;
	uint8_t *out;

	for (size_t i = 0; i < cubin->n_sections; i++)
		if (cubin->sections[i].content)
			offset = align_up(offset, cubin->sections[i].header.sh_addralign) +
				 cubin->sections[i].header.sh_size;
	headers = align_up(offset, sizeof(uint64_t));
	*size = headers + cubin->n_sections * sizeof(Elf64_Shdr);
	out = calloc(1, *size);
	if (!out)
		return -ENOMEM;
	offset = sizeof(header);
	for (size_t i = 0; i < cubin->n_sections; i++) {
		const struct sass_section *section = &cubin->sections[i];
		Elf64_Shdr one = section->header;

		offset = align_up(offset, section->content ? one.sh_addralign : 1);
		if (i)
			one.sh_offset = offset;
		if (section->content) {
			memcpy(out + offset, section->content, one.sh_size);
			offset += one.sh_size;
		}
		memcpy(out + headers + i * sizeof(one), &one, sizeof(one));
	}
	header.e_shoff = headers;
	header.e_shnum = (uint16_t)cubin->n_sections;
	header.e_phoff = 0;
	header.e_phnum = 0;
	memcpy(out, &header, sizeof(header));
	*data = out;
	return 0;
}
