/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks that bytes are a BPF object whose structure libbpf may rely on. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_CHECK_ERROR_SIZE 192

/*
 * Checks the ELF structure: headers, sections, symbols, relocations, and with btf-check.h the BTF.
 * elf is aligned to 8. NULL if all is well; else the reason, one line in `error`.
 */
const char *elf_check(const void *elf, size_t size, char error[static ELF_CHECK_ERROR_SIZE]);

/*
 * Of a checked object: the bytes of a section, NULL if there is none of that name or it holds none.
 */
const void *elf_section(const void *elf, size_t elf_size, const char *name, size_t *size);
