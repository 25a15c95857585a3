/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes the rings of traced processes and reads them (shim-ring.h).
 *
 * Reading rings. Positions and losses are the daemon's own; of the memory it believes nothing: a
 * head that is too far, a record that does not fit, or one that ring_take() finds wrong ends the
 * ring of that process with one line in the log, and it gets no other one.
 *
 * A ring is sparse, so its size costs nothing before threads use their slots, but it is charged to
 * the user in full: those who would have more than RING_USER_BYTES_MAX get fewer slots. A slot that
 * its thread left is free again when all of it has been read.
 *
 * What a turn takes is bounded by bytes, and by time: the process chooses what its records cost. A
 * ring that has no time left has used up its bytes, too.
 *
 * Threads are told as the daemon sees them. In a process with a pid namespace of its own they call
 * themselves otherwise; NSpid of /proc/PID/task/TID/status tells which is which as long as they
 * live. One that ended before its first record was read keeps its own number. One that comes while
 * they may not be read again, as a process has many threads, or tells of such as it does not have,
 * keeps it for a while.
 */

#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpuprobed/settings/config.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/image/process.h"
#include "daemon/gpuprobed/trace/source/source.h"
#include "shim-ring-private.h"
#include "daemon/gpuprobed/wire/shim-server.h"

#define RING_BYTES_MAX (UINT64_C(256) << 20)
#define RING_USER_BYTES_MAX (UINT64_C(16) << 30)
#define RING_SLOTS_MIN 16
#define RING_BUDGET    \
	((uint64_t)512 \
	 << 10) /* bytes of a ring in one turn: between turns clients are written to */
#define RINGS_BUDGET ((uint64_t)2 << 20) /* of all rings */
#define RING_TIME_NS UINT64_C(2000000)
#define RINGS_TIME_NS UINT64_C(4000000)
#define RING_LAST_BUDGET ((uint64_t)64 << 20) /* at the end, of all: what is behind is counted */
#define RING_LAST_COUNTED \
	(UINT64_C(1) << 21) /* records: what is behind these is a loss of unknown number */
#define RING_LAST_NS UINT64_C(20000000)
#define RINGS_LAST_NS UINT64_C(80000000)
#define RING_CLOCK_RECORDS 16 /* between two looks at the clock */
#define RING_TIDS_NS UINT64_C(20000000) /* reading its threads takes so long at most */
#define RING_TIDS_PAUSE 9 /* times as long as that took */
#define RING_SCAN_NS UINT64_C(50000000) /* for slots that were never used */
#define RING_LOST_MAX (UINT64_C(1) << 40) /* in one turn */
#define RING_UNREAD_MAX (UINT64_C(1) << 32)

/* ---- threads ---- */

/* The number by which a process (or thread) calls itself, in the innermost namespace; 0: the same
 * as ours. */
static uint32_t read_inner_pid(const char *path) {
	FILE *file = fopen(path, "re");
	char line[256], *end;
	uint32_t inner = 0;

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "NSpid:\t", 7) == 0) {
			const char *last = strrchr(line, '\t');

			if (last > line + 6)
				inner = (uint32_t)strtoul(last + 1, &end, 10);
			break;
		}
	if (file)
		fclose(file);
	return inner;
}

static void ring_read_tids(struct shim_ring *ring) {
	const uint64_t began = monotonic_now();
	uint64_t now = began;
	char path[300];
	struct dirent *entry;
	DIR *folder;

	free(ring->tids);
	ring->tids = NULL;
	ring->n_tids = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)ring->pid);
	folder = opendir(path);
	while (folder && now - began < RING_TIDS_NS && (entry = readdir(folder))) {
		uint32_t *grown;

		if (entry->d_name[0] == '.')
			continue;
		grown = realloc(ring->tids, (ring->n_tids + 1) * 2 * sizeof(*grown));
		if (!grown)
			break;
		ring->tids = grown;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)ring->pid,
			 entry->d_name);
		grown[2 * ring->n_tids] = read_inner_pid(path);
		grown[2 * ring->n_tids + 1] = (uint32_t)strtoul(entry->d_name, NULL, 10);
		ring->n_tids++;
		now = monotonic_now();
	}
	if (folder)
		closedir(folder);
	ring->tids_next = now + RING_TIDS_PAUSE * (now - began);
}

uint32_t ring_tid(struct shim_ring *ring, uint32_t raw) {
	if (!ring->foreign)
		return raw;
	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < ring->n_tids; i++)
			if (ring->tids[2 * i] == raw)
				return ring->tids[2 * i + 1];
		if (again || uv_now(ring->table->shared.loop) == ring->tids_read ||
		    monotonic_now() < ring->tids_next)
			break;
		ring->tids_read = uv_now(ring->table->shared.loop);
		ring_read_tids(ring);
	}
	return raw;
}

/* ---- options ---- */

static uint32_t session_flags(const struct trace_options *options) {
	return (options->extras ? TRACE_RING_EXTRAS : 0) | (options->gpu ? TRACE_RING_GPU : 0) |
	       (options->cupti ? TRACE_RING_CUPTI : 0) | (options->stacks ? TRACE_RING_STACKS : 0);
}

/*
 * Adds what a session asks for to what the process records. It looks again when the page with the
 * rules changes, as it does after this; what has a beginning there (TRACE_RING_AT_ONCE) it takes
 * from a new ring only.
 */
static void ring_widen(struct shim_ring *ring, const struct trace_options *options) {
	struct trace_ring *header = ring->header;
	uint64_t least;

	ring->flags |= session_flags(options);
	ring->flags &= options->errors ? UINT32_MAX : ~(uint32_t)TRACE_RING_ERRORS;
	ring->min_duration = options->min_duration < ring->min_duration ? options->min_duration
									: ring->min_duration;
	ring->sample = !ring->sample || ring->sample == options->sample ? options->sample : 1;
	least = ring->tsc ? tsc_clock_steps(&ring->table->tsc, ring->min_duration)
			  : ring->min_duration;
	for (size_t k = 0; k < TRACE_FUNCTION_MAX / 64; k++) {
		ring->functions_wanted[k] |= options->functions[k];
		__atomic_store_n(&header->functions[k], ring->functions_wanted[k],
				 __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&header->flags, ring->flags, __ATOMIC_SEQ_CST);
	__atomic_store_n(&header->min_duration, least, __ATOMIC_SEQ_CST);
	__atomic_store_n(&header->sample, ring->sample, __ATOMIC_SEQ_CST);
}

/* Writes what sessions want, all together: before the process gets the ring. */
static void ring_configure(struct shim_ring *ring, unsigned int sessions) {
	struct trace_ring *header = ring->header;

	ring->flags = TRACE_RING_ERRORS;
	ring->min_duration = UINT64_MAX;
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
		if (sessions >> i & 1)
			ring_widen(ring, ring->table->sessions[i]->options);
	if (ring->table->shared.config && (*ring->table->shared.config)->cupti)
		strncpy(header->cupti, (*ring->table->shared.config)->cupti,
			sizeof(header->cupti) - 1);
	__atomic_store_n(&header->enabled, 1, __ATOMIC_RELEASE);
}

/* Whether the process can record all that the session asks for without a new ring. CUPTI learns at
 * its beginning of which functions there are to be times. */
static bool ring_suffices(const struct shim_ring *ring, const struct trace_options *options) {
	for (size_t k = 0;
	     k < TRACE_FUNCTION_MAX / 64 && options->gpu && ring->flags & TRACE_RING_CUPTI; k++)
		if (options->functions[k] & ~ring->functions_wanted[k])
			return false;
	return !(session_flags(options) & ~ring->flags & TRACE_RING_AT_ONCE);
}

/* ---- reading ---- */

struct ring_budget {
	uint64_t bytes; /* of records that are taken */
	uint64_t end; /* of budget_now(): none are left then */
	unsigned int taken; /* records */
	bool last; /* nothing may remain: it is counted */
	uint64_t counted; /* how many records may be */
};

/* What is not read the last time is lost: that is not to depend on what else the machine does, so
 * the time is that which this thread gets. */
static uint64_t budget_now(bool last) {
	struct timespec now;

	if (!last || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
		return monotonic_now();
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Of all rings. */
static struct ring_budget rings_budget(bool last) {
	return (struct ring_budget){ .bytes = last ? RING_LAST_BUDGET : RINGS_BUDGET,
				     .end = budget_now(last) +
					    (last ? RINGS_LAST_NS : RINGS_TIME_NS),
				     .last = last,
				     .counted = last ? RING_LAST_COUNTED : 0 };
}

static void budget_look(struct ring_budget *budget) {
	if (budget->bytes && budget_now(budget->last) >= budget->end)
		budget->bytes = 0;
}

static struct trace_slot *ring_slot_at(const struct shim_ring *ring, uint32_t i) {
	return (void *)((unsigned char *)ring->header + ring->slots_offset +
			(uint64_t)i * ring->slot_stride);
}

static void ring_lost(struct shim_ring *ring, uint32_t tid, uint64_t count) {
	struct trace_session *session;

	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++)
		trace_session_lost(session, TRACE_SOURCE_SHIM, (uint32_t)ring->pid, tid, count);
}

/* Whose records come now. */
static void ring_slot_thread(struct shim_ring *ring, struct ring_slot *slot, uint32_t raw_tid) {
	if (slot->raw_tid != raw_tid || !slot->tid || slot->guessed) {
		const uint32_t tid = ring_tid(ring, raw_tid);

		if (slot->raw_tid != raw_tid || slot->tid != tid)
			slot->announced = 0;
		slot->raw_tid = raw_tid;
		slot->tid = tid;
		slot->guessed = ring->foreign && tid == raw_tid;
	}
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
		if (ring->sessions >> i & 1 & ~(slot->announced >> i))
			trace_session_thread(ring->table->sessions[i], ring->pid, (pid_t)slot->tid);
	slot->announced |= ring->sessions;
}

/* Takes what lies before head, as far as the budget goes. NULL, or one line: a lie. */
static const char *ring_slot_read(struct shim_ring *ring, struct ring_slot *slot,
				  const unsigned char *data, uint64_t head,
				  struct ring_budget *budget, uint64_t now) {
	union {
		struct trace_ring_record record;
		uint64_t first;
		unsigned char bytes[TRACE_RING_RECORD_MAX];
	} copy;
	const uint64_t mask = ring->slot_bytes - 1;
	uint64_t lost = 0;

	while (slot->tail != head) {
		const unsigned char *at = data + (slot->tail & mask);
		uint64_t room = ring->slot_bytes - (slot->tail & mask);
		const char *why = NULL;
		size_t size;

		if (!budget->bytes && !budget->last)
			break;
		if (!budget->bytes && !budget->counted) {
			lost++;
			slot->tail = head;
			break;
		}
		copy.first = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
		size = copy.record.size;
		room = room < head - slot->tail ? room : head - slot->tail;
		if (size < sizeof(copy.record) || size % 8 || size > room)
			return "a record of a wrong size";
		if (budget->bytes) {
			if (copy.record.type != TRACE_RING_PAD) {
				if (size > sizeof(copy))
					return "a record of a wrong size";
				memcpy(copy.bytes + 8, at + 8, size - 8);
				why = ring_take(ring, slot, &copy.record, now);
			}
			budget->bytes -= size < budget->bytes ? size : budget->bytes;
			if (++budget->taken % RING_CLOCK_RECORDS == 0)
				budget_look(budget);
		} else {
			budget->counted--;
			lost += copy.record.type == TRACE_RING_CALL ||
				copy.record.type == TRACE_RING_KERNEL;
		}
		if (why)
			return why;
		slot->tail += size;
	}
	ring_lost(ring, slot->tid, lost);
	return NULL;
}

/* One slot. As above; *loadp grows. */
static const char *ring_slot_drain(struct shim_ring *ring, uint32_t i, struct ring_budget *budget,
				   enum shim_rings_load *loadp) {
	struct trace_slot *shared = ring_slot_at(ring, i);
	struct ring_slot *slot = &ring->slots[i];
	uint32_t state = __atomic_load_n(&shared->state, __ATOMIC_ACQUIRE),
		 expected = TRACE_SLOT_LEFT;
	uint64_t head = __atomic_load_n(&shared->head, __ATOMIC_ACQUIRE), lost,
		 n = head - slot->tail;
	const char *why = NULL;

	if (state == TRACE_SLOT_FREE && !n)
		return NULL;
	if (state > TRACE_SLOT_LEFT)
		return "a slot in an unknown state";
	if (n > ring->slot_bytes || n % 8)
		return "a head that is too far";
	if (i >= ring->n_seen)
		ring->n_seen = i + 1;
	lost = __atomic_load_n(&shared->lost, __ATOMIC_RELAXED);
	if (lost - slot->lost > RING_LOST_MAX)
		return "losses that were none";
	if (n || lost != slot->lost)
		ring_slot_thread(ring, slot, __atomic_load_n(&shared->tid, __ATOMIC_RELAXED));
	if (n) {
		if (*loadp < SHIM_RINGS_BUSY)
			*loadp = n > ring->slot_bytes / 8 ? SHIM_RINGS_BUSY : SHIM_RINGS_SOME;
		/* the clock is read after head: what lies before that is not of the future, however
		 * long this thread has stood still */
		why = ring_slot_read(ring, slot, (const unsigned char *)(shared + 1), head, budget,
				     ring->tsc ? tsc_now() : monotonic_now());
		__atomic_store_n(&shared->tail, slot->tail, __ATOMIC_RELEASE);
	}
	if (n || lost != slot->lost)
		budget_look(budget); /* a new thread costs more than a record */
	ring_lost(ring, slot->tid, lost - slot->lost);
	slot->lost = lost;
	if (!why && state == TRACE_SLOT_LEFT && slot->tail == head) {
		slot->tid = 0; /* the next thread may have the same number */
		__atomic_compare_exchange_n(&shared->state, &expected, TRACE_SLOT_FREE, false,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
	return why;
}

/* Reads all slots, or stops when its budget is used up, unless it is the last time. What it read is
 * taken from that of all rings, too. NULL or one line. */
static const char *ring_read(struct shim_ring *ring, struct ring_budget *all,
			     enum shim_rings_load *loadp) {
	uint64_t now = monotonic_now(), had = all->last ? all->bytes : RING_BUDGET, homeless;
	struct ring_budget budget = { .bytes = had,
				      .end = budget_now(all->last) +
					     (all->last ? RING_LAST_NS : RING_TIME_NS),
				      .last = all->last,
				      .counted = all->counted };
	uint32_t n = ring->n_seen + 4;
	const char *why = NULL;

	__atomic_store_n(&ring->header->heartbeat, now, __ATOMIC_RELAXED);
	if (all->last || now - ring->last_scan >= RING_SCAN_NS) {
		ring->last_scan = now;
		n = ring->slot_count;
	}
	n = n < ring->slot_count ? n : ring->slot_count;
	for (uint32_t k = 0; k < n && !why && (budget.bytes || all->last); k++) {
		ring->next = ring->next < n ? ring->next : 0;
		why = ring_slot_drain(ring, ring->next, &budget, loadp);
		ring->next++; /* the next turn goes on behind the slot where this one stopped, which
				 may be full again */
	}
	if (!budget.bytes)
		*loadp = SHIM_RINGS_BUSY;
	all->bytes -= had - budget.bytes < all->bytes ? had - budget.bytes : all->bytes;
	all->counted = budget.counted;
	budget_look(all);
	homeless = __atomic_load_n(&ring->header->homeless, __ATOMIC_RELAXED);
	if (!why && homeless - ring->homeless > RING_LOST_MAX)
		why = "losses that were none";
	if (!why)
		ring_lost(ring, 0, homeless - ring->homeless);
	ring->homeless = homeless;
	return why;
}

/* ---- rings ---- */

static void ring_free(struct shim_ring *ring) {
	LIST_REMOVE(ring, link);
	ring->table->n_rings--;
	munmap(ring->header, ring->size);
	fd_close(ring->fd);
	number_map_free(&ring->names);
	for (size_t i = 0; i < SHIM_DEVICES_MAX; i++)
		free(ring->clocks[i]);
	free(ring->pending);
	free(ring->tids);
	free(ring->slots);
	free(ring);
}

static void ring_set_shim(const struct shim_ring *ring, struct trace_session *session, bool shim) {
	struct trace_member *member = session_member(session, ring->pid);
	const struct shim_ring *other;

	/* not if it has another one by now */
	LIST_FOREACH(other, &ring->table->rings, link)
		shim = shim || (other != ring && other->pid == ring->pid && !other->retired &&
				other->sessions >> session->index & 1);
	if (member)
		member->shim = shim;
#if TRACE_HAS_UPROBE
	if (session->uprobe)
		trace_uprobe_exclude(session->uprobe, ring->pid, shim);
#endif
}

/* What a session has of the ring is all that it gets: launches that have no times by now get none.
 */
static void ring_tell_unread(const struct shim_ring *ring, struct trace_session *session) {
	const uint64_t unread = __atomic_load_n(&ring->header->unread, __ATOMIC_RELAXED) -
				ring->unread[session->index];

	if (session->options->gpu &&
	    unread <= RING_UNREAD_MAX) /* those that it found may have got theirs */
		trace_session_unknown_ends(session, (uint32_t)ring->pid, unread);
}

/* Nobody reads it any more: the process is told, and its connections are closed, with the last of
 * which the ring goes. */
static void ring_end(struct shim_ring *ring) {
	struct trace_session *session;

	__atomic_store_n(&ring->header->enabled, 0, __ATOMIC_RELEASE);
	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++)
		ring_set_shim(ring, session, false);
	ring->sessions = 0;
	while (ring->n_connections > 1)
		shim_connection_close(ring->connections[0]);
	shim_connection_close(ring->connections[0]); /* frees it: shim_rings_closed() */
}

/* The process has lied: it loses its ring. */
static void ring_refuse(struct shim_ring *ring, const char *why) {
	struct trace_table *table = ring->table;

	trace_table_warn(table, ring->pid, "its trace is broken (%s), it is not traced any more",
			 why);
	table->liars[table->n_liars % 64].pid = ring->pid;
	table->liars[table->n_liars++ % 64].start_time = ring->start_time;
	ring_lost(ring, 0, 1); /* how many there were is not known */
	ring_end(ring);
}

static uint64_t ring_stride(uint64_t slot_bytes) {
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (sizeof(struct trace_slot) + slot_bytes + page - 1) / page * page;
}

static uint64_t ring_size(uint64_t slots, uint64_t slot_bytes) {
	return (uint64_t)sysconf(_SC_PAGESIZE) + slots * ring_stride(slot_bytes);
}

/* What one process may have: *slotsp slots of *bytesp bytes. False: nothing. */
static bool ring_shape(const struct trace_table *table, uid_t uid, unsigned int sessions,
		       uint32_t *slotsp, uint32_t *bytesp) {
	uint64_t used = 0, wanted = 0, bytes = 4096, slots = TRACE_RING_SLOTS_MAX;
	const struct shim_ring *ring;

	LIST_FOREACH(ring, &table->rings, link)
		used += ring->uid == uid ? ring->size : 0;
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
		if (sessions >> i & 1 && table->sessions[i]->options->buffer > wanted)
			wanted = table->sessions[i]->options->buffer;
	while (bytes < wanted)
		bytes *= 2;
	while (slots > RING_SLOTS_MIN && (slots * bytes > RING_BYTES_MAX ||
					  used + ring_size(slots, bytes) > RING_USER_BYTES_MAX))
		slots /= 2;
	*slotsp = (uint32_t)slots;
	*bytesp = (uint32_t)bytes;
	return used + ring_size(slots, bytes) <= RING_USER_BYTES_MAX;
}

/* The memfd, made, mapped and sealed. 0 or -errno. */
static int ring_map(struct shim_ring *ring) {
	ring->slot_stride = (uint32_t)ring_stride(ring->slot_bytes);
	ring->slots_offset = (uint64_t)sysconf(_SC_PAGESIZE);
	ring->size = ring_size(ring->slot_count, ring->slot_bytes);
	ring->fd = memfd_new("gpuprobe-trace");
	if (ring->fd < 0)
		return ring->fd;
	if (ftruncate(ring->fd, (off_t)ring->size) < 0 ||
	    fcntl(ring->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	ring->header = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			    ring->fd, 0);
	if (ring->header == MAP_FAILED)
		return -errno;
	ring->header->version = TRACE_RING_VERSION;
	ring->header->clock = ring->tsc ? TRACE_RING_TSC : TRACE_RING_MONOTONIC;
	ring->header->slot_count = ring->slot_count;
	ring->header->slot_bytes = ring->slot_bytes;
	ring->header->slot_stride = ring->slot_stride;
	ring->header->slots_offset = ring->slots_offset;
	ring->header->heartbeat = monotonic_now();
	__atomic_store_n(&ring->header->magic, TRACE_RING_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

static int ring_new(struct shim_ring **ringp, struct trace_table *table,
		    const struct process *process, unsigned int sessions) {
	struct shim_ring *ring = calloc(1, sizeof(*ring));
	char path[64];
	int r;

	if (!ring)
		return -ENOMEM;
	ring->table = table;
	ring->pid = process->facts.pid;
	ring->start_time = process->facts.start_time;
	ring->number = process->number;
	ring->id = ++table->last_ring;
	ring->uid = process->uid;
	ring->tsc = table->tsc.usable;
	if (!ring_shape(table, ring->uid, sessions, &ring->slot_count, &ring->slot_bytes)) {
		free(ring);
		return -EDQUOT;
	}
	ring->slots = calloc(ring->slot_count, sizeof(*ring->slots));
	r = ring->slots ? ring_map(ring) : -ENOMEM;
	if (r < 0) {
		fd_close(ring->fd > 0 ? ring->fd : -1);
		free(ring->slots);
		free(ring);
		return r;
	}
	snprintf(path, sizeof(path), "/proc/%d/status", (int)ring->pid);
	ring->foreign = read_inner_pid(path) != 0;
	LIST_INSERT_HEAD(&table->rings, ring, link);
	table->n_rings++;
	*ringp = ring;
	return 0;
}

/* ---- processes ---- */

/* Sessions that mean the process now: mask. */
static unsigned int sessions_of(struct trace_table *table, const struct process *process,
				uint32_t ancestor) {
	unsigned int sessions = 0;

	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++) {
		struct trace_session *session = table->sessions[i];

		if (!session || session->finished || !session->options->shim)
			continue;
		session_forget_facts(session,
				     process->facts.pid); /* it may be another program by now */
		session_descends(session, process->facts.pid, (pid_t)ancestor);
		/* the rights it had when it connected count, too */
		if (trace_session_means(session, process->facts.pid) &&
		    (session->options->all_users || process->uid == session->options->caller))
			sessions |= 1U << i;
	}
	for (unsigned int i = 0; i < 64; i++)
		if (table->liars[i].pid == process->facts.pid &&
		    table->liars[i].start_time == process->facts.start_time)
			return 0;
	return sessions;
}

/* Sessions take part in what comes from now on. */
static void ring_join(struct shim_ring *ring, unsigned int sessions) {
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++) {
		if (!(sessions >> i & 1 & ~(ring->sessions >> i)))
			continue;
		ring_widen(ring, ring->table->sessions[i]->options);
		ring->unread[i] = __atomic_load_n(&ring->header->unread, __ATOMIC_RELAXED);
		ring_tell(ring, ring->table->sessions[i]);
		for (uint32_t k = 0; k < ring->slot_count;
		     k++) /* nothing of who had this number before */
			ring->slots[k].announced &= ~(1U << i);
		ring_set_shim(ring, ring->table->sessions[i], true);
	}
	ring->sessions |= sessions;
}

/* The process sees that it is over, and asks whether there is another one for it if the rules have
 * changed. */
static void ring_retire(struct shim_ring *ring) {
	ring->retired = true;
	__atomic_store_n(&ring->header->enabled, 0, __ATOMIC_RELEASE);
}

/* Connections may outlive their process, in those that were forked from it, and its number may be
 * another one's by then. */
static bool has_ended(const struct shim_connection *connection) {
	return pidfd_has_ended(connection->pidfd);
}

int shim_rings_ask(struct trace_table *table, const struct process *process, uint32_t ancestor,
		   struct shim_connection *connection, int *fdp, uint64_t *sizep) {
	unsigned int sessions = table->stopping || has_ended(connection)
					? 0
					: sessions_of(table, process, ancestor);
	struct shim_ring *ring;
	bool known = false;
	int r;

	*fdp = -1;
	*sizep = 0;
	if (!sessions)
		return 0;
	LIST_FOREACH(ring, &table->rings, link)
		if (ring->number == process->number && ring->sessions && !ring->retired)
			break;
	if (!ring) {
		r = ring_new(&ring, table, process, sessions);
		if (r < 0) {
			for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
				if (sessions >> i & 1)
					trace_session_lost(table->sessions[i], TRACE_SOURCE_SHIM,
							   (uint32_t)process->facts.pid, 0, 1);
			trace_table_warn(table, process->facts.pid, "no memory for its trace: %s",
					 strerror(-r));
			return 0;
		}
		ring_configure(ring, sessions);
	}
	for (unsigned int i = 0; i < ring->n_connections; i++)
		known = known || ring->connections[i] == connection;
	if (!known && ring->n_connections == RING_CONNECTIONS_MAX)
		return -EUSERS;
	ring_join(ring, sessions);
	if (!known) {
		shim_rings_closed(table, connection); /* for the ring that it was of before, which
							 is retired: a connection is of one only */
		ring->connections[ring->n_connections++] = connection;
	}
	*fdp = ring->fd;
	*sizep = ring->size;
	return 0;
}

/* Takes what there is to the end: nobody has anything of it any more. */
static void ring_finish(struct shim_ring *ring, int pidfd) {
	struct trace_session *session;
	struct ring_budget all = rings_budget(true);
	enum shim_rings_load load;
	const char *why;

	why = ring->sessions ? ring_read(ring, &all, &load) : NULL;
	if (why)
		trace_table_warn(ring->table, ring->pid, "its trace was broken when it ended (%s)",
				 why);
	ring_drop_pending(ring);
	if (!__atomic_load_n(&ring->header->taken, __ATOMIC_RELAXED))
		ring_lost(ring, 0, 1); /* it was told too late, and went on without; how many calls
					  it made is not known */
	__atomic_store_n(&ring->header->enabled, 0, __ATOMIC_RELEASE);
	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++) {
		ring_tell_unread(ring, session);
		ring_set_shim(ring, session, false);
		session_forget_facts(session, ring->pid);
		if (!ring->retired)
			session_watch_end(session, ring->pid, pidfd);
	}
	ring->sessions = 0;
}

/* The process is gone, or does not want to be traced any more. */
static void ring_closed(struct shim_ring *ring, const struct shim_connection *connection) {
	ring_finish(ring, connection->pidfd);
	ring_free(ring);
}

void shim_rings_look_at_processes(struct trace_table *table) {
	const uint64_t end = monotonic_now() + RINGS_LAST_NS;
	struct shim_ring *ring;

	LIST_FOREACH(ring, &table->rings, link) {
		if (!ring->sessions || !ring->n_connections || !has_ended(ring->connections[0]))
			continue;
		ring_finish(ring, ring->connections[0]->pidfd);
		if (monotonic_now() >= end)
			return; /* the others at the next look: their processes chose what reading
				   them costs */
	}
}

void shim_rings_closed(struct trace_table *table, const struct shim_connection *connection) {
	struct shim_ring *ring;

	LIST_FOREACH(ring, &table->rings, link)
		for (unsigned int i = 0; i < ring->n_connections; i++) {
			if (ring->connections[i] != connection)
				continue;
			ring->connections[i] = ring->connections[--ring->n_connections];
			if (!ring->n_connections)
				ring_closed(ring, connection);
			return;
		}
}

/* ---- sessions ---- */

static bool ring_may_have(const struct shim_ring *ring, struct trace_session *session) {
	return ring->sessions && !ring->retired && session->options->shim &&
	       trace_session_means(session, ring->pid) &&
	       (session->options->all_users || ring->uid == session->options->caller);
}

void shim_rings_join(struct trace_table *table, struct trace_session *session) {
	struct shim_ring *ring;

	LIST_FOREACH(ring, &table->rings, link)
		if (ring_may_have(ring, session) && ring_suffices(ring, session->options))
			ring_join(ring, 1U << session->index);
}

void shim_rings_replace(struct trace_table *table, struct trace_session *session) {
	struct shim_ring *ring;

	LIST_FOREACH(ring, &table->rings, link) {
		if (ring->sessions >> session->index & 1 || !ring_may_have(ring, session))
			continue;
		__atomic_or_fetch(
			&ring->header->flags, TRACE_RING_REPLACED,
			__ATOMIC_SEQ_CST); /* calls until then are counted in the next one */
		ring_retire(ring);
	}
}

void shim_rings_look_again(struct trace_table *table) {
	struct trace_session *session;
	struct shim_ring *ring;
	bool means;

	LIST_FOREACH(ring, &table->rings, link) {
		means = !ring->sessions || ring->retired;
		for (unsigned int i = 0; (session = ring_session(ring, &i)); i++)
			means = means || trace_session_means(session, ring->pid);
		if (!means)
			ring_retire(ring);
	}
}

void shim_rings_leave(struct trace_table *table, struct trace_session *session) {
	struct ring_budget all = rings_budget(true);
	struct shim_ring *ring, *next;
	enum shim_rings_load load;

	for (ring = LIST_FIRST(&table->rings); ring; ring = next) {
		next = LIST_NEXT(ring, link);
		if (!(ring->sessions >> session->index & 1))
			continue;
		if (ring->sessions == 1U << session->index)
			__atomic_store_n(&ring->header->enabled, 0, __ATOMIC_RELEASE);
		if (ring_read(ring, &all, &load)) {
			ring_refuse(ring, "found at the end of the trace");
			continue;
		}
		ring_tell_unread(ring, session);
		if (ring->sessions == 1U << session->index) {
			ring_drop_pending(ring);
			ring_end(ring);
			continue;
		}
		ring->sessions &= ~(1U << session->index);
		ring_set_shim(ring, session, false);
	}
}

enum shim_rings_load shim_rings_drain(struct trace_table *table) {
	enum shim_rings_load load = SHIM_RINGS_IDLE;
	struct ring_budget all = rings_budget(false);
	const uint64_t first = table->next_ring;
	struct shim_ring *ring, *next;

	/* rings have descending ids; who comes behind the last one that had its turn is first */
	for (int pass = 0; pass < 2; pass++)
		for (ring = LIST_FIRST(&table->rings); ring && all.bytes; ring = next) {
			const char *why;

			next = LIST_NEXT(ring, link);
			if (!ring->sessions || (ring->id >= first) != (pass == 1))
				continue;
			table->next_ring = ring->id;
			why = ring_read(ring, &all, &load);
			if (why)
				ring_refuse(ring, why);
		}
	return all.bytes ? load : SHIM_RINGS_BUSY;
}
