/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decodes ioctls of the resource manager: /dev/nvidiactl and /dev/nvidiaN, magic 'F'. Number and
 * size together say which struct the argument is. Where a size had two layouts, the driver's
 * version decides. RM_ALLOC and RM_CONTROL have a pointer to parameters of the class or command.
 */

#include <string.h>

#include "params.h"

enum {
	NR_ALLOC_MEMORY = 0x27,
	NR_CONTROL = 0x2a,
	NR_ALLOC = 0x2b,
	NR_VID_HEAP_CONTROL = 0x4a,
	NR_MAP_MEMORY = 0x4e,
	NR_CARD_INFO = 200,
	NR_XFER = 211,
	NR_ATTACH_GPUS = 212,
};

#define CONTROL_FLAG_FINN 0x4 /* of NVOS54: the parameters are serialised */
#define ALLOC_FLAG_FINN 0x1 /* of NVOS64 */
#define VID_HEAP_ALLOC_SIZE 2
#define CARD_INFO_SIZE 72

enum {
	CLASS_MEMORY_SYSTEM = 0x3e,
	CLASS_MEMORY_LOCAL_PRIVILEGED = 0x3f,
	CLASS_MEMORY_LOCAL_USER = 0x40,
	CLASS_MEMORY_OS_DESCRIPTOR = 0x71,
};

/* The first value of that name, or NULL. */
static const struct trace_value *find_value(const struct trace_ioctl_job *job, const char *name) {
	for (size_t i = 0; i < job->item->n_values; i++)
		if (strcmp(job->item->values[i].name, name) == 0)
			return job->item->values + i;
	return NULL;
}

static uint64_t find_number(const struct trace_ioctl_job *job, const char *name) {
	const struct trace_value *value = find_value(job, name);

	return value ? (uint64_t)value->number : 0;
}

/* Parameters behind the argument's pointer, if all of the argument is there. Serialised ones have
 * another layout, which is not decoded. */
static void decode_inner(struct trace_ioctl_job *job, enum trace_params_table table,
			 uint32_t number, bool serialised) {
	const struct trace_params *params = trace_params_find(table, number, -1, job->driver);

	if (job->before.n < job->size)
		return;
	if (serialised)
		trace_item_value(job->item, "serialised", VALUE_STRING, 0)->text =
			"FINN, not decoded";
	else if (params)
		trace_params_decode(job, params, job->inner, (struct trace_bytes){});
}

/* RM_ALLOC and the older RM_ALLOC_MEMORY: how much memory, if the class is memory. */
static void decode_alloc(struct trace_ioctl_job *job, bool inner) {
	uint32_t class = (uint32_t)find_number(job, "hClass");

	if (inner)
		decode_inner(job, PARAMS_ALLOC, class, find_number(job, "flags") & ALLOC_FLAG_FINN);
	switch (class) {
	case CLASS_MEMORY_SYSTEM:
	case CLASS_MEMORY_LOCAL_PRIVILEGED:
	case CLASS_MEMORY_LOCAL_USER:
		if (inner) {
			job->item->size = find_number(job, "size");
			break;
		}
		/* fallthrough */
	case CLASS_MEMORY_OS_DESCRIPTOR:
		if (find_value(job, "limit"))
			job->item->size = find_number(job, "limit") + 1;
	}
}

/* RM_VID_HEAP_CONTROL: a union by function. */
static void decode_vid_heap(struct trace_ioctl_job *job) {
	uint64_t number;

	if (find_number(job, "function") != VID_HEAP_ALLOC_SIZE)
		return;
	if (trace_bytes_read(job->before, 48, 4, &number))
		trace_item_value(job->item, "type", VALUE_UINT, (int64_t)number);
	if (trace_bytes_read(job->before, 52, 4, &number))
		trace_item_value(job->item, "flags", VALUE_HEX, (int64_t)number);
	if (trace_bytes_read(job->before, 56, 4, &number))
		trace_item_value(job->item, "attr", VALUE_HEX, (int64_t)number);
	if (trace_bytes_read(job->before, 88, 8, &number)) {
		trace_item_value(job->item, "size", VALUE_SIZE, (int64_t)number);
		job->item->size = number;
	}
	if (trace_bytes_read(job->after, 104, 8, &number))
		trace_item_value(job->item, "offset", VALUE_HEX, (int64_t)number)->out = true;
}

/* The argument, now that it is known which one it is. */
static void decode_argument(struct trace_ioctl_job *job) {
	switch (job->number) {
	case NR_CONTROL:
		decode_inner(job, PARAMS_CONTROL, (uint32_t)find_number(job, "cmd"),
			     find_number(job, "flags") & CONTROL_FLAG_FINN);
		break;
	case NR_ALLOC:
		decode_alloc(job, true);
		break;
	case NR_ALLOC_MEMORY:
		decode_alloc(job, false);
		break;
	case NR_VID_HEAP_CONTROL:
		decode_vid_heap(job);
		break;
	case NR_MAP_MEMORY:
		job->item->size = find_number(job, "length");
		break;
	case NR_CARD_INFO:
		trace_item_value(job->item, "cards", VALUE_UINT, job->size / CARD_INFO_SIZE);
		break;
	case NR_ATTACH_GPUS:
		trace_item_value(job->item, "gpus", VALUE_UINT, job->size / 4);
		break;
	}
}

/* XFER_CMD: the argument names another ioctl and points to its argument, of which only the entry
 * was seen. False: to none. */
static bool follow_xfer(struct trace_ioctl_job *job) {
	uint64_t number, size;

	if (job->number != NR_XFER || job->size != 16 ||
	    !trace_bytes_read(job->before, 0, 4, &number) ||
	    !trace_bytes_read(job->before, 4, 4, &size) || number == NR_XFER)
		return false;
	job->number = (uint32_t)number;
	job->size = (uint32_t)size;
	job->before = job->inner;
	job->after = job->inner = (struct trace_bytes){};
	trace_item_value(job->item, "xfer", VALUE_BOOL, 1);
	return true;
}

/* An ioctl of magic 'F'; job->number is its nr. */
void trace_rm_decode(struct trace_ioctl_job *job) {
	const struct trace_params *params;

	follow_xfer(job);
	params = trace_params_find(PARAMS_IOCTL, job->number, job->size, job->driver);
	if (params) {
		job->item->name = params->name;
		trace_params_decode(job, params, job->before, job->after);
		decode_argument(job);
		return;
	}
	/* a number that is known with a size that is not: no layout can be trusted */
	params = trace_params_find(PARAMS_IOCTL, job->number, -1, job->driver);
	if (params)
		job->item->name = params->name;
	trace_item_value(job->item, "nr", VALUE_UINT, job->number);
	trace_item_value(job->item, "argumentSize", VALUE_SIZE, job->size);
}
