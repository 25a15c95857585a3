/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Puts what was chosen and compiled into the registry. */

#include "attach-compiled.h"
#include "daemon/gpuprobed/registry/registry.h"

struct attach;

enum {
	_ATTACH_REGISTER_SUCCESS,
	ATTACH_REGISTER_E_LIMIT, /* too many attachments */
	ATTACH_REGISTER_E_QUOTA, /* too many of this user */
	ATTACH_REGISTER_E_MAP_QUOTA, /* the user's maps would take too much memory */
	ATTACH_REGISTER_E_MAP, /* a map is larger than a map may be, or of another shape */
	ATTACH_REGISTER_E_HOST, /* a program on the host cannot be attached: the report says why */
};

/*
 * Makes the object, its maps and an attachment of each program; processes are not told yet. Takes
 * the descriptors of the compiled programs. 0 with *objectp, which is the registry's, a positive
 * result, or -errno: nothing is there then.
 */
int attach_register(struct attach *attach, struct compiled *compiled, struct object **objectp);
