/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The section .thread of a BPF object: variables of a thread. libbpf knows no such section, so it
 * is shown one of data under a name as long. Nobody creates that map.
 */

#include <stddef.h>
#include <stdint.h>

#define THREAD_SECTION ".thread"
#define THREAD_LINKED_SECTION ".data.t" /* what it is called for libbpf */
#define THREAD_BYTES_MAX 64 /* of all variables of an object */
#define THREAD_VARIABLES_MAX THREAD_BYTES_MAX
#define THREAD_VARIABLE_NAME 128

enum {
	_THREAD_SECTION_SUCCESS,
	THREAD_SECTION_FOUND, /* and renamed */
	THREAD_SECTION_E_TAKEN, /* it has a section of the other name, too */
	THREAD_SECTION_E_POINTERS, /* variables that begin as addresses */
};

/* Renames the section in the headers and the BTF of an object that elf_check() has found good. */
int thread_section_mark(void *elf, size_t size);

struct btf;

struct thread_variables {
	size_t n;
	struct thread_variable {
		char name[THREAD_VARIABLE_NAME];
		uint32_t offset, size;
	} variables[THREAD_VARIABLES_MAX];
};

/* Reads what the BTF of a marked and linked object says of the variables, in order of offset. */
void thread_variables_read(struct thread_variables *variables, const struct btf *btf);
