/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The layouts that a shim of one release and a daemon of another must agree on. If one of these fails, the version in the
 * header has to change with the layout.
 */

#include "interest.h"
#include "map-layout.h"
#include "paths.h"
#include "wire.h"

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define OFFSET(type, field, bytes) _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field)

SIZE(wire_header, 16);
SIZE(wire_hello, 56);
SIZE(wire_welcome, 24);
SIZE(wire_image, 48);
SIZE(wire_image_reply, 232);
SIZE(wire_slot, 96);
SIZE(wire_instance, 32);
SIZE(wire_instance_reply, 48);
SIZE(wire_armed, 32);
SIZE(wire_unload, 24);
SIZE(wire_report, 216);
SIZE(wire_sync, 16);
SIZE(wire_disarm, 24);
SIZE(wire_synced, 16);
SIZE(interest_rule, 40);
SIZE(interest_page, 2592);
SIZE(map_header, 96);
OFFSET(wire_image, capability_major, 32);
OFFSET(wire_image_reply, reason, 40);
OFFSET(wire_slot, symbol, 32);
OFFSET(wire_instance_reply, data_size, 40);
OFFSET(interest_rule, exe, 32);
OFFSET(interest_page, rules, 32);
OFFSET(map_header, shards, 40);
OFFSET(map_header, sequence, 72);
OFFSET(map_header, state, 88);

int main(void)
{
	union wire_message message = { .header = { WIRE_MAGIC, WIRE_VERSION, WIRE_SYNC, sizeof(struct wire_sync), 1 } };

	if (!wire_valid(&message, sizeof(struct wire_sync)) || wire_valid(&message, sizeof(struct wire_sync) - 1))
		return 1;
	message.header.version++;
	if (wire_valid(&message, sizeof(struct wire_sync)))
		return 1;
	message.header.version--;
	message.header.type = WIRE_DISARM;
	if (wire_valid(&message, sizeof(struct wire_sync)) || wire_size(0) || wire_size(WIRE_SYNCED + 1))
		return 1;
	return interest_hash("") != UINT64_C(0xcbf29ce484222325) || interest_hash("/bin/true") == interest_hash("/bin/false");
}
