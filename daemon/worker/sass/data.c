/* SPDX-License-Identifier: Apache-2.0 */

/* Puts the data of probes into a module (data.h). */

#include "data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BANK_SIZE 65536
#define GLOBAL_SIZE ((uint64_t)1 << 32)
#define RELOCATION_64 2 /* R_CUDA_64: 8 bytes, the address of a symbol */
#define BANK_TYPE (SASS_SHT_INFO + 0x64) /* of bank 0, and so on, before CUDA 13 */

/* Sections with data of probes, and what their relocations are in. */
static const struct {
	const char *name, *relocations;
	unsigned bank; /* 0: it is none */
} kinds[] = {
	{ ".nv.constant3", ".rela.nv.constant3", SASS_BANK_CONSTANTS },
	{ ".nv.constant4", ".rela.nv.constant4", SASS_BANK_ADDRESSES },
	{ ".nv.global", NULL, 0 },
	{ ".nv.global.init", ".rela.nv.global.init", 0 },
};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

struct link {
	struct sass_cubin *cubin;
	const struct sass_cubin *probes;
	struct sass_refusal *refusal;
	size_t from[N_KINDS]; /* sections of the probes; 0: they have none, */
	size_t to[N_KINDS]; /* where these are in the module, */
	uint64_t base[N_KINDS]; /* and where they begin there */
	uint32_t *symbols; /* owned: by index of the probes' symbols; 0: not there */
	size_t n_symbols;
};

/* Banks have types of their own in cubins of before CUDA 13. */
static bool is_older(const struct sass_cubin *cubin) {
	return cubin->view.header.e_ident[EI_ABIVERSION] < 8;
}

/* The section of the module that the probes' one goes to. */
static int find_section(struct link *link, size_t kind) {
	const struct sass_section *from = &link->probes->sections[link->from[kind]];
	Elf64_Shdr header = from->header;

	link->to[kind] = sass_cubin_find(link->cubin, kinds[kind].name, "");
	if (link->to[kind]) {
		const uint32_t type = link->cubin->sections[link->to[kind]].header.sh_type;

		return (type == SHT_NOBITS) == (header.sh_type == SHT_NOBITS)
			       ? 0
			       : sass_refuse(link->refusal, "section %s has the type 0x%x",
					     kinds[kind].name, type);
	}
	if (kinds[kind].bank)
		header.sh_type =
			is_older(link->cubin) ? BANK_TYPE + kinds[kind].bank : SHT_PROGBITS;
	link->to[kind] = sass_cubin_add(link->cubin, kinds[kind].name, &header);
	return link->to[kind] ? 0 : -ENOMEM;
}

static int append_section(struct link *link, size_t kind) {
	const struct sass_section *from = &link->probes->sections[link->from[kind]];
	const uint64_t size = from->header.sh_size,
		       most = kinds[kind].bank ? BANK_SIZE : GLOBAL_SIZE;
	const uint64_t unit = from->header.sh_addralign > 8 ? from->header.sh_addralign : 8;
	struct sass_section *to;
	uint8_t *content;
	int r = find_section(link, kind);

	if (r)
		return r;
	to = &link->cubin->sections[link->to[kind]];
	if (from->header.sh_type != SHT_NOBITS &&
	    (!from->content || (to->header.sh_size && !to->content)))
		return sass_refuse(link->refusal, "section %s is not in the file",
				   kinds[kind].name);
	link->base[kind] = (to->header.sh_size + unit - 1) / unit * unit;
	if (link->base[kind] > most || size > most - link->base[kind])
		return sass_refuse(link->refusal, "section %s has no room for probes",
				   kinds[kind].name);
	if (to->header.sh_addralign < unit)
		to->header.sh_addralign = unit;
	if (to->header.sh_type == SHT_NOBITS) {
		to->header.sh_size = link->base[kind] + size;
		return 0;
	}
	content = sass_cubin_change(link->cubin, link->to[kind], link->base[kind] + size);
	if (!content)
		return -ENOMEM;
	memcpy(content + link->base[kind], from->content, size);
	return 0;
}

static bool has_symbol(const struct sass_cubin *cubin, const char *wanted) {
	const char *name;
	Elf64_Sym symbol;

	for (uint64_t i = 1; sass_cubin_symbol(cubin, i, &symbol, &name); i++)
		if (name && !strcmp(name, wanted))
			return true;
	return false;
}

/* Each variable of the probes becomes one of the module. */
static int add_symbols(struct link *link) {
	const char *name;
	Elf64_Sym symbol;
	int r = 0;

	for (uint64_t i = 1; !r && sass_cubin_symbol(link->probes, i, &symbol, &name); i++) {
		size_t kind = 0;

		while (kind < N_KINDS && (!link->from[kind] || link->from[kind] != symbol.st_shndx))
			kind++;
		if (kind == N_KINDS || ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !name)
			continue;
		if (has_symbol(link->cubin, name))
			return sass_refuse(link->refusal, "the cubin has a symbol %.120s", name);
		symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
		symbol.st_shndx = (uint16_t)link->to[kind];
		symbol.st_value += link->base[kind];
		r = sass_cubin_add_symbol(link->cubin, name, symbol, &link->symbols[i]);
	}
	return r;
}

/* The table of relocations of a section of the module; a new one if it has none. */
static int find_relocations(struct link *link, size_t kind, const Elf64_Shdr *like, size_t *table) {
	Elf64_Shdr header = *like;

	for (size_t i = 1; i < link->cubin->n_sections; i++) {
		const Elf64_Shdr *one = &link->cubin->sections[i].header;

		if (one->sh_info != link->to[kind] ||
		    (one->sh_type != SHT_REL && one->sh_type != SHT_RELA))
			continue;
		*table = i;
		return one->sh_entsize == (one->sh_type == SHT_REL ? sizeof(Elf64_Rel)
								   : sizeof(Elf64_Rela))
			       ? 0
			       : sass_refuse(link->refusal, "section %.120s is malformed",
					     link->cubin->sections[i].name);
	}
	header.sh_link = (uint32_t)link->cubin->symbols;
	header.sh_info = (uint32_t)link->to[kind];
	*table = sass_cubin_add(link->cubin, kinds[kind].relocations, &header);
	return *table ? 0 : -ENOMEM;
}

static int add_relocation(struct link *link, size_t kind, size_t table, Elf64_Rela entry) {
	const size_t size = link->cubin->sections[table].header.sh_size,
		     entry_size = link->cubin->sections[table].header.sh_entsize;
	const uint64_t symbol = ELF64_R_SYM(entry.r_info);
	uint8_t *content;

	if (ELF64_R_TYPE(entry.r_info) != RELOCATION_64 || symbol >= link->n_symbols ||
	    !link->symbols[symbol])
		return sass_refuse(link->refusal, "the probe's data has a relocation of type %u",
				   (unsigned)ELF64_R_TYPE(entry.r_info));
	entry.r_offset += link->base[kind];
	entry.r_info = ELF64_R_INFO((uint64_t)link->symbols[symbol], RELOCATION_64);
	content = sass_cubin_change(link->cubin, table, size + entry_size);
	if (!content)
		return -ENOMEM;
	memcpy(content + size, &entry, entry_size); /* a REL is the beginning of a RELA, */
	if (entry_size == sizeof(Elf64_Rela))
		return 0;
	/* and has its addend in the data */
	content = sass_cubin_change(link->cubin, link->to[kind],
				    link->cubin->sections[link->to[kind]].header.sh_size);
	if (!content)
		return -ENOMEM;
	memcpy(content + entry.r_offset, &entry.r_addend, sizeof(entry.r_addend));
	return 0;
}

static int add_relocations(struct link *link, size_t kind) {
	size_t table;
	int r = 0;

	for (size_t i = 1; !r && i < link->probes->n_sections; i++) {
		const struct sass_section *from = &link->probes->sections[i];
		const size_t n = from->header.sh_size / sizeof(Elf64_Rela);

		if (from->header.sh_info != link->from[kind] ||
		    (from->header.sh_type != SHT_REL && from->header.sh_type != SHT_RELA))
			continue;
		if (from->header.sh_type == SHT_REL || !kinds[kind].relocations)
			return sass_refuse(link->refusal, "the probe has a section %.120s",
					   from->name);
		r = find_relocations(link, kind, &from->header, &table);
		for (size_t k = 0; !r && k < n; k++) {
			Elf64_Rela entry;

			memcpy(&entry, from->content + k * sizeof(entry), sizeof(entry));
			if (entry.r_offset + sizeof(uint64_t) >
			    link->probes->sections[link->from[kind]].header.sh_size)
				r = sass_refuse(link->refusal, "section %.120s is malformed",
						from->name);
			else
				r = add_relocation(link, kind, table, entry);
		}
	}
	return r;
}

int sass_data_add(struct sass_cubin *cubin, const struct sass_cubin *probes,
		  struct sass_bases *bases, struct sass_refusal *refusal) {
	struct link link = { .cubin = cubin, .probes = probes, .refusal = refusal };
	int r = 0;

	*bases = (struct sass_bases){};
	link.n_symbols = probes->sections[probes->symbols].header.sh_size / sizeof(Elf64_Sym);
	link.symbols = calloc(link.n_symbols + 1, sizeof(*link.symbols));
	if (!link.symbols)
		return -ENOMEM;
	for (size_t kind = 0; !r && kind < N_KINDS; kind++) {
		link.from[kind] = sass_cubin_find(probes, kinds[kind].name, "");
		if (link.from[kind] && probes->sections[link.from[kind]].header.sh_size)
			r = append_section(&link, kind);
		else
			link.from[kind] = 0;
		if (kinds[kind].bank)
			bases->bank[kinds[kind].bank] = (uint32_t)link.base[kind];
	}
	if (!r)
		r = add_symbols(&link);
	for (size_t kind = 0; !r && kind < N_KINDS; kind++)
		if (link.from[kind])
			r = add_relocations(&link, kind);
	free(link.symbols);
	return r;
}
