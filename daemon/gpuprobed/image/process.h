/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* CUDA processes that talk to the daemon, their connections, and their modules that carry probes.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/gpuprobed/settings/filter.h"
#include "image-result.h"
#include "daemon/gpuprobed/wire/shim-server.h"

struct registry;

#define PROCESS_MODULES_MAX 16384
#define PROCESS_PLANS_MAX 1024 /* of these modules; a shim keeps half as many */
#define PROCESS_CONNECTIONS_MAX 64 /* a shim has two */
#define PROCESS_CAPABILITIES_MAX 8 /* different ones that are remembered */

struct module {
	LIST_ENTRY(module) link;
	uint64_t id;
	struct image_result *result;
	bool armed; /* in at least one context */
};

LIST_HEAD(module_list, module);

struct process {
	LIST_ENTRY(process) link;
	uint64_t number; /* never reused */
	struct process_facts facts;
	uid_t uid; /* that its quotas are charged to */
	struct account *account; /* of the uid; NULL: it has no connection yet */
	struct shim_connection *connections[PROCESS_CONNECTIONS_MAX];
	unsigned int n_connections;
	struct module_list modules;
	uint64_t waited_ms; /* for compilers, of its budget (image-budget.h) */
	bool late; /* it has waited in vain */
	bool found_no_room; /* an image of it has waited for its user's quota in vain
			       (image-cache.c) */
	struct image_result *plan; /* the last one that it has armed; NULL: none yet */
	struct image_result *refused; /* what it was told last in place of one; NULL: nothing yet,
					 or it got one since */
	uint32_t capabilities[PROCESS_CAPABILITIES_MAX]; /* of the devices that it has images for */
	unsigned int n_capabilities;
	unsigned int n_modules;
	unsigned int n_plans; /* of them */
	unsigned int n_resumed; /* ids that resumed modules take */
	uint32_t driver_version;
	uint64_t awaited; /* uv_now(): until then its MIRROR connection is waited for, as an earlier
			     daemon had it; 0: it is not */
	struct process_watch
		*watch; /* of one that has no connection yet (process-watch.h); NULL: none */
};

/* A connection's end in the daemon. */
struct client {
	struct shim_connection *connection;
	struct process *process;
	struct image_query *request; /* the image in work, or NULL */
	struct client_resume
		*resume; /* the module that it is telling about, or NULL (client-resume.h) */
};

/* The number of a process that stands for all processes of a user. */
static inline uint64_t process_shared_number(uid_t uid) {
	return UINT64_C(1) << 63 | uid;
}

LIST_HEAD(process_list, process);

struct process_table {
	struct process_list list;
	uv_loop_t *loop;
	void (*gone)(struct process *process, void *userdata); /* one that is watched has ended: let
								  go of its maps, process_free() */
	void *userdata;
	unsigned int n;
	uint64_t total; /* seen so far */
	uint64_t last_number;
	uint64_t last_module;
};

/* gone: with userdata. */
void process_table_init(struct process_table *table, uv_loop_t *loop,
			void (*gone)(struct process *process, void *userdata), void *userdata);

enum {
	_PROCESS_E_SUCCESS,
	PROCESS_E_LIMIT,
	PROCESS_E_QUOTA, /* of its user */
};

/*
 * The process at the other end: the one there is, or a new one. The connection is added to it. 0,
 * PROCESS_E_LIMIT, -ESRCH if it is gone already, -errno.
 */
int process_table_connect(struct process_table *table, struct shim_connection *connection,
			  struct process **processp);

/* A process that an earlier daemon knew under this number; it has no connection yet. NULL: no
 * memory. */
struct process *process_table_adopt(struct process_table *table, const struct process_facts *facts,
				    uid_t uid, uint64_t number);

/* The daemon ends: no process without a connection is waited for any more. */
void process_table_unwatch(struct process_table *table);

/* Takes the connection away. True: it was the last; the caller lets go of its maps, then calls
 * process_free(). */
bool process_disconnect(struct process *process, struct shim_connection *connection);
struct process *process_free(struct process_table *table, struct process *process);

/* A module that carries this result; takes a reference. 0, PROCESS_E_LIMIT, PROCESS_E_QUOTA, or
 * -ENOMEM. */
int process_module_new(struct process_table *table, struct process *process,
		       struct image_result *result, struct module **modulep);

/* The same for one that an earlier daemon has given the process, with its id. */
int process_module_adopt(struct process *process, uint64_t id, struct image_result *result,
			 struct module **modulep);

/* Why there is no module: of PROCESS_E_LIMIT or PROCESS_E_QUOTA. */
void process_module_refusal(char reason[static 128], const struct process *process,
			    const struct image_result *result, int error);

struct module *process_module(const struct process *process, uint64_t id);
void process_module_free(struct process *process, struct module *module);

/* Whether one of its modules was given a pointer to this map. */
bool process_may_use(const struct process *process, uint64_t map);

/* Its MIRROR connection, or NULL. */
struct shim_connection *process_mirror(const struct process *process);

/* Counts for each attachment the loaded modules that carry it, and processes that have such. */
void process_table_count(const struct process_table *table, const struct registry *registry);
