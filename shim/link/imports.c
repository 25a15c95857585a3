/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Changes the addresses that a loaded object has of other objects' functions (imports.h): its GOT,
 * and pointers in its data.
 */

#include "imports.h"

#include <elf.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "dlsym.h"
#include "shim/base/elf-object.h"

#if defined(__x86_64__)
#define IS_ADDRESS(type) \
	((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_ADDRESS(type) \
	((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#error "no relocations for this architecture"
#endif

typedef uintptr_t __attribute__((aligned(1))) slot; /* in packed structures there are odd ones */

/* The segment of that kind with the address, or NULL. */
static const ElfW(Phdr) *
	segment_of(const struct dl_phdr_info *object, ElfW(Word) type, uintptr_t address) {
	for (unsigned i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

		if (segment->p_type == type &&
		    address - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
			return segment;
	}
	return NULL;
}

/* As ld.so protects it: whole pages, and what is left behind the last one is not. */
static bool protect(const struct dl_phdr_info *object, const ElfW(Phdr) * relro, int protection) {
	uintptr_t page = getauxval(AT_PAGESZ), start = object->dlpi_addr + relro->p_vaddr,
		  end = (start + relro->p_memsz) & -page;

	start &= -page;
	return end <= start || mprotect((void *)start, end - start, protection) == 0;
}

bool object_write(struct object_writer *writer, uintptr_t *at, uintptr_t value) {
	const ElfW(Phdr) *load = segment_of(writer->object, PT_LOAD, (uintptr_t)at);
	const ElfW(Phdr) *relro = segment_of(writer->object, PT_GNU_RELRO, (uintptr_t)at);

	if (!load || !(load->p_flags & PF_W))
		return false;
	if (relro && !writer->open) {
		if (!protect(writer->object, relro, PROT_READ | PROT_WRITE))
			return false;
		writer->open = true;
	}
	*(volatile slot *)at = value;
	return true;
}

void object_end_writing(struct object_writer *writer) {
	for (unsigned i = 0; writer->open && i < writer->object->dlpi_phnum; i++)
		if (writer->object->dlpi_phdr[i].p_type == PT_GNU_RELRO)
			protect(writer->object, &writer->object->dlpi_phdr[i], PROT_READ);
	writer->open = false;
}

ElfW(Dyn) * object_dynamic(const struct dl_phdr_info *object) {
	for (unsigned i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
	return NULL;
}

void imports_replace(const struct dl_phdr_info *object,
		     void *(*instead)(const char *name, void *address)) {
	const uintptr_t base = object->dlpi_addr;
	const ElfW(Dyn) *dynamic = object_dynamic(object);
	struct object_writer writer = { .object = object };
	const struct {
		const ElfW(Rela) * first;
		size_t count, skipped;
	} tables[] = {
		{ dynamic ? (const ElfW(Rela) *)elf_address(base, dynamic, DT_RELA) : NULL,
		  dynamic ? elf_value(dynamic, DT_RELASZ) / sizeof(ElfW(Rela)) : 0,
		  dynamic ? elf_value(dynamic, DT_RELACOUNT) : 0 },
		{ dynamic ? (const ElfW(Rela) *)elf_address(base, dynamic, DT_JMPREL) : NULL,
		  dynamic ? elf_value(dynamic, DT_PLTRELSZ) / sizeof(ElfW(Rela)) : 0, 0 },
	};
	const ElfW(Sym) *symbols =
		dynamic ? (const ElfW(Sym) *)elf_address(base, dynamic, DT_SYMTAB) : NULL;
	const char *strings = dynamic ? (const char *)elf_address(base, dynamic, DT_STRTAB) : NULL;

	for (unsigned t = 0; symbols && strings && t < 2; t++) {
		for (size_t i = tables[t].skipped; tables[t].first && i < tables[t].count; i++) {
			const ElfW(Rela) *row = &tables[t].first[i];
			const char *name = strings + symbols[ELF64_R_SYM(row->r_info)].st_name;
			uintptr_t *at = (uintptr_t *)(base + row->r_offset);
			void *ours;

			if (!IS_ADDRESS(ELF64_R_TYPE(row->r_info)) || row->r_addend ||
			    !dlsym_is_of_interest(name))
				continue;
			ours = instead(name, (void *)*(const slot *)at);
			if (ours)
				object_write(&writer, at, (uintptr_t)ours);
		}
	}
	object_end_writing(&writer);
}
