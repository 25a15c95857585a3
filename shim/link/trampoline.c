/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where the trampolines of the driver's functions lead (trampoline.h). The dynamic linker relocates
 * nothing here, because most programs that load the shim never call any of them: targets are zeros
 * at first.
 */

#include "trampoline.h"

#include "shim/driver/driver.h"
#include "shim/entry/entry.h"

void *trampoline_targets[DRIVER_FUNCTION_COUNT];

/* trampoline.S */
extern const unsigned char trampolines[] __attribute__((visibility("hidden")));
extern const unsigned char trampolines_end[] __attribute__((visibility("hidden")));

/* The linker's: begin and end of the section that WRAP() fills. */
extern const struct wrapper __start_wrappers[] __attribute__((visibility("hidden")));
extern const struct wrapper __stop_wrappers[] __attribute__((visibility("hidden")));

void *trampoline_function(int index) {
	return (void *)(trampolines + (size_t)index * TRAMPOLINE_STRIDE);
}

bool trampoline_is_ours(const void *function) {
	return (const unsigned char *)function >= trampolines &&
	       (const unsigned char *)function < trampolines_end;
}

static const struct wrapper *find_wrapper(int index) {
	for (const struct wrapper *wrapper = __start_wrappers; wrapper < __stop_wrappers; wrapper++)
		if (wrapper->index == index)
			return wrapper;
	return NULL;
}

bool trampoline_has_wrapper(int index) {
	return find_wrapper(index) != NULL;
}

/* Is called in place of a function that the driver does not have. */
static driver_result not_found(void) {
	return DRIVER_ERROR_NOT_FOUND;
}

void trampoline_set(int index, void *function) {
	const struct wrapper *wrapper = find_wrapper(index);

	if (wrapper)
		__atomic_store_n(wrapper->real, function, __ATOMIC_RELEASE);
	if (!function)
		function = (void *)not_found;
	else if (wrapper)
		function = wrapper->function;
	__atomic_store_n(&trampoline_targets[index], function, __ATOMIC_RELEASE);
}
