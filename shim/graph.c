/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Patches have a number that changes with them; 0: nothing is patched. A graph that was
 * instantiated under the number of now is launched as it is, and so is one that was instantiated
 * bare and is launched bare: the common way of a launch is to find the graph, and to compare.
 *
 * Launches look for their graph without a lock: records stay in their list for good, and are used
 * again. They may do so because nobody destroys or changes an executable graph while it is
 * launched; that is the application's business. Our own instances are ours: one that is not used
 * any more is put aside, and destroyed when the gate is closed, because a launch may just be taking
 * it.
 *
 * The lock is held for calls of the driver. Who patches waits for it a moment at most: what the
 * driver tells of meanwhile does not wait for the loader's lock for long.
 */

#include "graph.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "patching.h"

#define BUCKETS 1024
#define DEPTH_MAX 8
#define FLAG_UPLOAD 2u
#define FLAG_DEVICE_LAUNCH 4u
#define TYPE_KERNEL 0
#define TYPE_CHILD 4
#define TYPE_MEM_ALLOC 10
#define TYPE_MEM_FREE 11
#define TYPE_CONDITIONAL 13
#define NEVER UINT64_MAX /* no number of patches */

struct graph_record {
	struct graph_record *next;
	driver_handle exec; /* the application's; NULL: not used */
	driver_handle context; /* that was current when it was instantiated */
	driver_handle clone;
	unsigned long long flags;
	uint64_t code; /* number of the patches that kernels of exec have; 0: none has any */
	bool mixed; /* others have none */
	bool fixed;
	bool lost; /* fixed, and its patches are gone: it cannot be launched */
	driver_handle own; /* our instance */
	uint64_t own_patches; /* number that it is of, or NEVER */
	uint64_t failed; /* number for which there is none */
	driver_result failure;
	driver_handle *disabled; /* nodes of the clone */
	size_t disabled_count;
};

/* An instance of ours that is used no more. */
struct graph_aside {
	struct graph_aside *next;
	driver_handle own;
};

static struct graph_record *buckets[BUCKETS];
static struct graph_aside *asides;
static uint64_t patches; /* their number now */
static uint64_t last_number;
static bool overlooked; /* there was no memory for a record: a fixed graph, for good */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct graph_record **bucket_of(driver_handle exec)
{
	return &buckets[((uintptr_t)exec >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

/* The record of an executable graph, or NULL: it has no kernels, or we never saw it. */
static struct graph_record *find(driver_handle exec)
{
	struct graph_record *record =
		exec ? __atomic_load_n(bucket_of(exec), __ATOMIC_ACQUIRE) : NULL;

	while (record && __atomic_load_n(&record->exec, __ATOMIC_ACQUIRE) != exec)
		record = record->next;
	return record;
}

/* ---- patches ------------------------------------------------------------------------ */

void graph_patches_changed(bool patched)
{
	uint64_t number = patched ? __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED) : 0;

	__atomic_store_n(&patches, number, __ATOMIC_RELEASE);
}

uint64_t graph_patches(void)
{
	return __atomic_load_n(&patches, __ATOMIC_ACQUIRE);
}

bool graph_has_fixed(bool with_patches)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = overlooked;
	for (unsigned i = 0; i < BUCKETS && !found; i++)
		for (struct graph_record *record = buckets[i]; record && !found;
		     record = record->next)
			found = record->exec && record->fixed && !record->lost &&
				(record->code != 0) == with_patches;
	pthread_mutex_unlock(&lock);
	return found;
}

void graph_reap(void)
{
	const struct driver *driver = driver_own();
	struct graph_aside *aside;

	pthread_mutex_lock(&lock);
	while ((aside = asides) != NULL) {
		asides = aside->next;
		driver->graph_exec_destroy(aside->own);
		free(aside);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- a record, with the lock held ---------------------------------------------------- */

static bool can_clone(const struct driver *driver)
{
	return driver && driver->graph_clone && driver->graph_destroy &&
	       driver->graph_exec_destroy && driver->graph_instantiate && driver->graph_get_nodes &&
	       driver->graph_node_get_type;
}

/* Destroys our instance, of a graph that nobody launches. */
static void drop_own(struct graph_record *record)
{
	if (record->own)
		driver_own()->graph_exec_destroy(record->own);
	record->own = NULL;
	record->own_patches = record->failed = NEVER;
}

/* Takes our instance out of use; without memory for a note of it, it is never freed. */
static void put_aside(struct graph_record *record)
{
	struct graph_aside *aside = record->own ? malloc(sizeof(*aside)) : NULL;

	__atomic_store_n(&record->own_patches, NEVER, __ATOMIC_RELAXED);
	if (aside) {
		*aside = (struct graph_aside){ asides, record->own };
		asides = aside;
	}
	record->own = NULL;
	record->failed = NEVER;
}

static void drop_clone(struct graph_record *record)
{
	if (record->clone)
		driver_own()->graph_destroy(record->clone);
	record->clone = NULL;
	free(record->disabled);
	record->disabled = NULL;
	record->disabled_count = 0;
}

/*
 * What was done to it cannot be done to a clone. Of two patches one is gone: then no code of it may
 * run.
 */
static void fix(struct graph_record *record)
{
	record->fixed = true;
	record->lost = record->code && record->code != graph_patches();
	put_aside(record);
	drop_clone(record);
}

/* Kernels of it have got the code of now. */
static void take_code(struct graph_record *record)
{
	uint64_t now = graph_patches();

	if (now == record->code)
		return;
	if (now && record->code)
		record->code = NEVER;
	else if (now)
		record->code = now;
	record->mixed = true;
}

enum contents {
	CONTENTS_NONE, /* no kernels */
	CONTENTS_KERNELS,
	CONTENTS_OTHER, /* what cannot be cloned, or looked at */
};

static enum contents look(const struct driver *driver, driver_handle graph, unsigned depth)
{
	enum contents contents = CONTENTS_NONE;
	driver_handle *nodes, child;
	size_t count = 0;

	if (depth > DEPTH_MAX || driver->graph_get_nodes(graph, NULL, &count) != 0)
		return CONTENTS_OTHER;
	nodes = calloc(count + 1, sizeof(*nodes));
	if (!nodes || driver->graph_get_nodes(graph, nodes, &count) != 0)
		contents = CONTENTS_OTHER;
	for (size_t i = 0; i < count && contents != CONTENTS_OTHER; i++) {
		enum contents more = CONTENTS_NONE;
		int type;

		if (driver->graph_node_get_type(nodes[i], &type) != 0 || type == TYPE_MEM_ALLOC ||
		    type == TYPE_MEM_FREE || type == TYPE_CONDITIONAL)
			more = CONTENTS_OTHER;
		else if (type == TYPE_KERNEL)
			more = CONTENTS_KERNELS;
		else if (type == TYPE_CHILD)
			more = driver->graph_child && driver->graph_child(nodes[i], &child) == 0
				       ? look(driver, child, depth + 1)
				       : CONTENTS_OTHER;
		contents = more > contents ? more : contents;
	}
	free(nodes);
	return contents;
}

/* A record that nobody uses, or a new one. */
static struct graph_record *take_record(driver_handle exec)
{
	struct graph_record **bucket = bucket_of(exec), *record = find(exec);

	for (struct graph_record *other = *bucket; other && !record; other = other->next)
		if (!other->exec)
			record = other;
	if (record) {
		drop_own(record);
		drop_clone(record);
		return record;
	}
	record = calloc(1, sizeof(*record));
	if (!record) {
		overlooked = true;
		return NULL;
	}
	drop_own(record);
	record->next = *bucket;
	__atomic_store_n(bucket, record, __ATOMIC_RELEASE);
	return record;
}

/* ---- calls of the application -------------------------------------------------------- */

/* What leave() puts back. */
struct entered {
	int mode, cancel;
};

/* Calls of ours disturb no capture. */
static struct entered enter(const struct driver *driver)
{
	struct entered entered = { DRIVER_CAPTURE_MODE_RELAXED, cancel_forbid() };

	driver->exchange_capture_mode(&entered.mode);
	pthread_mutex_lock(&lock);
	return entered;
}

static void leave(const struct driver *driver, struct entered entered)
{
	pthread_mutex_unlock(&lock);
	driver->exchange_capture_mode(&entered.mode);
	cancel_allow(entered.cancel);
}

void graph_added(driver_handle exec, driver_handle graph, unsigned long long flags, uint64_t before)
{
	const struct driver *driver = driver_own();
	struct entered entered;
	int saved = errno;
	struct graph_record *record;
	enum contents contents;

	if (!can_clone(driver))
		return;
	entered = enter(driver);
	contents = flags & FLAG_DEVICE_LAUNCH ? CONTENTS_OTHER : look(driver, graph, 0);
	record = contents != CONTENTS_NONE ? take_record(exec) : NULL;
	if (record) {
		record->flags = flags & ~(unsigned long long)FLAG_UPLOAD;
		record->code = before;
		record->mixed = false;
		record->fixed = record->lost = false;
		if (driver->ctx_get_current(&record->context) != 0)
			record->context = NULL;
		take_code(record);
		if (contents == CONTENTS_OTHER || driver->graph_clone(&record->clone, graph) != 0) {
			record->clone = NULL;
			record->fixed = true;
		}
		__atomic_store_n(&record->exec, exec, __ATOMIC_RELEASE);
	}
	leave(driver, entered);
	errno = saved;
}

void graph_removed(driver_handle exec)
{
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	struct entered entered;
	int saved = errno;
	bool held;

	if (!record)
		return;
	entered = enter(driver);
	held = record->fixed && record->code;
	drop_own(record);
	drop_clone(record);
	record->fixed = false;
	__atomic_store_n(&record->exec, NULL, __ATOMIC_RELEASE);
	leave(driver, entered);
	if (held) /* perhaps what could not be changed can be now */
		__atomic_store_n(&patch_again, true, __ATOMIC_RELEASE);
	errno = saved;
}

/* Makes our instance, of the patches of now. */
static void instantiate(const struct driver *driver, struct graph_record *record)
{
	uint64_t now = graph_patches();
	driver_handle before = NULL, own = NULL;
	driver_result result;

	put_aside(record);
	result = driver->ctx_get_current(&before);
	if (!result && record->context && before != record->context)
		result = driver->ctx_set_current(record->context);
	if (!result)
		result = driver->graph_instantiate(&own, record->clone, record->flags);
	for (size_t i = 0; i < record->disabled_count && !result; i++)
		result = driver->graph_set_enabled(own, record->disabled[i], 0);
	if (record->context && before != record->context)
		driver->ctx_set_current(before);
	record->own = own;
	if (result) {
		put_aside(record);
		record->failed = now;
		record->failure = result;
		return;
	}
	__atomic_store_n(&record->own_patches, now, __ATOMIC_RELEASE);
}

static __attribute__((noinline)) driver_result find_slowly(struct graph_record *record,
							   driver_handle *exec)
{
	const struct driver *driver = driver_own();
	int saved = errno;
	struct entered entered = enter(driver);
	driver_result result = 0;

	if (record->own_patches != graph_patches() && record->failed != graph_patches())
		instantiate(driver, record);
	if (record->own)
		*exec = record->own;
	else if (record->code) /* its own code is not there any more */
		result = record->failure;
	leave(driver, entered);
	errno = saved;
	return result;
}

driver_result graph_find(driver_handle *exec)
{
	struct graph_record *record = find(*exec);
	uint64_t now = graph_patches();

	if (!record || (record->code == now && !record->mixed))
		return 0;
	if (record->fixed)
		return record->lost ? DRIVER_ERROR_GRAPH_UPDATE : 0;
	if (__atomic_load_n(&record->own_patches, __ATOMIC_ACQUIRE) == now) {
		*exec = record->own;
		return 0;
	}
	return find_slowly(record, exec);
}

void graph_updated(driver_handle exec, driver_handle graph)
{
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	struct entered entered;
	int saved = errno;
	driver_handle clone = NULL;
	bool follows;
	uint64_t info[4]; /* why not; larger than the driver's */

	if (!record)
		return;
	entered = enter(driver);
	take_code(record);
	follows = record->own && record->own_patches == graph_patches() && driver->graph_update &&
		  !record->disabled_count && driver->graph_update(record->own, graph, info) == 0;
	if (record->fixed) {
		; /* it is launched as it is */
	} else if (record->disabled_count || driver->graph_clone(&clone, graph) != 0) {
		fix(record);
	} else {
		if (!follows)
			put_aside(record);
		drop_clone(record);
		record->clone = clone;
	}
	leave(driver, entered);
	errno = saved;
}

driver_handle graph_node_begin(driver_handle exec, driver_handle node, driver_handle *own)
{
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	driver_handle cloned = NULL;
	struct entered entered;
	int saved = errno;

	*own = NULL;
	if (!record)
		return NULL;
	entered = enter(driver);
	take_code(record);
	if (!record->fixed && (!node || !driver->graph_find_in_clone ||
			       driver->graph_find_in_clone(&cloned, node, record->clone) != 0)) {
		cloned = NULL;
		fix(record);
	}
	if (record->own_patches == graph_patches())
		*own = record->own;
	else
		put_aside(record);
	leave(driver, entered);
	errno = saved;
	return cloned;
}

void graph_node_end(driver_handle exec, bool node_done, bool own_done)
{
	const struct driver *driver = driver_own();
	int saved = errno;
	struct entered entered = enter(driver);
	struct graph_record *record = find(exec);

	if (!node_done)
		fix(record);
	else if (!own_done)
		put_aside(record);
	leave(driver, entered);
	errno = saved;
}

bool graph_node_enabled(driver_handle exec, driver_handle node, bool enabled)
{
	struct graph_record *record = find(exec);
	driver_handle *list;
	size_t at = 0;

	while (at < record->disabled_count && record->disabled[at] != node)
		at++;
	if (enabled) {
		if (at < record->disabled_count)
			record->disabled[at] = record->disabled[--record->disabled_count];
		return true;
	}
	if (at < record->disabled_count)
		return true;
	list = reallocarray(record->disabled, at + 1, sizeof(*list));
	if (!list || !driver_own()->graph_set_enabled)
		return false;
	list[at] = node;
	record->disabled = list;
	record->disabled_count = at + 1;
	return true;
}
