/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Answers jobs from the cache on the disk, or passes them to a pool of workers (job-cache.h).
 *
 *     submit -> wait (for a worker's name) -> look (thread) -> hit: answer
 *                                              -> miss: pool -> answer -> write (thread)
 *
 * The disk may be slow, or hang: two threads at most read, one writes, so that others of libuv's
 * four are left for hashing and verifying; and nobody waits for a write, nor long for readers that
 * hang. While several users wait none of them has both readers. What waits to be written is bounded
 * and is what workers have made, in memfds that somebody has anyway.
 *
 * Only what a worker answered without an error is kept; errors may be of the moment. What it has
 * said after it saw two users' bytes is not: the first could have taken it over, and what is kept
 * is believed for long. Nor is it kept if who asked found it malformed, or if the worker is another
 * one (an upgrade) than the key says.
 */

#include "job-cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job-text.h"
#include "lib/base/file.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "lib/json.h"
#include "proto/job.h"

#define JOB_CACHE_VERSION 1 /* of what keys are made from */
#define JOB_CACHE_READERS 2
#define JOB_CACHE_WRITES_MAX 256
#define JOB_CACHE_WRITE_BYTES_MAX (UINT64_C(256) << 20)
#define JOB_CACHE_READY_MS 5 /* how often is looked whether a worker is ready */
#define JOB_CACHE_PATIENCE_MS                                                                      \
	500 /* so long a job waits for threads that get nowhere: then it is done as if it were not \
	       kept */
#define JOB_CACHE_SCAN_WRITES                                                                    \
	256 /* entries written before the folder is looked at again: others may write there, too \
	     */
#define JOB_CACHE_WARN_MS 60000
#define JOB_CACHE_QUERIES_MAX                                                                   \
	2 /* of people, at the same time, in threads that others need, too; one of users who do \
	     not see all */
#define JOB_CACHE_EXECUTABLE_MAX (UINT64_C(256) << 20)

/* A job on its way. */
struct job_lookup {
	TAILQ_ENTRY(job_lookup) link; /* of waiting or of looking */
	struct job_cache *cache;
	struct worker_pool *pool;
	struct worker_task *task;
	uint64_t deadline; /* uv_now */
	uint64_t look_until; /* uv_now: then it is done as if it were not kept */
	uint64_t since; /* uv_now, since when it could be looked up; 0: its workers are not ready
			   yet */
	uid_t uid;
	char *executable; /* NULL: none */
	bool (*number_taken)(uint32_t number, void *userdata);
	void *number_userdata;
	void (*missed)(void *userdata);
	void *missed_userdata;
	json_object *features; /* of the workers that would do it */
	char *features_text, *text;
	struct job_ids ids;
	/* the thread's */
	uv_work_t work;
	struct cache_key key;
	bool keyed;
	int result;
	struct cache_entry entry;
	json_object *reply;
	/* afterwards */
	worker_task_fn fn; /* of who asked */
	void *userdata;
};

/* An entry that waits to be written, or a look at the folder. */
struct job_write {
	TAILQ_ENTRY(job_write) link;
	struct job_cache *cache;
	bool has_entry, trim;
	struct cache_entry entry;
	uv_work_t work;
	int result, trim_result;
	struct cache_usage usage;
};

struct job_query {
	struct job_cache *cache;
	bool clear;
	uint32_t uid;
	size_t max;
	struct job_cache_report report;
	job_cache_report_fn fn;
	void *userdata;
	uv_work_t work;
};

TAILQ_HEAD(job_lookup_list, job_lookup);
TAILQ_HEAD(job_write_list, job_write);

struct job_cache {
	uv_loop_t *loop;
	char *folder;
	uint64_t limit;
	bool stopped;
	uv_timer_t timer; /* while lookups wait for a worker to get ready */
	struct job_lookup_list waiting, looking;
	unsigned int n_looking;
	uint64_t looked; /* uv_now, when a thread had looked the last time */
	struct job_write_list writes; /* the first one is being written */
	unsigned int n_writes;
	uint64_t write_bytes;
	unsigned int n_queries;
	unsigned int unseen; /* entries written since the folder was looked at */
	struct cache_counters counters;
	uint64_t warned; /* uv_now; 0: never */
	unsigned int unsaid;
	char trouble[512]; /* empty: the last entry was written */
};

static void job_cache_advance(struct job_cache *cache);

const char *job_cache_reason(int result) {
	return result == CACHE_STORE_E_UNSAFE ? "not a folder of this user alone"
					      : strerror(-result);
}

/* One line a minute at most: a disk that is full is so for a while. */
static void job_cache_warn(struct job_cache *cache, const char *what, int result) {
	const uint64_t now = uv_now(cache->loop) + 1;
	char more[48] = "";

	cache->counters.failures++;
	if (cache->warned && now - cache->warned < JOB_CACHE_WARN_MS) {
		cache->unsaid++;
		return;
	}
	if (cache->unsaid)
		snprintf(more, sizeof(more), " (%u more like this)", cache->unsaid);
	log_warning("cache: %s: %s: %s%s", cache->folder, what, job_cache_reason(result), more);
	cache->warned = now;
	cache->unsaid = 0;
}

/* ---- writing ---- */

static void job_write_on_work(uv_work_t *work) {
	struct job_write *write = work->data;
	const struct job_cache *cache = write->cache;

	if (write->has_entry)
		write->result = cache_store_put(cache->folder, &write->entry);
	if (write->trim)
		write->trim_result = cache_store_trim(cache->folder, cache->limit, &write->usage);
}

static void job_write_free(struct job_write *write) {
	cache_entry_deinit(&write->entry);
	free(write);
}

static void job_write_next(struct job_cache *cache);

static void job_write_on_worked(uv_work_t *work, int status) {
	struct job_write *write = work->data;
	struct job_cache *cache = write->cache;
	const uint64_t size = write->has_entry ? cache_entry_size(&write->entry) : 0;

	if (write->has_entry && write->result) {
		job_cache_warn(cache, "an entry cannot be written", write->result);
		snprintf(cache->trouble, sizeof(cache->trouble),
			 "the cache %.400s cannot be written: %s; if the folder was removed, "
			 "restart the daemon",
			 cache->folder, job_cache_reason(write->result));
	} else if (write->has_entry) {
		cache->counters.stores++;
		cache->trouble[0] = '\0';
	}
	if (write->trim && write->trim_result) {
		job_cache_warn(cache, "it cannot be looked through", write->trim_result);
	} else if (write->trim) {
		cache->counters.bytes = write->usage.bytes;
		cache->counters.entries = write->usage.entries;
		cache->counters.evicted += write->usage.removed;
		cache->unseen = 0;
	} else if (write->result == 0) {
		cache->counters.bytes += (size + 4095) / 4096 * 4096;
		cache->counters.entries++;
		cache->unseen++;
	}
	TAILQ_REMOVE(&cache->writes, write, link);
	cache->n_writes--;
	cache->write_bytes -= size;
	job_write_free(write);
	job_write_next(cache);
}

/* Writes the first one that waits. */
static void job_write_next(struct job_cache *cache) {
	struct job_write *write = TAILQ_FIRST(&cache->writes);

	if (!write)
		return;
	write->work.data = write;
	write->trim = !write->has_entry || cache->unseen >= JOB_CACHE_SCAN_WRITES ||
		      cache->counters.bytes + cache_entry_size(&write->entry) > cache->limit ||
		      cache->counters.entries >= CACHE_STORE_ENTRIES_MAX;
	if (uv_queue_work(cache->loop, &write->work, job_write_on_work, job_write_on_worked) == 0)
		return;
	TAILQ_REMOVE(&cache->writes, write, link);
	cache->n_writes--;
	cache->write_bytes -= write->has_entry ? cache_entry_size(&write->entry) : 0;
	job_write_free(write);
}

/* Has an entry written, which is taken over; NULL: has the folder looked at. */
static void job_cache_write(struct job_cache *cache, struct cache_entry *entry) {
	const uint64_t size = entry ? cache_entry_size(entry) : 0;
	struct job_write *write = NULL;

	if (!entry ||
	    (size <= cache->limit / 4 && cache->n_writes < JOB_CACHE_WRITES_MAX &&
	     (!cache->n_writes || cache->write_bytes + size <= JOB_CACHE_WRITE_BYTES_MAX)))
		write = calloc(1, sizeof(*write));
	if (!write) {
		cache->counters.skipped++;
		if (entry)
			cache_entry_deinit(entry);
		return;
	}
	write->cache = cache;
	cache_entry_init(&write->entry);
	if (entry) {
		write->has_entry = true;
		write->entry = *entry;
	}
	TAILQ_INSERT_TAIL(&cache->writes, write, link);
	cache->write_bytes += size;
	if (cache->n_writes++ == 0)
		job_write_next(cache);
}

/* ---- a job that has to be done ---- */

static void job_lookup_free(struct job_lookup *lookup) {
	cache_entry_deinit(&lookup->entry);
	json_object_put(lookup->reply);
	json_object_put(lookup->features);
	free(lookup->features_text);
	free(lookup->text);
	free(lookup->executable);
	free(lookup);
}

static uint32_t job_lookup_number(const struct job_lookup *lookup) {
	return lookup->number_taken
		       ? (uint32_t)json_int_of(worker_task_request(lookup->task), JOB_KEY_IMAGE)
		       : 0;
}

/* The outputs of the task, as parts of the entry. False: they cannot be kept. */
static bool job_lookup_parts(struct job_lookup *lookup, struct cache_entry *entry) {
	for (unsigned int i = 0; i < worker_task_fds(lookup->task); i++) {
		const uint64_t size = worker_task_output_size(lookup->task, i);
		uint64_t max;
		int fd = worker_task_fd(lookup->task, i, &max);

		if (!max || !size)
			continue;
		entry->fds[entry->n_parts] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (entry->fds[entry->n_parts] < 0)
			return false;
		entry->parts[entry->n_parts++] =
			(struct cache_entry_part){ .index = i, .size = size };
	}
	return true;
}

/* Makes an entry of what a worker answered. False: it cannot be kept. */
static bool job_lookup_keep(struct job_lookup *lookup, json_object *reply,
			    struct cache_entry *entry) {
	cache_entry_init(entry);
	if (!json_object_equal(lookup->features, worker_task_features(lookup->task)) ||
	    worker_task_mixed(lookup->task))
		return false;
	entry->key = lookup->key;
	entry->uid = lookup->uid;
	entry->number = job_lookup_number(lookup);
	job_text_name(worker_task_request(lookup->task), reply, entry);
	entry->reply = job_text_keep_reply(reply, &lookup->ids, &entry->reply_size);
	if (entry->reply && job_lookup_parts(lookup, entry))
		return true;
	cache_entry_deinit(entry);
	return false;
}

/* A worker has done it, or not: a worker_task_fn. Who asked takes the outputs, so they are looked
 * at before. */
static void job_lookup_on_task(struct worker_task *task, int result, json_object *reply,
			       const char *message, void *userdata) {
	struct job_lookup *lookup = userdata;
	struct cache_entry entry;
	bool keep = false;

	if (result == _WORKER_POOL_SUCCESS && !lookup->cache->stopped)
		keep = job_lookup_keep(lookup, reply, &entry);
	lookup->fn(task, result, reply, message, lookup->userdata);
	if (keep && !worker_task_spoiled(task))
		job_cache_write(lookup->cache, &entry);
	else if (keep)
		cache_entry_deinit(&entry);
	job_lookup_free(lookup);
}

/* To the pool; what it answers is kept if there is a key for it. The lookup is taken over. */
static void job_lookup_pass_on(struct job_lookup *lookup) {
	const uint64_t now = uv_now(lookup->cache->loop);
	const unsigned int left =
		lookup->deadline > now ? (unsigned int)(lookup->deadline - now) : 0;
	struct worker_task *task = lookup->task;
	struct worker_pool *pool = lookup->pool;

	if (lookup->missed)
		lookup->missed(lookup->missed_userdata);
	if (lookup->keyed) {
		lookup->fn = job_lookup_on_task;
		lookup->userdata = lookup;
		worker_task_redirect(task, &lookup->fn, &lookup->userdata);
	} else {
		job_lookup_free(lookup);
	}
	worker_pool_submit(pool, task, left);
}

/* ---- looking ---- */

/* Adds the content of a file. 0 or -errno. */
static int job_hash_file(struct cache_hash *hash, const char *path) {
	char *bytes;
	size_t n;
	int r;

	r = file_load_path(AT_FDCWD, path, true, JOB_CACHE_EXECUTABLE_MAX, &bytes, &n);
	if (r < 0)
		return r;
	cache_hash_add(hash, bytes, n);
	free(bytes);
	return 0;
}

/* The inputs of the task, which are sealed memfds. 0 or -errno. */
static int job_hash_inputs(struct cache_hash *hash, const struct worker_task *task) {
	for (unsigned int i = 0; i < worker_task_fds(task); i++) {
		uint64_t max, size;
		int fd = worker_task_fd(task, i, &max), r;

		if (max)
			continue;
		r = memfd_size(fd, &size);
		if (r < 0)
			return r;
		cache_hash_add_int(hash, i);
		r = cache_hash_add_memfd(hash, fd, size);
		if (r < 0)
			return r;
	}
	return 0;
}

/* 0 or -errno: there is no key. */
static int job_lookup_hash(struct job_lookup *lookup) {
	struct cache_hash *hash;
	int r;

	r = cache_hash_new(&hash);
	if (r < 0)
		return r;
	cache_hash_add_text(hash, "gpuprobe job");
	cache_hash_add_int(hash, JOB_CACHE_VERSION);
	cache_hash_add_int(hash, lookup->uid);
	cache_hash_add_text(hash, lookup->features_text);
	cache_hash_add_text(hash, lookup->text);
	r = job_hash_inputs(hash, lookup->task);
	if (r == 0 && lookup->executable)
		r = job_hash_file(hash, lookup->executable);
	if (r == 0)
		cache_hash_finish(hash, &lookup->key);
	cache_hash_free(hash);
	return r;
}

/* Whether the parts are outputs of the task, and not too large for it. */
static bool job_lookup_fits(const struct job_lookup *lookup) {
	for (size_t i = 0; i < lookup->entry.n_parts; i++) {
		const struct cache_entry_part *part = &lookup->entry.parts[i];
		uint64_t max;

		worker_task_fd(lookup->task, part->index, &max);
		if (part->size > max)
			return false;
	}
	return true;
}

/* In a thread: sees only the lookup, and the task, which nobody else touches meanwhile. */
static void job_lookup_on_work(uv_work_t *work) {
	struct job_lookup *lookup = work->data;
	const char *folder = lookup->cache->folder;

	lookup->result = job_lookup_hash(lookup);
	if (lookup->result < 0)
		return;
	lookup->keyed = true;
	lookup->result = cache_store_get(folder, &lookup->key, lookup->uid, &lookup->entry);
	if (lookup->result)
		return;
	if (job_lookup_fits(lookup))
		lookup->reply = job_text_take_reply(lookup->entry.reply, lookup->entry.reply_size,
						    &lookup->ids);
	if (lookup->reply)
		return;
	cache_store_drop(folder, &lookup->key, lookup->uid);
	lookup->result = CACHE_STORE_E_INVALID;
}

/* Answers from the entry. The lookup is taken over. */
static void job_lookup_answer(struct job_lookup *lookup) {
	struct cache_entry *entry = &lookup->entry;
	struct worker_task *task = lookup->task;
	json_object *reply = lookup->reply;

	lookup->reply = NULL;
	lookup->cache->counters.hits++;
	if (lookup->number_taken)
		json_add_int(worker_task_request(task), JOB_KEY_IMAGE, entry->number);
	for (size_t i = 0; i < entry->n_parts; i++) {
		worker_task_replace_output(task, entry->parts[i].index, entry->fds[i],
					   entry->parts[i].size);
		entry->fds[i] = -1;
	}
	job_lookup_free(lookup);
	worker_task_complete(task, _WORKER_POOL_SUCCESS, reply, "");
	json_object_put(reply);
}

/* Whether somebody else has the number of the entry, so that instructions could be mistaken for
 * those of another image. */
static bool job_lookup_collides(const struct job_lookup *lookup) {
	return lookup->number_taken && lookup->entry.number != job_lookup_number(lookup) &&
	       lookup->number_taken(lookup->entry.number, lookup->number_userdata);
}

static void job_lookup_on_worked(uv_work_t *work, int status) {
	struct job_lookup *lookup = work->data;
	struct job_cache *cache = lookup->cache;

	TAILQ_REMOVE(&cache->looking, lookup, link);
	cache->n_looking--;
	cache->looked = uv_now(cache->loop);
	if (cache->stopped) { /* who asked was told */
		worker_task_free(lookup->task);
		job_lookup_free(lookup);
		return;
	}
	if (lookup->result < 0 || lookup->result == CACHE_STORE_E_UNSAFE)
		job_cache_warn(cache, "an entry cannot be read", lookup->result);
	if (lookup->result == CACHE_STORE_E_INVALID)
		cache->counters.invalid++;
	if (worker_task_cancelled(lookup->task)) {
		worker_task_complete(lookup->task, WORKER_POOL_E_UNAVAILABLE, NULL,
				     WORKER_POOL_UNWANTED);
		job_lookup_free(lookup);
	} else if (lookup->result == 0 && !job_lookup_collides(lookup)) {
		job_lookup_answer(lookup);
	} else {
		cache->counters.misses++;
		cache_entry_deinit(&lookup->entry);
		job_lookup_pass_on(lookup);
	}
	job_cache_advance(cache);
}

/* Gives a lookup its thread. False: there is none to be had. */
static bool job_lookup_start(struct job_lookup *lookup) {
	struct job_cache *cache = lookup->cache;
	size_t size;
	const char *text;

	lookup->features = json_object_get(worker_pool_features(lookup->pool));
	text = json_object_to_json_string_length(lookup->features, JSON_C_TO_STRING_PLAIN, &size);
	lookup->features_text = text ? strdup(text) : NULL;
	lookup->work.data = lookup;
	if (!lookup->features_text ||
	    uv_queue_work(cache->loop, &lookup->work, job_lookup_on_work, job_lookup_on_worked) < 0)
		return false;
	TAILQ_INSERT_TAIL(&cache->looking, lookup, link);
	cache->n_looking++;
	return true;
}

static void job_cache_on_timer(uv_timer_t *timer) {
	job_cache_advance(timer->data);
}

/* Takes it from those that wait: to a thread, or, without a key, to the pool. */
static void job_lookup_go(struct job_lookup *lookup, bool look) {
	TAILQ_REMOVE(&lookup->cache->waiting, lookup, link);
	if (!look || !job_lookup_start(lookup))
		job_lookup_pass_on(lookup);
}

/* Who has waited enough, or for what there will be nothing: workers that never get ready are the
 * pool's business. */
static void job_cache_pass_on(struct job_cache *cache) {
	const uint64_t now = uv_now(cache->loop);
	struct job_lookup *lookup, *next;

	for (lookup = TAILQ_FIRST(&cache->waiting); lookup; lookup = next) {
		bool enough = lookup->look_until <= now || worker_task_cancelled(lookup->task);

		next = TAILQ_NEXT(lookup, link);
		if (!lookup->since && worker_pool_features(lookup->pool))
			lookup->since = now;
		if (lookup->since)
			enough = enough || now >= (lookup->since > cache->looked ? lookup->since
										 : cache->looked) +
							   JOB_CACHE_PATIENCE_MS;
		else
			enough = enough || worker_pool_trouble(lookup->pool);
		if (enough)
			job_lookup_go(lookup, false);
	}
}

static bool job_cache_looks_for(const struct job_cache *cache, uint64_t owner) {
	const struct job_lookup *lookup;

	TAILQ_FOREACH(lookup, &cache->looking, link)
		if (worker_task_is_of(lookup->task, owner))
			return true;
	return false;
}

/* The next one for a thread: of an owner for whom none works, if there is one. */
static struct job_lookup *job_cache_next(const struct job_cache *cache) {
	struct job_lookup *lookup, *first = NULL;

	TAILQ_FOREACH(lookup, &cache->waiting, link) {
		if (!worker_pool_features(lookup->pool))
			continue;
		for (unsigned int i = 0; i < worker_task_owners(lookup->task); i++)
			if (!job_cache_looks_for(cache, worker_task_owner_at(lookup->task, i)))
				return lookup;
		if (!first)
			first = lookup;
	}
	return first;
}

/* Starts what can be. */
static void job_cache_advance(struct job_cache *cache) {
	struct job_lookup *lookup;

	while (cache->n_looking < JOB_CACHE_READERS && (lookup = job_cache_next(cache)))
		job_lookup_go(lookup, true);
	job_cache_pass_on(cache);
	if (TAILQ_EMPTY(&cache->waiting))
		uv_timer_stop(&cache->timer);
	else if (!uv_is_active((uv_handle_t *)&cache->timer))
		uv_timer_start(&cache->timer, job_cache_on_timer, JOB_CACHE_READY_MS,
			       JOB_CACHE_READY_MS);
}

/* A lookup of the task. NULL: no memory, or not a job that can be kept. */
static struct job_lookup *job_lookup_new(struct job_cache *cache, struct worker_pool *pool,
					 struct worker_task *task,
					 const struct job_cache_use *use) {
	struct job_lookup *lookup = calloc(1, sizeof(*lookup));

	if (!lookup)
		return NULL;
	lookup->cache = cache;
	lookup->pool = pool;
	lookup->task = task;
	lookup->uid = use->uid;
	lookup->number_taken = use->number_taken;
	lookup->number_userdata = use->userdata;
	lookup->missed = use->missed;
	lookup->missed_userdata = use->missed_userdata;
	cache_entry_init(&lookup->entry);
	lookup->text = job_text_request(worker_task_request(task), &lookup->ids);
	lookup->executable = use->executable ? strdup(use->executable) : NULL;
	if (!lookup->text || (use->executable && !lookup->executable)) {
		job_lookup_free(lookup);
		return NULL;
	}
	return lookup;
}

void job_cache_submit(struct job_cache *cache, struct worker_pool *pool, struct worker_task *task,
		      unsigned int deadline_ms, const struct job_cache_use *use) {
	struct job_lookup *lookup =
		cache && !cache->stopped ? job_lookup_new(cache, pool, task, use) : NULL;

	if (!worker_task_has_owner(task))
		worker_task_set_owner(task, use->uid);
	if (!lookup) {
		if (use->missed)
			use->missed(use->missed_userdata);
		worker_pool_submit(pool, task, deadline_ms);
		return;
	}
	lookup->deadline = uv_now(cache->loop) + deadline_ms;
	lookup->look_until =
		uv_now(cache->loop) + (deadline_ms ? deadline_ms : JOB_CACHE_PATIENCE_MS);
	TAILQ_INSERT_TAIL(&cache->waiting, lookup, link);
	job_cache_advance(cache);
}

/* ---- people ---- */

static void job_query_on_work(uv_work_t *work) {
	struct job_query *query = work->data;
	struct job_cache_report *report = &query->report;
	const char *folder = query->cache->folder;

	report->result = query->clear
				 ? cache_store_clear(folder, query->uid, &report->usage)
				 : cache_store_list(folder, query->uid, query->max, &report->items,
						    &report->n_items, &report->usage);
}

static void job_query_on_worked(uv_work_t *work, int status) {
	struct job_query *query = work->data;
	struct job_cache *cache = query->cache;

	cache->n_queries--;
	if (query->clear && query->report.result == 0)
		job_cache_write(cache, NULL); /* counts what is left */
	query->fn(&query->report, query->userdata);
	free(query->report.items);
	free(query);
}

static int job_cache_ask(struct job_cache *cache, const struct job_query *template) {
	const unsigned int max = template->uid == CACHE_STORE_ANYBODY ? JOB_CACHE_QUERIES_MAX
								      : JOB_CACHE_QUERIES_MAX - 1;
	struct job_query *query;
	int r;

	if (cache->n_queries >= max)
		return -EBUSY;
	query = malloc(sizeof(*query));
	if (!query)
		return -ENOMEM;
	*query = *template;
	query->cache = cache;
	query->work.data = query;
	r = uv_queue_work(cache->loop, &query->work, job_query_on_work, job_query_on_worked);
	if (r < 0)
		free(query);
	else
		cache->n_queries++;
	return r;
}

int job_cache_list(struct job_cache *cache, uint32_t uid, size_t max, job_cache_report_fn fn,
		   void *userdata) {
	return job_cache_ask(
		cache,
		&(struct job_query){ .uid = uid, .max = max, .fn = fn, .userdata = userdata });
}

int job_cache_clear(struct job_cache *cache, uint32_t uid, job_cache_report_fn fn, void *userdata) {
	return job_cache_ask(
		cache,
		&(struct job_query){ .clear = true, .uid = uid, .fn = fn, .userdata = userdata });
}

/* ---- its life ---- */

int job_cache_new(struct job_cache **cachep, uv_loop_t *loop, const char *folder, uint64_t limit) {
	struct job_cache *cache;
	int r;

	r = cache_hash_setup();
	if (r == 0)
		r = cache_store_prepare(folder);
	if (r)
		return r;
	cache = calloc(1, sizeof(*cache));
	if (!cache)
		return -ENOMEM;
	cache->folder = strdup(folder);
	if (!cache->folder) {
		free(cache);
		return -ENOMEM;
	}
	cache->loop = loop;
	cache->limit = cache->counters.limit = limit;
	TAILQ_INIT(&cache->waiting);
	TAILQ_INIT(&cache->looking);
	TAILQ_INIT(&cache->writes);
	uv_timer_init(loop, &cache->timer);
	cache->timer.data = cache;
	job_cache_write(cache, NULL);
	*cachep = cache;
	return 0;
}

/* Tells who asked that there will be no answer. */
static void job_lookup_stop(struct job_lookup *lookup) {
	worker_task_fn fn = NULL;
	void *userdata = NULL;

	worker_task_redirect(lookup->task, &fn, &userdata);
	fn(lookup->task, WORKER_POOL_E_UNAVAILABLE, NULL, "the daemon stops", userdata);
}

void job_cache_stop(struct job_cache *cache) {
	struct job_lookup *lookup;

	if (!cache || cache->stopped)
		return;
	cache->stopped = true;
	uv_close((uv_handle_t *)&cache->timer, NULL);
	while ((lookup = TAILQ_FIRST(&cache->waiting))) {
		TAILQ_REMOVE(&cache->waiting, lookup, link);
		job_lookup_stop(lookup);
		worker_task_free(lookup->task);
		job_lookup_free(lookup);
	}
	TAILQ_FOREACH(lookup, &cache->looking,
		      link) /* their threads see the tasks: freed when they are through */
		job_lookup_stop(lookup);
}

struct job_cache *job_cache_free(struct job_cache *cache) {
	if (!cache)
		return NULL;
	free(cache->folder);
	free(cache);
	return NULL;
}

void cache_counters(const struct job_cache *cache, struct cache_counters *counters) {
	*counters = cache ? cache->counters : (struct cache_counters){};
}

const char *job_cache_trouble(const struct job_cache *cache) {
	return cache && cache->trouble[0] ? cache->trouble : NULL;
}

const char *job_cache_folder(const struct job_cache *cache) {
	return cache ? cache->folder : "";
}
