/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The part of CUPTI that is used, declared from its documentation: nothing of NVIDIA's is needed to
 * build. test-abi.c compares where the real headers are. Records have grown at their ends only
 * since CUDA 11, so these are their beginnings. Handles are opaque pointers.
 */

#include <stddef.h>
#include <stdint.h>

#include "shim/driver/driver.h"

typedef int cupti_result;

enum {
	CUPTI_OK = 0,
	CUPTI_NO_MORE_RECORDS = 12, /* CUPTI_ERROR_MAX_LIMIT_REACHED */
	CUPTI_SOMEBODY_ELSE = 39, /* CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED */
};

enum {
	CUPTI_DOMAIN_DRIVER = 1
};

enum {
	CUPTI_ENTER = 0,
	CUPTI_EXIT = 1
};

enum {
	CUPTI_MEMCPY = 1,
	CUPTI_MEMSET = 2,
	CUPTI_KERNEL = 10, /* CONCURRENT_KERNEL: the kind that does not make kernels wait for one
			      another */
	CUPTI_MEMCPY_PEER = 22,
};

#define CUPTI_FLUSH_FORCED 1u

/* CUpti_CallbackData */
struct cupti_call {
	int site;
	const char *name;
	const void *arguments;
	void *result;
	const char *symbol;
	driver_handle context;
	uint32_t context_id;
	uint64_t *data;
	uint32_t correlation;
};

/* CUpti_SubscriberParams */
struct cupti_subscriber {
	size_t size;
	const char *name;
	char *other; /* the subscriber before */
	size_t other_size; /* CUPTI_SUBSCRIBER_OTHER_SIZE or more */
};

#define CUPTI_SUBSCRIBER_OTHER_SIZE 64

/* CUpti_Activity: what all begin with. */
struct cupti_record {
	uint32_t kind;
};

/* CUpti_ActivityKernel4 to 10 */
struct cupti_kernel {
	uint32_t kind;
	uint8_t pad0[12];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	uint8_t pad1[40];
	uint32_t correlation;
	int64_t grid;
	const char *name;
	void *reserved;
	uint64_t queued, submitted;
	uint8_t pad2[8];
	uint64_t graph_node; /* 0: none */
};

/* CUpti_ActivityMemcpy3 to 6 */
struct cupti_copy {
	uint32_t kind;
	uint8_t pad0[4];
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t correlation;
	uint32_t pad1[2];
	void *reserved;
	uint64_t graph_node;
};

/* CUpti_ActivityMemcpyPtoP2 to 4 */
struct cupti_copy_peer {
	uint32_t kind;
	uint8_t pad0[4];
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t from, from_context, to, to_context;
	uint32_t correlation;
};

/* CUpti_ActivityMemset2 to 4 */
struct cupti_set {
	uint32_t kind;
	uint32_t value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t correlation;
};

typedef void (*cupti_callback)(void *userdata, int domain, uint32_t id, const void *data);
typedef void (*cupti_requested)(uint8_t **buffer, size_t *size, size_t *records_max);
typedef void (*cupti_completed)(driver_handle context, uint32_t stream, uint8_t *buffer,
				size_t size, size_t valid);

#define CUPTI_FUNCTIONS(X)                                                                        \
	X(get_result_string, "cuptiGetResultString", (cupti_result, const char **))               \
	X(subscribe, "cuptiSubscribe", (driver_handle *, cupti_callback, void *))                 \
	X(unsubscribe, "cuptiUnsubscribe", (driver_handle))                                       \
	X(enable_callback, "cuptiEnableCallback", (uint32_t, driver_handle, int, uint32_t))       \
	X(enable_domain, "cuptiEnableDomain", (uint32_t, driver_handle, int))                     \
	X(register_clock, "cuptiActivityRegisterTimestampCallback", (uint64_t (*)(void)))         \
	X(register_buffers, "cuptiActivityRegisterCallbacks", (cupti_requested, cupti_completed)) \
	X(enable, "cuptiActivityEnable", (int))                                                   \
	X(disable, "cuptiActivityDisable", (int))                                                 \
	X(flush_all, "cuptiActivityFlushAll", (uint32_t))                                         \
	X(next_record, "cuptiActivityGetNextRecord", (uint8_t *, size_t, struct cupti_record **)) \
	X(dropped_records, "cuptiActivityGetNumDroppedRecords",                                   \
	  (driver_handle, uint32_t, size_t *))                                                    \
	X(finalize, "cuptiFinalize", (void))

struct cupti {
#define X(field, name, arguments) cupti_result(*field) arguments;
	CUPTI_FUNCTIONS(X)
#undef X
	/* since CUDA 12.8, or NULL: it names the tool that subscribed before */
	cupti_result (*subscribe_named)(driver_handle *, cupti_callback, void *,
					struct cupti_subscriber *);
};
