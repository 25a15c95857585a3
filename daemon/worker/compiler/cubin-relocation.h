/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The relocations of a cubin: where its machine code and data hold addresses. */

#include "lib/base/elf.h"

#define CUBIN_RELOCATION_NONE 0 /* R_CUDA_NONE: the driver does nothing */
#define CUBIN_RELOCATION_64 2 /* R_CUDA_64: 8 bytes of data, the address of the symbol */

/* The section in which code of all architectures keeps addresses of variables and functions. */
#define CUBIN_ADDRESSES ".nv.constant4"

struct cubin_relocation {
	const char *section; /* that is changed; the name points into the file */
	const char *symbol; /* likewise; "" where it has none */
	bool variable; /* the symbol is a variable in .nv.global or .nv.global.init, or all of it */
	uint32_t type;
	int64_t addend; /* of a REL entry: that of the 8 bytes at `at`, for CUBIN_RELOCATION_64 */
	uint64_t at; /* offset in the file of what is changed; 0: not in the file */
	uint64_t entry; /* offset in the file of the entry, an Elf64_Rel or Elf64_Rela */
};

struct cubin_relocations {
	struct elf_view view;
	uint64_t section; /* that is read next, */
	uint64_t index; /* and its entry */
};

/* False: it is no cubin, or its tables lie outside. `data` has to stay. */
bool cubin_relocations_init(struct cubin_relocations *relocations, const void *data, size_t size);

/* 1: *relocation is the next one; 0: there are no more; -EINVAL: the file is malformed. */
int cubin_relocations_next(struct cubin_relocations *relocations,
			   struct cubin_relocation *relocation);

/* Makes the driver leave an entry alone: its type becomes CUBIN_RELOCATION_NONE. */
void cubin_relocation_drop(uint8_t *data, const struct cubin_relocation *relocation);
