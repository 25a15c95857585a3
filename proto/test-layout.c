/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks the binary layouts in proto/: wire messages, interest page, patch plans, maps. A shim of
 * one release and a daemon of another must agree on them. If a check fails, change the version in
 * that header together with the layout.
 */

#include "interest.h"
#include "map-layout.h"
#include "patch.h"
#include "paths.h"
#include "wire.h"

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define OFFSET(type, field, bytes) \
	_Static_assert(offsetof(struct type, field) == (bytes), #type "." #field)

SIZE(wire_header, 16);
SIZE(wire_hello, 56);
SIZE(wire_welcome, 56);
SIZE(wire_image, 48);
SIZE(wire_image_reply, 240);
SIZE(wire_slot, 104);
SIZE(wire_instance, 32);
SIZE(wire_instance_reply, 56);
SIZE(wire_armed, 32);
SIZE(wire_unload, 24);
SIZE(wire_report, 216);
SIZE(wire_sync, 16);
SIZE(wire_disarm, 24);
SIZE(wire_synced, 16);
SIZE(wire_trace, 24);
SIZE(wire_trace_reply, 24);
SIZE(wire_ids, 224);
SIZE(wire_resume, 40);
SIZE(wire_resumed, 32);
SIZE(wire_keep, 32);
SIZE(wire_kept, 40);
SIZE(interest_rule, 48);
SIZE(interest_page, 4056);
SIZE(patch_module, 24);
SIZE(patch_plan, 64);
SIZE(patch_point, 64);
SIZE(patch_kernel, 24);
SIZE(patch_data, 32);
SIZE(map_header, 144);
SIZE(map_layout, 80);
SIZE(map_hash, 128);
SIZE(map_ring, 128);
SIZE(map_batch, 32);
SIZE(gpuprobe_process, 64);
OFFSET(wire_image, capability_major, 32);
OFFSET(wire_image_reply, reason, 48);
OFFSET(wire_slot, offset, 36);
OFFSET(wire_slot, symbol, 40);
OFFSET(wire_welcome, comm, 32);
OFFSET(gpuprobe_process, comm, 16);
OFFSET(wire_instance_reply, data_size, 40);
OFFSET(interest_rule, exe, 32);
OFFSET(interest_rule, cgroup, 40);
OFFSET(interest_page, rules, 32);
OFFSET(interest_page, exclude_rules, 2240);
OFFSET(interest_page, sass_rules, 2624);
OFFSET(interest_page, trace_generation, 3392);
OFFSET(interest_page, exclude_rule_count, 3404);
OFFSET(interest_page, trace_rules, 3408);
OFFSET(interest_page, sanitizer, 3792);
OFFSET(interest_page, daemon, 4048);
OFFSET(patch_plan, image_id, 32);
OFFSET(patch_plan, data_size, 56);
OFFSET(map_header, layout, 40);
OFFSET(map_header, sequence, 120);
OFFSET(map_header, state, 136);
OFFSET(map_layout, value_stride, 24);
OFFSET(map_layout, host_size, 72);

/* A few layouts that existing objects rely on. */
static int layouts_hold(void) {
	struct map_layout l;

	if (map_layout_init(&l, &(struct map_shape){ .type = 2,
						     .key_size = 4,
						     .value_size = 8,
						     .max_entries = 1,
						     .merge = MAP_MERGE_SUM64 }) ||
	    l.kind != MAP_KIND_ARRAY || l.shards != 256 || l.shard_stride != 128 ||
	    l.data_size != 32768)
		return 0;
	if (map_layout_init(&l, &(struct map_shape){ .type = 1,
						     .key_size = 4,
						     .value_size = 8,
						     .max_entries = 256 }) ||
	    l.kind != MAP_KIND_HASH || l.capacity != 1024 || l.entry_stride != 32 ||
	    l.data_size != 128 + 1024 * 32)
		return 0;
	/* an LRU map's slots have 8 bytes more */
	if (map_layout_init(&l, &(struct map_shape){ .type = 9,
						     .key_size = 16,
						     .value_size = 8,
						     .max_entries = 256 }) ||
	    l.kind != MAP_KIND_HASH || l.capacity != 1024 || l.entry_stride != 64 ||
	    l.merge != MAP_MERGE_NONE)
		return 0;
	if (map_layout_init(&l, &(struct map_shape){ .type = 10,
						     .key_size = 4,
						     .value_size = 8,
						     .max_entries = 4 }) ||
	    l.shards != 256 || l.entry_stride != 16 + 256 * 8 + 16 || l.merge != MAP_MERGE_PERCPU)
		return 0;
	if (map_layout_init(&l, &(struct map_shape){ .type = 1527,
						     .key_size = 4,
						     .value_size = 32,
						     .max_entries = 8 }) ||
	    l.rings != 128 || l.ring_size != 65536 || l.host_size != 8192 + (8 << 20) ||
	    map_memfd_size(&l) != 4096 + 16384 + l.host_size)
		return 0;
	if (map_layout_init(&l, &(struct map_shape){ .type = 1502,
						     .key_size = 4,
						     .value_size = 8,
						     .max_entries = 2,
						     .threads = 10 }) ||
	    l.data_size != 160)
		return 0;
	/* the GPU's own arrays can be the kernel's, those for each thread cannot */
	if (map_layout_init(&l, &(struct map_shape){ .type = 1513,
						     .key_size = 4,
						     .value_size = 12,
						     .max_entries = 2,
						     .place = MAP_PLACE_KERNEL,
						     .merge = MAP_MERGE_SUM32 }) ||
	    l.place != MAP_PLACE_KERNEL || l.merge != MAP_MERGE_NONE || l.value_stride != 16 ||
	    !map_layout_init(&l, &(struct map_shape){ .type = 1502,
						      .key_size = 4,
						      .value_size = 8,
						      .max_entries = 2,
						      .place = MAP_PLACE_KERNEL }))
		return 0;
	return map_layout_init(&l, &(struct map_shape){ .type = 3,
							.key_size = 4,
							.value_size = 8,
							.max_entries = 2 }) != NULL &&
	       map_layout_init(&l, &(struct map_shape){ .type = 1,
							.key_size = 4,
							.value_size = 8,
							.max_entries = 2,
							.place = MAP_PLACE_KERNEL }) != NULL;
}

int main(void) {
	union wire_message message = { .header = { WIRE_MAGIC, WIRE_VERSION, WIRE_SYNC,
						   sizeof(struct wire_sync), 1 } };

	if (!wire_valid(&message, sizeof(struct wire_sync)) ||
	    wire_valid(&message, sizeof(struct wire_sync) - 1))
		return 1;
	message.header.version++;
	if (wire_valid(&message, sizeof(struct wire_sync)))
		return 1;
	message.header.version--;
	message.header.type = WIRE_DISARM;
	if (wire_valid(&message, sizeof(struct wire_sync)) || wire_size(0) ||
	    wire_size(WIRE_KEEP + 1))
		return 1;
	if (!layouts_hold())
		return 1;
	return interest_hash("") != UINT64_C(0xcbf29ce484222325) ||
	       interest_hash("/bin/true") == interest_hash("/bin/false");
}
