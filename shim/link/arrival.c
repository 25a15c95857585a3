/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How the shim learns that libcuda.so.1 has come into the process, before anything can call it.
 *
 * The start file of every object (crti.o) calls the function __gmon_start__, if there is one,
 * before the object's constructors: so libcuda itself tells that it is there, when it and all that
 * came with it is relocated and nothing of it has run; and so does what is linked with it. Nobody
 * looks at whether that function exists, but these files. In programs that are profiled by gprof
 * (-pg) it is theirs, and nobody tells us; then the constructor finds a libcuda that the program is
 * linked with, and dlsym() one that it has loaded.
 *
 * All of this runs in every process, perhaps before a sanitizer of the program has begun: so this
 * file is never built with one (meson.build), and calls no function of libc, but getauxval(),
 * before there is a libcuda. The list of objects is read without a lock, because nobody changes it
 * now: the caller holds that of dlopen(), or the program is just starting.
 */

#include "arrival.h"

#include <link.h>
#include <stddef.h>
#include <sys/auxv.h>

#include "shim/base/elf-object.h"

void __gmon_start__(void) __attribute__((visibility("default")));

/* The object that the address lies in: the last one that begins before it. */
static const struct link_map *object_of(uintptr_t address) {
	const struct link_map *found = NULL;

	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
		if (map->l_addr <= address && (!found || map->l_addr >= found->l_addr))
			found = map;
	return found;
}

void __gmon_start__(void) {
	const struct link_map *map = object_of((uintptr_t)__builtin_return_address(0));

	if (map && map->l_ld &&
	    (elf_names(map->l_addr, map->l_ld, DT_SONAME, LIBCUDA) ||
	     elf_names(map->l_addr, map->l_ld, DT_NEEDED, LIBCUDA)) &&
	    !getauxval(AT_SECURE))
		libcuda_arrived();
}

static __attribute__((constructor)) void look_once(void) {
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		if (map->l_ld && elf_names(map->l_addr, map->l_ld, DT_SONAME, LIBCUDA)) {
			if (!getauxval(AT_SECURE))
				libcuda_arrived();
			return;
		}
	}
}
