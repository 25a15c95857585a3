/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launches CUDA graphs with the patches that hold now (graph.h), and keeps clones of them for that.
 * Used only with the sanitizer engine.
 *
 * Patches have a number that changes with them; 0: nothing is patched. A graph that was
 * instantiated under the number of now is launched as it is, and so is one that was instantiated
 * bare and is launched bare: the common way of a launch is to find the graph, and to compare.
 *
 * Launches look for their graph without a lock: records stay in their list for good, and are used
 * again. They may do so because nobody destroys or changes an executable graph while it is
 * launched; that is the application's business. Our own instances are ours: one that a launch has
 * replaced is put aside, and destroyed when the gate is closed, because another launch may just be
 * taking it; one that a change of the graph has made useless is destroyed at once.
 *
 * The lock is held for calls of the driver. Who patches waits for it a moment at most: what the
 * driver tells of meanwhile does not wait for the loader's lock for long.
 */

#include "graph.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/cancel.h"
#include "graph-pair.h"
#include "shim/patch/patching.h"

#define BUCKETS 1024
#define ATTRIBUTE_DEVICE_UPDATABLE 13
#define ATTRIBUTE_WORDS 16 /* more than the driver's */
#define FLAG_UPLOAD 2u
#define FLAG_DEVICE_LAUNCH 4u
#define TYPE_KERNEL 0
#define TYPE_CHILD 4
#define TYPE_MEM_ALLOC 10
#define TYPE_MEM_FREE 11
#define TYPE_CONDITIONAL 13
#define NEVER UINT64_MAX /* no number of patches */

/* What the application has done to its executable graph that a graph does not hold. */
struct graph_change {
	driver_handle node; /* of record->clone */
	driver_handle child; /* clone of the graph that it was given; NULL: it is left out */
};

struct graph_record {
	struct graph_record *next;
	driver_handle exec; /* the application's; NULL: not used */
	driver_handle context; /* that was current when it was instantiated */
	driver_handle clone; /* of what it was instantiated from: finds the nodes that calls name */
	driver_handle updated; /* of what it was updated from; NULL: it was not */
	struct graph_pairs pairs; /* of clone and updated, once they are asked for */
	struct graph_change *changes; /* as they came */
	size_t change_count;
	unsigned long long flags;
	uint64_t code; /* number of the oldest patches that kernels of exec have; 0: none has any */
	bool mixed; /* others have none, or later ones */
	enum graph_cause fixed;
	driver_handle own; /* our instance */
	driver_handle own_of; /* clone or updated, whose nodes it knows; NULL: neither */
	uint64_t own_patches; /* number that it is of, or NEVER; one less: see take_own_code() */
	uint64_t failed; /* number for which there is none */
	driver_result failure;
};

/* An instance of ours that is used no more. */
struct graph_aside {
	struct graph_aside *next;
	driver_handle own;
};

static struct graph_record *buckets[BUCKETS];
static struct graph_aside *asides;
static uint64_t patches; /* their number now */
static uint64_t oldest; /* whose code is there */
static uint64_t last_number;
static bool overlooked; /* there was no memory for a record: a fixed graph, for good */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct graph_record **bucket_of(driver_handle exec) {
	return &buckets[((uintptr_t)exec >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

/* The record of an executable graph, or NULL: it has no kernels, or we never saw it. */
static struct graph_record *find(driver_handle exec) {
	struct graph_record *record =
		exec ? __atomic_load_n(bucket_of(exec), __ATOMIC_ACQUIRE) : NULL;

	while (record && __atomic_load_n(&record->exec, __ATOMIC_ACQUIRE) != exec)
		record = record->next;
	return record;
}

/* ---- patches ------------------------------------------------------------------------ */

void graph_patches_changed(bool patched, bool code_gone) {
	uint64_t number = __atomic_add_fetch(&last_number, 2, __ATOMIC_RELAXED);

	if (code_gone)
		__atomic_store_n(&oldest, number - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&patches, patched ? number : 0, __ATOMIC_RELEASE);
}

uint64_t graph_patches(void) {
	return __atomic_load_n(&patches, __ATOMIC_ACQUIRE);
}

/* Is the code of patches of this number still there? */
static bool is_there(uint64_t number) {
	return !number || (number != NEVER && number >= __atomic_load_n(&oldest, __ATOMIC_RELAXED));
}

/* Can our instance be launched, though perhaps with older patches? */
static bool own_is_there(const struct graph_record *record) {
	return record->own && is_there(record->own_patches);
}

/* Number of the patches that a fixed graph is launched with. */
static uint64_t fixed_patches(const struct graph_record *record) {
	return record->own ? record->own_patches : record->code;
}

static enum graph_cause cause_of(const struct graph_record *record, bool with_patches) {
	uint64_t now = graph_patches();

	if (!with_patches && !record->fixed && now && record->failed == now)
		return GRAPH_NOT_MADE;
	if (record->fixed == GRAPH_LOST || (fixed_patches(record) != 0) != with_patches)
		return GRAPH_FOLLOWED;
	return record->fixed;
}

enum graph_cause graph_has_fixed(bool with_patches) {
	enum graph_cause found;

	pthread_mutex_lock(&lock);
	found = overlooked ? GRAPH_NOT_CLONED : GRAPH_FOLLOWED;
	for (unsigned i = 0; i < BUCKETS && !found; i++)
		for (struct graph_record *record = buckets[i]; record && !found;
		     record = record->next)
			if (record->exec)
				found = cause_of(record, with_patches);
	pthread_mutex_unlock(&lock);
	return found;
}

bool graph_has_lost(void) {
	bool found = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < BUCKETS && !found; i++)
		for (struct graph_record *record = buckets[i]; record && !found;
		     record = record->next)
			found = record->exec && record->fixed == GRAPH_LOST;
	pthread_mutex_unlock(&lock);
	return found;
}

void graph_reap(void) {
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

static bool can_clone(const struct driver *driver) {
	return driver && driver->graph_clone && driver->graph_destroy &&
	       driver->graph_exec_destroy && driver->graph_instantiate && driver->graph_get_nodes &&
	       driver->graph_node_get_type;
}

/* Destroys our instance, of a graph that nobody launches. */
static void drop_own(struct graph_record *record) {
	if (record->own)
		driver_own()->graph_exec_destroy(record->own);
	record->own = record->own_of = NULL;
	record->own_patches = record->failed = NEVER;
}

/* Takes our instance out of use; without memory for a note of it, it is never freed. */
static void put_aside(struct graph_record *record) {
	struct graph_aside *aside = record->own ? malloc(sizeof(*aside)) : NULL;

	__atomic_store_n(&record->own_patches, NEVER, __ATOMIC_RELAXED);
	if (aside) {
		*aside = (struct graph_aside){ asides, record->own };
		asides = aside;
	}
	record->own = record->own_of = NULL;
	record->failed = NEVER;
}

static void drop_change(struct graph_record *record, size_t at) {
	struct graph_change *change = &record->changes[at];

	if (change->child)
		driver_own()->graph_destroy(change->child);
	memmove(change, change + 1, (--record->change_count - at) * sizeof(*change));
}

static void drop_updated(struct graph_record *record) {
	if (record->updated)
		driver_own()->graph_destroy(record->updated);
	if (record->own_of == record->updated)
		record->own_of = NULL;
	record->updated = NULL;
	graph_pairs_deinit(&record->pairs);
}

static void drop_graphs(struct graph_record *record) {
	drop_updated(record);
	while (record->change_count)
		drop_change(record, record->change_count - 1);
	free(record->changes);
	record->changes = NULL;
	if (record->clone)
		driver_own()->graph_destroy(record->clone);
	record->clone = record->own_of = NULL;
}

/*
 * What was done to it cannot be done to a clone. The application's is launched from now on, or,
 * where the code of that is gone, our instance, to which it was done, too: the patches that it has
 * stay. Where that is not so either nothing can be launched.
 */
static void fix(struct graph_record *record) {
	bool keeps_own = own_is_there(record) && !is_there(record->code);
	enum graph_cause before = record->fixed;

	record->fixed = keeps_own || is_there(record->code) ? GRAPH_NOT_FOLLOWED : GRAPH_LOST;
	if (!keeps_own) {
		drop_own(record);
		drop_graphs(record);
	}
	if (record->fixed != before) /* who patches tells of it */
		patch_ask_again();
}

/*
 * Kernels of our instance may have got the code of now. Where it was bare it needs that code then,
 * but is no instance of now: the odd numbers, which patches do not have, say so.
 */
static void take_own_code(struct graph_record *record) {
	uint64_t now = graph_patches();

	if (record->own && !record->own_patches && now)
		__atomic_store_n(&record->own_patches, now - 1, __ATOMIC_RELEASE);
}

/* Kernels of it have got the code of now, and those of our instance are about to. */
static void take_code(struct graph_record *record) {
	uint64_t now = graph_patches();

	take_own_code(record);
	if (now == record->code)
		return;
	if (!record->code)
		record->code = now;
	record->mixed = true;
}

/* The node of the graph that our instances are made from, for one of record->clone. */
static driver_handle node_now(struct graph_record *record, driver_handle node) {
	if (!record->updated)
		return node;
	if (!record->pairs.list &&
	    !graph_pairs_make(&record->pairs, record->clone, record->updated))
		return NULL;
	return graph_pairs_find(&record->pairs, node);
}

enum contents {
	CONTENTS_NONE, /* no kernels */
	CONTENTS_KERNELS,
	CONTENTS_OTHER, /* what cannot be cloned, or looked at */
};

/* The device may change the node of the instance that it knows, which is not ours. */
static bool is_device_updatable(const struct driver *driver, driver_handle node) {
	uint64_t value[ATTRIBUTE_WORDS] = { 0 };

	return driver->node_get_attribute &&
	       driver->node_get_attribute(node, ATTRIBUTE_DEVICE_UPDATABLE, value) == 0 &&
	       (uint32_t)value[0];
}

static enum contents look(const struct driver *driver, driver_handle graph, unsigned depth) {
	enum contents contents = CONTENTS_NONE;
	size_t count = 0;
	driver_handle child, *nodes = depth > GRAPH_DEPTH_MAX ? NULL : graph_nodes(graph, &count);

	if (!nodes)
		return CONTENTS_OTHER;
	for (size_t i = 0; i < count && contents != CONTENTS_OTHER; i++) {
		enum contents more = CONTENTS_NONE;
		int type;

		if (driver->graph_node_get_type(nodes[i], &type) != 0 || type == TYPE_MEM_ALLOC ||
		    type == TYPE_MEM_FREE || type == TYPE_CONDITIONAL)
			more = CONTENTS_OTHER;
		else if (type == TYPE_KERNEL)
			more = is_device_updatable(driver, nodes[i]) ? CONTENTS_OTHER
								     : CONTENTS_KERNELS;
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
static struct graph_record *take_record(driver_handle exec) {
	struct graph_record **bucket = bucket_of(exec), *record = find(exec);

	for (struct graph_record *other = *bucket; other && !record; other = other->next)
		if (!other->exec)
			record = other;
	if (record) {
		drop_own(record);
		drop_graphs(record);
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
static struct entered enter(const struct driver *driver) {
	struct entered entered = { DRIVER_CAPTURE_MODE_RELAXED, cancel_forbid() };

	driver->exchange_capture_mode(&entered.mode);
	pthread_mutex_lock(&lock);
	return entered;
}

static void leave(const struct driver *driver, struct entered entered) {
	pthread_mutex_unlock(&lock);
	driver->exchange_capture_mode(&entered.mode);
	cancel_allow(entered.cancel);
}

void graph_added(driver_handle exec, driver_handle graph, unsigned long long flags,
		 uint64_t before) {
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
		record->fixed = GRAPH_FOLLOWED;
		if (driver->ctx_get_current(&record->context) != 0)
			record->context = NULL;
		take_code(record);
		if (contents == CONTENTS_OTHER || driver->graph_clone(&record->clone, graph) != 0) {
			record->clone = NULL;
			record->fixed = GRAPH_NOT_CLONED;
		}
		__atomic_store_n(&record->exec, exec, __ATOMIC_RELEASE);
	}
	leave(driver, entered);
	errno = saved;
}

void graph_removed(driver_handle exec) {
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	struct entered entered;
	int saved = errno;
	bool held;

	if (!record)
		return;
	entered = enter(driver);
	held = record->fixed && fixed_patches(record);
	drop_own(record);
	drop_graphs(record);
	record->fixed = GRAPH_FOLLOWED;
	__atomic_store_n(&record->exec, NULL, __ATOMIC_RELEASE);
	leave(driver, entered);
	if (held) /* perhaps what could not be changed can be now */
		patch_ask_again();
	errno = saved;
}

/* Does to an instance what the application did to its own. */
static driver_result repeat(const struct driver *driver, struct graph_record *record,
			    driver_handle own) {
	driver_result result = 0;

	for (size_t i = 0; i < record->change_count && !result; i++) {
		const struct graph_change *change = &record->changes[i];
		driver_handle node = node_now(record, change->node);

		if (!node)
			result = DRIVER_ERROR_GRAPH_UPDATE;
		else if (change->child)
			result = driver->graph_set_child(own, node, change->child);
		else
			result = driver->graph_set_enabled(own, node, 0);
	}
	return result;
}

/* Makes our instance, of the patches of now. If it cannot be, the one that there was stays. */
static void instantiate(const struct driver *driver, struct graph_record *record) {
	driver_handle graph = record->updated ? record->updated : record->clone;
	uint64_t now = graph_patches();
	driver_handle before = NULL, own = NULL;
	driver_result result;

	result = driver->ctx_get_current(&before);
	if (!result && record->context && before != record->context)
		result = driver->ctx_set_current(record->context);
	if (!result)
		result = driver->graph_instantiate(&own, graph, record->flags);
	if (!result)
		result = repeat(driver, record, own);
	if (record->context && before != record->context)
		driver->ctx_set_current(before);
	if (result) {
		if (own)
			driver->graph_exec_destroy(own);
		if (record->failed != now) /* who patches tells of it */
			patch_ask_again();
		record->failed = now;
		record->failure = result;
		return;
	}
	put_aside(record);
	record->own = own;
	record->own_of = graph;
	__atomic_store_n(&record->own_patches, now, __ATOMIC_RELEASE);
	take_own_code(record); /* of a module that came meanwhile */
}

static __attribute__((noinline)) driver_result find_slowly(struct graph_record *record,
							   driver_handle *exec) {
	const struct driver *driver = driver_own();
	int saved = errno;
	struct entered entered = enter(driver);
	uint64_t now = graph_patches();
	driver_result result = 0;
	bool sound = is_there(record->code) || own_is_there(record);

	if (!record->fixed && record->own_patches != now && (record->failed != now || !sound))
		instantiate(driver, record);
	if (own_is_there(record))
		*exec = record->own;
	else if (!is_there(record->code))
		result = record->fixed ? DRIVER_ERROR_GRAPH_UPDATE : record->failure;
	leave(driver, entered);
	errno = saved;
	return result;
}

driver_result graph_find(driver_handle *exec) {
	struct graph_record *record = find(*exec);
	uint64_t now = graph_patches();

	if (!record || (record->code == now && !record->mixed))
		return 0;
	if (__atomic_load_n(&record->own_patches, __ATOMIC_ACQUIRE) == now) {
		*exec = record->own;
		return 0;
	}
	if (record->fixed == GRAPH_NOT_CLONED ||
	    (record->fixed && !record->own && is_there(record->code)))
		return 0;
	return find_slowly(record, exec);
}

bool graph_is_sound(driver_handle exec) {
	const struct graph_record *record = find(exec);

	return record && is_there(record->code);
}

/* Its nodes have the parameters of the graph's; what is left out stays left out. */
static void take_graph(struct graph_record *record, driver_handle clone) {
	drop_updated(record);
	record->updated = clone;
	for (size_t i = record->change_count; i-- > 0;)
		if (record->changes[i].child)
			drop_change(record, i);
	if (record->change_count &&
	    !graph_pairs_make(&record->pairs, record->clone, record->updated))
		fix(record);
}

void graph_updated(driver_handle exec, driver_handle graph) {
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	struct entered entered;
	int saved = errno;
	driver_handle clone = NULL;
	uint64_t info[4]; /* why not; larger than the driver's */

	if (!record)
		return;
	entered = enter(driver);
	take_code(record);
	if (!own_is_there(record) || !driver->graph_update ||
	    driver->graph_update(record->own, graph, info) != 0)
		drop_own(record);
	if (record->fixed == GRAPH_NOT_CLONED)
		; /* it is launched as it is */
	else if (!record->fixed && driver->graph_clone(&clone, graph) == 0)
		take_graph(record, clone);
	else
		fix(record);
	leave(driver, entered);
	errno = saved;
}

bool graph_node_begin(driver_handle exec, driver_handle node, struct graph_node *found) {
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	driver_handle now = NULL;
	struct entered entered;
	int saved = errno;
	bool inner = false, given = false;

	*found = (struct graph_node){ 0 };
	if (!record)
		return false;
	entered = enter(driver);
	take_code(record);
	if (record->clone)
		found->name = graph_node_in_clone(record->clone, node, &inner);
	if (found->name)
		now = node_now(record, found->name);
	for (size_t i = 0; inner && i < record->change_count; i++)
		given = given || record->changes[i].child;
	if (!record->fixed && !given) /* given, perhaps, to the node that this one is in */
		found->node = now;
	if (own_is_there(record) && record->own_of) {
		found->own = record->own;
		found->own_node = record->own_of == record->clone ? found->name : now;
	}
	if (!found->own_node) {
		found->own = NULL;
		drop_own(record);
	}
	leave(driver, entered);
	errno = saved;
	return record->fixed != GRAPH_NOT_CLONED;
}

void graph_node_end(driver_handle exec, bool node_done, bool own_done) {
	const struct driver *driver = driver_own();
	int saved = errno;
	struct entered entered = enter(driver);
	struct graph_record *record = find(exec);

	if (!own_done)
		drop_own(record);
	if (!node_done || record->fixed)
		fix(record);
	leave(driver, entered);
	errno = saved;
}

/* The last change of a node; child is consumed. */
static bool note_change(struct graph_record *record, driver_handle node, driver_handle child) {
	struct graph_change *list =
		reallocarray(record->changes, record->change_count + 1, sizeof(*list));

	if (!list) {
		if (child)
			driver_own()->graph_destroy(child);
		return false;
	}
	record->changes = list;
	list[record->change_count++] = (struct graph_change){ node, child };
	return true;
}

/* Forgets that a node was left out (given: that it was given a graph). */
static void forget_change(struct graph_record *record, driver_handle node, bool given) {
	for (size_t i = record->change_count; i-- > 0;)
		if (record->changes[i].node == node && (record->changes[i].child != NULL) == given)
			drop_change(record, i);
}

bool graph_node_enabled(driver_handle exec, const struct graph_node *node, bool enabled) {
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	struct entered entered;
	int saved = errno;
	bool done;

	if (!node->node)
		return false;
	entered = enter(driver);
	forget_change(record, node->name, false);
	done = enabled || (driver->graph_set_enabled && note_change(record, node->name, NULL));
	leave(driver, entered);
	errno = saved;
	return done;
}

bool graph_node_given(driver_handle exec, const struct graph_node *node, driver_handle child) {
	const struct driver *driver = driver_own();
	struct graph_record *record = find(exec);
	struct entered entered;
	int saved = errno;
	driver_handle clone = NULL;
	bool done = false;

	if (!node->node)
		return false;
	entered = enter(driver);
	if (driver->graph_set_child && driver->graph_clone(&clone, child) == 0) {
		forget_change(record, node->name, true);
		done = note_change(record, node->name, clone);
	}
	leave(driver, entered);
	errno = saved;
	return done;
}
