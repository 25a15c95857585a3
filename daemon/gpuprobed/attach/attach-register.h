/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Puts what was chosen and compiled into the registry. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach-choose.h"
#include "attach-compiled.h"
#include "lib/bpf/linked.h"
#include "daemon/gpuprobed/settings/filter.h"
#include "daemon/gpuprobed/registry/registry.h"

struct attach_context;

enum {
	_ATTACH_REGISTER_SUCCESS,
	ATTACH_REGISTER_E_LIMIT, /* too many attachments */
	ATTACH_REGISTER_E_QUOTA, /* too many of this user */
	ATTACH_REGISTER_E_MAP_QUOTA, /* the user's maps would take too much memory */
	ATTACH_REGISTER_E_MAP, /* a map is larger than a map may be, or of another shape */
	ATTACH_REGISTER_E_HOST, /* a program on the host cannot be attached: the report says why */
};

/* Borrowed. */
struct attach_plan {
	struct attach_context *context;
	uint64_t object_id;
	struct prefix **prefix; /* taken */
	uid_t owner;
	bool shared;
	const struct filter *filter;
	uint32_t spaces; /* of memory points; 0: the default */
	enum engine engine;
	const struct linked *linked;
	const void *blob; /* linked->size bytes */
	const struct attach_choices *choices;
	struct host *
		*host; /* *host NULL: there are no programs on the host; taken if all goes well */
	struct verify_report *host_report;
	char *const *host_targets; /* by the index of a program; NULL: as its section says */
};

/*
 * Makes the object, its maps and an attachment of each program; processes are not told yet. Takes
 * the descriptors of the compiled programs. 0 with *objectp, which is the registry's, a positive
 * result, or -errno: nothing is there then.
 */
int attach_register(const struct attach_plan *plan, struct compiled *compiled,
		    struct object **objectp);
