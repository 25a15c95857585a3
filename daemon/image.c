/* SPDX-License-Identifier: Apache-2.0 */

/*
 * request -> hash -> cache entry -> answer. An entry is made when the first request for it starts
 * and has a result when the worker is done; requests that come in between wait on it, so that
 * twelve processes which load the same image cost one job. The key holds the ids of the attachments
 * that mean the process, so an entry can only become useless, never wrong; and the uid, so that
 * what one user makes the workers say reaches no other.
 *
 * A request waits until its own deadline, the job goes on for --compile-ms: who has waited in vain
 * gets the own image and is told so once, and does not wait for this image again; the result serves
 * the next load. The request that a job was started for outlives its client and its deadline: it
 * stays charged to the uid as long as the job, so that hanging up is no way around the quota.
 *
 * The daemon does not look into images; it hashes them, large ones in a thread. What workers do
 * with them is image-work.c's.
 */

#include "image.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client.h"
#include "daemon.h"
#include "memfd.h"

#define IMAGE_HASH_INLINE_MAX (1024 * 1024)
#define IMAGE_NUMBER_MAX UINT32_C(0x7fffffff)
#define IMAGE_TOLD_MAX 32 /* beyond that, those told first wait again */
#define IMAGE_NAMES_MAX                                                                            \
	((size_t)64                                                                                \
	 << 10) /* bytes of names in a job, twice: JSON escapes some; a job has 128 KiB */

struct image_key {
	XXH128_hash_t hash;
	uint64_t size;
	uint32_t kind, flags, capability;
	uid_t uid;
	size_t n_attachments;
	uint64_t attachments[IMAGE_PROGRAMS_MAX];
};

LIST_HEAD(image_request_list, image_request);

struct image_request {
	LIST_ENTRY(image_request) link; /* of an entry's waiters */
	struct daemon *daemon;
	struct client *client; /* NULL: gone, or answered */
	struct image_entry *entry; /* that it waits on */
	bool starter;		   /* the job was started for it */
	struct account *account;
	struct wire_image message;
	int fd;
	uint64_t deadline; /* uv_now; the shim is to hear of it before its own */
	uv_timer_t timer;
	uint64_t seed;
	XXH128_hash_t hash;
	int hash_result;
	uv_work_t work;
};

struct image_entry {
	TAILQ_ENTRY(image_entry) link;
	struct daemon *daemon;
	struct image_key key;
	struct image_result *result; /* NULL: in work */
	struct image_work *work;     /* NULL: done */
	bool late;		     /* somebody has waited for it in vain */
	uint64_t told[IMAGE_TOLD_MAX]; /* the last of those, by process.number */
	unsigned int n_told;
	uint64_t expires;	     /* uv_now */
	bool doomed;		     /* an attachment of it went away while it was in work */
	struct image_request_list waiters;
};

static void image_entry_drop_unwanted(struct image_entry *entry);

/* ---- the cache ---- */

int image_cache_init(struct image_cache *cache) {
	*cache = (struct image_cache){};
	TAILQ_INIT(&cache->list);
	return getrandom(&cache->seed, sizeof(cache->seed), 0) == sizeof(cache->seed) ? 0 : -EIO;
}

static void image_entry_free(struct image_cache *cache, struct image_entry *entry) {
	TAILQ_REMOVE(&cache->list, entry, link);
	cache->n--;
	if (entry->result && entry->result->replaced)
		cache->bytes -= entry->result->size;
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
			if (entry->result && entry->expires <= uv_now(entry->daemon->loop)) {
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

/* ---- answers ---- */

/* Remembers that points that were asked for by the name of the kernel are not there. */
static void image_record_missing(struct daemon *daemon, const struct process_facts *facts,
				 const struct image_kernel *kernel) {
	char reason[256];

	snprintf(reason, sizeof(reason), "no such point in %s: %s%s",
		 kernel->device_function ? "this device function" : "this kernel",
		 kernel->missing_point, kernel->n_missing > 1 ? ", and others" : "");
	outcome_log_add(&daemon->outcomes, facts->uid, facts->pid, facts->comm, OUTCOME_NOT_PROBED,
			&(struct outcome_subject){ kernel->name, kernel->demangled,
						   kernel->device_function, kernel->missing,
						   kernel->n_missing },
			reason);
}

static void image_record(struct daemon *daemon, const struct process *process,
			 const struct image_result *result) {
	const struct process_facts *facts = &process->facts;
	enum outcome_kind kind = result->failed ? OUTCOME_FAILED : OUTCOME_NOT_PROBED;

	for (size_t i = 0; i < result->n_kernels; i++) {
		const struct image_kernel *kernel = &result->kernels[i];

		if (kernel->n_missing)
			image_record_missing(daemon, facts, kernel);
		if (kernel->n_missing && !kernel->n_attachments)
			continue;
		outcome_log_add(&daemon->outcomes, facts->uid, facts->pid, facts->comm,
				result->replaced ? OUTCOME_PROBED : kind,
				&(struct outcome_subject){
					kernel->name, kernel->demangled, kernel->device_function,
					kernel->attachments, kernel->n_attachments },
				result->reason);
	}
	if (!result->n_kernels)
		outcome_log_add(&daemon->outcomes, facts->uid, facts->pid, facts->comm, kind,
				&(struct outcome_subject){}, result->reason);
}

/* Sends IMAGE_REPLY and the SLOTs. 0 or negative: the connection is of no use any more. */
static int image_send(struct client *client, uint32_t sequence, const struct image_result *result,
		      uint64_t module) {
	union wire_message message = {};
	int r;

	message.header.type = WIRE_IMAGE_REPLY;
	message.header.sequence = sequence;
	message.image_reply.module_id = module;
	message.image_reply.verdict = result->replaced ? WIRE_VERDICT_REPLACED : WIRE_VERDICT_OWN;
	if (result->replaced) {
		message.image_reply.image_size = result->size;
		message.image_reply.slot_count = (uint32_t)result->n_slots;
	} else {
		memcpy(message.image_reply.reason, result->reason, strlen(result->reason));
	}
	r = shim_connection_send(client->connection, &message, result->replaced ? result->fd : -1);
	for (size_t i = 0; r == 0 && result->replaced && i < result->n_slots; i++) {
		union wire_message slot = {};

		slot.header.type = WIRE_SLOT;
		slot.header.sequence = sequence;
		slot.slot.module_id = module;
		slot.slot.map_id = result->slots[i].map;
		slot.slot.kind = result->slots[i].kind;
		memcpy(slot.slot.symbol, result->slots[i].symbol, strlen(result->slots[i].symbol));
		r = shim_connection_send(client->connection, &slot, -1);
	}
	return r;
}

/* Answers the client and remembers why. 0 or negative as above. */
static int image_answer(struct daemon *daemon, struct client *client, uint32_t sequence,
			struct image_result *result) {
	struct process *process = client->process;
	struct image_result *own = NULL;
	struct module *module = NULL;
	int r;

	if (client->connection->state == SHIM_LOADER_BUSY)
		client->connection->state = SHIM_LOADER;
	if (result->replaced) {
		r = process_module_new(&daemon->processes, process, result, &module);
		if (r < 0)
			return r;
		if (r > 0) {
			r = image_result_new_own(&own, false,
						 "this process has %d probed modules: no more",
						 PROCESS_MODULES_MAX);
			if (r < 0)
				return r;
			result = own;
		}
	}
	if (result->replaced)
		daemon->counters.images_replaced++;
	else
		daemon->counters.images_own++;
	image_record(daemon, process, result);
	r = image_send(client, sequence, result,
		       module ? module->id : ++daemon->processes.last_module);
	image_result_unref(own);
	return r;
}

/* How long a process waits for an image: the shim is to hear of it before its own deadline. */
static unsigned int image_wait_ms(const struct daemon *daemon) {
	return daemon->deadline_ms - daemon->deadline_ms / 10;
}

/* Answers with the own image at once. */
static int image_answer_own(struct daemon *daemon, struct client *client, uint32_t sequence,
			    const char *format, ...) __attribute__((format(printf, 4, 5)));
static int image_answer_own(struct daemon *daemon, struct client *client, uint32_t sequence,
			    const char *format, ...) {
	struct image_result *result;
	char reason[WIRE_REASON_MAX];
	va_list arguments;
	int r;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	r = image_result_new_own(&result, false, "%s", reason);
	if (r < 0)
		return r;
	r = image_answer(daemon, client, sequence, result);
	image_result_unref(result);
	return r;
}

static void image_request_closed(uv_handle_t *handle) {
	free(handle->data);
}

/* The end of a request: answers if there is still somebody, gives back what was charged, frees it.
 */
static void image_request_finish(struct image_request *request, struct image_result *result) {
	struct client *client = request->client;

	account_discharge_image(request->account, request->message.image_size);
	account_unref(request->account);
	if (client) {
		client->request = NULL;
		if (!result || image_answer(request->daemon, client,
					    request->message.header.sequence, result) < 0)
			shim_connection_close(client->connection);
	}
	fd_close(request->fd);
	uv_close((uv_handle_t *)&request->timer, image_request_closed);
}

void image_abandon(struct image_request *request) {
	request->client = NULL;
}

/* Has the process waited for this image already? */
static bool image_entry_told(const struct image_entry *entry, uint64_t process) {
	for (unsigned int i = 0; i < entry->n_told && i < IMAGE_TOLD_MAX; i++)
		if (entry->told[i] == process)
			return true;
	return false;
}

/* Ends the work on an entry whose result can serve nobody: not those who have waited in vain, and
 * none that comes. */
static void image_entry_drop_unwanted(struct image_entry *entry) {
	const struct image_request *request;

	if (!entry->doomed || !entry->late || !entry->work)
		return;
	LIST_FOREACH(request, &entry->waiters, link)
		if (request->client)
			return;
	image_work_cancel(entry->work);
}

/* The end of the waiting, not of the work. */
static void image_request_tell(struct image_request *request) {
	struct daemon *daemon = request->daemon;
	struct image_entry *entry = request->entry;
	struct client *client = request->client;

	if (!client)
		return;
	request->client = NULL;
	client->request = NULL;
	entry->told[entry->n_told++ % IMAGE_TOLD_MAX] = client->process->number;
	if (image_answer_own(daemon, client, request->message.header.sequence,
			     "compiling takes longer than %u ms%s", image_wait_ms(daemon),
			     entry->doomed ? ""
					   : ": it goes on, and the next process that loads this "
					     "image is probed") < 0)
		shim_connection_close(client->connection);
}

/* The deadline of a request has come, and the work goes on. */
static void image_request_on_timer(uv_timer_t *timer) {
	struct image_request *request = timer->data;
	struct image_entry *entry = request->entry;

	entry->late = true;
	image_request_tell(request);
	if (!request->starter) {
		LIST_REMOVE(request, link);
		image_request_finish(request, NULL);
	}
	image_entry_drop_unwanted(entry);
}

/* Makes a request wait. Work that fails at the deadline is to say so first: a millisecond later. */
static void image_request_wait(struct image_request *request, struct image_entry *entry) {
	uint64_t now = uv_now(request->daemon->loop);

	request->entry = entry;
	if (entry->late && image_entry_told(entry, request->client->process->number)) {
		image_request_tell(request);
		image_request_finish(request, NULL);
		return;
	}
	LIST_INSERT_HEAD(&entry->waiters, request, link);
	uv_timer_start(&request->timer, image_request_on_timer,
		       request->deadline + 1 > now ? request->deadline + 1 - now : 0, 0);
}

/* The end of an entry's work: an image_work_fn. */
static void image_entry_finish(struct image_result *result, uint64_t keep, void *userdata) {
	struct image_entry *entry = userdata;
	struct image_cache *cache = &entry->daemon->images;
	struct image_request_list waiters = entry->waiters;
	struct image_request *request;

	if (!LIST_EMPTY(&waiters))
		LIST_FIRST(&waiters)->link.le_prev = &waiters.lh_first;
	LIST_INIT(&entry->waiters);
	entry->work = NULL;
	if (result)
		image_result_ref(result);
	if (result && keep && !entry->doomed) {
		entry->result = image_result_ref(result);
		entry->expires = keep == IMAGE_KEEP_ALWAYS ? UINT64_MAX
							   : uv_now(entry->daemon->loop) + keep;
		if (result->replaced)
			cache->bytes += result->size;
		image_cache_trim(cache);
	} else {
		image_entry_free(cache, entry);
	}
	while ((request = LIST_FIRST(&waiters))) {
		LIST_REMOVE(request, link);
		image_request_finish(request, result);
	}
	image_result_unref(result);
	image_result_unref(result); /* the reference that was handed in */
}

/* Sends an entry on its way. 0 or -errno; on failure nothing was started. */
static int image_entry_start(struct image_entry *entry, const struct image_request *request) {
	struct daemon *daemon = entry->daemon;
	struct image_cache *cache = &daemon->images;

	cache->last_image = cache->last_image % IMAGE_NUMBER_MAX + 1;
	return image_work_start(&entry->work, &(struct image_work){
		.daemon = daemon,
		.kind = entry->key.kind,
		.flags = entry->key.flags,
		.capability = entry->key.capability,
		.image = cache->last_image,
		.attachments = entry->key.attachments,
		.n_attachments = entry->key.n_attachments,
		.fd = request->fd,
		.deadline = request->deadline,
		.limit = request->deadline - image_wait_ms(daemon) + daemon->compile_ms,
		.uid = entry->key.uid,
		.fn = image_entry_finish,
		.userdata = entry,
	});
}

/* ---- requests ---- */

/* Slots that a module needs for an attachment more. */
static size_t image_slots(const struct daemon *daemon, const struct attachment *attachment,
			  const uint64_t *ids, size_t n_ids) {
	uint64_t maps = attachment->maps;

	for (size_t i = 0; i < n_ids; i++) {
		const struct attachment *other = registry_attachment(&daemon->registry, ids[i]);

		if (other && other->object == attachment->object)
			maps &= ~other->maps;
	}
	return (size_t)__builtin_popcountll(maps);
}

/* How many attachments mean the process; the first ones, in order of id, as many as a job can
 * carry, in ids and *n_ids. */
static size_t image_match(const struct daemon *daemon, const struct process *process,
			  uint64_t ids[static IMAGE_PROGRAMS_MAX], size_t *n_ids) {
	const struct attachment *attachment;
	size_t n = 0, text = 0, slots = 1; /* of the process */

	*n_ids = 0;
	TAILQ_FOREACH(attachment, &daemon->registry.attachments, link) {
		if (attachment->on_host || !filter_matches(&attachment->filter, &process->facts))
			continue;
		n++;
		text += 2 * (strlen(attachment->section.kernel) + strlen(attachment->section.file));
		if (*n_ids + 1 != n || n > IMAGE_PROGRAMS_MAX || text > IMAGE_NAMES_MAX)
			continue;
		slots += image_slots(daemon, attachment, ids, *n_ids);
		if (slots <= WIRE_SLOTS_MAX)
			ids[(*n_ids)++] = attachment->id;
	}
	return n;
}

/* Remembers that attachments were left out. */
static void image_record_excess(struct daemon *daemon, const struct process *process, size_t n,
				size_t n_applied) {
	const struct process_facts *facts = &process->facts;
	char reason[128];

	snprintf(reason, sizeof(reason),
		 "%zu attachments mean this process: only the first %zu of them are applied", n,
		 n_applied);
	outcome_log_add(&daemon->outcomes, facts->uid, facts->pid, facts->comm, OUTCOME_FAILED,
			&(struct outcome_subject){}, reason);
}

/* The image is hashed: from the cache, or to a worker. */
static void image_request_start(struct image_request *request) {
	struct daemon *daemon = request->daemon;
	struct image_entry *entry;
	struct image_key key;
	size_t n;
	int r;

	if (!request->client || daemon->stopping || request->hash_result < 0) {
		image_request_finish(request, NULL);
		return;
	}
	memset(&key, 0, sizeof(key));
	key.hash = request->hash;
	key.size = request->message.image_size;
	key.kind = request->message.kind;
	key.flags = request->message.flags;
	key.capability = request->message.capability_major * 10 + request->message.capability_minor;
	key.uid = request->client->process->uid;
	n = image_match(daemon, request->client->process, key.attachments, &key.n_attachments);
	if (n > key.n_attachments)
		image_record_excess(daemon, request->client->process, n, key.n_attachments);
	entry = image_cache_find(&daemon->images, &key);
	if (entry && entry->result) {
		daemon->counters.images_cached++;
		image_request_finish(request, entry->result);
		return;
	}
	if (entry) {
		image_request_wait(request, entry);
		return;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry) {
		image_request_finish(request, NULL);
		return;
	}
	entry->daemon = daemon;
	entry->key = key;
	LIST_INIT(&entry->waiters);
	TAILQ_INSERT_HEAD(&daemon->images.list, entry, link);
	daemon->images.n++;
	r = image_entry_start(entry, request);
	if (r < 0) {
		image_entry_free(&daemon->images, entry);
		image_request_finish(request, NULL);
		return;
	}
	request->starter = true;
	image_request_wait(request, entry);
}

/* In a thread, or in the loop for small images: sees only the request. */
static void image_hash(struct image_request *request) {
	size_t size = (size_t)request->message.image_size;
	const void *data;

	request->hash_result = memfd_map(request->fd, size, &data);
	if (request->hash_result < 0)
		return;
	request->hash = XXH3_128bits_withSeed(data, size, request->seed);
	munmap((void *)data, size);
}

static void image_on_work(uv_work_t *work) {
	image_hash(work->data);
}

static void image_on_worked(uv_work_t *work, int status) {
	image_request_start(work->data);
}

int image_submit(struct daemon *daemon, struct client *client, const struct wire_image *message,
		 int consumed_fd) {
	_cleanup_fd int fd = consumed_fd;
	uint32_t sequence = message->header.sequence;
	uint64_t ids[IMAGE_PROGRAMS_MAX];
	size_t n_ids;
	struct image_request *request;
	const char *why;
	int r;

	daemon->counters.images++;
	r = memfd_check(fd, message->image_size, &why);
	if (r < 0)
		return r;
	if (!image_match(daemon, client->process, ids, &n_ids))
		return image_answer_own(daemon, client, sequence,
					"no attachment means this process");
	if (account_charge_image(client->connection->account, message->image_size))
		return image_answer_own(
			daemon, client, sequence,
			"quota: other images of uid %u are in work (at most %d, or %llu MiB)",
			(unsigned)client->connection->uid, ACCOUNT_IMAGES_MAX,
			(unsigned long long)(ACCOUNT_IMAGE_BYTES_MAX >> 20));
	request = calloc(1, sizeof(*request));
	if (!request) {
		account_discharge_image(client->connection->account, message->image_size);
		return -ENOMEM;
	}
	request->daemon = daemon;
	request->client = client;
	request->account = account_ref(client->connection->account);
	request->message = *message;
	request->fd = fd;
	fd = -1;
	request->deadline = uv_now(daemon->loop) + image_wait_ms(daemon);
	uv_timer_init(daemon->loop, &request->timer);
	request->timer.data = request;
	request->seed = daemon->images.seed;
	request->work.data = request;
	client->request = request;
	if (message->image_size > IMAGE_HASH_INLINE_MAX &&
	    uv_queue_work(daemon->loop, &request->work, image_on_work, image_on_worked) == 0)
		return 0;
	image_hash(request);
	image_request_start(request);
	return 0;
}
