/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Context switches of a GPU's engine for compute and graphics. The engine's firmware (FECS) logs
 * them. The driver copies them into an event buffer (class NV_EVENT_BUFFER) of every client that
 * asked, with the process that each context belongs to.
 *
 * A user's client gets only the beginnings and ends of contexts (SIMPLE_START, SIMPLE_END). For
 * other users' contexts the driver hides the process and blurs the times, unless the client is
 * root's.
 */

#include "rm-client.h"

#define RM_CTXSW_PID_HIDDEN 0 /* of another user */
#define RM_CTXSW_PID_KERNEL UINT32_MAX

struct rm_ctxsw_record {
	uint64_t gpu_time; /* nanoseconds */
	uint32_t pid; /* in the driver's namespace: the initial one */
	uint32_t context; /* number of the channel or group of channels */
	uint16_t sequence; /* of the buffer: gaps are losses */
	uint8_t tag; /* enum trace_ctxsw_tag */
	uint8_t vmid;
	uint8_t gpu_instance, compute_instance; /* of MIG; 0xff: none */
};

/* Why the driver did not bind an event buffer, NV2080_CTRL_GR_FECS_BIND_REASON_CODE_*. */
enum rm_ctxsw_reason {
	RM_CTXSW_REASON_NONE = 0,
	RM_CTXSW_REASON_GPU_TOO_OLD = 1,
	RM_CTXSW_REASON_NOT_ENABLED_GPU = 2,
	RM_CTXSW_REASON_NOT_ENABLED = 3,
	RM_CTXSW_REASON_NEED_ADMIN = 4,
	RM_CTXSW_REASON_NEED_CAPABILITY = 5,
};

struct rm_ctxsw {
	struct rm_gpu *gpu;
	struct rm_memory header, records;
	uint32_t buffer; /* handle of the event buffer; 0: none */
	uint32_t n; /* records that it has room for */
	uint32_t get; /* the next one to be read */
	bool all_users; /* contexts of other users are seen, too */
	uint32_t reason; /* enum rm_ctxsw_reason, of a binding that was refused */
};

/* Makes the buffer and binds it. _deinit() is due in any case, before the GPU is closed. */
int rm_ctxsw_init(struct rm_ctxsw *ctxsw, struct rm_gpu *gpu);
void rm_ctxsw_deinit(struct rm_ctxsw *ctxsw);

/* Has the driver look at the firmware's log now: it does so 30 times a second, up to some release
 * of branch 535 only once. */
int rm_ctxsw_flush(struct rm_ctxsw *ctxsw);

/*
 * Up to n_max records that are new, in their order; what was taken is the driver's again. What
 * found no room in the buffer is a gap in the sequence numbers.
 */
int rm_ctxsw_read(struct rm_ctxsw *ctxsw, struct rm_ctxsw_record *records, size_t n_max,
		  size_t *np);
