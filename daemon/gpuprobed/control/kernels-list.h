/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * ListKernels. Kernels are in three places: in the modules that processes have now, among the
 * outcomes, where those are too that were missed or have gone, and, by the thousand, in plans.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/gpuprobed/image/plan-names.h"

struct daemon;
struct image_result;
struct varlink_call;

#define KERNELS_MAX 8192 /* of one reply: the oldest are left out */
#define KERNELS_MORE_MAX (128 * 1024) /* of one list */
#define KERNELS_BYTES_MAX (12 * 1024 * 1024) /* of text of one reply, about */
#define KERNELS_MORE_BYTES_MAX (64 * 1024 * 1024) /* of names of one list */

struct kernel;
struct kernels_place;

/* A list in the making: what is gathered is the caller's to see, whatever goes away meanwhile. */
struct kernels_list {
	const struct daemon *daemon;
	struct kernel *kernels; /* in the order in which they are shown */
	size_t n, max;
	size_t n_bytes, bytes_max; /* of names */
	size_t n_ids; /* of processes and attachments, of all kernels */
	uint32_t *buckets; /* index + 1; 0: free */
	size_t n_buckets; /* a power of two */
	struct kernels_place *places; /* that are still to be gone through, from next_place on */
	size_t n_places, next_place;
	size_t next_image_kernel; /* of that place */
	bool naming; /* the names of its plan are being gone through */
	struct plan_names names;
	size_t next; /* kernel to be sent */
};

/*
 * The kernels that the caller may see (NULL: all kernels); pid 0: of all processes. 0 or -ENOMEM.
 */
int kernels_list_init(struct kernels_list *list, const struct daemon *daemon,
		      const struct varlink_call *call, int64_t pid, bool more);
void kernels_list_deinit(struct kernels_list *list);

/* Goes through some more kernels, as many as take a millisecond or so. 1: there are more; 0: that
 * was all; -ENOMEM. */
int kernels_list_gather(struct kernels_list *list);

/* Bytes of memory that it takes, about. */
size_t kernels_list_memory(const struct kernels_list *list);

/* All that was gathered. demangled: or the name again. */
void kernels_list_each(const struct kernels_list *list,
		       void (*take)(uint64_t id, const char *demangled, void *userdata),
		       void *userdata);

/* Adds kernels of type Kernel to the array, up to about n_bytes of text. Whether there are more. */
bool kernels_list_take(struct kernels_list *list, json_object *array, size_t n_bytes);

/* What belongs to a user, and what programs of others were put into. */
bool kernels_may_see(const struct daemon *daemon, const struct varlink_call *call, uid_t uid,
		     const uint64_t *attachments, size_t n);

/* Method of the control interface; userdata: the daemon. */
int control_list_kernels(struct varlink_call *call, json_object *parameters, void *userdata);
