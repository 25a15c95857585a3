/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks the driver for kernels of twins, in the way in which the application got its own. */

#include "handles.h"

enum handles_kind {
	HANDLES_CONTAINER, /* a library or module */
	HANDLES_KERNEL, /* of library `from` */
	HANDLES_FUNCTION, /* of module `from` */
	HANDLES_KERNEL_FUNCTION, /* of a kernel of library `from` */
};

/* How the application came to a handle. */
struct handles_origin {
	enum handles_kind kind;
	driver_handle from;
	driver_handle context; /* of functions and modules, */
	uint64_t context_id, born; /* driver_context_id() of it, and arm_born() */
};

struct handles_change {
	enum handles_setting setting;
	driver_handle handle; /* that it was made with, */
	struct handles_origin origin; /* and of that */
	int attribute, value, device;
};

/* The context that is current, or NULL. */
driver_handle handles_context(void);

/* Writes down the context that is current. */
void handles_note_context(struct handles_origin *origin);

/* The twin's kernel of that name, got in that way; NULL if there is none. */
driver_handle handles_ask(const struct handles_origin *origin, const char *name);

/*
 * Gives `other`, which is of that origin in a twin, the attributes that the original has by now,
 * which is of that kind. False: it cannot stand for it.
 */
bool handles_like(const struct handles_origin *origin, driver_handle other, enum handles_kind kind,
		  driver_handle original);

/* Makes the change on `other`. */
bool handles_change(const struct handles_change *change, driver_handle other);

/* Makes the change on the twin of the handle that it was made with. */
bool handles_repeat(const struct handles_change *change, const char *name);
