/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The layouts of what ioctls of the driver point to, and names of its numbers. They are generated
 * from the tables in data/ (tables.py). The bytes come from the traced program, may be cut off
 * anywhere, and may be of a version that the tables do not know.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode.h"
#include "ctl/trace/base/item.h"

enum trace_field_kind {
	FIELD_UINT,
	FIELD_INT,
	FIELD_HEX,
	FIELD_BOOL,
	FIELD_SIZE,
	FIELD_CLASS, /* of RM objects */
	FIELD_COMMAND, /* of RM_CONTROL */
	FIELD_FUNCTION, /* of RM_VID_HEAP_CONTROL */
	FIELD_UUID,
	FIELD_STRING,
};

enum trace_field_access {
	ACCESS_IN,
	ACCESS_OUT, /* only the driver writes it */
	ACCESS_BOTH,
};

struct trace_field {
	const char *name;
	uint16_t offset, size;
	uint8_t kind; /* enum trace_field_kind */
	uint8_t access; /* enum trace_field_access */
};

struct trace_params {
	const char *name; /* of the ioctl, class or command */
	uint32_t number;
	int32_t size; /* of the argument; -1: any */
	int32_t status; /* offset of the NV_STATUS; -1: none, unknown */
	uint16_t
		until; /* last branch of the driver that has it, TRACE_DRIVER_ANY: it is not gone */
	uint16_t first, n; /* fields */
};

#define TRACE_DRIVER_ANY 595

enum trace_params_table {
	PARAMS_IOCTL,
	PARAMS_UVM,
	PARAMS_ALLOC,
	PARAMS_CONTROL,
};

/* An ioctl that is being decoded. */
struct trace_ioctl_job {
	struct trace_decoder *decoder;
	struct trace_item *item;
	struct trace_bytes before, after, inner;
	uint32_t number; /* the nr of magic 'F', else the whole */
	uint32_t size;
	unsigned driver; /* branch: 580 */
	uint32_t status; /* what the driver said in the argument, if has_status */
	bool has_status;
};

const struct trace_params *trace_params_find(enum trace_params_table table, uint32_t number,
					     int64_t size, unsigned driver);
void trace_params_decode(struct trace_ioctl_job *job, const struct trace_params *params,
			 struct trace_bytes before, struct trace_bytes after);
void trace_rm_decode(struct trace_ioctl_job *job);
