/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asks the driver for an event buffer of context switches and reads it (ctxsw.h).
 *
 * The buffer is a ring of records of one size, with a header of its own. Both are in memory of the
 * driver that we can only read: the driver writes `put`, and a call tells it `get`. When the ring
 * is full, the driver drops new records (KEEP_OLDEST), so no record changes while we read it.
 */

#include <stdatomic.h>
#include <string.h>

#include "ctxsw.h"
#include "record.h"

#define RECORDS 4096

enum {
	CLASS_EVENT_BUFFER = 0x90cd,
	COMMAND_BIND = 0x20801238, /* GR_FECS_BIND_EVTBUF_FOR_UID_V2 */
	COMMAND_ENABLE = 0x90cd0101,
	COMMAND_UPDATE_GET = 0x90cd0102,
	COMMAND_FLUSH = 0x90cd0104,

	LEVEL_FULL = 0,
	KEEP_OLDEST = 1,
};

struct event_buffer { /* NV_EVENT_BUFFER_ALLOC_PARAMETERS */
	uint64_t header, records;
	uint32_t record_size, n;
	uint64_t data;
	uint32_t data_size, records_threshold;
	uint64_t notification;
	uint32_t data_threshold, subdevice, flags;
	uint32_t header_memory, records_memory, data_memory;
};

struct bind { /* NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS */
	uint32_t buffer, record_size, level, filter;
	uint8_t all_users;
	uint32_t reason;
};

struct enable { /* NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS */
	uint8_t enable;
	uint32_t flags;
};

_Static_assert(sizeof(struct event_buffer) == 72, "NV_EVENT_BUFFER_ALLOC_PARAMETERS");
_Static_assert(sizeof(struct bind) == 24, "NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS");
_Static_assert(sizeof(struct enable) == 8, "NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS");

/* Of all users, or if the driver does not want that of our own. */
static int bind_buffer(struct rm_ctxsw *ctxsw) {
	int r;

	for (int all_users = 1;; all_users--) {
		struct bind bind = { .buffer = ctxsw->buffer,
				     .record_size = RM_RECORD_SIZE,
				     .level = LEVEL_FULL,
				     .all_users = (uint8_t)all_users };

		r = rm_control(ctxsw->gpu->client, ctxsw->gpu->subdevice, COMMAND_BIND, &bind,
			       sizeof(bind));
		ctxsw->all_users = all_users;
		ctxsw->reason = r ? bind.reason : RM_CTXSW_REASON_NONE;
		if (r != RM_E_REFUSED || !all_users)
			return r;
	}
}

int rm_ctxsw_init(struct rm_ctxsw *ctxsw, struct rm_gpu *gpu) {
	struct event_buffer buffer = { .record_size = RM_RECORD_SIZE,
				       .n = RECORDS,
				       .subdevice = gpu->subdevice };
	struct enable enable = { .enable = 1, .flags = KEEP_OLDEST };
	int r;

	*ctxsw = (struct rm_ctxsw){ .gpu = gpu, .n = RECORDS };
	r = rm_memory_init(&ctxsw->header, gpu->client, sizeof(struct rm_record_header));
	if (!r)
		r = rm_memory_init(&ctxsw->records, gpu->client, (size_t)RECORDS * RM_RECORD_SIZE);
	buffer.header_memory = ctxsw->header.handle;
	buffer.records_memory = ctxsw->records.handle;
	if (!r)
		r = rm_alloc(gpu->client, gpu->client->root, CLASS_EVENT_BUFFER, &buffer,
			     sizeof(buffer), &ctxsw->buffer);
	if (!r)
		r = bind_buffer(ctxsw);
	return r ?: rm_control(gpu->client, ctxsw->buffer, COMMAND_ENABLE, &enable, sizeof(enable));
}

void rm_ctxsw_deinit(struct rm_ctxsw *ctxsw) {
	if (!ctxsw->gpu)
		return;
	rm_free(ctxsw->gpu->client, ctxsw->buffer);
	rm_memory_deinit(&ctxsw->records, ctxsw->gpu->client);
	rm_memory_deinit(&ctxsw->header, ctxsw->gpu->client);
	*ctxsw = (struct rm_ctxsw){};
}

int rm_ctxsw_flush(struct rm_ctxsw *ctxsw) {
	return rm_control(ctxsw->gpu->client, ctxsw->buffer, COMMAND_FLUSH, NULL, 0);
}

int rm_ctxsw_read(struct rm_ctxsw *ctxsw, struct rm_ctxsw_record *records, size_t n_max,
		  size_t *np) {
	const struct rm_record_header *header = ctxsw->header.address;
	const uint32_t before = ctxsw->get;
	uint32_t update[2];

	*np = rm_records_read(ctxsw->records.address, ctxsw->n, &ctxsw->get,
			      atomic_load_explicit(&header->put, memory_order_acquire), records,
			      n_max);
	if (ctxsw->get == before)
		return 0;
	update[0] = ctxsw->get;
	update[1] = 0;
	return rm_control(ctxsw->gpu->client, ctxsw->buffer, COMMAND_UPDATE_GET, update,
			  sizeof(update));
}
