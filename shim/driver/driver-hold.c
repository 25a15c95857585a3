/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Keeps the driver in the process once it is in use (driver.h).
 *
 * A program may try one driver after another (a stub of a toolkit first, whose cuInit fails) and
 * unload it. So the driver is no more than looked at until it is in use.
 */

#include "driver.h"

#include <dlfcn.h>

#include "functions.h"
#include "shim/base/beside.h"

#define HOLD_LIBRARY "libgpuprobe-hold.so"

static bool kept; /* the driver is in use: from then on it stays */

void *driver_symbol(const char *name) {
	return driver_function_own(driver_function_find(name));
}

/* Without libgpuprobe-hold.so (hold/hold.c) it is held less well: dlclose() never fails. */
static bool hold(const char *driver) {
	void *held = beside_open(HOLD_LIBRARY, 0);

	if (held)
		return true;
	held = dlopen(driver, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	if (held)
		dlclose(held);
	return held;
}

void driver_keep(void) {
	Dl_info info;

	if (!driver_is_kept() && dladdr(driver_symbol("cuInit"), &info) && hold(info.dli_fname))
		__atomic_store_n(&kept, true, __ATOMIC_RELEASE);
}

bool driver_is_kept(void) {
	return __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
}

bool driver_is_in_use(void) {
	driver_result (*get_current)(driver_handle *);
	driver_handle context;

	if (driver_is_kept())
		return true;
	/* it may have begun without us, or was not kept in time: does it answer? */
	*(void **)&get_current = driver_symbol("cuCtxGetCurrent");
	if (get_current && get_current(&context) == 0)
		driver_keep();
	return driver_is_kept();
}
