/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernels that are known are in three places: in the modules that processes have now, among the
 * outcomes, where those are too that were missed or have gone, and, by the thousand, in plans.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan-names.h"

struct image_context;
struct image_result;
struct registry;

#define KERNELS_MAX 8192 /* of one reply: the oldest are left out */
#define KERNELS_MORE_MAX (128 * 1024) /* of one list */
#define KERNELS_BYTES_MAX (12 * 1024 * 1024) /* of text of one reply, about */
#define KERNELS_MORE_BYTES_MAX (64 * 1024 * 1024) /* of names of one list */

struct kernel {
	uint64_t id;
	char *name, *demangled; /* demangled NULL: the daemon does not know it */
	bool device_function;
	bool live; /* a process has it: its attachments are those of modules */
	int64_t *pids;
	size_t n_pids;
	uint64_t *attachments;
	size_t n_attachments;
};

struct kernels_place;

/* Who is to see the list: somebody who sees all, or a user. */
struct kernels_reader {
	bool all;
	uid_t uid;
};

/* A list in the making: what is gathered is the caller's to see, whatever goes away meanwhile. */
struct kernels_list {
	const struct image_context *context;
	struct kernels_reader reader;
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

/* The kernels that the reader may see; pid 0: of all processes. 0 or -ENOMEM. */
int kernels_list_init(struct kernels_list *list, const struct image_context *context,
		      const struct kernels_reader *reader, int64_t pid, bool more);
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

/* What belongs to a user, and what programs of others were put into. */
bool kernels_may_see(const struct registry *registry, const struct kernels_reader *reader,
		     uid_t uid, const uint64_t *attachments, size_t n);
