/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of dlsym that every call in the process passes, and nothing more: most calls have
 * nothing to do with the driver. The runtime of a sanitizer may call dlsym first of all, so this
 * file is never built with one (../meson.build).
 */

#include "dlsym.h"

#include <stddef.h>
#include <sys/auxv.h>

#include "libcuda.h"
#include "shim/driver/driver.h"
#include "shim/libc/real-dlsym.h"

dlsym_function *shim_dlsym(const char *name);

/*
 * Before a dlsym: where dlsym.S goes on; NULL if there is no real one. Where no start file called
 * us (arrival.c), the shim learns of a driver here.
 */
dlsym_function *shim_dlsym(const char *name) {
	dlsym_function *real = dlsym_find();

	if (real && name && dlsym_is_of_interest(name) && !getauxval(AT_SECURE) &&
	    !driver_is_kept())
		libcuda_look();
	return real;
}
