/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cubin (ELF file of machine code) whose sections can be changed and grow. The bytes may be
 * anybody's: each offset is checked by lib/base/elf. No section or symbol is moved to another
 * index, so symbols, relocations and links between sections stay right: new ones come behind the
 * others. Program headers are left out of what is written: the driver loads by sections [H100].
 */

#include "lib/base/elf.h"
#include "refusal.h"

#define SASS_STO_ENTRY 0x10 /* st_other of a kernel */
#define SASS_SHT_INFO 0x70000000 /* sections of attributes */

struct sass_section {
	Elf64_Shdr header; /* sh_size is that of the content */
	const char *name; /* in the file, or of who added it */
	const uint8_t *content; /* NULL: it has none in the file */
	uint8_t *owned; /* a changed content, or NULL */
};

struct sass_cubin {
	struct elf_view view; /* borrows the bytes */
	struct sass_section *sections; /* owned */
	size_t n_sections;
	size_t allocated;
	size_t symbols; /* index of the table, */
	size_t strings; /* and of its names */
	uint32_t sm;
};

/* The bytes have to stay. 0; SASS_REFUSED: it cannot be changed; -ENOMEM. */
int sass_cubin_init(struct sass_cubin *cubin, const void *data, size_t size,
		    struct sass_refusal *refusal);
void sass_cubin_deinit(struct sass_cubin *cubin);

/* The index of a section by name; 0: there is none. */
size_t sass_cubin_find(const struct sass_cubin *cubin, const char *prefix, const char *name);

/* A symbol and its name. False: there is none of that index. */
bool sass_cubin_symbol(const struct sass_cubin *cubin, uint64_t index, Elf64_Sym *symbol,
		       const char **name);

/* The content of a section, to be changed, with room for `size` bytes: new ones are 0. NULL: no
 * memory. */
uint8_t *sass_cubin_change(struct sass_cubin *cubin, size_t section, size_t size);

/* Adds an empty section, whose header is as that one but for its name, size and offset. The name
 * has to stay. Its index; 0: no memory. */
size_t sass_cubin_add(struct sass_cubin *cubin, const char *name, const Elf64_Shdr *like);

/* Adds a symbol; the name is copied. -ENOMEM. */
int sass_cubin_add_symbol(struct sass_cubin *cubin, const char *name, Elf64_Sym symbol,
			  uint32_t *index);

/* Changes the size of a symbol. -ENOMEM. */
int sass_cubin_resize_symbol(struct sass_cubin *cubin, uint64_t index, uint64_t size);

/* Which units of so many bytes of a section have a relocation: a bit each, to be freed. NULL: no
 * memory. */
uint8_t *sass_cubin_relocated(const struct sass_cubin *cubin, size_t section, size_t unit);

/* Writes the whole file anew. On success: free(*data). -ENOMEM. */
int sass_cubin_write(const struct sass_cubin *cubin, uint8_t **data, size_t *size);
