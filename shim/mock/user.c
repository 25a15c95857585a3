/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A mock library that links the driver and looks for it by RTLD_DEFAULT. test-symbols.c opens it
 * with RTLD_LOCAL.
 */

#include <dlfcn.h>
#include <stddef.h>

int cuInit(unsigned flags);
void *user_look(const char *name);

void *user_look(const char *name) {
	void *found = cuInit(0) == 0 ? dlsym(RTLD_DEFAULT, name) : NULL;

	__asm__ volatile("" : "+r"(found)); /* dlsym is called from here, not jumped to */
	return found;
}
