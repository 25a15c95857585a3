/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the names of a cubin's kernels (patch-names.h), which the daemon is then asked about.
 *
 * A cubin is an ELF file whose kernels are functions with a bit of NVIDIA's in st_other. What a
 * driver hands out is read like any foreign bytes: nothing is believed but where it ends.
 */

#include "patch-names.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/elf.h"
#include "proto/patch.h"

#define OTHER_ENTRY 0x10 /* STO_CUDA_ENTRY */
#define GRAPH_FUNCTION                                                              \
	"cudaGraph" /* how names of functions begin by which kernels act on graphs: \
		       cudaGraphSetConditional, cudaGraphLaunch, ... */

static const char acts[] = "kernels of it act on CUDA graphs (cudaGraphSetConditional or the like)",
		  unreadable[] = "the names of its kernels cannot be read";

static bool is_kernel(const Elf64_Sym *symbol) {
	return (symbol->st_other & OTHER_ENTRY) && symbol->st_shndx != SHN_UNDEF;
}

/* Counts the names of a symbol table, or (with room for them) writes them down. False: it does not
 * end where it should. */
static bool walk(const struct elf_view *cubin, const Elf64_Shdr *table, struct patch_names *names,
		 bool write) {
	Elf64_Shdr strings;
	Elf64_Sym symbol;

	if (!elf_view_content(cubin, table) || !elf_view_section(cubin, table->sh_link, &strings))
		return false;
	for (uint64_t i = 0; elf_view_record(cubin, table, i, &symbol, sizeof(symbol)); i++) {
		const char *name = elf_view_string(cubin, &strings, symbol.st_name);
		size_t length;

		if (!name || !*name || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC)
			continue;
		if (!strncmp(name, GRAPH_FUNCTION, strlen(GRAPH_FUNCTION)))
			names->left = acts;
		if (!is_kernel(&symbol))
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

static void walk_all(const struct elf_view *cubin, struct patch_names *names, bool write) {
	Elf64_Shdr section;

	names->count = 0;
	names->size = 0;
	names->left = unreadable;
	for (uint64_t i = 0; elf_view_section(cubin, i, &section); i++)
		if (section.sh_type == SHT_SYMTAB) {
			names->left = NULL;
			if (!walk(cubin, &section, names, write))
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
	struct elf_view view;

	*names = (struct patch_names){ .left = unreadable };
	if (elf_view_init(&view, cubin, size))
		walk_all(&view, names, false);
	if (!names->count)
		return names->left == unreadable;
	names->text = malloc(names->size);
	names->offsets = calloc(names->count, sizeof(*names->offsets));
	names->order = calloc(names->count, sizeof(*names->order));
	if (!names->text || !names->offsets || !names->order) {
		patch_names_free(names);
		return false;
	}
	walk_all(&view, names, true);
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
