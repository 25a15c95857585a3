/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handles the messages of shims (client.h), after shim-wire.c has found them well-formed. Names in
 * a message are looked up among what this very process was given. An unknown module or map breaks
 * no rule, because a detach may have crossed the message on the way.
 */

#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client-resume.h"
#include "daemon/gpuprobed/image/image-cache.h"
#include "daemon/gpuprobed/image/image-answer.h"
#include "daemon/gpuprobed/keep/keep.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "daemon/gpuprobed/image/process-watch.h"
#include "daemon/gpuprobed/trace/session/shim-ring.h"

#define SYNC_AWAIT_MS 3000
#define FOLD_NS (UINT64_C(2) * 1000000) /* of a turn */
#define CLIENT_CONTEXTS_MAX 256 /* of one process on one device */

enum {
	CLIENT_E_USER = 1000, /* beside enum map_result */
	CLIENT_E_SHARE,
	CLIENT_E_CONTEXTS,
};

struct sync_wait {
	struct shim_connection *connection; /* NULL: answered, gone, or still to come */
	uint32_t sequence; /* 0: not asked yet */
	uint64_t process; /* its number */
};

struct sync_request {
	LIST_ENTRY(sync_request) link;
	uv_timer_t timer;
	void (*done)(void *userdata);
	void *userdata;
	size_t n_open;
	bool awaits; /* a process that an earlier daemon knew, and that has yet to connect */
	size_t n_waits;
	struct sync_wait waits[];
};

/* ---- syncs ---- */

static void client_sync_closed(uv_handle_t *handle) {
	free(handle->data);
}

static void client_sync_end(struct sync_request *request) {
	void (*done)(void *userdata) = request->done;
	void *userdata = request->userdata;

	LIST_REMOVE(request, link);
	uv_close((uv_handle_t *)&request->timer, client_sync_closed);
	if (done)
		done(userdata);
}

static void client_sync_on_timer(uv_timer_t *timer) {
	client_sync_end(timer->data);
}

/* Whether a process is about to connect, because an earlier daemon knew it. */
static bool client_is_awaited(const struct client_context *context, const struct process *process) {
	return process->awaited && process->awaited > uv_now(context->image->loop);
}

/* A connection has answered (any: false), or is gone (any: true). */
static void client_sync_answered(struct client_context *context,
				 const struct shim_connection *connection, uint32_t sequence,
				 bool any) {
	const bool awaited =
		client_is_awaited(context, ((const struct client *)connection->userdata)->process);
	struct sync_request *request, *next;

	for (request = LIST_FIRST(&context->syncs); request; request = next) {
		next = LIST_NEXT(request, link);
		for (size_t i = 0; i < request->n_waits; i++) {
			struct sync_wait *wait = &request->waits[i];

			if (wait->connection != connection || (!any && wait->sequence != sequence))
				continue;
			wait->connection = NULL;
			if (any && awaited) {
				wait->sequence = 0; /* it comes again */
				continue;
			}
			request->n_open--;
		}
		if (!request->n_open)
			uv_timer_start(&request->timer, client_sync_on_timer, 0, 0);
	}
}

/* The process that an instance belongs to, or NULL. */
static const struct process *client_process_of(const struct client_context *context,
					       const struct map_instance *instance) {
	const struct process *process;

	LIST_FOREACH(process, &context->image->processes->list, link)
		if (process->number == instance->process)
			return process;
	return NULL;
}

/* Asks a process for a copy. False: it is gone, which is seen soon. */
static bool client_sync_ask(struct client_context *context, struct shim_connection *connection,
			    struct sync_wait *wait) {
	union wire_message message = { .header = { .type = WIRE_SYNC } };

	message.header.sequence = ++context->last_sequence;
	if (shim_connection_send(connection, &message, -1) < 0)
		return false;
	wait->connection = connection;
	wait->sequence = message.header.sequence;
	return true;
}

/* Asks one that has just connected, and that somebody waits for. */
static void client_sync_connected(struct client_context *context, const struct process *process,
				  struct shim_connection *connection) {
	struct sync_request *request;

	LIST_FOREACH(request, &context->syncs, link)
		for (size_t i = 0; i < request->n_waits; i++)
			if (request->waits[i].process == process->number &&
			    !request->waits[i].sequence)
				client_sync_ask(context, connection, &request->waits[i]);
}

/*
 * Adds who has the instance to those that are asked. A process connects only after it has got its
 * first instance, so an instance that was never copied is waited for even before that; so is, for a
 * while, one that an earlier daemon knew.
 */
static void client_sync_add(struct client_context *context, struct sync_request *request,
			    const struct map_instance *instance) {
	const volatile struct map_header *header = (const void *)instance->bytes;
	const struct process *process = client_process_of(context, instance);
	struct sync_wait *wait = &request->waits[request->n_waits];
	struct shim_connection *connection;
	bool awaited;

	if (!process)
		return;
	for (size_t i = 0; i < request->n_waits; i++)
		if (request->waits[i].process == process->number)
			return;
	connection = process_mirror(process);
	*wait = (struct sync_wait){ .process = process->number };
	awaited = !connection && client_is_awaited(context, process);
	request->awaits |= awaited;
	if (connection ? client_sync_ask(context, connection, wait)
		       : awaited || header->state == MAP_INSTANCE_NEW)
		request->n_waits++;
}

struct sync_request *client_sync(struct client_context *context, const struct map *map,
				 unsigned int timeout_ms, void (*done)(void *userdata),
				 void *userdata, int *rp) {
	struct sync_request *request;

	*rp = 0;
	if (!map->n_instances || map->spec.layout.place != MAP_PLACE_DEVICE)
		return NULL; /* what is in host memory is there without a copy */
	request = calloc(1, sizeof(*request) + map->n_instances * sizeof(request->waits[0]));
	if (!request) {
		*rp = -ENOMEM;
		return NULL;
	}
	for (const struct map_instance *i = map->instances; i; i = i->next)
		if (!i->gone) /* what its process will not change any more */
			client_sync_add(context, request, i);
	if (!request->n_waits) {
		free(request);
		return NULL;
	}
	request->n_open = request->n_waits;
	request->done = done;
	request->userdata = userdata;
	uv_timer_init(context->image->loop, &request->timer);
	request->timer.data = request;
	if (request->awaits && timeout_ms < SYNC_AWAIT_MS)
		timeout_ms = SYNC_AWAIT_MS;
	uv_timer_start(&request->timer, client_sync_on_timer, timeout_ms, 0);
	LIST_INSERT_HEAD(&context->syncs, request, link);
	return request;
}

void client_sync_cancel(struct sync_request *request) {
	request->done = NULL;
}

/* Does the process have memory of the map, perhaps with others? */
static bool client_has_instance(const struct process *process, const struct map *map) {
	const uint64_t shared = process_shared_number(process->uid);

	for (const struct map_instance *i = map->instances; i; i = i->next)
		if (i->process == process->number || i->process == shared || i->process == 0)
			return true;
	return false;
}

void client_disarm(struct client_context *context, const struct object *object, uint64_t maps) {
	const struct process *process;

	LIST_FOREACH(process, &context->image->processes->list, link) {
		struct shim_connection *connection = process_mirror(process);

		for (size_t i = 0; connection && i < object->n_maps; i++) {
			union wire_message message = { .header = { .type = WIRE_DISARM } };

			if (!(maps >> i & 1) || !object->maps[i] ||
			    !client_has_instance(process, object->maps[i]))
				continue;
			message.disarm.map_id = object->maps[i]->id;
			message.header.sequence = ++context->last_sequence;
			shim_connection_send(connection, &message, -1);
		}
	}
}

/* ---- folding ---- */

static void client_folding_closed(uv_handle_t *handle) {
	free(handle);
}

void client_stop_folding(struct client_context *context) {
	if (context->folding)
		uv_close((uv_handle_t *)context->folding, client_folding_closed);
	context->folding = NULL;
}

/* Some of what is to be folded in all maps. Whether there is more. */
static bool client_fold(struct client_context *context) {
	uint64_t budget = MAP_FOLD_BYTES;
	struct registry_place place = {};
	bool more = false;
	struct map *map;

	while ((map = registry_next_map(context->image->registry, &place)))
		more |= map_fold(map, &budget) != 0;
	return more;
}

static void client_on_folding(uv_timer_t *timer) {
	struct client_context *context = timer->data;
	const uint64_t start = uv_hrtime();
	bool more;

	do
		more = client_fold(context);
	while (more && uv_hrtime() - start < FOLD_NS);
	if (more)
		uv_timer_start(timer, client_on_folding, 1, 0);
	else
		client_stop_folding(context);
}

/* Folds now what is small, the rest between other work. */
void client_fold_gone(struct client_context *context) {
	if (context->folding || context->image->stopping || !client_fold(context))
		return;
	context->folding = malloc(sizeof(*context->folding));
	if (!context->folding)
		return; /* the next process that ends comes for it */
	uv_timer_init(context->image->loop, context->folding);
	context->folding->data = context;
	uv_timer_start(context->folding, client_on_folding, 1, 0);
}

/* ---- handlers ---- */

/* What a process is to know of the daemon. If it cannot be sent, the end is seen soon. */
static void client_welcome(const struct client_context *context, const struct process *process,
			   struct shim_connection *connection, uint32_t sequence) {
	union wire_message message = { .header = { .type = WIRE_WELCOME, .sequence = sequence } };

	message.welcome.deadline_ms = context->image->config->deadline_ms;
	message.welcome.mirror_period_ms = context->image->config->mirror_period_ms;
	message.welcome.pid = (uint32_t)process->facts.pid;
	message.welcome.session = keep_session(context->keep);
	message.welcome.start = keep_start(context->keep);
	_Static_assert(sizeof(message.welcome.comm) == FILTER_COMM_SIZE, "NUL-padded both");
	memcpy(message.welcome.comm, process->facts.comm, sizeof(message.welcome.comm));
	shim_connection_send(connection, &message, -1);
}

void client_welcome_mirrors(struct client_context *context) {
	const struct process *process;

	LIST_FOREACH(process, &context->image->processes->list, link)
		if (process_mirror(process))
			client_welcome(context, process, process_mirror(process),
				       ++context->last_sequence);
}

static int client_on_hello(struct shim_connection *connection, const struct wire_hello *hello,
			   void *userdata) {
	struct client_context *context = userdata;
	struct client *client;
	int r;

	client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	r = process_table_connect(context->image->processes, connection, &client->process);
	if (r) {
		free(client);
		return r < 0 ? r : -EUSERS;
	}
	if (hello->driver_version)
		client->process->driver_version = hello->driver_version;
	client->connection = connection;
	connection->userdata = client;
	client_welcome(context, client->process, connection, hello->header.sequence);
	if (hello->role == WIRE_ROLE_MIRROR)
		client_sync_connected(context, client->process, connection);
	return 0;
}

/*
 * Whether processes of a user have their share of what maps may take: of descriptors, and, as any
 * process can ask for instances at the expense of who attached, of the memory of another user: one
 * instance, or several up to a half of what that one may have, of which they and what processes
 * left behind in hash maps leave a quarter.
 */
static bool client_has_share(const struct client_context *context, uid_t uid,
			     const struct map *map) {
	const uint64_t size = map_memfd_size(&map->spec.layout),
		       quarter = map_accounts_limit(context->map_accounts) / 4,
		       left = map_accounts_totals(context->map_accounts, map->owner);
	struct registry_place place = {};
	const struct map *other;
	uint64_t n = 0, bytes = 0,
		 max = context->image->config->quota_instances; /* each is a descriptor of ours */
	struct rlimit descriptors;

	if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur / 2 < max)
		max = descriptors.rlim_cur / 2;
	while ((other = registry_next_map(context->image->registry, &place)))
		for (const struct map_instance *i = other->instances; i; i = i->next) {
			if (!i->process || i->uid != uid)
				continue;
			n++;
			bytes += other->owner == map->owner ? i->size : 0;
		}
	return n >= max || (uid != map->owner && bytes &&
			    (bytes + size > 2 * quarter || bytes + size + left > 3 * quarter));
}

/* One more instance for a process. device: of which no other one of its has this number. */
static int client_new_instance(struct client_context *context, const struct process *process,
			       struct map *map, uint32_t device, struct map_instance **instancep) {
	if (device / SHIM_DEVICES_MAX == CLIENT_CONTEXTS_MAX)
		return CLIENT_E_CONTEXTS;
	if (client_has_share(context, process->uid, map))
		return CLIENT_E_SHARE;
	return map_instance_get(map, process->number, process->facts.pid, device,
				context->image->registry->last_instance + 1, instancep);
}

/*
 * The instance for one more context of a process on a device. Two contexts must not copy their
 * buffers over each other, so each has one of its own; map.c tells them apart by "device" numbers
 * SHIM_DEVICES_MAX apart. The instance of a context that has ended is handed on and the new one
 * begins with what it holds, but for maps whose data modules may hold: those begin with zeros
 * (map-layout.h), and one that has ended is folded where there is no room for another.
 */
static int client_get_own_instance(struct client_context *context, const struct process *process,
				   struct map *map, uint32_t device,
				   struct map_instance **instancep) {
	const bool zeros = map_can_be_resident(&map->spec.layout);
	const uint32_t again = MAP_INSTANCE_NEW;
	struct map_instance *i, *ended = NULL;
	bool taken[CLIENT_CONTEXTS_MAX] = {};
	uint32_t n = 0;
	int r;

	for (i = map->instances; i; i = i->next) {
		const volatile struct map_header *header = (const void *)i->bytes;

		if (i->gone || i->process != process->number ||
		    i->device % SHIM_DEVICES_MAX != device)
			continue;
		taken[i->device / SHIM_DEVICES_MAX] = true;
		if (header->state != MAP_INSTANCE_FINAL)
			continue;
		ended = i;
		if (!zeros && pwrite(i->fd, &again, sizeof(again),
				     offsetof(struct map_header, state)) == sizeof(again)) {
			*instancep = i;
			return 0;
		}
	}
	while (n < CLIENT_CONTEXTS_MAX && taken[n])
		n++;
	r = client_new_instance(context, process, map, device + n * SHIM_DEVICES_MAX, instancep);
	if (r > 0 && ended) {
		device = ended->device;
		map_instance_end(ended);
		client_fold_gone(context);
		r = client_new_instance(context, process, map, device, instancep);
	}
	return r;
}

/*
 * Which instance a process gets: one for each of its contexts; of an object attached as shared,
 * what lies in host memory is one for all processes of its user; what host programs share is one
 * altogether, and goes to processes of one user only, whoever comes first: users share no memory
 * that nobody has told them to share.
 */
static int client_get_instance(struct client_context *context, const struct process *process,
			       struct object *object, struct map *map, uint32_t device,
			       struct map_instance **instancep) {
	const uint32_t place = map->spec.layout.place;
	int r;

	if (place == MAP_PLACE_KERNEL) {
		if (object->has_kernel_user && object->kernel_user != process->uid)
			return CLIENT_E_USER;
		r = map_instance_get(map, 0, 0, 0, context->image->registry->last_instance + 1,
				     instancep);
		if (r == 0 && (!object->has_kernel_user || object->kernel_user != process->uid)) {
			object->has_kernel_user = true;
			object->kernel_user = process->uid;
			keep_changed(context->keep);
		}
	} else if (place == MAP_PLACE_HOST && object->shared) {
		r = map_instance_get(map, process_shared_number(process->uid), 0, 0,
				     context->image->registry->last_instance + 1, instancep);
	} else {
		r = client_get_own_instance(context, process, map, device, instancep);
	}
	if (r == 0 && (*instancep)->id > context->image->registry->last_instance)
		context->image->registry->last_instance = (*instancep)->id;
	return r;
}

static const char *client_instance_trouble(int r) {
	if (r == CLIENT_E_USER)
		return "the map is shared with programs on the host and with processes of another "
		       "user: attach "
		       "for each user, with --uid";
	if (r == CLIENT_E_SHARE)
		return "processes of this user have as many copies of maps as one user may have, "
		       "or "
		       "half of the memory of who attached them, less where others left much "
		       "behind in hash maps (quota-instances, quota-map-bytes)";
	if (r == CLIENT_E_CONTEXTS)
		return "the process has as many contexts of a device at a time as a map can count "
		       "in";
	return r > 0 ? "the owner of the map has no memory left for it (quota-map-bytes)"
		     : "no memory for a map";
}

static int client_on_instance(struct client_context *context, struct client *client,
			      const struct wire_instance *instance) {
	union wire_message message = { .header = { .type = WIRE_INSTANCE_REPLY } };
	struct process *process = client->process;
	struct map_instance *made = NULL;
	struct object *object = NULL;
	struct map *map;
	int r;

	message.header.sequence = instance->header.sequence;
	message.instance_reply.map_id = instance->map_id;
	message.instance_reply.instance_id = UINT64_MAX; /* none */
	map = process_may_use(process, instance->map_id)
		      ? registry_map(context->image->registry, instance->map_id, &object)
		      : NULL;
	if (map) {
		r = client_get_instance(context, process, object, map, instance->device, &made);
		if (r) {
			made = NULL;
			outcome_tell(context->image->outcomes, &process->facts, OUTCOME_FAILED,
				     &(struct outcome_subject){}, client_instance_trouble(r));
		}
	}
	if (made) {
		made->uid = process->uid;
		if (made->pid) {
			snprintf(made->comm, sizeof(made->comm), "%s", process->facts.comm);
			made->start_time = process->facts.start_time;
		}
		map_instance_keep(made);
		message.instance_reply.instance_id = made->id;
		message.instance_reply.size = made->size;
		message.instance_reply.data_size = map->spec.layout.data_size;
		message.instance_reply.place = map->spec.layout.place;
		message.instance_reply.kind = map->spec.layout.kind;
	}
	return shim_connection_send(client->connection, &message, made ? made->fd : -1);
}

/* If a reason is about one kernel alone: whether it is this one. *reasonp: behind the name. */
static bool client_report_means(const struct image_kernel *kernel, const char **reasonp) {
	const char *name, *end;

	if (strncmp(*reasonp, WIRE_REPORT_KERNEL, strlen(WIRE_REPORT_KERNEL)) != 0)
		return true;
	name = *reasonp + strlen(WIRE_REPORT_KERNEL);
	end = strstr(name, ": ");
	if (!end)
		return true;
	if (strncmp(kernel->name, name, (size_t)(end - name)) != 0 ||
	    (kernel->name[end - name] && end - name != WIRE_REPORT_NAME_MAX))
		return false;
	*reasonp = end + 2;
	return true;
}

/* If a reason is about one map: its id, else 0. *reasonp: behind it. */
static uint64_t client_report_map(const char **reasonp) {
	char *end = (char *)"";
	uint64_t id = 0;

	if (strncmp(*reasonp, WIRE_REPORT_MAP, strlen(WIRE_REPORT_MAP)) == 0)
		id = strtoull(*reasonp + strlen(WIRE_REPORT_MAP), &end, 10);
	if (strncmp(end, ": ", 2) != 0)
		return 0;
	*reasonp = end + 2;
	return id;
}

/* Those of a kernel's attachments that use a map; NULL: all. How many. */
static size_t client_report_users(const struct registry *registry,
				  const struct image_kernel *kernel, const struct map *map,
				  uint64_t users[static OUTCOME_ATTACHMENTS_MAX]) {
	size_t n = 0;

	for (size_t i = 0; i < kernel->n_attachments && n < OUTCOME_ATTACHMENTS_MAX; i++) {
		const struct attachment *attachment =
			registry_attachment(registry, kernel->attachments[i]);

		if (!map || (attachment && attachment_uses(attachment, map)))
			users[n++] = kernel->attachments[i];
	}
	return n;
}

/* A module could not do something: the same kernels again, with the shim's words. A process has
 * many plans, one after the other: what was said of one before is not said again. */
static void client_on_report(struct client_context *context, const struct client *client,
			     const struct wire_report *report) {
	const struct process_facts *facts = &client->process->facts;
	const struct module *module = process_module(client->process, report->module_id);
	const bool plan = module && module->result->plan;
	const char *text = report->reason;
	const uint64_t id = client_report_map(&text);
	const struct map *map = id ? registry_map(context->image->registry, id, NULL) : NULL;
	char named[MAP_NAME_SIZE + WIRE_REASON_MAX];

	if (id && !map)
		return; /* nobody asks for it any more */
	if (map) {
		snprintf(named, sizeof(named), "%s: %s", map->name, text);
		text = named;
	}
	for (size_t i = 0; module && i < module->result->n_kernels; i++) {
		const struct image_kernel *kernel = &module->result->kernels[i];
		uint64_t users[OUTCOME_ATTACHMENTS_MAX];
		const struct outcome_subject subject = {
			.kernel = kernel->name,
			.demangled = kernel->demangled,
			.device_function = kernel->device_function,
			.attachments = users,
			.n_attachments =
				client_report_users(context->image->registry, kernel, map, users),
			.engine = plan ? OUTCOME_ENGINE_SANITIZER : OUTCOME_ENGINE_PTX,
		};
		const char *reason = text;

		if (!subject.n_attachments || /* nothing of ours is in it */
		    !client_report_means(kernel, &reason))
			continue;
		(plan ? outcome_tell_once : outcome_tell)(
			context->image->outcomes, facts,
			reason == text ? OUTCOME_FAILED : OUTCOME_NOT_PROBED, &subject, reason);
	}
	if (outcome_is_left_alone(text)) { /* said again after each attach */
		outcome_tell_once(context->image->outcomes, facts, OUTCOME_NOT_PROBED,
				  &(struct outcome_subject){ .engine = OUTCOME_ENGINE_SANITIZER },
				  text);
	} else if (!module || !module->result->n_kernels)
		outcome_tell(context->image->outcomes, facts, OUTCOME_FAILED,
			     &(struct outcome_subject){}, text);
}

static int client_on_trace(struct client_context *context, const struct client *client,
			   const struct wire_trace *trace) {
	union wire_message message = { .header = { .type = WIRE_TRACE_REPLY,
						   .sequence = trace->header.sequence } };
	int fd = -1, r;

	r = context->traces ? shim_rings_ask(context->traces, client->process, trace->ancestor,
					     client->connection, &fd, &message.trace_reply.size)
			    : 0;
	return r < 0 ? r : shim_connection_send(client->connection, &message, fd);
}

static int client_on_message(struct shim_connection *connection, const union wire_message *message,
			     int consumed_fd, void *userdata) {
	_cleanup_fd int fd = consumed_fd;
	struct client *client = connection->userdata;
	struct client_context *context = userdata;
	struct module *module;

	if (client->resume && message->header.type != WIRE_IDS)
		return -EPROTO;
	switch (message->header.type) {
	case WIRE_RESUME:
		return client_resume(context, client, &message->resume);
	case WIRE_IDS:
		return client_resume_ids(context, client, &message->ids);
	case WIRE_KEEP:
		return client_resume_keep(context, client, &message->keep);
	case WIRE_IMAGE:
		process_facts_refresh(&client->process->facts);
		fd = -1;
		return image_submit(context->image, client, &message->image, consumed_fd);
	case WIRE_INSTANCE:
		return client_on_instance(context, client, &message->instance);
	case WIRE_TRACE:
		return client_on_trace(context, client, &message->trace);
	case WIRE_ARMED:
		module = process_module(client->process, message->armed.module_id);
		if (!module)
			return 0;
		module->armed = true;
		image_answer_armed(context->image, client->process, module->result);
		return 0;
	case WIRE_UNLOAD:
		module = process_module(client->process, message->unload.module_id);
		if (module)
			process_module_free(client->process, module);
		return 0;
	case WIRE_REPORT:
		client_on_report(context, client, &message->report);
		return 0;
	case WIRE_SYNCED:
		client_sync_answered(context, connection, message->header.sequence, false);
		return 0;
	}
	return -EPROTO;
}

void client_process_gone(struct process *process, void *userdata) {
	struct client_context *context = userdata;
	const struct process_facts *facts = &process->facts;
	const struct module *module;
	struct registry_place place = {};
	struct map *map;

	if (context->image
		    ->stopping) { /* the next daemon sees whether it has ended, or there is none */
		process_free(context->image->processes, process);
		return;
	}
	while ((map = registry_next_map(context->image->registry, &place)))
		map_process_end(map, process->number);
	client_fold_gone(context);
	LIST_FOREACH(module, &process->modules, link)
		if (!module->armed && module->result->n_slots)
			outcome_tell(context->image->outcomes, facts, OUTCOME_FAILED,
				     &(struct outcome_subject){
					     .attachments = module->result->attachments,
					     .n_attachments = module->result->n_attachments },
				     "the process ended before its probes were armed");
	process_free(context->image->processes, process);
}

static void client_on_closed(struct shim_connection *connection, void *userdata) {
	struct client *client = connection->userdata;
	struct client_context *context = userdata;

	client_sync_answered(context, connection, 0, true);
	if (context->traces)
		shim_rings_closed(context->traces, connection);
	if (client->request)
		image_abandon(client->request);
	/* a connection that was made for an earlier daemon may reach this one, and end at once */
	if (process_disconnect(client->process, connection) &&
	    (context->image->stopping || !client_is_awaited(context, client->process) ||
	     process_watch(context->image->processes, client->process) < 0))
		client_process_gone(client->process, context);
	free(client->resume);
	free(client);
}

const struct shim_server_handlers client_handlers = {
	.hello = client_on_hello,
	.message = client_on_message,
	.closed = client_on_closed,
};
