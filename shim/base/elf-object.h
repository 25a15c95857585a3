/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the dynamic section of a loaded object says. */

#include <link.h>
#include <stdint.h>

static inline uintptr_t elf_value(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag) {
	for (; dynamic->d_tag != DT_NULL; dynamic++)
		if (dynamic->d_tag == tag)
			return dynamic->d_un.d_val;
	return 0;
}

/*
 * An address in it. ld.so has added the base to those of all objects that it relocates, but not to
 * those of the vDSO: what is too far from the section to be of the same object is relative.
 */
static inline uintptr_t elf_address(uintptr_t base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag) {
	uintptr_t value = elf_value(dynamic, tag), section = (uintptr_t)dynamic;
	uintptr_t distance = value > section ? value - section : section - value;

	if (!value)
		return 0;
	return distance >> 32 ? base + value : value;
}

/* Like strcmp() == 0, by hand: where this is called first, a sanitizer may not have begun yet that
 * has a strcmp() of its own. */
static inline int elf_same(const char *a, const char *b) {
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* Is there an entry of that kind (DT_SONAME, DT_NEEDED) with that name? */
static inline int elf_names(uintptr_t base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag,
			    const char *name) {
	const char *strings = (const char *)elf_address(base, dynamic, DT_STRTAB);

	for (const ElfW(Dyn) *entry = dynamic; strings && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == tag && elf_same(strings + entry->d_un.d_val, name))
			return 1;
	return 0;
}
