/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides whether a module belongs to a library whose modules are not replaced (contain.h).
 *
 * A library is known by its file's name or its SONAME: both begin with the name in the table. Each
 * load asks which library an address lies in. dladdr() waits for threads that are in dlopen(), so
 * it is used only where libc has nothing better.
 */

#include "contain.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "shim/libc/real-dlsym.h"
#include "proto/wire.h"

#define FIND_OBJECT_MINOR 35

/* One line each; CONTAIN_ROWS says how many. */
static const char *const libraries[] = {
	"libcufft", /* and libcufftw, libcufftMp: CUFFT_INTERNAL_ERROR (cuFFT 12) */
};

_Static_assert(sizeof(libraries) / sizeof(libraries[0]) == CONTAIN_ROWS, "see contain.h");

static bool is_listed(struct contained *found, const char *path) {
	const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;

	for (unsigned i = 0; name && i < CONTAIN_ROWS; i++) {
		if (strncmp(name, libraries[i], strlen(libraries[i])))
			continue;
		found->row = i;
		snprintf(found->name, sizeof(found->name), "%s", name);
		return true;
	}
	return false;
}

/* The name that the library has in itself, or NULL. */
static const char *soname_of(const struct link_map *map) {
	const char *strings = NULL;
	size_t at = 0;

	for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_STRTAB) /* libc has made an address of it, as everywhere but
						  on RISC-V and MIPS */
			strings = (const char *)entry->d_un.d_ptr;
		else if (entry->d_tag == DT_SONAME)
			at = entry->d_un.d_val;
	}
	return strings && at && (uintptr_t)strings >= map->l_addr ? strings + at : NULL;
}

/* glibc's, from 2.35 on: takes no lock. */
struct found_object {
	uint64_t flags;
	void *begin, *end;
	struct link_map *map;
	void *frame;
	uint64_t reserved[8]; /* and one of aarch64 */
};
typedef int find_object_fn(void *address, struct found_object *found);

static find_object_fn *find_object(void) {
	static find_object_fn *kept;
	find_object_fn *found = __atomic_load_n(&kept, __ATOMIC_RELAXED);

	if (!found && libc_minor() >= FIND_OBJECT_MINOR)
		found = (find_object_fn *)dlsym_libc("_dl_find_object");
	__atomic_store_n(&kept, found, __ATOMIC_RELAXED);
	return found;
}

const struct link_map *contain_object(const void *address) {
	find_object_fn *find = find_object();
	struct found_object found = { 0 };
	struct link_map *map = NULL;
	Dl_info info;

	if (find)
		return find((void *)address, &found) == 0 ? found.map : NULL;
	return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static bool lies_in(struct contained *found, const void *address) {
	const struct link_map *map = address ? contain_object(address) : NULL;

	return map && (is_listed(found, map->l_name) || is_listed(found, soname_of(map)));
}

bool contain_find(struct contained *found, const void *image, const void *data,
		  const void *caller) {
	return lies_in(found, image) || (data != image && lies_in(found, data)) ||
	       lies_in(found, caller);
}

void contain_reason(const struct contained *contained, char *reason) {
	snprintf(reason, WIRE_REASON_MAX,
		 WIRE_REPORT_LIBRARY "%s: its modules are not replaced, because it fails if they "
				     "are (KNOWN LIBRARIES in gpuprobe-shim(7))",
		 contained->name);
}
