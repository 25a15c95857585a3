/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The way of an eBPF object to armed probes: link, choose, verify, compile, register. */

#include <stddef.h>
#include <sys/types.h>

#include "attach-choose.h"
#include "daemon/gpuprobed/clients/client.h"
#include "daemon/gpuprobed/export/map-export.h"
#include "daemon/gpuprobed/settings/filter.h"
#include "daemon/gpuprobed/registry/registry.h"

struct attach;
TAILQ_HEAD(attach_queue, attach);

/* What the files of this room share, and need of others: one of them, which daemon.c fills in. */
struct attach_context {
	struct image_context *image;
	struct client_context *client;
	struct account_table *accounts;
	struct map_exports *exports;
	struct interest_writer *interest;
	struct worker_pool *program_pool;
	struct attach_queue verifying; /* that wait for a thread of the verifier's
					  (attach-verify.c) */
	unsigned int n_verifying; /* that have one */
	uint64_t verify_turns; /* how many users have had or asked for one */
};

#define ATTACH_OBJECT_MAX (8 * 1024 * 1024)

enum attach_error {
	_ATTACH_SUCCESS,
	ATTACH_E_NOT_FOUND,
	ATTACH_E_INVALID_OBJECT,
	ATTACH_E_VERIFICATION,
	ATTACH_E_COMPILE,
	ATTACH_E_UNAVAILABLE,
	ATTACH_E_PERMISSION,
	ATTACH_E_LIMIT,
	ATTACH_E_ARGUMENT, /* outcome.program: which parameter */
	ATTACH_E_INTERNAL,
};

struct attach_outcome {
	enum attach_error error;
	const char *program; /* or what was not found, or what the limit is of, or the parameter */
	const char *reason;
	const char *log; /* NULL: none */
	uint64_t limit;
	/* success; all belong to the registry */
	const struct object *object;
};

typedef void (*attach_fn)(const struct attach_outcome *outcome, void *userdata);

struct attach_options {
	uid_t owner;
	const void *object; /* ELF, copied */
	size_t n_object;
	struct attach_wish wish; /* copied */
	const struct filter *filter;
	uint32_t threads; /* of per-thread arrays; 0: the default */
	uint64_t ring_bytes; /* of one instance of a ring; 0: the default */
	bool shared; /* one copy of each map for all processes of a user */
	unsigned int max; /* of the owner's attaches in work */
};

/* Starts. fn is called once, from the loop, unless attach_cancel() is called first. 0,
 * ATTACH_E_LIMIT: so many are in work, or -errno. */
int attach_new(struct attach **attachp, struct attach_context *context,
	       const struct attach_options *options, attach_fn fn, void *userdata);

/* fn will not be called, nothing will be attached. It stays in work until what works on it has
 * ended. */
void attach_cancel(struct attach *attach);

/*
 * Removes an attachment: the page no longer names it, processes stop using maps that nobody uses
 * any more, and the maps of its object go with its last attachment.
 */
void attach_detach(struct attach_context *context, struct attachment *attachment);
