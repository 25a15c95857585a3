/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Writes to an object's data, also to the part that is read-only after relocation (RELRO). */
struct object_writer {
	const struct dl_phdr_info *object;
	bool open; /* RELRO is writable */
};

/* False: it lies in no segment that may be written to. */
bool object_write(struct object_writer *writer, uintptr_t *at, uintptr_t value);
void object_end_writing(struct object_writer *writer);

/* The dynamic section, or NULL. */
ElfW(Dyn) * object_dynamic(const struct dl_phdr_info *object);

/*
 * Replaces addresses that an object's relocations by name have put into its data: `instead` says by
 * what, or NULL. What the linker has not looked up yet (lazy binding) it leaves alone.
 */
void imports_replace(const struct dl_phdr_info *object,
		     void *(*instead)(const char *name, void *address));
