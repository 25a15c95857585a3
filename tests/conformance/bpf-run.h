/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What bpf-run's parts share: a map's memory, made as daemon and shim make it and read as readers
 * do. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "translate.h"

struct bytes {
	uint8_t *data;
	size_t size;
};

/* Bytes of an instance: data, and the host area of rings behind it. */
size_t instance_size(const struct map_layout *layout);

/*
 * An instance as it is at first, in `memory` of zeros, which the device has at `address`. Rings are
 * as if `head` bytes had been written and read; producers have heard that `tail` were, or if that
 * is 0, not of the last.
 */
void instance_init(const struct map_layout *layout, uint8_t *memory, uint64_t address,
		   uint64_t head, uint64_t tail);

/*
 * What a reader sees of an instance; NULL: of none.
 *
 *     array            values, one after the other
 *     per-thread array the values of index 0, one a thread, then those of index 1 ...
 *     hash             elements in order of keys: key, value (of a percpu hash: the sum of its
 *                      copies)
 *     ring             u32 lost, u32 written, then each batch: u32 size, u32 count, its records
 *                      (of a log, with time 0); `records`: as if each were a batch of its own
 *
 * Returns 0, -ENOMEM, or -EINVAL: it breaks the rules of map-layout.h.
 */
int instance_read(const struct translate_map *map, const struct translate_map_result *result,
		  const uint8_t *memory, uint64_t head, bool records, struct bytes *bytes);
