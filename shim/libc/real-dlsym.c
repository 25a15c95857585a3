/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds libc's dlsym() behind the shim's own (real-dlsym.h). The runtime of a sanitizer may call
 * dlsym() first of all, so this file is never built with one (../meson.build).
 */

#include "real-dlsym.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stddef.h>

#include "old-libc.h"

/*
 * libc.so.6 has dlvsym since glibc 2.34. Before, it is in libdl.so.2, which a process may lack, or
 * which the shim may not find. All glibcs up to 2.33 have the other two instead. Weak, because each
 * glibc lacks one of them: with LD_BIND_NOW the loader would end the program.
 */
UNVERSIONED(dlvsym);
#pragma weak dlvsym
void *__libc_dlopen_mode(const char *name, int mode) __attribute__((weak));
void *__libc_dlsym(void *library, const char *name) __attribute__((weak));
#define MODE_OF_DLOPEN ((int)0x80000000) /* internal to glibc: not by the loader itself */

int libc_minor(void) {
	int minor = 0;

	/* not by atoi(): in a program with a sanitizer that is the sanitizer's, which may call
	 * dlsym() before its atoi() works */
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
 * All threads find the same. A library behind the shim may have a dlsym() without a version, too,
 * which dlvsym() does not find: so the one that was found is asked for the next one.
 */
dlsym_function *dlsym_find(void) {
	static dlsym_function *kept;
	dlsym_function *real = __atomic_load_n(&kept, __ATOMIC_RELAXED);
	void *next;

	if (real)
		return real;
	*(void **)&real = libc_minor() < 34 ? find_in_libdl() : find_in_libc();
	next = real ? real(RTLD_NEXT, "dlsym") : NULL;
	if (next)
		*(void **)&real = next;
	__atomic_store_n(&kept, real, __ATOMIC_RELAXED);
	return real;
}

void *dlsym_real(void *handle, const char *name) {
	dlsym_function *real = dlsym_find();

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
