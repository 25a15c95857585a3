/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes of records in replies of ReadRing and Trace: in memory that the daemon shares
 * (proto/client-ring.h), or in base64. */

#include <stddef.h>
#include <stdint.h>

#include "ctl.h"

struct client_ring;

struct records {
	struct client_ring *ring; /* NULL: there is none so far */
	const unsigned char *data; /* its data twice, one behind the other */
	size_t size;
	uint64_t taken; /* bytes that were taken out */
	unsigned char *bytes; /* of the last reply, from malloc(), or NULL */
};

/*
 * Takes the bytes of a reply, which stay until the next one; a member that is absent stands for
 * none. Returns the exit status.
 */
int records_take(struct records *records, struct ctl *ctl, json_object *reply, const char *member,
		 const unsigned char **bytesp, size_t *np);
/* They are needed no more. */
void records_done(struct records *records);
void records_deinit(struct records *records);
