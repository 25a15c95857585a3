/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Gives nodes of executable graphs their twins (graph-twin.h).
 *
 * A launch looks for the record of its graph, without a lock, and compares one number: whether
 * twins have changed since all nodes got what they should have. Records stay in their list for
 * good, and are used again. They may do so because nobody destroys or changes an executable graph
 * while it is launched; that is the application's business.
 *
 * We do change it, and two threads may launch one graph. So a record counts the launches that are
 * on their way, and nodes are changed only while there is none; others wait for that.
 */

#include "graph-twin.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "graph-exec.h"
#include "graph-source.h"
#include "lib/base/clock.h"
#include "shim/base/cancel.h"
#include "shim/base/gate.h"
#include "shim/module/handles.h"
#include "shim/module/capture.h"
#include "shim/module/load.h"
#include "shim/module/twin-hold.h"
#include "shim/module/twin.h"

#define BUCKETS 1024
#define SLICE_US 2000 /* of our own work before a launch */
#define FIRST_US 250000 /* before the first one: it has just been made, which took as long */
#define SLICE_NODES 64 /* at least, however long they take: 1 ms or less */
#define AGAIN_US 1000 /* between looks while a twin is waited for, */
#define BUSY_US 50000 /* or while other threads launch the graph */
#define UPDATES_US 250000 /* of our own work after updates, in all, and */
#define UPDATES_SHARE 50 /* this part of the time since then; what is updated more often keeps */
#define CALM_US 1000000 /* originals until it has not been updated for so long */
#define LIST_WAIT_US 5000 /* for a moment in which graphs can be read */
#define REPORTS_MAX 3 /* tries to tell the daemon something */

/* How many nodes have one twin. */
struct held {
	uint64_t id;
	size_t count;
};

static const struct kernel_twin no_twin;

struct graph_record {
	struct graph_record *next;
	driver_handle handle; /* of the executable graph; NULL: not used */
	bool launched; /* once, at least */
	uint64_t settled; /* handles_twin_version for which there is nothing to do */
	uint64_t again_us; /* not before that */
	unsigned launching; /* threads */
	bool changing; /* one of the nodes: launches wait */
	pthread_mutex_t lock; /* around what follows, and while `changing` */
	struct graph_exec *exec;
	struct kernel_copy scratch;
	struct held *held;
	size_t held_count;
	size_t twins; /* nodes that have one */
	uint64_t pass; /* handles_twin_version that nodes before `at` are as it wants them */
	size_t at;
	bool waits; /* for a twin of one of them */
	bool busy; /* other threads did not let nodes be changed */
	unsigned reasons; /* to be told: a bit each */
	unsigned tries;
	int64_t made_us;
	int64_t updated_us; /* last; 0: never */
	int64_t spent_us; /* of our own work after updates */
};

static const char *const texts[GRAPH_REASON_COUNT] = {
	[GRAPH_REASON_UNREADABLE] = "kernels in a CUDA graph are launched without probes: the "
				    "driver does not say which parameters they have",
	[GRAPH_REASON_CHANGED] = "kernels in a CUDA graph are launched without probes: the graph "
				 "was changed after it was instantiated",
	[GRAPH_REASON_UPDATED] = "kernels in a CUDA graph are launched without probes: it was "
				 "updated in a way that cannot be followed",
	[GRAPH_REASON_OFTEN] = "kernels in a CUDA graph are launched without probes: it is updated "
			       "too often to give all of them theirs",
	[GRAPH_REASON_DEVICE] = "kernels in a CUDA graph are launched without probes: the device "
				"launches or changes them",
	[GRAPH_REASON_OBJECTS] = "kernels in a CUDA graph are launched without probes: the graph "
				 "has user objects and was destroyed",
	[GRAPH_REASON_BODIES] = "kernels in a CUDA graph are launched without probes: what is in "
				"a conditional node of it is not known",
	[GRAPH_REASON_REFUSED] = "kernels in a CUDA graph are launched without probes: the driver "
				 "does not take the probed kernel there",
	[GRAPH_REASON_STUCK] = "kernels in a CUDA graph keep their probes, which count nothing: "
			       "the driver does not take the original back",
};

static struct graph_record *buckets[BUCKETS];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER; /* around adding records */
static uint64_t said[GRAPH_REASON_COUNT]; /* of attachments as they were then */

static __thread bool inside; /* this thread has a lock of ours: a signal handler goes away */

static struct graph_record **bucket_of(driver_handle handle) {
	return &buckets[((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

static struct graph_record *find(driver_handle handle) {
	struct graph_record *record =
		handle ? __atomic_load_n(bucket_of(handle), __ATOMIC_ACQUIRE) : NULL;

	while (record && __atomic_load_n(&record->handle, __ATOMIC_ACQUIRE) != handle)
		record = record->next;
	return record;
}

/* What leave() puts back. */
struct entered {
	int cancel, error;
};

/* False: not in this thread now. */
static bool enter(struct entered *entered) {
	*entered = (struct entered){ .error = errno };
	if (inside || !driver_own())
		return false;
	inside = true;
	entered->cancel = cancel_forbid();
	return true;
}

static void leave(struct entered *entered) {
	cancel_allow(entered->cancel);
	inside = false;
	errno = entered->error;
}

/* The same around a record. */
static struct graph_record *enter_record(driver_handle handle, struct entered *entered) {
	struct graph_record *record = find(handle);

	if (!record || !enter(entered))
		return NULL;
	pthread_mutex_lock(&record->lock);
	return record;
}

static void leave_record(struct graph_record *record, struct entered *entered) {
	pthread_mutex_unlock(&record->lock);
	leave(entered);
}

/* ---- holds; with the record's lock held ------------------------------------------------ */

static struct held *held_of(struct graph_record *record, uint64_t id) {
	size_t i = 0;

	while (i < record->held_count && record->held[i].id != id)
		i++;
	return i < record->held_count ? &record->held[i] : NULL;
}

static bool hold(struct graph_record *record, uint64_t id) {
	struct held *held = held_of(record, id);

	if (!held) {
		held = reallocarray(record->held, record->held_count + 1, sizeof(*held));
		if (!held)
			return false;
		record->held = held;
		if (!twin_hold(id))
			return false;
		held += record->held_count++;
		*held = (struct held){ .id = id };
	}
	held->count++;
	record->twins++;
	return true;
}

static void release(struct graph_record *record, uint64_t id) {
	struct held *held = held_of(record, id);

	if (!held)
		return;
	record->twins--;
	if (--held->count)
		return;
	twin_release(id);
	*held = record->held[--record->held_count];
}

/* All nodes have their originals. */
static void release_all(struct graph_record *record) {
	while (record->held_count)
		twin_release(record->held[--record->held_count].id);
	record->twins = 0;
}

/* The application has given the node another kernel, or parameters for its original. */
static void lose_twin(struct graph_record *record, struct exec_node *node) {
	if (node->twin.function)
		release(record, node->twin_id);
	node->twin = no_twin;
}

/* ---- changing of nodes ------------------------------------------------------------------ */

static bool is_over(int64_t until_us) {
	return clock_us(CLOCK_MONOTONIC) >= until_us;
}

/* No thread launches the graph from now on. False: one does, and goes on for too long. */
static bool begin_change(struct graph_record *record) {
	int64_t until_us = clock_us(CLOCK_MONOTONIC) + SLICE_US;

	if (record->changing)
		return true;
	__atomic_store_n(&record->changing, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&record->launching, __ATOMIC_SEQ_CST)) {
		if (is_over(until_us)) {
			__atomic_store_n(&record->changing, false, __ATOMIC_SEQ_CST);
			record->busy = true;
			return false;
		}
		sched_yield();
	}
	return true;
}

static void end_change(struct graph_record *record) {
	__atomic_store_n(&record->changing, false, __ATOMIC_SEQ_CST);
}

static void note_reason(struct graph_record *record, enum graph_reason reason) {
	if (texts[reason])
		record->reasons |= 1u << reason;
}

/* Gives the node a twin, or (none) its original back. Inside of the gate. False: not now. */
static bool give(struct graph_record *record, struct exec_node *node,
		 const struct kernel_twin *twin, uint64_t id) {
	if (!begin_change(record))
		return false;
	if (twin->function && !hold(record, id))
		return true;
	if (kernel_copy_give(&node->copy, record->handle, node->node, twin) != 0) {
		note_reason(record, twin->function ? GRAPH_REASON_REFUSED : GRAPH_REASON_STUCK);
		if (!twin->function) {
			node->reason = GRAPH_REASON_STUCK;
			return true;
		}
		release(record, id);
		node->refused_id = id;
		return !node->twin.function || give(record, node, &no_twin, TWIN_HOLD_NONE);
	}
	if (node->twin.function)
		release(record, node->twin_id);
	node->twin = *twin;
	node->twin_id = id;
	node->twin_number = graph_source_number();
	return true;
}

/* How a node is launched. */
static struct twin_shape shape_of(const struct graph_record *record, const struct exec_node *node,
				  const struct kernel_copy *copy) {
	const driver_handle context = copy->node.context;
	struct twin_shape shape = {
		.function = copy->known,
		.context = context ? context : record->exec->context,
		.shared = copy->node.shared,
		.own = node->special,
	};

	memcpy(shape.grid, copy->node.grid, sizeof(shape.grid));
	memcpy(shape.block, copy->node.block, sizeof(shape.block));
	return shape;
}

/* The twin that a node is to have with these parameters, or none. Inside of the gate. */
static struct kernel_twin choose(const struct graph_record *record, const struct exec_node *node,
				 const struct kernel_copy *copy, uint64_t *id) {
	struct twin_shape shape = shape_of(record, node, copy);
	struct kernel_twin twin = { .node = (uint64_t)(node - record->exec->nodes) + 1 };

	twin.function = twin_choose_for_node(&shape, &twin.form, id);
	return twin.function == copy->known || *id == node->refused_id ? no_twin : twin;
}

/* What a node is to have, by its parameters and the twins of now. */
static bool apply(struct graph_record *record, struct exec_node *node) {
	struct kernel_twin twin;
	struct twin_shape shape;
	bool done = true;
	uint64_t id;

	if (node->twin.function && !twin_is_held(node->twin_id)) { /* its module was unloaded */
		lose_twin(record, node);
		node->reason = GRAPH_REASON_GONE;
	}
	if (node->reason) {
		note_reason(record, node->reason);
		return true;
	}
	shape = shape_of(record, node, &node->copy);
	if (!graph_exec_is_read(record->exec, node) || !node->copy.known ||
	    twin_is_awaited(&shape)) {
		record->waits = record->waits || twin_is_wanted();
		if (!node->twin.function || handles_twin_is_open(shape.function, shape.context))
			return true; /* else that twin may have to go now */
	}
	gate_enter();
	twin = choose(record, node, &node->copy, &id);
	if (twin.function != node->twin.function || (twin.function && id != node->twin_id))
		done = give(record, node, &twin, id);
	gate_leave();
	return done;
}

/* ---- slices; with the record's lock held ------------------------------------------------- */

/* Reads what nodes have. Returns up to which it is known. */
static size_t read_nodes(struct graph_record *record, int64_t until_us) {
	struct graph_exec *exec = record->exec;
	bool wanted = twin_is_wanted(), reading = false;
	size_t i, count = 0;

	if (!exec->listed) {
		if (!graph_source_read())
			return 0;
		reading = true;
		graph_exec_list(exec);
	}
	for (i = record->at; i < exec->count; i++) {
		struct exec_node *node = &exec->nodes[i];

		if (node->twin.function && node->twin_number < graph_exec_number(exec, node))
			node->twin = (struct kernel_twin){
				0
			}; /* an update brought originals: it is released */
		if (!wanted || graph_exec_is_read(exec, node))
			continue;
		if (!reading && !(reading = graph_source_read()))
			break;
		if (count++ >= SLICE_NODES && is_over(until_us))
			break;
		graph_exec_read(exec, node);
	}
	if (reading)
		graph_source_read_end();
	return i;
}

/* Has twins made for nodes, which may load some. What time does not suffice for is still awaited.
 */
static void prepare_nodes(struct graph_record *record, size_t end, int64_t until_us) {
	for (size_t i = record->at; i < end; i++) {
		const struct exec_node *node = &record->exec->nodes[i];

		struct twin_shape shape = shape_of(record, node, &node->copy);

		if (!node->copy.known || node->reason || !twin_is_awaited(&shape))
			continue;
		if (handles_twin_is_open(shape.function, shape.context) || !is_over(until_us))
			twin_prepare(&shape);
	}
}

static void apply_nodes(struct graph_record *record, size_t end, int64_t until_us) {
	for (size_t count = 0; record->at < end; count++) {
		if ((count >= SLICE_NODES && is_over(until_us)) ||
		    !apply(record, &record->exec->nodes[record->at]))
			break;
		record->at++;
	}
	if (record->changing)
		end_change(record);
}

/* One slice. Twins may come and go during that: then it begins anew with the next one. */
static void go_on(struct graph_record *record) {
	int64_t now_us = clock_us(CLOCK_MONOTONIC);
	int64_t slice_us =
		__atomic_load_n(&record->launched, __ATOMIC_RELAXED) ? SLICE_US : FIRST_US;
	size_t end, twins = record->twins;
	uint64_t version;

	__atomic_store_n(&record->again_us, (uint64_t)(now_us + AGAIN_US), __ATOMIC_RELAXED);
	end = read_nodes(record, now_us + slice_us / 2);
	if (!record->exec->listed) /* not now, or it is lost */
		return;
	prepare_nodes(record, end, now_us + slice_us);
	version = __atomic_load_n(&handles_twin_version, __ATOMIC_ACQUIRE);
	if (version != record->pass) {
		record->pass = version;
		record->at = 0;
		record->waits = false;
		record->tries = 0;
	}
	apply_nodes(record, end, clock_us(CLOCK_MONOTONIC) + slice_us);
	if (record->at < record->exec->count) {
		__atomic_store_n(&record->again_us, record->busy ? (uint64_t)(now_us + BUSY_US) : 0,
				 __ATOMIC_RELAXED);
		record->busy = false;
	} else {
		if (!record->waits)
			__atomic_store_n(&record->settled, version, __ATOMIC_RELEASE);
		record->at = 0;
		record->waits = false;
	}
	if (record->twins < twins && !record->twins)
		twin_released();
}

/* Tells the daemon what is not probed, once for the attachments of now. False: not all yet. */
static bool tell(struct graph_record *record) {
	uint64_t now = 1 + __atomic_load_n(&twin_seen[0], __ATOMIC_RELAXED) +
		       __atomic_load_n(&twin_seen[1], __ATOMIC_RELAXED);

	for (unsigned reason = 1; reason < GRAPH_REASON_COUNT; reason++) {
		if (!(record->reasons & 1u << reason))
			continue;
		if (__atomic_load_n(&said[reason], __ATOMIC_RELAXED) != now) {
			if (!twin_report(texts[reason]) && record->tries++ < REPORTS_MAX)
				continue;
			__atomic_store_n(&said[reason], now, __ATOMIC_RELAXED);
		}
		record->reasons &= ~(1u << reason);
	}
	return !record->reasons;
}

/* Gives all nodes their originals back, however long it takes, unless other threads launch it. */
static void restore(struct graph_record *record) {
	struct graph_exec *exec = record->exec;
	bool goes_on = true;

	for (size_t i = 0; i < exec->count && record->twins && goes_on; i++) {
		struct exec_node *node = &exec->nodes[i];

		if (!node->twin.function || node->twin_number < graph_exec_number(exec, node) ||
		    node->reason || !twin_is_held(node->twin_id))
			continue;
		gate_enter();
		goes_on = give(record, node, &no_twin, TWIN_HOLD_NONE);
		gate_leave();
	}
	if (record->changing)
		end_change(record);
}

/* Would twins make a program slower that updates the graph all the time? */
static bool is_dear(const struct graph_record *record, int64_t now_us) {
	return record->updated_us && now_us - record->updated_us < CALM_US &&
	       record->spent_us > UPDATES_US + (now_us - record->made_us) / UPDATES_SHARE;
}

/* With the record's lock held. */
static void look_locked(struct graph_record *record, int64_t now_us) {
	uint64_t version;

	version = __atomic_load_n(&handles_twin_version, __ATOMIC_ACQUIRE);
	if (!record->exec) {
		__atomic_store_n(&record->settled, version, __ATOMIC_RELEASE);
	} else if (capture_is_going_on()) {
		return;
	} else if (!twin_is_wanted() && !record->twins) {
		__atomic_store_n(&record->settled, version, __ATOMIC_RELEASE);
	} else {
		if (!record->twins && is_dear(record, now_us)) {
			note_reason(record, GRAPH_REASON_OFTEN);
			__atomic_store_n(&record->again_us,
					 (uint64_t)(record->updated_us + CALM_US),
					 __ATOMIC_RELAXED);
		} else if (!record->exec->lost) {
			go_on(record);
		}
		if (record->exec->lost) {
			note_reason(record, record->exec->lost);
			__atomic_store_n(&record->settled, version, __ATOMIC_RELEASE);
		}
		if (!tell(record))
			__atomic_store_n(&record->settled, UINT64_MAX, __ATOMIC_RELEASE);
	}
}

/* Calls of ours disturb no capture. */
static void look(struct graph_record *record) {
	const int64_t now_us = clock_us(CLOCK_MONOTONIC);
	int mode = DRIVER_CAPTURE_MODE_RELAXED;

	if (twin_needed())
		twin_prepare(NULL);
	if (pthread_mutex_trylock(&record->lock) != 0)
		return;
	driver_own()->exchange_capture_mode(&mode);
	look_locked(record, now_us);
	driver_own()->exchange_capture_mode(&mode);
	if (record->updated_us)
		record->spent_us += clock_us(CLOCK_MONOTONIC) - now_us;
	pthread_mutex_unlock(&record->lock);
}

/* ---- launches ----------------------------------------------------------------------------- */

static bool is_due(const struct graph_record *record) {
	uint64_t again_us;

	if (twin_needed())
		return true;
	if (__atomic_load_n(&record->settled, __ATOMIC_ACQUIRE) ==
	    __atomic_load_n(&handles_twin_version, __ATOMIC_ACQUIRE))
		return false;
	again_us = __atomic_load_n(&record->again_us, __ATOMIC_RELAXED);
	return !again_us || (uint64_t)clock_us(CLOCK_MONOTONIC) >= again_us;
}

struct graph_record *graph_twin_begin(driver_handle exec) {
	struct graph_record *record = find(exec);
	struct entered entered;

	if (!record)
		return NULL;
	if (is_due(record) && !gate_is_inside() && load_is_owner() && enter(&entered)) {
		look(record);
		leave(&entered);
	}
	if (!__atomic_load_n(&record->launched, __ATOMIC_RELAXED))
		__atomic_store_n(&record->launched, true, __ATOMIC_RELAXED);
	for (;;) {
		__atomic_add_fetch(&record->launching, 1, __ATOMIC_SEQ_CST);
		if (__builtin_expect(!__atomic_load_n(&record->changing, __ATOMIC_SEQ_CST), 1) ||
		    inside)
			return record;
		__atomic_sub_fetch(&record->launching, 1, __ATOMIC_SEQ_CST);
		pthread_mutex_lock(&record->lock);
		pthread_mutex_unlock(&record->lock);
	}
}

void graph_twin_end(struct graph_record *record) {
	if (record)
		__atomic_sub_fetch(&record->launching, 1, __ATOMIC_SEQ_CST);
}

/* ---- what the application does ------------------------------------------------------------ */

/* There may be something to do before the next launch. */
static void unsettle(struct graph_record *record) {
	record->at = 0;
	record->waits = false;
	__atomic_store_n(&record->again_us, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&record->settled, UINT64_MAX, __ATOMIC_RELEASE);
}

/* A record that is not used, or a new one; NULL: no memory. The table's lock is held. */
static struct graph_record *get_record(driver_handle handle) {
	struct graph_record **bucket = bucket_of(handle), *record = find(handle);

	for (struct graph_record *other = *bucket; other && !record; other = other->next)
		if (!other->handle)
			record = other;
	if (record)
		return record;
	record = calloc(1, sizeof(*record));
	if (!record)
		return NULL;
	pthread_mutex_init(&record->lock, NULL);
	record->next = *bucket;
	__atomic_store_n(bucket, record, __ATOMIC_RELEASE);
	return record;
}

void graph_twin_added(driver_handle handle, driver_handle graph, uint64_t number, bool device) {
	struct graph_exec *exec, *before = graph_twin_removing(handle); /* without our notice */
	struct graph_record *record;
	struct entered entered;

	graph_twin_removed(before);
	if (!enter(&entered))
		return;
	exec = graph_exec_new(graph, number);
	if (exec && driver_own()->ctx_get_current(&exec->context) != 0)
		exec->context = NULL;
	if (exec && device)
		graph_exec_lose(exec, GRAPH_REASON_DEVICE);
	pthread_mutex_lock(&table);
	record = exec ? get_record(handle) : NULL;
	if (record) {
		pthread_mutex_lock(&record->lock);
		record->exec = exec;
		unsettle(record);
		record->reasons = record->tries = 0;
		record->made_us = clock_us(CLOCK_MONOTONIC);
		record->updated_us = record->spent_us = 0;
		__atomic_store_n(&record->launched, false, __ATOMIC_RELAXED);
		__atomic_store_n(&record->handle, handle, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&record->lock);
	}
	pthread_mutex_unlock(&table);
	if (exec && !record)
		graph_exec_free(exec);
	leave(&entered);
}

struct graph_exec *graph_twin_removing(driver_handle handle) {
	struct entered entered;
	struct graph_record *record = enter_record(handle, &entered);
	struct graph_exec *exec;

	if (!record)
		return NULL;
	exec = record->exec;
	record->exec = NULL;
	release_all(record);
	__atomic_store_n(&record->handle, NULL, __ATOMIC_RELEASE);
	leave_record(record, &entered);
	return exec;
}

void graph_twin_removed(struct graph_exec *removed) {
	struct entered entered;

	if (!removed || !enter(&entered))
		return;
	graph_exec_free(removed);
	twin_released();
	leave(&entered);
}

bool graph_twin_update_again(driver_handle handle) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	struct entered entered;
	struct graph_record *record = enter_record(handle, &entered);
	bool had;

	if (!record)
		return false;
	had = record->exec && record->twins;
	if (had) {
		driver_own()->exchange_capture_mode(&mode);
		restore(record);
		driver_own()->exchange_capture_mode(&mode);
		unsettle(record);
	}
	leave_record(record, &entered);
	return had;
}

void graph_twin_updated(driver_handle handle, driver_handle graph, uint64_t number,
			driver_result result) {
	struct entered entered;
	struct graph_record *record;

	if (result == DRIVER_ERROR_GRAPH_UPDATE) /* it is as it was */
		return;
	record = enter_record(handle, &entered);
	if (!record)
		return;
	if (record->at && twin_is_wanted()) /* some nodes did not get theirs */
		note_reason(record, GRAPH_REASON_OFTEN);
	if (!result)
		release_all(record);
	if (record->exec && result)
		graph_exec_lose(record->exec, GRAPH_REASON_UPDATED);
	else if (record->exec)
		graph_exec_updated(record->exec, graph, number);
	record->updated_us = clock_us(CLOCK_MONOTONIC);
	unsettle(record);
	leave_record(record, &entered);
}

/* Lists nodes when no thread changes a graph; that is waited for, a moment. */
static bool list_surely(struct graph_exec *exec) {
	int64_t until_us = clock_us(CLOCK_MONOTONIC) + LIST_WAIT_US;

	while (!graph_source_read()) {
		if (is_over(until_us)) {
			graph_exec_lose(exec, GRAPH_REASON_CHANGED);
			return false;
		}
		sched_yield();
	}
	graph_exec_list(exec);
	graph_source_read_end();
	return !exec->lost;
}

/* The node's record, listed; NULL: nothing is known of the node. */
static struct exec_node *get_node(struct graph_record *record, driver_handle handle) {
	if (!record->exec || record->exec->lost)
		return NULL;
	if (!record->exec->listed && !list_surely(record->exec))
		return NULL;
	return graph_exec_find(record->exec, handle);
}

/* With the record's lock held. */
static bool give_with_twin(struct graph_record *record, struct exec_node *node,
			   const struct node_kernel *given, size_t size) {
	struct kernel_copy *copy = &record->scratch, before;
	uint64_t id, number = graph_source_number();
	bool done = false;

	if (!node || !node->twin.function || node->reason ||
	    node->twin_number < graph_exec_number(record->exec, node) ||
	    !graph_exec_is_read(record->exec, node) || twin_needed() || capture_is_going_on() ||
	    kernel_copy_take(copy, given, size) != KERNEL_COPIED)
		return false;
	gate_enter();
	if (choose(record, node, copy, &id).function == node->twin.function && id == node->twin_id)
		done = kernel_copy_give(copy, record->handle, node->node, &node->twin) == 0;
	gate_leave();
	if (!done)
		return false;
	before = node->copy;
	node->copy = *copy;
	*copy = before;
	node->number = number;
	return true;
}

bool graph_twin_node_give(driver_handle handle, driver_handle node, const struct node_kernel *given,
			  size_t size) {
	struct entered entered;
	struct graph_record *record;
	bool done;

	record = given && !gate_is_inside() ? enter_record(handle, &entered) : NULL;
	if (!record)
		return false;
	done = give_with_twin(record, get_node(record, node), given, size);
	leave_record(record, &entered);
	return done;
}

void graph_twin_node_set(driver_handle handle, driver_handle node, const struct node_kernel *given,
			 size_t size, uint64_t number) {
	struct entered entered;
	struct graph_record *record = enter_record(handle, &entered);
	struct exec_node *found;

	if (!record)
		return;
	found = get_node(record, node);
	if (found) {
		if (found->twin_number < graph_exec_number(record->exec, found))
			found->twin = no_twin;
		lose_twin(record, found);
		graph_exec_set(found, given, size, number);
	}
	unsettle(record);
	leave_record(record, &entered);
}

void graph_twin_node_given(driver_handle handle, driver_handle node, driver_handle graph,
			   uint64_t number) {
	struct entered entered;
	struct graph_record *record = enter_record(handle, &entered);
	struct graph_exec *exec;

	if (!record)
		return;
	get_node(record, node);
	exec = record->exec;
	for (size_t i = 0; exec && i < exec->count; i++) {
		struct exec_node *inner = &exec->nodes[i];

		if (!graph_exec_is_within(exec, inner, node))
			continue;
		if (inner->twin_number < graph_exec_number(exec, inner))
			inner->twin = no_twin;
		lose_twin(record, inner);
	}
	if (exec)
		graph_exec_given(exec, node, graph, number);
	unsettle(record);
	leave_record(record, &entered);
}

static void end_node(struct graph_record *record, driver_handle node) {
	struct exec_node *found = get_node(record, node);

	if (!found)
		return;
	restore(record);
	graph_exec_lose(record->exec, GRAPH_REASON_CHANGED); /* its handle is gone */
	unsettle(record);
}

/* All records that are used. With the table's lock and its own held. */
static void for_each(void (*act)(struct graph_record *, driver_handle), driver_handle handle) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	struct entered entered;

	if (!enter(&entered))
		return;
	driver_own()->exchange_capture_mode(&mode);
	pthread_mutex_lock(&table);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct graph_record *record = buckets[i]; record; record = record->next) {
			pthread_mutex_lock(&record->lock);
			if (record->exec)
				act(record, handle);
			pthread_mutex_unlock(&record->lock);
		}
	pthread_mutex_unlock(&table);
	driver_own()->exchange_capture_mode(&mode);
	leave(&entered);
}

void graph_twin_node_ends(driver_handle node) {
	for_each(end_node, node);
}

static void lose_graph(struct graph_record *record, driver_handle graph) {
	if (record->exec->lost || !graph_exec_uses(record->exec, graph))
		return;
	restore(record);
	graph_exec_lose(record->exec, GRAPH_REASON_OBJECTS);
	unsettle(record);
}

void graph_twin_graph_lost(driver_handle graph) {
	for_each(lose_graph, graph);
}
