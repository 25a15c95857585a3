/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tells a daemon that continues with an earlier one's state what this process has from that:
 * modules and instances. With the loader's lock held, and not that of the instances.
 */

#include <stdbool.h>
#include <stdint.h>

struct wire_client;
struct load;

/* False: the connection is broken. start: of the daemon. */
bool resume_all(struct wire_client *client, uint32_t start, uint64_t deadline_ms);

/* The same for one module. */
bool resume_load(struct wire_client *client, struct load *load, uint32_t start,
		 uint64_t deadline_ms);
