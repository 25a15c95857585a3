/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the ids of kernels and instructions stand for, asked of the daemon and remembered. */

#include <stdint.h>

#include "ctl/base/ctl.h"
#include "ctl/base/value.h"

struct names {
	const struct ctl *ctl; /* connected; its own connection may be in the midst of a reply */
	struct varlink_client *client;
	bool failed; /* the daemon cannot be asked */
	json_object *kernels, *instructions; /* id in hexadecimal: name, or null; NULL: not asked */
};

/* A value_namer of value.h; userdata is a struct names. */
char *names_of(enum value_id kind, uint64_t id, void *userdata);
void names_deinit(struct names *names);
