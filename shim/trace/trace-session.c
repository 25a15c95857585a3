/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The session of a traced process: which threads use its memory, and its end (tracing.h). trace.c
 * decides when there is one.
 *
 * A session ends when the daemon says so in its memory, or reads no more while the ring is full.
 * First its number becomes 0: later calls keep out. Then all threads are made to see that
 * (membarrier), and the thread that finds nobody inside unmaps: this one, or the last that leaves.
 * Another session begins when that is done.
 *
 * The number lies in a page that the kernel zeroes in a forked child: that has no session, whether
 * or not libc knows of the fork. A signal handler may have forked while its thread was inside. Then
 * that thread goes on in the child, too: to the end of what it began it finds memory of its own in
 * the place of the parent's.
 */

#include "trace-session.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HOMELESS_TRIES 256 /* calls of a thread without a slot till it looks for one again */
#define OURS ((struct trace_frame *)UINTPTR_MAX) /* below it all frames lie */

/* The page that is zeros in a forked child. */
struct own {
	uint64_t number; /* of the session, or 0 */
	uint64_t here;
	uint8_t rest[4096 - 16];
};

enum {
	OWN_FRESH = 0, /* a child that libc has not told of the fork */
	OWN_KNOWN, /* its first call has seen that, */
	OWN_HERE, /* and what the parent had is forgotten */
};

static const uint64_t no_number;

const uint64_t *trace_number = &no_number;
static struct own *own;
struct trace_session trace_session;
struct trace_user trace_users[TRACE_USERS_MAX];
bool trace_ending, trace_fenced = true;
__thread struct trace_self trace_mine;
struct wire_client trace_client = WIRE_CLIENT_NONE;
static unsigned guests; /* threads that are inside without a slot */
static unsigned reapers; /* threads that are in trace_reap() */
static pthread_key_t key;
static bool has_key;

void trace_ignore_thread(void) {
	trace_mine.outermost = OURS;
}

void trace_hush(struct trace_hush *hush) {
	hush->error = errno;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &hush->cancel);
}

void trace_unhush(const struct trace_hush *hush) {
	pthread_setcancelstate(hush->cancel, NULL);
	errno = hush->error;
}

uint32_t trace_tid(void) {
	if (!trace_mine.tid)
		trace_mine.tid = (uint32_t)syscall(SYS_gettid);
	return trace_mine.tid;
}

bool trace_enter_guest(uint64_t number) {
	trace_mine.guest++;
	__atomic_add_fetch(&guests, 1, __ATOMIC_SEQ_CST);
	if (number && trace_session_number() == number)
		return true;
	trace_leave_guest();
	return false;
}

void trace_leave_guest(void) {
	__atomic_sub_fetch(&guests, 1, __ATOMIC_SEQ_CST);
	trace_mine.guest--;
	if (__atomic_load_n(&trace_ending, __ATOMIC_SEQ_CST))
		trace_reap();
}

static bool somebody_is_inside(void) {
	if (__atomic_load_n(&guests, __ATOMIC_SEQ_CST))
		return true;
	for (unsigned i = 0; i < TRACE_USERS_MAX; i++)
		if (__atomic_load_n(&trace_users[i].inside, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

/* A thread that comes while another one is here makes that one try again. */
void trace_reap(void) {
	struct trace_ring *ring;
	struct trace_hush hush;
	unsigned seen = 0;
	uint64_t size;

	if (__atomic_fetch_add(&reapers, 1, __ATOMIC_SEQ_CST))
		return;
	do {
		seen = __atomic_load_n(&reapers, __ATOMIC_SEQ_CST);
		if (!__atomic_load_n(&trace_ending, __ATOMIC_SEQ_CST) || somebody_is_inside())
			continue;
		ring = trace_session.ring;
		size = trace_session.size;
		trace_hush(&hush);
		wire_client_close(&trace_client); /* it need not be watched any more */
		trace_unhush(&hush);
		__atomic_store_n(&trace_ending, false, __ATOMIC_SEQ_CST);
		/* now another session may begin, and a child that is forked unmaps nothing; if this
		 * is one, it has done so */
		if (__atomic_compare_exchange_n(&trace_session.ring, &ring, NULL, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
		    ring)
			munmap(ring, size);
	} while (!__atomic_compare_exchange_n(&reapers, &seen, 0, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
}

/* All threads see what this one has written, and it sees what they have. */
static void fence_all(void) {
	if (!__atomic_load_n(&trace_fenced, __ATOMIC_RELAXED))
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

void trace_end_session(uint64_t number) {
	struct trace_hush hush;

	trace_hush(&hush); /* what is begun here is finished */
	if (number && __atomic_compare_exchange_n(&own->number, &number, 0, false, __ATOMIC_SEQ_CST,
						  __ATOMIC_SEQ_CST)) {
		fence_all(); /* a thread that has seen the number is seen to be inside, */
		__atomic_store_n(&trace_ending, true, __ATOMIC_SEQ_CST);
		fence_all(); /* and one that leaves is seen to have left, or sees the end */
		trace_reap();
	}
	trace_unhush(&hush);
}

/* A thread ends: its slot is another's once the daemon has read it. */
static void thread_ended(void *value) {
	struct trace_self *thread = value;

	if (thread->slot && trace_enter(thread, thread->session)) {
		__atomic_store_n(&thread->slot->state, TRACE_SLOT_LEFT, __ATOMIC_RELEASE);
		trace_leave(thread);
	}
	thread->slot = NULL;
	thread->session = 0;
	__atomic_store_n(&thread->user->taken, false, __ATOMIC_RELEASE);
	thread->user = NULL;
}

/*
 * In a child: lets the parent's memory go. inside: this thread is in the midst of writing there.
 * Returns whether there is memory for that, which goes when the thread leaves.
 */
static bool forget_ring(bool inside) {
	void *ring = trace_session.ring;

	if (inside && ring &&
	    mmap(ring, trace_session.size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == ring)
		return true;
	trace_session.ring = NULL;
	if (ring)
		munmap(ring, trace_session.size);
	return false;
}

void trace_session_forked(void) {
	bool inside = trace_mine.user && trace_mine.user->inside;

	if (!own)
		return;
	wire_client_close(&trace_client); /* or the daemon would not notice the end of the parent */
	memset(trace_users, 0, sizeof(trace_users));
	if (trace_mine.user)
		*trace_mine.user = (struct trace_user){ .inside = inside, .taken = true };
	*own = (struct own){ .here = OWN_HERE };
	guests = trace_mine.guest;
	reapers = 0;
	trace_ending = forget_ring(inside || guests);
	trace_mine.tid = 0;
}

bool trace_session_prepare(void) {
	void *page;

	if (own)
		return true;
	page = mmap(NULL, sizeof(*own), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return false;
	madvise(page, sizeof(*own), MADV_WIPEONFORK);
	has_key = pthread_key_create(&key, thread_ended) == 0;
	((struct own *)page)->here = OWN_HERE;
	__atomic_store_n(&own, page, __ATOMIC_RELEASE);
	__atomic_store_n(&trace_number, &own->number, __ATOMIC_RELEASE);
	return true;
}

uint64_t trace_session_begin(void) {
	static uint64_t last;

	__atomic_store_n(&own->number, ++last, __ATOMIC_SEQ_CST);
	return last;
}

bool trace_session_notice_fork(void) {
	struct own *page = __atomic_load_n(&own, __ATOMIC_ACQUIRE);
	uint64_t fresh = OWN_FRESH;

	return page && !__atomic_load_n(&page->here, __ATOMIC_ACQUIRE) &&
	       __atomic_compare_exchange_n(&page->here, &fresh, OWN_KNOWN, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

bool trace_session_has_parent(void) {
	return __atomic_load_n(&own->here, __ATOMIC_ACQUIRE) != OWN_HERE;
}

/* The first slot from `first` on that is free and in order becomes the thread's. */
static void claim_slot(struct trace_self *thread, uint32_t first) {
	const struct trace_session *session = &trace_session;

	for (uint32_t i = 0; i < session->slot_count; i++) {
		uint32_t index = (first + i) % session->slot_count;
		struct trace_slot *slot =
			(struct trace_slot *)(session->slots +
					      (uint64_t)index * session->slot_stride);
		uint32_t unused = TRACE_SLOT_FREE;

		if (!__atomic_compare_exchange_n(&slot->state, &unused, TRACE_SLOT_USED, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		thread->head = slot->head;
		thread->tail = __atomic_load_n(&slot->tail, __ATOMIC_ACQUIRE);
		if (thread->head % 8 || thread->head - thread->tail > session->slot_bytes)
			continue; /* it stays unused */
		slot->tid = trace_tid();
		thread->data = (uint8_t *)(slot + 1);
		thread->index = index;
		__atomic_signal_fence(
			__ATOMIC_SEQ_CST); /* a handler that finds the slot writes to it */
		thread->slot = slot;
		return;
	}
}

/* Gives the thread a user of its own, for as long as it lives. */
static bool has_user(struct trace_self *thread) {
	for (unsigned i = 0; !thread->user && i < TRACE_USERS_MAX; i++) {
		bool taken = false;

		if (!__atomic_load_n(&trace_users[i].taken, __ATOMIC_RELAXED) &&
		    __atomic_compare_exchange_n(&trace_users[i].taken, &taken, true, false,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			thread->user = &trace_users[i];
			if (has_key)
				pthread_setspecific(key, thread);
		}
	}
	return thread->user != NULL;
}

void trace_lose_homeless(uint64_t number) {
	if (!trace_enter_guest(number))
		return;
	__atomic_add_fetch(&trace_session.ring->homeless, 1, __ATOMIC_RELAXED);
	trace_leave_guest();
}

bool trace_claim(struct trace_self *thread, uint64_t number) {
	int saved = errno;

	if (!number || thread->claiming) /* then this is a signal handler: its thread claims */
		return false;
	thread->claiming = true;
	if (thread->session != number) {
		thread->slot = NULL;
		thread->sequence = thread->homeless = 0;
		thread->named = 0;
		thread->tid = 0; /* a forked child has another */
		thread->session = number;
	}
	if (trace_enter_guest(number)) {
		if (thread->homeless % HOMELESS_TRIES == 0 && has_user(thread))
			claim_slot(thread, (uint32_t)((uintptr_t)thread >> 12));
		if (!thread->slot)
			thread->homeless++;
		trace_leave_guest();
	}
	thread->claiming = false;
	errno = saved;
	return thread->slot != NULL;
}
