/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of dlsym that every call in the process passes, and nothing more: most calls have
 * nothing to do with the driver. The runtime of a sanitizer may call dlsym first of all, so this
 * file is never built with one (meson.build).
 */

#include "dlsym.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stddef.h>
#include <sys/auxv.h>

#include "libcuda.h"
#include "old-libc.h"

/*
 * libc.so.6 has dlvsym since glibc 2.34. Before, it is in libdl.so.2, which a process may not have,
 * or where the shim does not find it; what libc.so.6 has there instead is the same in all glibcs up
 * to 2.33, and will be. Weak: each glibc lacks one of them, which must not matter with LD_BIND_NOW.
 */
UNVERSIONED(dlvsym);
#pragma weak dlvsym
void *__libc_dlopen_mode(const char *name, int mode) __attribute__((weak));
void *__libc_dlsym(void *library, const char *name) __attribute__((weak));
#define MODE_OF_DLOPEN ((int)0x80000000) /* internal to glibc: not by the loader itself */

void *(*shim_dlsym(const char *name))(void *, const char *);

static void *(*real_dlsym)(void *, const char *);

int libc_minor(void) {
	int minor = 0;

	/* by hand: atoi() is a sanitizer's own in a program that was built with one, which asks for
	 * its symbols before it can answer */
	for (const char *p = gnu_get_libc_version() + 2; *p >= '0' && *p <= '9'; p++)
		minor = minor * 10 + (*p - '0');
	return minor;
}

static void *old_library(const char *name, int mode) {
	return __libc_dlopen_mode(name, RTLD_LAZY | MODE_OF_DLOPEN | mode);
}

static void *find_in_libc(void) {
	void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

	return found ? found : dlvsym(RTLD_NEXT, "dlsym", OLDEST_VERSION);
}

static void *find_in_libdl(void) {
	void *(*versioned)(void *, const char *, const char *), *found = NULL;
	void *library = old_library("libdl.so.2", 0);

	if (!library)
		return NULL;
	*(void **)&versioned = __libc_dlsym(library, "dlvsym");
	if (versioned)
		found = versioned(RTLD_NEXT, "dlsym", OLDEST_VERSION);
	return found ? found : __libc_dlsym(library, "dlsym");
}

/*
 * Finds it; every thread that does finds the same. NULL: the process has no libdl.so.2, and none is
 * to be had. A library behind us may have one, too, without a version, which dlvsym() does not
 * find.
 */
static void *(*find_real(void))(void *, const char *) {
	void *(*real)(void *, const char *) = __atomic_load_n(&real_dlsym, __ATOMIC_RELAXED), *next;

	if (real)
		return real;
	*(void **)&real = libc_minor() < 34 ? find_in_libdl() : find_in_libc();
	next = real ? real(RTLD_NEXT, "dlsym") : NULL;
	if (next)
		*(void **)&real = next;
	__atomic_store_n(&real_dlsym, real, __ATOMIC_RELAXED);
	return real;
}

void *dlsym_real(void *handle, const char *name) {
	void *(*real)(void *, const char *) = find_real();

	return real ? real(handle, name) : NULL;
}

void *dlsym_libc(const char *name) {
	static const char *const libraries[] = { "libpthread.so.0", "libdl.so.2" };
	void *found = dlsym_real(RTLD_DEFAULT, name), *library;

	for (unsigned i = 0; !found && libc_minor() < 34 && i < 2; i++) {
		library = old_library(libraries[i], RTLD_NOLOAD);
		found = library ? __libc_dlsym(library, name) : NULL;
	}
	return found;
}

int dlsym_is_of_interest(const char *name) {
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/* Before a dlsym: where dlsym.S goes on; NULL if there is no real one. Without crti.o's call
 * (arrival.c) it is here that we learn of a driver. */
void *(*shim_dlsym(const char *name))(void *, const char *) {
	void *(*real)(void *, const char *) = find_real();

	if (real && name && dlsym_is_of_interest(name) && !getauxval(AT_SECURE))
		libcuda_look();
	return real;
}
