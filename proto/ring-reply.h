/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The member `batches` in replies of ReadRing (control interface): records in binary. A JSON object
 * for each record would cost 50 times as much as taking the record out of the ring. Decoded from
 * base64, it is a sequence of this struct, each followed by `count` records of `size` bytes, in
 * order of lanes, without padding. Little-endian.
 */

#include <stdint.h>

struct ring_reply_batch {
	uint32_t pid;
	uint32_t sm;
	uint32_t size; /* bytes of one record, never 0 */
	uint32_t count; /* 1..32 */
	uint32_t lanes; /* bit i: lane i wrote a record; `count` bits are set */
	uint32_t reserved; /* 0 */
};

_Static_assert(sizeof(struct ring_reply_batch) == 24, "daemon and clients agree");
