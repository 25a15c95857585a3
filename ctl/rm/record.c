/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads records of context switches out of the driver's event buffer (record.h). It knows their
 * layout; it checks positions against the ring's size because the driver writes them.
 */

#include <string.h>

#include "record.h"

enum {
	TYPE_CTXSW_V2 = 2, /* NV_EVENT_BUFFER_RECORD_TYPE_FECS_CTX_SWITCH_V2 */
	TYPE_CTXSW = 134, /* its pid has 64 bits */
};

#define INSTANCE_NONE 0xff

struct record { /* NV_EVENT_BUFFER_RECORD with NV_EVENT_BUFFER_FECS_RECORD_V2 */
	uint16_t type, subtype;
	uint32_t data;
	uint8_t tag, vmid;
	uint16_t sequence;
	uint32_t context;
	uint32_t pid;
	uint16_t reserved;
	uint8_t gpu_instance, compute_instance;
	uint64_t time;
};

_Static_assert(sizeof(struct record) == RM_RECORD_SIZE, "NV_EVENT_BUFFER_RECORD");

size_t rm_records_read(const void *ring, uint32_t n, uint32_t *getp, uint32_t put,
		       struct rm_ctxsw_record *records, size_t n_max) {
	uint32_t get = *getp;
	size_t n_read = 0;

	if (put >= n || get >= n)
		return 0;
	for (; get != put && n_read < n_max; get = (get + 1) % n) {
		struct record record;

		memcpy(&record, (const char *)ring + (size_t)get * RM_RECORD_SIZE, sizeof(record));
		if (record.type != TYPE_CTXSW && record.type != TYPE_CTXSW_V2)
			continue;
		records[n_read++] = (struct rm_ctxsw_record){
			.gpu_time = record.time,
			.pid = record.pid,
			.context = record.context,
			.sequence = record.sequence,
			.tag = record.tag,
			.vmid = record.vmid,
			.gpu_instance =
				record.type == TYPE_CTXSW_V2 ? record.gpu_instance : INSTANCE_NONE,
			.compute_instance = record.type == TYPE_CTXSW_V2 ? record.compute_instance
									 : INSTANCE_NONE,
		};
	}
	*getp = get;
	return n_read;
}
