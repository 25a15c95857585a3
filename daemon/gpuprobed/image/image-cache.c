/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handles images that shims send (image-cache.h).
 *
 * request -> hash -> cache entry -> answer. An entry is made when the first request for it starts
 * and has a result when the worker is done; requests that come in between wait on it, so that
 * twelve processes which load the same image cost one job. The key holds the ids of the attachments
 * that mean the process, so an entry can only become useless, never wrong; and the uid, so that
 * what one user makes the workers say reaches no other.
 *
 * A process has one budget of waiting for compilers, for all that it ever asks for
 * (image-budget.c). A request waits until that is used up, the job goes on for --compile-ms, and
 * the result serves the next load. Without a budget a process gets what is known already, on the
 * disk, too; the rest is compiled for the next one. A twin's image is not waited for at all: its
 * module is in use, and asks again. The request that a job was started for outlives
 * its client and its deadline: it stays charged to the uid as long as the job, so that hanging up
 * is no way around the quota. One that waits for another's job is not charged, and holds no image:
 * the ranks of a parallel program load the same one at a time. One for which the quota has no room
 * is parked until it has.
 *
 * The daemon does not look into images; it hashes them, large ones in a thread. What workers do
 * with them is image-work.c's.
 */

#include "image-cache.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/gpuprobed/base/closer.h"
#include "image-context.h"
#include "daemon/gpuprobed/settings/exclude.h"
#include "image-answer.h"
#include "image-budget.h"
#include "image-match.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "plan-prepare.h"

#define IMAGE_HASH_INLINE_MAX (1024 * 1024)
#define IMAGE_HASH_BUFFER (128 * 1024)
#define IMAGE_NUMBER_MAX UINT32_C(0x7fffffff)

struct image_key {
	XXH128_hash_t hash;
	uint64_t size;
	uint32_t kind, capability;
	enum job_twins twins;
	uid_t uid;
	size_t n_attachments;
	uint64_t attachments[JOB_IMAGE_PROGRAMS_MAX];
};

LIST_HEAD(image_query_list, image_query);

struct image_query {
	LIST_ENTRY(image_query) link; /* of an entry's waiters */
	TAILQ_ENTRY(image_query) parked_link;
	struct image_context *context;
	struct client *client; /* NULL: gone, or answered */
	struct image_entry *entry; /* that it waits on */
	bool starter; /* the job was started for it */
	bool parked; /* one of image_cache.parked */
	bool charged; /* to the account */
	struct account *account;
	struct wire_image message;
	int fd; /* -1: not needed any more */
	uint64_t since; /* uv_now: when it came, or there was room for it */
	struct image_budget budget;
	bool compiles; /* it waits for a compiler */
	uv_timer_t timer;
	uint64_t seed;
	XXH128_hash_t hash;
	int hash_result;
	uv_work_t work;
};

struct image_entry {
	TAILQ_ENTRY(image_entry) link;
	struct image_context *context;
	struct image_key key;
	struct image_result *result; /* NULL: in work */
	struct image_work *work; /* NULL: done */
	bool compiles; /* it is not on the disk */
	bool late; /* somebody has waited for it in vain */
	uint64_t expires; /* uv_now */
	bool doomed; /* an attachment of it went away while it was in work */
	struct image_query_list waiters;
};

static void image_entry_drop_unwanted(struct image_entry *entry);

/* ---- the cache ---- */

int image_cache_init(struct image_cache *cache) {
	*cache = (struct image_cache){};
	TAILQ_INIT(&cache->list);
	TAILQ_INIT(&cache->parked);
	if (getrandom(&cache->seed, sizeof(cache->seed), 0) != sizeof(cache->seed) ||
	    getrandom(&cache->last_image, sizeof(cache->last_image), 0) !=
		    sizeof(cache->last_image))
		return -EIO;
	cache->last_image %= IMAGE_NUMBER_MAX;
	return 0;
}

bool image_number_taken(uint32_t number, void *userdata) {
	const struct image_context *context = userdata;
	const struct image_entry *entry;
	const struct process *process;
	const struct module *module;

	TAILQ_FOREACH(entry, &context->images.list, link)
		if (entry->result ? entry->result->image == number
				  : entry->work && entry->work->image == number)
			return true;
	LIST_FOREACH(process, &context->processes->list, link)
		LIST_FOREACH(module, &process->modules, link)
			if (module->result->image == number)
				return true;
	return false;
}

static void image_entry_free(struct image_cache *cache, struct image_entry *entry) {
	TAILQ_REMOVE(&cache->list, entry, link);
	cache->n--;
	if (entry->result && entry->result->made)
		cache->bytes -= entry->result->size;
	if (entry->result)
		image_result_uncache(entry->result);
	image_result_unref(entry->result);
	free(entry);
}

void image_cache_deinit(struct image_cache *cache) {
	while (!TAILQ_EMPTY(&cache->list))
		image_entry_free(cache, TAILQ_FIRST(&cache->list));
}

static void image_cache_trim(struct image_cache *cache) {
	struct image_entry *entry, *previous;

	for (entry = TAILQ_LAST(&cache->list, image_entry_list); entry; entry = previous) {
		if (cache->n <= IMAGE_CACHE_ENTRIES_MAX && cache->bytes <= IMAGE_CACHE_BYTES_MAX)
			return;
		previous = TAILQ_PREV(entry, image_entry_list, link);
		if (entry->result)
			image_entry_free(cache, entry);
	}
}

void image_cache_forget(struct image_cache *cache, uint64_t attachment) {
	struct image_entry *entry, *next;

	for (entry = TAILQ_FIRST(&cache->list); entry; entry = next) {
		bool uses = false;

		next = TAILQ_NEXT(entry, link);
		for (size_t i = 0; i < entry->key.n_attachments; i++)
			uses = uses || entry->key.attachments[i] == attachment;
		if (uses && entry->result) {
			image_entry_free(cache, entry);
		} else if (uses) {
			entry->doomed = true;
			image_entry_drop_unwanted(entry);
		}
	}
}

static struct image_entry *image_cache_find(struct image_cache *cache,
					    const struct image_key *key) {
	struct image_entry *entry;

	TAILQ_FOREACH(entry, &cache->list, link)
		if (!entry->doomed && memcmp(&entry->key, key, sizeof(*key)) == 0) {
			if (entry->result && entry->expires <= uv_now(entry->context->loop)) {
				image_entry_free(cache, entry);
				return NULL;
			}
			TAILQ_REMOVE(&cache->list, entry, link);
			TAILQ_INSERT_HEAD(&cache->list, entry, link);
			return entry;
		}
	return NULL;
}

void image_cache_each(const struct image_cache *cache,
		      void (*fn)(struct image_result *result, uid_t uid, void *userdata),
		      void *userdata) {
	const struct image_entry *entry;

	TAILQ_FOREACH(entry, &cache->list, link)
		if (entry->result)
			fn(entry->result, entry->key.uid, userdata);
}

/* ---- the ends of requests ---- */

static struct image_query *image_first_parked(const struct image_cache *cache,
					      const struct account *account) {
	struct image_query *request;

	TAILQ_FOREACH(request, &cache->parked, parked_link)
		if (request->account == account)
			return request;
	return NULL;
}

/* What it has waited so far is taken from the budget of the process. */
static void image_query_spend(struct image_query *request) {
	const uint64_t now = uv_now(request->context->loop);

	if (request->client)
		request->client->process->waited_ms += now - request->since;
	request->since = now;
}

static void image_query_leave_parking(struct image_query *request) {
	if (!request->parked)
		return;
	image_query_spend(request);
	TAILQ_REMOVE(&request->context->images.parked, request, parked_link);
	request->parked = false;
}

static void image_query_on_room(uv_timer_t *timer);

/* Starts parked requests of this account, oldest first, while its quota allows; each begins in the
 * next loop turn. */
static void image_unpark(struct image_context *context, struct account *account) {
	struct image_query *request;

	while ((request = image_first_parked(&context->images, account)) &&
	       account_charge_image(account, request->message.image_size) == 0) {
		image_query_leave_parking(request);
		request->charged = true;
		uv_timer_start(&request->timer, image_query_on_room, 0, 0);
	}
}

/* The image is not needed any more: gives back what was charged for it. */
static void image_query_release(struct image_query *request) {
	if (request->fd >= 0)
		closer_memory(request->context->closer, request->fd);
	request->fd = -1;
	if (!request->charged)
		return;
	request->charged = false;
	account_discharge_image(request->account, request->message.image_size);
	image_unpark(request->context, request->account);
}

static void image_query_closed(uv_handle_t *handle) {
	free(handle->data);
}

/* The end of a request: answers if there is still somebody, gives back what was charged, frees it.
 */
static void image_query_finish(struct image_query *request, struct image_result *result) {
	struct client *client = request->client;

	image_query_leave_parking(request);
	if (request->compiles)
		image_query_spend(request);
	image_query_release(request);
	account_unref(request->account);
	if (client) {
		client->request = NULL;
		if (!result || image_answer(request->context, client,
					    request->message.header.sequence, result) < 0)
			shim_connection_close(client->connection);
	}
	uv_close((uv_handle_t *)&request->timer, image_query_closed);
}

/* Ends the work on an entry whose result can serve nobody: not those who have waited in vain, and
 * none that comes. */
static void image_entry_drop_unwanted(struct image_entry *entry) {
	const struct image_query *request;

	if (!entry->doomed || !entry->late || !entry->work)
		return;
	LIST_FOREACH(request, &entry->waiters, link)
		if (request->client)
			return;
	image_work_cancel(entry->work);
}

void image_abandon(struct image_query *request) {
	struct image_entry *entry = request->entry;

	request->client = NULL;
	if (!request->parked && (!entry || request->starter))
		return; /* a thread or the work has it */
	if (entry)
		LIST_REMOVE(request, link);
	image_query_finish(request, NULL);
	if (entry)
		image_entry_drop_unwanted(entry);
}

/* Does the program wait for it? A twin whose module is in use is asked for again. */
static bool image_query_is_awaited(const struct image_query *request) {
	return request->message.kind == WIRE_IMAGE_NAMES ||
	       (request->message.flags & WIRE_IMAGE_FLAG_AWAITED);
}

/* How long it waits from its beginning. */
static unsigned int image_query_patience(const struct image_query *request) {
	const struct process *process = request->client->process;

	if (request->compiles && !image_query_is_awaited(request))
		return 0; /* the module is in use: it asks again */
	return request->compiles ? image_budget_left(&request->budget, process)
				 : image_budget_lookup_ms(&request->budget, process,
							  request->context->config);
}

/* What becomes of work that is not waited for any more. */
static const char *image_query_outlook(const struct image_query *request) {
	if (request->entry->doomed)
		return "";
	if (request->message.kind == WIRE_IMAGE_NAMES)
		return "; compiling goes on, and kernels are patched when the process asks again";
	return "; compiling goes on, and a later launch is probed";
}

/* The end of the waiting, not of the work. */
static void image_query_tell(struct image_query *request) {
	struct image_context *context = request->context;
	struct client *client = request->client;
	const uint32_t sequence = request->message.header.sequence;
	char why[WIRE_REASON_MAX];
	int r;

	if (!client)
		return;
	if (!image_query_is_awaited(request))
		snprintf(why, sizeof(why), "its twin is not there yet");
	else if (request->compiles)
		snprintf(why, sizeof(why), IMAGE_BUDGET_REASON, request->budget.ms,
			 image_budget_setting(&request->budget));
	else
		snprintf(why, sizeof(why), "late: it took longer than %u ms to look it up",
			 image_query_patience(request));
	image_query_spend(request);
	request->client = NULL;
	client->request = NULL;
	if (!image_query_is_awaited(request) && client->process->late)
		r = image_answer_nothing(context, client, sequence, true, why); /* it knows */
	else
		r = image_answer_own(context, client, sequence,
				     request->message.kind == WIRE_IMAGE_NAMES, true, "%s%s", why,
				     image_query_outlook(request));
	client->process->late |= image_query_is_awaited(request);
	if (r < 0)
		shim_connection_close(client->connection);
}

/* The end of the waiting has come, and the work goes on. */
static void image_query_on_timer(uv_timer_t *timer) {
	struct image_query *request = timer->data;
	struct image_entry *entry = request->entry;

	entry->late = true;
	image_query_tell(request);
	if (!request->starter) {
		LIST_REMOVE(request, link);
		image_query_finish(request, NULL);
	}
	image_entry_drop_unwanted(entry);
}

/* Starts its clock, anew when it turns out that a compiler has to work. Work that fails at the end
 * is to say so first: a millisecond later. */
static void image_query_start_clock(struct image_query *request) {
	const uint64_t now = uv_now(request->context->loop),
		       end = request->since + image_query_patience(request) + 1;

	uv_timer_start(&request->timer, image_query_on_timer, end > now ? end - now : 0, 0);
}

/* Makes a request wait. */
static void image_query_wait(struct image_query *request, struct image_entry *entry) {
	request->entry = entry;
	request->compiles = entry->compiles;
	if (!request->starter)
		image_query_release(request);
	LIST_INSERT_HEAD(&entry->waiters, request, link);
	image_query_start_clock(request);
}

/* The entry is not on the disk. */
static void image_entry_on_compile(void *userdata) {
	struct image_entry *entry = userdata;
	struct image_query *request;

	if (entry->compiles)
		return;
	entry->compiles = true;
	LIST_FOREACH(request, &entry->waiters, link) {
		request->compiles = true;
		if (request->client)
			image_query_start_clock(request);
	}
}

/*
 * Charges a result, and of a plan the list of names that it was made for, to whose request came
 * first. It is consumed; what is returned takes its place: he may have too many. NULL: no memory.
 */
static struct image_result *image_entry_charge(const struct image_query_list *waiters,
					       struct image_result *result) {
	const struct image_query *request;
	struct image_result *own = NULL;

	LIST_FOREACH(request, waiters, link) {
		const bool names = request->starter && result && result->plan && result->made;

		if (!request->starter || !result ||
		    image_result_charge(result, request->account, names ? request->fd : -1,
					request->message.image_size) != ACCOUNT_E_QUOTA)
			continue;
		if (image_result_new_own(&own, true,
					 "quota: the probed modules of uid %u have as many kernels "
					 "as those of one user may",
					 (unsigned)request->account->uid) == 0)
			own->plan = result->plan;
		image_result_unref(result);
		return own;
	}
	return result;
}

/* The end of an entry's work: an image_work_fn. */
static void image_entry_finish(struct image_result *result, uint64_t keep, void *userdata) {
	struct image_entry *entry = userdata;
	struct image_cache *cache = &entry->context->images;
	struct image_query_list waiters = entry->waiters;
	struct image_result *charged;
	struct image_query *request;

	if (!LIST_EMPTY(&waiters))
		LIST_FIRST(&waiters)->link.le_prev = &waiters.lh_first;
	LIST_INIT(&entry->waiters);
	entry->work = NULL;
	charged = image_entry_charge(&waiters, result);
	keep = charged == result ? keep : 0;
	result = charged;
	if (result && keep && !entry->doomed) {
		entry->result = image_result_ref(result);
		result->cached = true;
		entry->expires = keep == IMAGE_KEEP_ALWAYS ? UINT64_MAX
							   : uv_now(entry->context->loop) + keep;
		if (result->made)
			cache->bytes += result->size;
	} else {
		image_entry_free(cache, entry);
	}
	while ((request = LIST_FIRST(&waiters))) {
		LIST_REMOVE(request, link);
		image_query_finish(request, result);
	}
	if (result && !result->cached)
		image_result_uncache(result);
	image_result_unref(result);
	image_cache_trim(cache);
}

/* Sends an entry on its way. 0 or -errno; on failure nothing was started. */
static int image_entry_start(struct image_entry *entry, const struct image_query *request) {
	struct image_context *context = entry->context;
	struct image_cache *cache = &context->images;
	const uint64_t deadline =
		request->since + image_budget_left(&request->budget, request->client->process);

	do
		cache->last_image = cache->last_image % IMAGE_NUMBER_MAX + 1;
	while (image_number_taken(cache->last_image, context));
	return image_work_start(&entry->work,
				&(struct image_work){
					.context = context,
					.kind = entry->key.kind,
					.capability = entry->key.capability,
					.twins = entry->key.twins,
					.image = cache->last_image,
					.attachments = entry->key.attachments,
					.n_attachments = entry->key.n_attachments,
					.fd = request->fd,
					.deadline = deadline,
					.limit = request->since + context->config->compile_ms,
					.uid = entry->key.uid,
					.on_compile = image_entry_on_compile,
					.fn = image_entry_finish,
					.userdata = entry,
				});
}

/* ---- requests ---- */

/* Of a plan whose patch image could not be made: why. NULL: go on. */
static const char *image_plan_trouble(struct image_context *context, const struct image_key *key) {
	const struct plan_image *image =
		plan_image_find(context, key->capability, key->attachments, key->n_attachments);

	return image && image->state == PLAN_FAILED ? image->reason : NULL;
}

/* From what twins are made for a process. */
static enum job_twins image_twins(const struct image_context *context,
				  const struct process *process) {
	return engine_rules_find(&context->config->engines, &process->facts) == ENGINE_AUTO
		       ? JOB_TWINS_PTX_FIRST
		       : JOB_TWINS_PTX;
}

/* What the result depends on. */
static void image_key_fill(struct image_key *key, const struct image_query *request) {
	struct image_context *context = request->context;
	const struct process *process = request->client->process;
	const bool plan = request->message.kind == WIRE_IMAGE_NAMES;
	struct image_match match;

	memset(key, 0, sizeof(*key));
	key->hash = request->hash;
	key->size = request->message.image_size;
	key->kind = request->message.kind;
	key->capability =
		request->message.capability_major * 10 + request->message.capability_minor;
	key->twins = image_twins(context, process);
	key->uid = process->uid;
	image_match(&match, context, &process->facts, plan);
	if (match.n_meant > match.n)
		image_answer_excess(context, process, match.n_meant, match.n);
	key->n_attachments = match.n;
	memcpy(key->attachments, match.ids, match.n * sizeof(match.ids[0]));
}

/* Takes the way of a new entry. 0 or -errno. */
static int image_entry_new(struct image_query *request, const struct image_key *key) {
	struct image_cache *cache = &request->context->images;
	struct image_entry *entry = calloc(1, sizeof(*entry));
	int r;

	if (!entry)
		return -ENOMEM;
	entry->context = request->context;
	entry->key = *key;
	LIST_INIT(&entry->waiters);
	TAILQ_INSERT_HEAD(&cache->list, entry, link);
	cache->n++;
	r = image_entry_start(entry, request);
	if (r < 0) {
		image_entry_free(cache, entry);
		return r;
	}
	request->starter = true;
	image_query_wait(request, entry);
	return 0;
}

/* Ends a request with the own image, for a reason; later: one that may pass. */
static void image_query_refuse(struct image_query *request, bool failed, bool later,
			       const char *why) {
	struct image_result *result = NULL;

	if (image_result_new_own(&result, failed, "%s", why) == 0) {
		result->plan = request->message.kind == WIRE_IMAGE_NAMES;
		result->later = later;
	}
	image_query_finish(request, result);
	image_result_unref(result);
}

/* The image is hashed: from the cache, or to a worker. */
static void image_query_start(struct image_query *request) {
	struct image_context *context = request->context;
	struct image_entry *entry;
	struct image_key key;
	char quota[128];
	const char *why;

	if (request->client && !context->stopping && request->hash_result == -ENODATA) {
		image_query_refuse(request, true, false,
				   "the image has holes: bytes that are in no memory");
		return;
	}
	if (!request->client || context->stopping || request->hash_result < 0) {
		image_query_finish(request, NULL);
		return;
	}
	image_key_fill(&key, request);
	entry = image_cache_find(&context->images, &key);
	why = !key.n_attachments                       ? "no attachment means this process any more"
	      : !entry && key.kind == WIRE_IMAGE_NAMES ? image_plan_trouble(context, &key)
						       : NULL;
	if (!entry && !why && account_check_time(request->account, uv_now(context->loop))) {
		snprintf(quota, sizeof(quota),
			 "quota: workers have worked enough for uid %u in this minute "
			 "(quota-compile-seconds = %u)",
			 (unsigned)request->account->uid, context->config->quota_compile_seconds);
		why = quota;
	}
	if (entry && entry->result) {
		context->counters.images_cached++;
		image_query_finish(request, entry->result);
	} else if (entry) {
		image_query_wait(request, entry);
	} else if (why) {
		image_query_refuse(request, key.n_attachments != 0, key.n_attachments != 0, why);
	} else if (image_entry_new(request, &key) < 0) {
		image_query_finish(request, NULL);
	}
}

/*
 * In a thread, or in the loop for small images: sees only the request. Read, and not mapped: pages
 * that are mapped have to be taken away again from all processors, which costs more than a copy
 * into a buffer that stays in the processor's cache.
 */
static void image_hash(struct image_query *request) {
	const uint64_t size = request->message.image_size;
	char *buffer = malloc(IMAGE_HASH_BUFFER);
	XXH3_state_t state;
	ssize_t n = 1;

	request->hash_result = !buffer                              ? -ENOMEM
			       : memfd_has_holes(request->fd, size) ? -ENODATA
								    : 0;
	XXH3_INITSTATE(&state);
	XXH3_128bits_reset_withSeed(&state, request->seed);
	for (uint64_t done = 0; request->hash_result == 0 && done < size; done += (uint64_t)n) {
		n = pread(request->fd, buffer, IMAGE_HASH_BUFFER, (off_t)done);
		if (n <= 0)
			request->hash_result = n ? -errno : -EIO;
		else
			XXH3_128bits_update(&state, buffer, (size_t)n);
	}
	request->hash = XXH3_128bits_digest(&state);
	free(buffer);
}

static void image_on_work(uv_work_t *work) {
	image_hash(work->data);
}

static void image_on_worked(uv_work_t *work, int status) {
	image_query_start(work->data);
}

static void image_query_begin(struct image_query *request) {
	if (request->message.image_size > IMAGE_HASH_INLINE_MAX &&
	    uv_queue_work(request->context->loop, &request->work, image_on_work, image_on_worked) ==
		    0)
		return;
	image_hash(request);
	image_query_start(request);
}

static void image_query_on_room(uv_timer_t *timer) {
	image_query_begin(timer->data);
}

/* There was no room until the deadline. A process waits for it once: until there was some. */
static void image_query_no_room(struct image_query *request) {
	const struct image_context *context = request->context;
	char why[WIRE_REASON_MAX];

	request->account->table->refused_images++;
	request->client->process->found_no_room = true;
	snprintf(why, sizeof(why),
		 "quota: other images of uid %u are in work (quota-images = %u, quota-image-bytes "
		 "= %llu)",
		 (unsigned)request->account->uid, context->config->quota_images,
		 (unsigned long long)context->config->quota_image_bytes);
	image_query_refuse(request, false, true, why);
}

static void image_query_on_no_room(uv_timer_t *timer) {
	image_query_no_room(timer->data);
}

/* Nobody overtakes those of the same account that are parked. */
static void image_query_charge(struct image_query *request) {
	struct image_cache *cache = &request->context->images;

	request->charged = !image_first_parked(cache, request->account) &&
			   account_charge_image(request->account, request->message.image_size) == 0;
	if (request->charged) {
		request->client->process->found_no_room = false;
		image_query_begin(request);
	} else if (request->client->process->found_no_room) {
		image_query_no_room(request);
	} else {
		request->parked = true;
		TAILQ_INSERT_TAIL(&cache->parked, request, parked_link);
		uv_timer_start(&request->timer, image_query_on_no_room,
			       image_budget_left(&request->budget, request->client->process), 0);
	}
}

/* Remembers what the process has devices of: patches can be made for these before it asks. */
static void image_note_capability(struct process *process, const struct wire_image *message) {
	const uint32_t capability = message->capability_major * 10 + message->capability_minor;

	for (unsigned int i = 0; i < process->n_capabilities; i++)
		if (process->capabilities[i] == capability)
			return;
	if (process->n_capabilities < PROCESS_CAPABILITIES_MAX)
		process->capabilities[process->n_capabilities++] = capability;
}

/* Whether it is the launcher of `gpuprobectl run`, whose one kernel is in PTX of ours: the engine
 * of other processes is nothing for it. */
static bool image_runs_directly(const struct image_context *context,
				const struct process *process) {
	const struct attachment *attachment;

	TAILQ_FOREACH(attachment, &context->registry->attachments, link)
		if (attachment_gpu(attachment) && attachment->filter.has_pid &&
		    strcmp(attachment->section.kernel, SECTION_DIRECTLY_RUN) == 0 &&
		    filter_matches(&attachment->filter, &process->facts))
			return true;
	return false;
}

/*
 * Why this is not to be done for the process at all: a literal, or NULL, and then what it may wait.
 * A process has one engine. *told: of attachments that it cannot have therefore, that is remembered
 * already.
 */
static const char *image_refusal(struct image_context *context, const struct process *process,
				 bool plan, bool *told, struct image_budget *budget) {
	const enum engine engine = engine_rules_find(&context->config->engines, &process->facts);
	const bool directly = image_runs_directly(context, process),
		   sass = engine == ENGINE_SANITIZER && !directly;
	struct image_match match;

	*told = false;
	if (engine == ENGINE_OFF)
		return "engine off: the daemon's configuration leaves this process alone "
		       "(--engine)";
	if (sass && !plan)
		return "engine sanitizer: no twins are made for this process (--engine)";
	if (!sass && plan)
		return "engine ptx: machine code of this process is not patched (--engine)";
	image_match(&match, context, &process->facts, plan);
	*budget = image_budget(context->config, match.own);
	if (match.other && !directly)
		image_answer_left_out(context, process, sass);
	if (match.n_meant)
		return NULL;
	*told = match.other && !directly;
	return !match.other ? "no attachment means this process"
	       : sass       ? "what is attached needs twins, and this process has none"
		      : "what is attached needs the sanitizer engine, which this process has not";
}

/* *fdp is -1 once it is a request's. */
static int image_take(struct image_context *context, struct client *client,
		      const struct wire_image *message, int *fdp) {
	const bool plan = message->kind == WIRE_IMAGE_NAMES;
	uint32_t sequence = message->header.sequence;
	struct image_query *request;
	struct image_budget budget;
	const char *why;
	bool told;
	int r;

	context->counters.images++;
	r = memfd_check(*fdp, message->image_size, &why);
	if (r < 0)
		return r;
	image_note_capability(client->process, message);
	if (client->process->uid == 0 || client->process->uid == geteuid())
		plan_note_capability(context,
				     message->capability_major * 10 + message->capability_minor);
	why = exclude_find(context->config, &client->process->facts);
	if (why)
		return image_answer_own(context, client, sequence, plan, false, EXCLUDE_REASON,
					why);
	why = image_refusal(context, client->process, plan, &told, &budget);
	if (told)
		return image_answer_nothing(context, client, sequence, false, why);
	if (why)
		return image_answer_own(context, client, sequence, plan, false, "%s", why);
	request = calloc(1, sizeof(*request));
	if (!request)
		return -ENOMEM;
	request->context = context;
	request->client = client;
	request->account = account_ref(client->connection->account);
	request->message = *message;
	request->fd = *fdp;
	*fdp = -1;
	request->since = uv_now(context->loop);
	request->budget = budget;
	uv_timer_init(context->loop, &request->timer);
	request->timer.data = request;
	request->seed = context->images.seed;
	request->work.data = request;
	client->request = request;
	image_query_charge(request);
	return 0;
}

int image_submit(struct image_context *context, struct client *client,
		 const struct wire_image *message, int consumed_fd) {
	int r = image_take(context, client, message, &consumed_fd);

	if (consumed_fd >= 0)
		closer_memory(context->closer, consumed_fd);
	return r;
}
