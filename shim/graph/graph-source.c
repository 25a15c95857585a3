/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Keeps what the application does with its graphs in one table, by their handles and those of their
 * nodes (graph-source.h). An entry is made when something happens to a graph or a node. Entries of
 * handles that are gone do no harm: changes are only compared with what comes later. Where there
 * are too many, those that only say when something was changed go, and everything before counts as
 * changed.
 */

#include "graph-source.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "graph-kernel.h"
#include "graph-pair.h"

#define BUCKETS 4096
#define ENTRIES_MAX 65536

struct entry {
	struct entry *next;
	driver_handle handle; /* of a graph or a node */
	uint64_t changed, attributes_changed; /* numbers; 0: never */
	unsigned uses; /* of a graph, by executable graphs */
	bool destroyed; /* as the application knows; it is not, as long as it is used */
	bool has_objects;
	driver_handle *bodies; /* of a conditional node */
	size_t body_count;
};

static pthread_mutex_t reader = PTHREAD_MUTEX_INITIALIZER; /* the thread that reads graphs has it */
static bool reading; /* changes wait */
static unsigned changing; /* threads: nothing is read */
static __thread bool reads; /* this thread does: a signal handler waits for nothing */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around the table; held for no call */
static struct entry *buckets[BUCKETS];
static size_t count, conditional_count;
static uint64_t last_number;
static uint64_t forgotten; /* changes up to this number are not known any more */

uint64_t graph_source_number(void) {
	return __atomic_add_fetch(&last_number, 1, __ATOMIC_SEQ_CST);
}

/* ---- the table, with the lock held ---------------------------------------------------- */

static struct entry **link_of(driver_handle handle) {
	struct entry **link =
		&buckets[((uintptr_t)handle >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 52];

	while (*link && (*link)->handle != handle)
		link = &(*link)->next;
	return link;
}

static void take_off(struct entry **link) {
	struct entry *entry = *link;

	*link = entry->next;
	conditional_count -= entry->bodies != NULL;
	count--;
	free(entry->bodies);
	free(entry);
}

/* Entries that only say when something was changed go. */
static void prune(void) {
	forgotten = graph_source_number();
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct entry **link = &buckets[i]; *link;) {
			if ((*link)->uses || (*link)->has_objects || (*link)->bodies)
				link = &(*link)->next;
			else
				take_off(link);
		}
}

/* NULL: no memory. */
static struct entry *get(driver_handle handle) {
	struct entry **link, *entry;

	if (count >= ENTRIES_MAX)
		prune();
	link = link_of(handle);
	if (*link)
		return *link;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	entry->handle = handle;
	*link = entry;
	count++;
	return entry;
}

/* ---- changes -------------------------------------------------------------------------- */

static void change(driver_handle handle, bool attributes) {
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = get(handle);
	if (!entry)
		forgotten = graph_source_number();
	else if (attributes)
		entry->attributes_changed = graph_source_number();
	else
		entry->changed = graph_source_number();
	pthread_mutex_unlock(&lock);
}

static void begin_change(void) {
	for (;;) {
		__atomic_add_fetch(&changing, 1, __ATOMIC_SEQ_CST);
		if (__builtin_expect(!__atomic_load_n(&reading, __ATOMIC_SEQ_CST), 1) || reads)
			return;
		__atomic_sub_fetch(&changing, 1, __ATOMIC_SEQ_CST);
		pthread_mutex_lock(&reader);
		pthread_mutex_unlock(&reader);
	}
}

void graph_source_change(driver_handle changed) {
	begin_change();
	change(changed, false);
}

void graph_source_change_attributes(driver_handle node) {
	begin_change();
	change(node, true);
}

void graph_source_change_end(void) {
	__atomic_sub_fetch(&changing, 1, __ATOMIC_SEQ_CST);
}

bool graph_source_read(void) {
	if (pthread_mutex_trylock(&reader) != 0)
		return false;
	reads = true;
	__atomic_store_n(&reading, true, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&changing, __ATOMIC_SEQ_CST))
		return true;
	graph_source_read_end();
	return false;
}

void graph_source_read_end(void) {
	__atomic_store_n(&reading, false, __ATOMIC_SEQ_CST);
	reads = false;
	pthread_mutex_unlock(&reader);
}

static bool is_changed(driver_handle handle, uint64_t since, bool attributes) {
	const struct entry *entry;
	bool changed;

	pthread_mutex_lock(&lock);
	entry = *link_of(handle);
	changed = forgotten > since ||
		  (entry && (attributes ? entry->attributes_changed : entry->changed) > since);
	pthread_mutex_unlock(&lock);
	return changed;
}

bool graph_source_is_changed(driver_handle handle, uint64_t since) {
	return is_changed(handle, since, false);
}

bool graph_source_attributes_changed(driver_handle node, uint64_t since) {
	return is_changed(node, since, true);
}

/* ---- destruction ---------------------------------------------------------------------- */

bool graph_source_use(driver_handle graph) {
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = get(graph);
	if (entry)
		entry->uses++;
	pthread_mutex_unlock(&lock);
	return entry;
}

/* The graphs in a conditional node, which is about to go; to be freed. */
static driver_handle *take_bodies(driver_handle node, size_t *number) {
	driver_handle *bodies = NULL;
	struct entry **link;

	*number = 0;
	pthread_mutex_lock(&lock);
	link = link_of(node);
	if (*link && (*link)->bodies) {
		bodies = (*link)->bodies;
		*number = (*link)->body_count;
		(*link)->bodies = NULL;
		(*link)->body_count = 0;
		conditional_count--;
	}
	pthread_mutex_unlock(&lock);
	return bodies;
}

static void forget_node(driver_handle node, unsigned depth);

/* Conditional nodes in it are about to go: their handles may come again. */
static void forget_bodies(driver_handle graph, unsigned depth) {
	const struct driver *driver = driver_own();
	size_t number = 0;
	driver_handle *nodes;

	if (!__atomic_load_n(&conditional_count, __ATOMIC_RELAXED) || depth > GRAPH_DEPTH_MAX ||
	    !driver || !driver->graph_get_nodes || !driver->graph_node_get_type)
		return;
	nodes = graph_nodes(graph, &number);
	for (size_t i = 0; nodes && i < number; i++)
		forget_node(nodes[i], depth + 1);
	free(nodes);
}

static void forget_node(driver_handle node, unsigned depth) {
	const struct driver *driver = driver_own();
	driver_handle *bodies, child;
	size_t number;
	int type;

	if (driver->graph_node_get_type(node, &type) != 0)
		return;
	if (type == NODE_TYPE_CONDITIONAL) {
		bodies = take_bodies(node, &number);
		for (size_t i = 0; i < number; i++)
			forget_bodies(bodies[i], depth);
		free(bodies);
	} else if (type == NODE_TYPE_GRAPH && driver->graph_child &&
		   driver->graph_child(node, &child) == 0) {
		forget_bodies(child, depth);
	}
}

void graph_source_node_ends(driver_handle node) {
	const struct driver *driver = driver_own();

	if (__atomic_load_n(&conditional_count, __ATOMIC_RELAXED) && driver &&
	    driver->graph_get_nodes && driver->graph_node_get_type)
		forget_node(node, 0);
}

void graph_source_unuse(driver_handle graph) {
	struct entry **link;
	bool destroy = false;

	pthread_mutex_lock(&lock);
	link = link_of(graph);
	if (*link && (*link)->uses && !--(*link)->uses && (*link)->destroyed) {
		destroy = true;
		take_off(link);
	}
	pthread_mutex_unlock(&lock);
	if (destroy) {
		forget_bodies(graph, 0);
		driver_own()->graph_destroy(graph);
	}
}

enum graph_destroy graph_source_destroy(driver_handle graph) {
	enum graph_destroy what = GRAPH_DESTROY_NOW;
	struct entry **link;

	pthread_mutex_lock(&lock);
	link = link_of(graph);
	if (*link && (*link)->destroyed)
		what = GRAPH_DESTROY_AGAIN;
	else if (*link && (*link)->uses)
		what = (*link)->has_objects ? GRAPH_DESTROY_LOST : GRAPH_DESTROY_LATER;
	if (what == GRAPH_DESTROY_LATER)
		(*link)->destroyed = true;
	else if (what != GRAPH_DESTROY_AGAIN && *link)
		take_off(link);
	pthread_mutex_unlock(&lock);
	if (what == GRAPH_DESTROY_NOW || what == GRAPH_DESTROY_LOST)
		forget_bodies(graph, 0);
	return what;
}

void graph_source_has_objects(driver_handle graph) {
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = get(graph);
	if (entry)
		entry->has_objects = true;
	pthread_mutex_unlock(&lock);
}

/* ---- conditional nodes ---------------------------------------------------------------- */

void graph_source_note_bodies(driver_handle node, driver_handle const *bodies, size_t number) {
	driver_handle *copy = calloc(number + 1, sizeof(*copy));
	struct entry *entry;

	if (!copy)
		return;
	if (number)
		memcpy(copy, bodies, number * sizeof(*copy));
	pthread_mutex_lock(&lock);
	entry = get(node);
	if (entry) {
		conditional_count += !entry->bodies;
		free(entry->bodies);
		entry->bodies = copy;
		entry->body_count = number;
	}
	pthread_mutex_unlock(&lock);
	if (!entry)
		free(copy);
}

const driver_handle *graph_source_bodies(driver_handle node, size_t *number) {
	const struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = *link_of(node);
	*number = entry ? entry->body_count : 0;
	pthread_mutex_unlock(&lock);
	return entry ? entry->bodies : NULL;
}
