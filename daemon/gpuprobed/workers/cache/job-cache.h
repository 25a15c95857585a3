/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The cache on the disk, between those who want a job done and the pool whose workers would do it:
 * a job that was done before, by this daemon or one before it, is answered from a file, as if a
 * worker had done it.
 *
 * A key is over all that the answer depends on: the job (options, points, programs' names, passes'
 * parameters), the bytes of its inputs (image, programs, text), an executable that it runs, the uid
 * for which it is done, and what the workers say about themselves: compiler, its version, and a
 * hash of the builds of all that they have loaded. Users share nothing, because the uid is in it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "store.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

#define JOB_CACHE_FOLDER "/var/cache/gpuprobed"

struct job_cache;

struct cache_counters {
	uint64_t hits, misses;
	uint64_t invalid; /* files that were no good; they count as misses, too */
	uint64_t stores, skipped; /* entries written; not written, because too much waited to be */
	uint64_t failures; /* of the disk, reading or writing */
	uint64_t evicted;
	uint64_t bytes,
		entries; /* in the folder, when it was looked at last, and what came since */
	uint64_t limit; /* bytes */
};

/* 0; CACHE_STORE_E_UNSAFE or -errno: there is no cache, and the daemon runs without. */
int job_cache_new(struct job_cache **cachep, uv_loop_t *loop, const char *folder, uint64_t limit);

/* What CACHE_STORE_E_UNSAFE or -errno means. */
const char *job_cache_reason(int result);

/* Ends what waits for the disk; before the pools end. What is being written is written. */
void job_cache_stop(struct job_cache *cache);

/* After the loop has ended. NULL is fine in all four. */
struct job_cache *job_cache_free(struct job_cache *cache);

/* All zeros without a cache. */
void cache_counters(const struct job_cache *cache, struct cache_counters *counters);
const char *job_cache_folder(const struct job_cache *cache);

/* A line on why nothing can be written, as of the last try. NULL: it can; or there is no cache. */
const char *job_cache_trouble(const struct job_cache *cache);

/* Of one job. */
struct job_cache_use {
	uid_t uid; /* the user for whom it is done, and the owner of the work unless the task has
		      one already */
	const char *executable; /* whose bytes matter, or NULL; copied */
	/* The job has a number that its output holds ("image"): it becomes that of the entry,
	 * unless somebody else has that now. NULL: it has none. */
	bool (*number_taken)(uint32_t number, void *userdata);
	void *userdata;
	/*
	 * The job is not in the cache and goes to the pool now. May be called from within
	 * job_cache_submit(). NULL: not called.
	 */
	void (*missed)(void *userdata);
	void *missed_userdata;
};

/* As worker_pool_submit(), which it is without a cache: the task's function is called later, never
 * from within. */
void job_cache_submit(struct job_cache *cache, struct worker_pool *pool, struct worker_task *task,
		      unsigned int deadline_ms, const struct job_cache_use *use);

/* ---- what people ask for ---- */

struct job_cache_report {
	int result; /* of store.h */
	struct cache_usage usage;
	struct cache_item *items;
	size_t n_items;
};

typedef void (*job_cache_report_fn)(const struct job_cache_report *report, void *userdata);

/* The entries of uid, or of CACHE_STORE_ANYBODY: looks at them (the youngest max), or removes them.
 * fn is called once, from the loop. 0 or -errno. */
int job_cache_list(struct job_cache *cache, uint32_t uid, size_t max, job_cache_report_fn fn,
		   void *userdata);
int job_cache_clear(struct job_cache *cache, uint32_t uid, job_cache_report_fn fn, void *userdata);
