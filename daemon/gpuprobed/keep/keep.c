/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Restart without loss.
 *
 * A daemon may be killed at any instruction, and the next one goes on: there is no shutdown that
 * writes things down, so a restart in good order is the same as a crash. What has to survive lies
 * where a process's end does not reach:
 *
 *   - programs, maps' memory, links of programs on the host: descriptors, which systemd keeps
 *     (store.h). Instances of maps are the very memory that processes write to, so they count on
 *     while there is no daemon. Totals of processes that are gone lie in a memfd as well
 *     (map-totals.c).
 *   - what is attached, by whom, where, under which ids: the state file (state.h), written at each
 *     attach and detach. It is the last to know of what comes and the first to forget what goes: a
 *     descriptor that it does not name is nobody's, and dropped at the next start. While it cannot
 *     be written (/run is full) what it names stays, and it is tried again. Numbers that were given
 *     out lie beside the descriptors (store_raise()), where there is always room, so that no daemon
 *     gives them out twice.
 *   - which process an instance is of: the store's record of it, written before the process gets
 *     it.
 *
 * The next daemon puts all that into place before it goes on with the interest page or takes a
 * connection: a few milliseconds, as nothing is compiled or verified again (what is in a sealed
 * memfd is what was verified). Until then the page says who is meant, and who connects waits in
 * the socket's queue, which systemd holds. Processes see on the page that this is another daemon,
 * connect by themselves, and say which modules and instances they have (wire.h, RESUME and KEEP).
 * Until then, and for ever if it was made for another wire version, a process is known by its pid
 * and start time; when it ends, its instances are folded, as ever.
 *
 * Without somebody who keeps descriptors (a session daemon that a user starts by hand), and after
 * the service was stopped, which makes systemd drop them, there is nothing to go on with: all
 * starts empty.
 */

#include "keep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpuprobed/export/map-export.h"
#include "daemon/gpuprobed/image/image-context.h"
#include "daemon/gpuprobed/image/kernel-names.h"
#include "daemon/gpuprobed/image/process.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "daemon/gpuprobed/image/process-watch.h"
#include "state.h"
#include "store.h"
#include "lib/base/clock.h"
#include "lib/json.h"

#define KEEP_IDS_SHIFT 32 /* ids that one daemon can give out before they are those of the next */
#define KEEP_RETRY_MS 2000 /* until a state file that could not be written is tried again */
#define KEEP_AWAIT_MS 5000 /* that a process which connects again may take: readers wait for it */

struct keep {
	struct keep_context context;
	struct store *store;
	struct map_keeper keeper;
	struct state_numbers numbers;
	struct kernel_names *names; /* NULL: none */
	uint32_t names_slot;
	char path[192]; /* empty: there is none */
	bool full; /* was logged */
	bool failed; /* the file is not what it should be; was logged, too */
	bool ending;
	int error; /* what kept us from restoring all, and may not the next daemon; negative, or 0
		    */
	uv_timer_t *retry; /* NULL: never was needed */
};

/* ---- maps ---- */

static void keep_check_room(struct keep *keep, uint32_t slot) {
	if (slot || keep->full || !store_keeps(keep->store))
		return;
	keep->full = true;
	log_warning("no room for more descriptors: some of what processes count from now on will "
		    "not survive a restart");
}

/* Once half of the room is taken, who has half of that gets no more of it: what others count is to
 * survive, too. */
static bool keep_has_share(const struct keep *keep, uid_t uid) {
	unsigned int n, of;

	n = store_count(keep->store, uid, &of);
	return n >= STORE_SLOTS_MAX / 2 && of >= STORE_SLOTS_MAX / 4;
}

static uint32_t keep_instance(const struct map_instance *instance, void *userdata) {
	struct keep *keep = userdata;
	struct store_record record = {
		.kind = STORE_INSTANCE,
		.owner = instance->map->id,
		.number = instance->id,
		.process = instance->process,
		.start_time = instance->start_time,
		.cookie = instance->cookie,
		.pid = instance->pid,
		.uid = instance->uid,
		.device = instance->device,
	};
	uint32_t slot;

	if (instance->map->spec.layout.place == MAP_PLACE_KERNEL) /* kept with the object */
		return 0;
	_Static_assert(sizeof(record.comm) == sizeof(instance->comm), "the same text");
	memcpy(record.comm, instance->comm, sizeof(record.comm));
	slot = keep_has_share(keep, instance->uid) ? 0
						   : store_add(keep->store, instance->fd, &record);
	keep_check_room(keep, slot);
	return slot;
}

static uint32_t keep_totals(const struct map *map, int fd, void *userdata) {
	struct keep *keep = userdata;
	uint32_t slot = store_add(keep->store, fd,
				  &(struct store_record){ .kind = STORE_TOTALS, .owner = map->id });

	keep_check_room(keep, slot);
	return slot;
}

static void keep_drop(uint32_t slot, void *userdata) {
	struct keep *keep = userdata;

	store_remove(keep->store, slot);
}

int keep_new(struct keep **keepp, const struct keep_context *context, struct store *store,
	     const char *path) {
	struct keep *keep = calloc(1, sizeof(*keep));

	if (!keep) {
		store_free(store);
		return -ENOMEM;
	}
	keep->context = *context;
	keep->store = store;
	keep->keeper = (struct map_keeper){ keep_instance, keep_totals, keep_drop, keep };
	if (path)
		snprintf(keep->path, sizeof(keep->path), "%s", path);
	map_accounts_set_keeper(context->map_accounts, &keep->keeper);
	*keepp = keep;
	return 0;
}

struct keep *keep_free(struct keep *keep) {
	if (!keep)
		return NULL;
	store_free(keep->store);
	kernel_names_free(keep->names);
	free(keep);
	return NULL;
}

bool keep_keeps(const struct keep *keep) {
	return keep && store_keeps(keep->store);
}

uint64_t keep_session(const struct keep *keep) {
	return keep_keeps(keep) ? keep->numbers.session : 0;
}

uint32_t keep_start(const struct keep *keep) {
	return keep ? (uint32_t)keep->numbers.starts : 0;
}

/* ---- the state file ---- */

/* What is not named by anything that is there goes. */
static void keep_sweep(struct keep *keep) {
	bool *used = calloc(STORE_SLOTS_MAX + 1, sizeof(*used));
	const struct attachment *attachment;
	const struct object *object;

	if (!used)
		return; /* the next daemon does it */
	TAILQ_FOREACH(object, &keep->context.image->registry->objects, link) {
		used[object->slot] = true;
		for (size_t i = 0; i < object->n_maps; i++) {
			used[object->kernel_slots[i]] = true;
			if (!object->maps[i])
				continue;
			used[map_totals_slot(object->maps[i])] = true;
			if (object->maps[i]->start)
				used[object->maps[i]->start->slot] = true;
			for (const struct map_instance *instance = object->maps[i]->instances;
			     instance; instance = instance->next)
				used[instance->slot] = true;
		}
	}
	used[keep->names_slot] = true;
	TAILQ_FOREACH(attachment, &keep->context.image->registry->attachments, link) {
		const struct gpu_program *program = attachment_gpu(attachment);

		used[attachment->slot] = true;
		if (program)
			used[program->patch_slot] = true;
	}
	store_sweep(keep->store, used);
	free(used);
}

static void keep_on_retry(uv_timer_t *timer) {
	keep_changed(timer->data);
}

static void keep_retry_closed(uv_handle_t *handle) {
	free(handle);
}

/* The file could not be written: once more, later. */
static void keep_retry(struct keep *keep) {
	if (!keep->retry) {
		keep->retry = malloc(sizeof(*keep->retry));
		if (!keep->retry)
			return; /* when something changes */
		uv_timer_init(keep->context.image->loop, keep->retry);
		keep->retry->data = keep;
	}
	uv_timer_start(keep->retry, keep_on_retry, KEEP_RETRY_MS, 0);
}

/* No daemon of this state gives out a number again that this one has. */
static void keep_raise(struct keep *keep) {
	struct registry *registry = keep->context.image->registry;
	struct store_numbers numbers = {
		.starts = keep->numbers.starts,
		.object = registry->last_object,
		.attachment = registry->last_attachment,
		.map = registry->last_map,
	};

	store_raise(keep->store, &numbers);
	keep->numbers.starts = numbers.starts;
	registry->last_object = numbers.object;
	registry->last_attachment = numbers.attachment;
	registry->last_map = numbers.map;
}

void keep_changed(struct keep *keep) {
	json_object *state;
	bool failed;
	int r;

	if (!keep_keeps(keep) || keep->ending)
		return;
	keep_raise(keep);
	state = state_to_json(keep->context.image->registry, &keep->numbers);
	if (state)
		json_add(state, "exports", map_exports_json(keep->context.exports));
	r = state ? state_save(keep->path, state) : -ENOMEM;
	json_object_put(state);
	if (r < 0 && !keep->failed)
		log_error("%s: %s: what is attached now will not survive a restart until this can "
			  "be written",
			  keep->path, strerror(-r));
	failed = keep->failed;
	keep->failed = r < 0;
	if (r < 0) {
		keep_retry(keep);
	} else if (failed) {
		log_notice("%s: written: what is attached will survive a restart", keep->path);
		keep_sweep(keep); /* what stayed for the old file */
	}
}

/* Keeps a descriptor of an object. */
static uint32_t keep_fd(struct keep *keep, enum store_kind kind, uint64_t owner, uint64_t number,
			int fd) {
	uint32_t slot =
		fd < 0 ? 0
		       : store_add(keep->store, fd,
				   &(struct store_record){
					   .kind = kind, .owner = owner, .number = number });

	if (fd >= 0)
		keep_check_room(keep, slot);
	return slot;
}

static void keep_attachment(struct keep *keep, struct attachment *attachment) {
	const struct object *object = attachment->object;
	const struct host_program *host = attachment_host(attachment);

	if (host) {
		attachment->slot = keep_fd(keep, STORE_LINK, object->id, host->index,
					   host_link_fd(object->host, host->index));
	} else {
		struct gpu_program *gpu = &attachment->of.gpu;

		attachment->slot = keep_fd(keep, STORE_PTX, object->id, attachment->id, gpu->fd);
		gpu->patch_slot =
			keep_fd(keep, STORE_PATCH, object->id, attachment->id, gpu->patch_fd);
	}
}

void keep_object(struct keep *keep, struct object *object) {
	struct attachment *attachment;
	int blob;

	if (!keep_keeps(keep))
		return;
	blob = state_blob(object);
	object->slot = keep_fd(keep, STORE_BLOB, object->id, 0, blob);
	if (blob >= 0)
		close(blob);
	for (size_t i = 0; i < object->n_maps; i++)
		if (object->maps[i] && object->maps[i]->spec.layout.place == MAP_PLACE_KERNEL)
			object->kernel_slots[i] =
				keep_fd(keep, STORE_KERNEL_MAP, object->maps[i]->id, 0,
					object->maps[i]->instances->fd);
	TAILQ_FOREACH(attachment, &keep->context.image->registry->attachments, link)
		if (attachment->object == object)
			keep_attachment(keep, attachment);
	object->kept = true;
	keep_changed(keep);
}

static void keep_collect(struct keep_slots *slots, uint32_t slot) {
	if (slot)
		slots->slots[slots->n++] = slot;
}

void keep_leaving(struct keep *keep, struct attachment *attachment, struct keep_slots *slots) {
	const struct gpu_program *program = attachment_gpu(attachment);
	struct object *object = attachment->object;

	*slots = (struct keep_slots){};
	if (!keep_keeps(keep))
		return;
	_Static_assert(KEEP_SLOTS_MAX >= REGISTRY_OBJECT_MAPS_MAX + 3, "all of an object");
	keep_collect(slots, attachment->slot);
	if (program)
		keep_collect(slots, program->patch_slot);
	if (object->n_attachments == 1) {
		keep_collect(slots, object->slot);
		for (size_t i = 0; i < object->n_maps; i++)
			keep_collect(slots, object->kernel_slots[i]);
		object->kept = false;
	}
	attachment->leaving = true;
	keep_changed(keep);
}

void keep_left(struct keep *keep, const struct keep_slots *slots) {
	/* none where there is no keep */
	if (slots->n && keep->failed) /* the file still names them; keep_sweep() comes for them */
		return;
	for (size_t i = 0; i < slots->n; i++)
		store_remove(keep->store, slots->slots[i]);
}

void keep_end(struct keep *keep, bool hand_over) {
	if (!keep)
		return;
	if (hand_over && keep->failed)
		keep_changed(keep);
	keep->ending = true;
	if (keep->retry)
		uv_close((uv_handle_t *)keep->retry, keep_retry_closed);
	keep->retry = NULL;
	if (hand_over) {
		store_freeze(keep->store);
		return;
	}
	if (store_keeps(keep->store))
		unlink(keep->path);
	store_clear(keep->store);
}

/* ---- restoring ---- */

/* Whether a daemon that starts again may have better luck. */
static bool keep_passes(int error) {
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/* The process of an instance: the one there is, or a new one if it still runs. NULL: it has ended,
 * or keep->error says why that is not known. */
static struct process *keep_process(struct keep *keep, const struct store_record *record) {
	struct process_table *table = keep->context.image->processes;
	struct process_facts facts;
	struct process *process;
	int r;

	LIST_FOREACH(process, &table->list, link)
		if (process->number == record->process)
			return process;
	r = process_facts_read(&facts, record->pid, -1);
	if (keep_passes(r))
		keep->error = r;
	if (r < 0 || facts.start_time != record->start_time)
		return NULL;
	process = process_table_adopt(table, &facts, record->uid, record->process);
	if (process && process_watch(table, process) < 0)
		process = process_free(table, process);
	if (process)
		process->awaited = uv_now(keep->context.image->loop) + KEEP_AWAIT_MS;
	return process;
}

/* One instance. False: it is of no use any more. */
static bool keep_restore_instance(struct keep *keep, uint32_t slot) {
	const struct store_record *record = store_record(keep->store, slot);
	struct process_table *table = keep->context.image->processes;
	struct map *map = registry_map(keep->context.image->registry, record->owner, NULL);
	struct map_instance *instance, like = {
		.id = record->number,
		.process = record->process,
		.pid = record->pid,
		.uid = record->uid,
		.start_time = record->start_time,
		.cookie = record->cookie,
		.device = record->device,
		.slot = slot,
	};
	bool gone;

	if (!map)
		return false;
	memcpy(like.comm, record->comm, sizeof(like.comm) - 1);
	gone = record->pid && !keep_process(keep, record);
	if (record->pid && record->process > table->last_number)
		table->last_number = record->process;
	return map_adopt_instance(map, &like, store_steal_fd(keep->store, slot), gone, &instance) ==
	       0;
}

static bool keep_restore_totals(struct keep *keep, uint32_t slot) {
	struct map *map = registry_map(keep->context.image->registry,
				       store_record(keep->store, slot)->owner, NULL);

	return map && map_adopt_totals(map, store_steal_fd(keep->store, slot), slot) == 0;
}

/* All descriptors of a kind. */
static void keep_restore_maps(struct keep *keep, enum store_kind kind,
			      bool (*restore)(struct keep *keep, uint32_t slot)) {
	for (uint32_t slot = store_next(keep->store, 1); slot;
	     slot = store_next(keep->store, slot + 1))
		if (store_record(keep->store, slot)->kind == kind && !restore(keep, slot))
			store_remove(keep->store, slot);
}

/* The objects of a state. How many could not be restored. */
static unsigned int keep_restore_objects(struct keep *keep, json_object *state) {
	struct map_accounts *accounts = keep->context.map_accounts;
	const uint64_t limit = map_accounts_limit(accounts);
	char error[STATE_ERROR_SIZE] = "no memory";
	unsigned int failed = 0;

	map_accounts_set_limit(accounts, UINT64_MAX); /* who has more than he may by now keeps it */
	for (size_t i = 0; i < state_objects(state); i++)
		if (state_take_object(state, i, keep->context.image->registry, accounts,
				      keep->store, error)) {
			log_warning("%s: an attached object is not restored: %s", keep->path,
				    error);
			failed++;
		}
	map_accounts_set_limit(accounts, limit);
	return failed;
}

/* A state that cannot be used: a line says why. The file stays, for who wants to know what was
 * attached. */
static void keep_put_aside(const struct keep *keep, const char *why) {
	char aside[sizeof(keep->path) + sizeof(".refused")];

	snprintf(aside, sizeof(aside), "%s.refused", keep->path);
	if (rename(keep->path, aside) == 0)
		log_error("%s: %s: starts with nothing attached; the file is kept as %s",
			  keep->path, why, aside);
	else
		log_error("%s: %s: starts with nothing attached", keep->path, why);
}

/* The state of the daemon before. 0; positive: there is none that can be used, why was logged;
 * negative: another daemon may read it. */
static int keep_load(struct keep *keep) {
	char error[STATE_ERROR_SIZE] = "";
	json_object *state = NULL;
	unsigned int n;
	int r;

	r = state_load(keep->path, &state, error);
	if (keep_passes(r))
		return r;
	if (r == 0)
		r = state_take_numbers(state, keep->context.image->registry, &keep->numbers, error);
	if (r == 0) {
		keep_restore_objects(keep, state);
		n = map_exports_restore(keep->context.exports, keep->context.image->registry,
					json_member(state, "exports"));
		if (n)
			log_warning("%s: %u exported maps are not exported any more", keep->path,
				    n);
	} else if (r != STATE_E_NONE) {
		keep_put_aside(keep, r < 0 ? strerror(-r) : error);
	}
	json_object_put(state);
	return r ? 1 : 0;
}

/* The names that the daemon before knew. */
static bool keep_restore_names(struct keep *keep, uint32_t slot) {
	if (keep->names || kernel_names_new(&keep->names, store_steal_fd(keep->store, slot)) < 0 ||
	    !kernel_names_inherited(keep->names))
		return false;
	keep->names_slot = slot;
	return true;
}

/* If there are none yet: without them all goes on. */
static void keep_begin_names(struct keep *keep) {
	if (!keep_keeps(keep) || (!keep->names && kernel_names_new(&keep->names, -1) < 0))
		return;
	if (!keep->names_slot)
		keep->names_slot = store_add(keep->store, kernel_names_fd(keep->names),
					     &(struct store_record){ .kind = STORE_NAMES });
}

struct kernel_names *keep_names(const struct keep *keep) {
	return keep ? keep->names : NULL;
}

/* Numbers that no daemon of this state has given out. */
static void keep_go_on(struct keep *keep) {
	uint64_t first;

	keep_raise(keep);
	first = keep->numbers.starts << KEEP_IDS_SHIFT;
	keep->numbers.starts++;
	keep_raise(keep);
	keep->context.image->registry->last_instance = first;
	keep->context.image->processes->last_module = first;
}

int keep_restore(struct keep *keep, unsigned int *np) {
	int r = store_open(keep->store), loaded = 1;

	if (r < 0)
		log_error("descriptors for the next daemon: %s: nothing will survive a restart",
			  strerror(-r));
	if (r == 0)
		loaded = keep_load(keep);
	if (loaded < 0)
		keep->error = loaded;
	if (loaded == 0) {
		keep_restore_maps(keep, STORE_TOTALS, keep_restore_totals);
		keep_restore_maps(keep, STORE_INSTANCE, keep_restore_instance);
	}
	if (keep->error) {
		log_error("what the daemon before had: %s: left to the next one",
			  strerror(-keep->error));
		return keep->error;
	}
	if (loaded == 0) {
		keep_restore_maps(keep, STORE_NAMES, keep_restore_names);
		keep_sweep(keep);
	} else {
		keep->numbers = (struct state_numbers){};
		if (r == 0)
			keep_sweep(keep);
		else if (store_keeps(keep->store) && unlink(keep->path) == 0)
			log_notice("%s: its daemon was stopped: starts with nothing attached",
				   keep->path);
		if (getrandom(&keep->numbers.session, sizeof(keep->numbers.session), 0) !=
		    sizeof(keep->numbers.session))
			keep->numbers.session = (uint64_t)clock_us(CLOCK_REALTIME);
		keep->numbers.session |= 1;
	}
	keep_begin_names(keep);
	keep_go_on(keep);
	keep_changed(keep);
	*np = keep->context.image->registry->n_attachments;
	return 0;
}
