/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks the driver for bare kernels, in the way in which the application got its own. */

#include <string.h>

#include "bare.h"

enum bare_kind {
	BARE_CONTAINER, /* a library or module */
	BARE_KERNEL, /* of library `from` */
	BARE_FUNCTION, /* of module `from` */
	BARE_KERNEL_FUNCTION, /* of a kernel of library `from` */
};

/* How the application came to a handle. */
struct bare_origin {
	enum bare_kind kind;
	driver_handle from;
	driver_handle context; /* of functions and modules, */
	uint64_t context_id, born; /* driver_context_id() of it, and arm_born() */
};

struct bare_change {
	enum bare_setting setting;
	driver_handle handle; /* that it was made with, */
	struct bare_origin origin; /* and of that */
	int attribute, value, device;
};

/* Is it a bare kernel's? */
static inline bool bare_is_name(const char *name) {
	size_t length = strlen(name), suffix = sizeof(BARE_SUFFIX) - 1;

	return length > suffix && !strcmp(name + length - suffix, BARE_SUFFIX);
}

/* The context that is current, or NULL. */
driver_handle bare_context(void);

/* Writes down the context that is current. */
void bare_note_context(struct bare_origin *origin);

/* The bare form of a handle; name: with the suffix. NULL if there is none. */
driver_handle bare_ask(const struct bare_origin *origin, const char *name);

/* The probed form of a bare function, or of a library's bare kernel; NULL: it is none, or the
 * driver does not say. */
driver_handle bare_ask_own_function(driver_handle function);
driver_handle bare_ask_own_kernel(driver_handle kernel);

/* How many threads a block of a function or kernel of that origin can have; 0: the driver does not
 * say. */
unsigned bare_ask_threads(const struct bare_origin *origin, driver_handle handle);

/*
 * Gives `other`, which is of that origin in a twin, the attributes that the original has by now,
 * which is of that kind. False: it cannot stand for it.
 */
bool bare_like(const struct bare_origin *origin, driver_handle other, enum bare_kind kind,
	       driver_handle original);

/* Makes the change on `other`. */
bool bare_change(const struct bare_change *change, driver_handle other);

/* Makes the change on the bare form of the handle that it was made with. */
bool bare_repeat(const struct bare_change *change, const char *name);
