/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind the shim: who looks for the function S_SLOW, as the shim does among others, waits in the middle of that, once. */

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define VERSION "GLIBC_2.2.5"
#else
#define VERSION "GLIBC_2.17"
#endif

void *dlsym(void *handle, const char *name)
{
	static atomic_bool slow;
	void *(*real)(void *, const char *);

	*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", VERSION);
	if (!strcmp(name, getenv("S_SLOW")) && !atomic_exchange(&slow, true))
		usleep(500000);
	return real(handle, name);
}
