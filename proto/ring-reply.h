/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * `batches` of ReadRing: records without a JSON object for each, which costs 50 times what taking
 * them out of the ring does. Decoded, it is one such struct after another, each followed by count
 * records of size bytes, in order of lanes, without padding. Little-endian.
 */

#include <stdint.h>

struct ring_reply_batch {
	uint32_t pid;
	uint32_t sm;
	uint32_t size; /* bytes of one record, never 0 */
	uint32_t count; /* 1..32 */
	uint32_t lanes; /* bit i: lane i wrote one; count bits are set */
	uint32_t reserved; /* 0 */
};

_Static_assert(sizeof(struct ring_reply_batch) == 24, "daemon and clients agree");
