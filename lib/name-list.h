/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The shim's list of names (proto/patch.h). It is as hostile as any image: nothing is read before
 * it is checked.
 */

#include <stddef.h>
#include <stdint.h>

#include "proto/patch.h"

enum name_list_error {
	_NAME_LIST_E_SUCCESS,
	NAME_LIST_E_END, /* there is no more */
	NAME_LIST_E_MALFORMED, /* `what` says how */
};

/* Reads from front to back. All pointers lie in the list, which is the caller's. */
struct name_list {
	const uint8_t *position, *end;
	uint64_t modules; /* that were read */
	struct patch_module module; /* the one that names belong to */
	const char *names, *names_end;
	uint32_t next; /* index of the next name in it */
	const char *what;
};

/* The list may be empty (NULL and 0). */
void name_list_init(struct name_list *names, const void *data, size_t size);

/* The next module, whatever is left of this one's names. */
int name_list_next_module(struct name_list *names);

/* The next name of the module, NUL-terminated in the list, and its index. */
int name_list_next(struct name_list *names, const char **name, uint32_t *index);
