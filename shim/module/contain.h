/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Libraries whose modules are not replaced, because they fail if they are: the PTX engine leaves
 * them alone. A module is such a library's if its image lies in the library, or the call that loads
 * it comes from there (an image that was made at run time lies on the heap). Linked into a program
 * such a library is not seen here; the image worker knows some of its kernels (image-job.c).
 */

#include <stdbool.h>
#include <stdint.h>

#define CONTAIN_NAME_MAX 64
#define CONTAIN_ROWS 1 /* of the table */

struct contained {
	unsigned row;
	char name[CONTAIN_NAME_MAX]; /* of the library, without its folder; may be cut */
};

/* Does one of these addresses (NULL: none) lie in such a library? */
bool contain_find(struct contained *found, const void *image, const void *data, const void *caller);

/* The object that an address lies in, or NULL. */
struct link_map;
const struct link_map *contain_object(const void *address);

/* What to say of it: WIRE_REASON_MAX bytes. */
void contain_reason(const struct contained *contained, char *reason);
