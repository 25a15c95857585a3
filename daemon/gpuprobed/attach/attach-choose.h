/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which programs of an object are attached, and where. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/bpf/linked.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "lib/pass/section.h"
#include "proto/job.h"

enum attach_choose_result {
	_ATTACH_CHOOSE_SUCCESS,
	ATTACH_CHOOSE_E_NOT_FOUND, /* the program asked for */
	ATTACH_CHOOSE_E_OBJECT,
	ATTACH_CHOOSE_E_ARGUMENT, /* trouble.parameter */
	ATTACH_CHOOSE_E_LIMIT,
};

#define ATTACH_REASON_SIZE 512

/* What the user asked for; strings are borrowed. */
struct attach_wish {
	const char *program; /* NULL: all */
	const char *kernel; /* NULL: what the section says */
	const char *point; /* a section in place of the program's; NULL: its own */
	uint32_t spaces; /* of memory points; 0: the default */
	enum engine engine;
	struct json_object *host_targets; /* where programs on the host are attached, by their names
					     (host-target.h); NULL: as sections say */
	const char *folder; /* of the caller: absolute; NULL: unknown */
};

struct attach_choice {
	size_t program; /* index */
	const char *text; /* the section or wish->point */
	struct section section;
};

struct attach_choices {
	size_t n, n_hosts;
	struct attach_choice *programs; /* that run on the GPU */
	size_t hosts[LINKED_PROGRAMS_MAX]; /* that run on the host: indices */
};

struct attach_trouble {
	const char *program; /* NULL: none in particular; borrowed from linked */
	const char *parameter; /* a literal */
	char reason[ATTACH_REASON_SIZE];
};

/*
 * Applies job.md's rules, the one about --kernel too. 0 with *choices to be deinitialised, a
 * positive result with *trouble filled in, or -ENOMEM.
 */
int attach_choose(struct attach_choices *choices, const struct linked *linked,
		  const struct attach_wish *wish, struct attach_trouble *trouble);
void attach_choices_deinit(struct attach_choices *choices);
