/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the names of a cubin's kernels (patch-names.h), which the daemon is then asked about.
 *
 * A cubin is an ELF file whose kernels are functions with a bit of NVIDIA's in st_other. What a
 * driver hands out is read like any foreign bytes: nothing is believed but where it ends.
 */

#include "patch-names.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "proto/patch.h"

#define OTHER_ENTRY 0x10 /* STO_CUDA_ENTRY */
#define GRAPH_FUNCTION                                                              \
	"cudaGraph" /* how names of functions begin by which kernels act on graphs: \
		       cudaGraphSetConditional, cudaGraphLaunch, ... */

static const char acts[] = "kernels of it act on CUDA graphs (cudaGraphSetConditional or the like)",
		  unreadable[] = "the names of its kernels cannot be read";

struct bytes {
	const unsigned char *at;
	size_t size;
};

static bool take(const struct bytes *bytes, uint64_t offset, void *to, size_t size) {
	if (offset > bytes->size || size > bytes->size - offset)
		return false;
	memcpy(to, bytes->at + offset, size);
	return true;
}

static bool section(const struct bytes *bytes, const Elf64_Ehdr *header, uint64_t index,
		    Elf64_Shdr *found) {
	return index <= bytes->size / sizeof(*found) && header->e_shoff <= bytes->size &&
	       take(bytes, header->e_shoff + index * sizeof(*found), found, sizeof(*found));
}

static bool is_kernel(const Elf64_Sym *symbol) {
	return (symbol->st_other & OTHER_ENTRY) && symbol->st_shndx != SHN_UNDEF;
}

/* The name of a function; NULL if the symbol is of another kind, or its text does not end. */
static const char *function_name(const struct bytes *bytes, const Elf64_Shdr *strings,
				 const Elf64_Sym *symbol) {
	const char *name;
	size_t room;

	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_name >= strings->sh_size ||
	    strings->sh_offset > bytes->size || strings->sh_size > bytes->size - strings->sh_offset)
		return NULL;
	name = (const char *)bytes->at + strings->sh_offset + symbol->st_name;
	room = strings->sh_size - symbol->st_name;
	return *name && memchr(name, 0, room) ? name : NULL;
}

/* Counts the names of a symbol table, or (with room for them) writes them down. False: it does not
 * end where it should. */
static bool walk(const struct bytes *bytes, const Elf64_Ehdr *header, const Elf64_Shdr *table,
		 struct patch_names *names, bool write) {
	Elf64_Shdr strings;
	Elf64_Sym symbol;

	if (!section(bytes, header, table->sh_link, &strings))
		return false;
	for (uint64_t at = 0; at + sizeof(symbol) <= table->sh_size; at += sizeof(symbol)) {
		const char *name;
		size_t length;

		if (table->sh_offset > bytes->size ||
		    !take(bytes, table->sh_offset + at, &symbol, sizeof(symbol)))
			return false;
		name = function_name(bytes, &strings, &symbol);
		if (name && !strncmp(name, GRAPH_FUNCTION, strlen(GRAPH_FUNCTION)))
			names->left = acts;
		if (!name || !is_kernel(&symbol))
			continue;
		length = strlen(name) + 1;
		if (length > PATCH_NAMES_SIZE_MAX - names->size)
			return true; /* which is more than fits in a list */
		if (write) {
			names->offsets[names->count] = (uint32_t)names->size;
			memcpy(names->text + names->size, name, length);
		}
		names->size += length;
		names->count++;
	}
	return true;
}

static void walk_all(const struct bytes *bytes, struct patch_names *names, bool write) {
	Elf64_Ehdr header;
	Elf64_Shdr one;
	uint64_t count;

	names->count = 0;
	names->size = 0;
	names->left = unreadable;
	if (!take(bytes, 0, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(one) ||
	    !section(bytes, &header, 0, &one))
		return;
	count = header.e_shnum ? header.e_shnum : one.sh_size;
	for (uint64_t i = 0; i < count && section(bytes, &header, i, &one); i++)
		if (one.sh_type == SHT_SYMTAB) {
			names->left = NULL;
			if (!walk(bytes, &header, &one, names, write))
				names->left = unreadable;
			return; /* an ELF file has one */
		}
}

static int compare(const void *a, const void *b, void *context) {
	const struct patch_names *names = context;

	return strcmp(names->text + names->offsets[*(const uint32_t *)a],
		      names->text + names->offsets[*(const uint32_t *)b]);
}

bool patch_names_read(struct patch_names *names, const void *cubin, size_t size) {
	const struct bytes bytes = { cubin, size };

	*names = (struct patch_names){ 0 };
	walk_all(&bytes, names, false);
	if (!names->count)
		return names->left == unreadable;
	names->text = malloc(names->size);
	names->offsets = calloc(names->count, sizeof(*names->offsets));
	names->order = calloc(names->count, sizeof(*names->order));
	if (!names->text || !names->offsets || !names->order) {
		patch_names_free(names);
		return false;
	}
	walk_all(&bytes, names, true);
	for (uint32_t i = 0; i < names->count; i++)
		names->order[i] = i;
	qsort_r(names->order, names->count, sizeof(*names->order), compare, names);
	return true;
}

void patch_names_free(struct patch_names *names) {
	free(names->text);
	free(names->offsets);
	free(names->order);
	*names = (struct patch_names){ 0 };
}

uint32_t patch_names_find(const struct patch_names *names, const char *name) {
	uint32_t low = 0, high = names->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2, number = names->order[middle];
		int order = strcmp(name, names->text + names->offsets[number]);

		if (!order)
			return number;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return PATCH_NAME_NONE;
}
