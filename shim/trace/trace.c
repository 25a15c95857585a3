/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whether this process is traced, from its first call of the driver on. Trampolines come here
 * (trace_look) when a page of interest.h has changed since it was last looked at; then the process
 * asks the daemon, if a rule matches. One thread does that. Calls of other threads wait for the
 * answer, WAIT_NS at most; a call that does not wait any longer is made without a trace, and is
 * counted as lost if the trace begins after all.
 *
 * A session ends when the daemon says so in its memory, or reads no more while the ring is full.
 * First its number becomes 0: who comes later keeps out. Then all threads are made to see that
 * (membarrier), and who finds nobody inside unmaps: this thread, or the last that leaves. Another
 * session begins when that is done.
 *
 * The number lies in a page that the kernel zeroes in a forked child: that has no session, whether
 * or not libc knows of the fork. It may ask for one of its own. Where a signal handler forked that
 * came while its thread was inside, that goes on in the child, too: to the end of what it began it
 * finds memory of its own in the place of the parent's.
 */

#include "tracing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "shim/interest/wire-client.h"
#include "shim/base/deadline.h"
#include "shim/link/driver.h"
#include "shim/module/load.h"
#include "shim/module/mirror.h"
#include "trace-gpu.h"

#define REQUIRED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define RING_SIZE_MAX (UINT64_C(1) << 36)
#define WAIT_NS UINT64_C(300000000) /* for another thread that asks the daemon */
#define SPINS 1000 /* for one that looks at a page */
#define HOMELESS_TRIES 256 /* calls of a thread without a slot till it looks for one again */

/* The page that is zeros in a forked child. */
struct own {
	uint64_t number; /* of the session, or 0 */
	uint64_t here;
	uint8_t rest[4096 - 16];
};

enum {
	OWN_FRESH = 0, /* a child that nobody has told of the fork */
	OWN_KNOWN, /* its first call has seen that, */
	OWN_HERE, /* and what the parent had is forgotten */
};

static const uint64_t no_number;

const uint64_t *trace_number = &no_number;
static struct own *own;
struct trace_session trace_session;
struct trace_user trace_users[TRACE_USERS_MAX];
bool trace_ending, trace_fenced = true;
uint64_t trace_seen[2];
__thread struct trace_self trace_mine;

static uint64_t last_number;
static struct wire_client client = WIRE_CLIENT_NONE;
static uint32_t ancestor; /* the process that was traced with this memory, as the daemon sees it; 0:
			     none yet */
enum {
	LOOKING_NOT,
	LOOKING, /* a thread looks at the pages: a moment */
	LOOKING_ASKS, /* the daemon, or, the first time, looks for it: others wait */
	LOOKING_LATE, /* others have waited long enough: it may never end */
};

static uint32_t looking; /* one of these */
static uint32_t looks; /* that are over */
static bool looked; /* for files, in this process */
static uint32_t passed[TRAMPOLINE_COUNT]; /* calls that were made without knowing whether there is a
					     trace */
static unsigned guests; /* threads that are inside without a slot */
static unsigned reapers; /* threads that are in trace_reap() */
static pthread_key_t key;
static bool has_key;

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

/* Nobody looks whether the daemon is still there. */
static void hang_up(void) {
	int saved = errno, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	wire_client_close(&client);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}

/* Who comes while another thread is at it makes that one try again. */
void trace_reap(void) {
	struct trace_ring *ring;
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
		hang_up();
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
	int saved = errno, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
			       &cancel); /* what is begun here is finished */
	if (number && __atomic_compare_exchange_n(&own->number, &number, 0, false, __ATOMIC_SEQ_CST,
						  __ATOMIC_SEQ_CST)) {
		fence_all(); /* who has seen the number is seen to be inside, */
		__atomic_store_n(&trace_ending, true, __ATOMIC_SEQ_CST);
		fence_all(); /* and who leaves is seen to have left, or sees that it is the end */
		trace_reap();
	}
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
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

/* In a child: lets the parent's memory go. Returns whether what this thread is in the midst of
 * needs some there. */
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

/* In a child: it has no session, and no other threads. */
static void forget_parent(void) {
	bool inside = trace_mine.user && trace_mine.user->inside;

	looked = false;
	load_forked_pages();
	wire_client_close(&client); /* or the daemon would not notice the end of the parent */
	memset(trace_users, 0, sizeof(trace_users));
	if (trace_mine.user)
		*trace_mine.user = (struct trace_user){ .inside = inside, .taken = true };
	*own = (struct own){ .here = OWN_HERE };
	guests = trace_mine.guest;
	reapers = 0;
	trace_ending = forget_ring(inside || guests);
	trace_mine.tid = 0;
	trace_gpu_forked(true);
}

/* The threads that were at it are not here. */
static void forget_looks(void) {
	looking = LOOKING_NOT;
	memset(passed, 0, sizeof(passed));
}

static void in_child(void) {
	forget_parent();
	forget_looks();
}

static void in_parent(void) {
	trace_gpu_forked(false);
}

/* Once: what sessions need. */
static bool prepare(void) {
	void *page = mmap(NULL, sizeof(*own), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (page == MAP_FAILED)
		return false;
	madvise(page, sizeof(*own), MADV_WIPEONFORK);
	if (pthread_atfork(trace_gpu_forking, in_parent, in_child) != 0) {
		munmap(page, sizeof(*own));
		return false;
	}
	has_key = pthread_key_create(&key, thread_ended) == 0;
	((struct own *)page)->here = OWN_HERE;
	__atomic_store_n(&own, page, __ATOMIC_RELEASE);
	__atomic_store_n(&trace_number, &own->number, __ATOMIC_RELEASE);
	return true;
}

/* ---- calls that are not traced, though they may have to be
 * --------------------------------------- */

/* Calls of functions that the session records are lost; those that come later find the session. */
static void lose_passed(void) {
	uint64_t lost = 0;

	for (uint32_t i = 0; i < TRAMPOLINE_COUNT; i++)
		if (__atomic_load_n(&passed[i], __ATOMIC_SEQ_CST)) {
			uint64_t count = __atomic_exchange_n(&passed[i], 0, __ATOMIC_SEQ_CST);

			lost += trace_wants(i) ? count : 0;
		}
	if (lost)
		__atomic_add_fetch(&trace_session.ring->homeless, lost, __ATOMIC_RELAXED);
}

static void forget_passed(void) {
	for (unsigned i = 0; i < TRAMPOLINE_COUNT; i++)
		if (__atomic_load_n(&passed[i], __ATOMIC_RELAXED))
			__atomic_store_n(&passed[i], 0, __ATOMIC_SEQ_CST);
}

/* False: somebody has read it. */
static bool take_back(uint32_t index) {
	uint32_t count = __atomic_load_n(&passed[index], __ATOMIC_RELAXED);

	while (count)
		if (__atomic_compare_exchange_n(&passed[index], &count, count - 1, false,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			return true;
	return false;
}

void trace_pass(uint32_t index) {
	__atomic_add_fetch(&passed[index], 1, __ATOMIC_SEQ_CST);
}

/*
 * While a look goes on that was the one with this number, a call passes. Returns the session's
 * number if it has begun by now, without this call being counted.
 */
static uint64_t pass(uint32_t index, uint32_t look) {
	uint64_t number;

	trace_pass(index);
	number = trace_session_number();
	if (!number && __atomic_load_n(&looks, __ATOMIC_SEQ_CST) == look)
		return 0;
	return take_back(index) ? number : 0;
}

/* Waits while another thread looks, but neither for a signal handler's own thread nor endlessly. */
static void wait_for_look(void) {
	uint64_t until = 0, now;
	struct timespec left;

	for (unsigned i = 0; i < SPINS && __atomic_load_n(&looking, __ATOMIC_ACQUIRE) == LOOKING;
	     i++)
		trace_pause();
	while (__atomic_load_n(&looking, __ATOMIC_ACQUIRE) == LOOKING_ASKS) {
		uint32_t asks = LOOKING_ASKS;

		now = monotonic_now();
		until = until ? until : now + WAIT_NS;
		if (now >= until) {
			__atomic_compare_exchange_n(&looking, &asks, LOOKING_LATE, false,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
			break;
		}
		left = (struct timespec){ .tv_nsec = (long)(until - now) };
		syscall(SYS_futex, &looking, FUTEX_WAIT_PRIVATE, asks, &left, NULL, 0);
	}
}

/* ---- sessions
 * ------------------------------------------------------------------------------------ */

/* Makes the memory that the daemon sent the session's; consumes fd. */
static bool begin_session(int fd, uint64_t size) {
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;
	void *ring = MAP_FAILED;

	if (seals >= 0 && (seals & REQUIRED_SEALS) == REQUIRED_SEALS && fstat(fd, &status) == 0 &&
	    (uint64_t)status.st_size == size && size >= sizeof(struct trace_ring) &&
	    size <= RING_SIZE_MAX)
		ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (ring == MAP_FAILED)
		return false;
	if (!trace_adopt(ring, size)) {
		munmap(ring, size);
		return false;
	}
	trace_name_forget();
	if (trace_flag(TRACE_RING_GPU))
		trace_gpu_begin();
	if (trace_flag(TRACE_RING_STACKS))
		trace_stack_begin();
	for (unsigned i = 0; i < 2; i++)
		__atomic_store_n(&trace_seen[i], interest_trace_looked[i], __ATOMIC_RELAXED);
	/* trampolines go by trace_call while there is a session */
	for (unsigned i = 0; i < 2; i++)
		__atomic_store_n(&trace_watch[i].seen, INTEREST_UNSEEN, __ATOMIC_RELEASE);
	__atomic_store_n(&trace_session.ring->taken, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&own->number, ++last_number, __ATOMIC_SEQ_CST);
	lose_passed();
	if (trace_flag(TRACE_RING_GPU))
		trace_gpu_began(last_number);
	return true;
}

/* Asks the daemon whether somebody traces this process. */
static void ask(const struct interest *found) {
	bool unfenced =
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
	uint64_t deadline_ms = deadline_now_ms() + found->deadline_ms;
	driver_result (*get_version)(int *) =
		(driver_result(*)(int *))driver_symbol("cuDriverGetVersion");
	uint32_t from = ancestor ? ancestor : trace_ancestor_told();
	struct wire_welcome welcome;
	union wire_message message;
	int version = 0, fd = -1;

	__atomic_store_n(&trace_fenced, unfenced, __ATOMIC_RELAXED);
	if (get_version && get_version(&version) != 0)
		version = 0;
	if (!wire_client_open(&client, found->folder, WIRE_ROLE_TRACE, (uint32_t)version,
			      deadline_ms, &welcome))
		return;
	memset(&message, 0, sizeof(message));
	wire_client_prepare(&client, &message, WIRE_TRACE, 0);
	message.trace.ancestor = from;
	if (!wire_client_call(&client, &message, -1, WIRE_TRACE_REPLY, &fd, deadline_ms) ||
	    fd < 0 || !begin_session(fd, message.trace_reply.size))
		wire_client_close(&client);
	else
		ancestor = welcome.pid;
}

/* Is there nothing to look at? */
static bool watch_is_seen(void) {
	return interest_trace_is_seen(0) && interest_trace_is_seen(1);
}

/* In a session: does it go on? Then the pages are seen. */
static bool session_goes_on(uint64_t number) {
	uint64_t generations[2];
	bool on = false;

	if (!trace_enter_guest(number))
		return false;
	for (unsigned i = 0; i < 2; i++)
		generations[i] = interest_trace_generation(i);
	/* a daemon that was killed has not said that it is over */
	on = __atomic_load_n(&trace_session.ring->enabled, __ATOMIC_ACQUIRE) &&
	     wire_client_is_alive(&client);
	if (on) {
		if (__atomic_load_n(&trace_session.ring->flags, __ATOMIC_RELAXED) &
		    TRACE_RING_STACKS)
			trace_stack_begin();
		trace_follow();
		/* only now: calls of other threads follow themselves until then */
		for (unsigned i = 0; i < 2; i++)
			__atomic_store_n(&trace_seen[i], generations[i], __ATOMIC_RELEASE);
	}
	trace_leave_guest();
	if (!on)
		trace_end_session(number);
	return on;
}

/* From now on it may take a while. */
static void ask_for_patience(void) {
	uint32_t glance = LOOKING;

	__atomic_compare_exchange_n(&looking, &glance, LOOKING_ASKS, false, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
}

static void look(void) {
	struct interest found;
	bool wanted;

	if (!load_allowed()) {
		interest_ignore_traces();
		return;
	}
	if (!own && !prepare())
		return;
	if (__atomic_load_n(&own->here, __ATOMIC_ACQUIRE) != OWN_HERE)
		forget_parent(); /* libc did not know */
	if (__atomic_load_n(&trace_session.ring, __ATOMIC_SEQ_CST) || !load_lock_pages())
		return; /* the last one is still there; the next call tries again */
	wanted = interest_wants_trace(&found);
	load_unlock_pages();
	__atomic_store_n(&looked, true, __ATOMIC_RELAXED);
	if (wanted) {
		ask_for_patience();
		ask(&found);
	}
	if (!trace_session_number())
		interest_traces_seen();
}

/* In a child that libc does not know of, whoever was looking in the parent is not here. */
static void notice_fork(void) {
	struct own *page = __atomic_load_n(&own, __ATOMIC_ACQUIRE);
	uint64_t fresh = OWN_FRESH;

	if (page && !__atomic_load_n(&page->here, __ATOMIC_ACQUIRE) &&
	    __atomic_compare_exchange_n(&page->here, &fresh, OWN_KNOWN, false, __ATOMIC_ACQ_REL,
					__ATOMIC_RELAXED))
		forget_looks();
}

/* False: another thread looks. */
static bool begin_look(void) {
	uint32_t not = LOOKING_NOT,
		 how = __atomic_load_n(&looked, __ATOMIC_RELAXED) ? LOOKING : LOOKING_ASKS;

	if (!__atomic_compare_exchange_n(&looking, &not, how, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return false;
	trace_mine.looking = true;
	return true;
}

static void end_look(void) {
	if (!trace_session_number() && watch_is_seen())
		forget_passed();
	__atomic_add_fetch(&looks, 1, __ATOMIC_SEQ_CST);
	trace_mine.looking = false;
	if (__atomic_exchange_n(&looking, LOOKING_NOT, __ATOMIC_SEQ_CST) != LOOKING)
		syscall(SYS_futex, &looking, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Looks whether there is a trace, or lets another thread do so. */
static uint64_t find_session(uint32_t index) {
	uint32_t look_number = __atomic_load_n(&looks, __ATOMIC_SEQ_CST);
	uint64_t number;

	notice_fork();
	while (!begin_look()) {
		if (!trace_mine.looking)
			wait_for_look();
		number = trace_session_number();
		if (number || watch_is_seen())
			return number;
		if (__atomic_load_n(&looking, __ATOMIC_ACQUIRE) != LOOKING_NOT) {
			number = pass(index, look_number);
			trace_mine.passes = !number;
			return number;
		}
		look_number = __atomic_load_n(&looks, __ATOMIC_SEQ_CST);
	}
	/* twice, for a page that changes just now */
	for (unsigned i = 0; i < 2 && !trace_session_number() && !watch_is_seen(); i++)
		look();
	end_look();
	number = trace_session_number();
	trace_mine.passes = !number && !watch_is_seen();
	if (trace_mine.passes)
		trace_pass(index);
	return number;
}

uint64_t trace_look(uint32_t index) {
	uint64_t number = trace_session_number();
	struct trace_hush hush;

	trace_hush(&hush); /* who has entered leaves, and who looks finishes */
	if (!number || !session_goes_on(number))
		number = trace_mine.outermost || watch_is_seen() ? 0 : find_session(index);
	trace_unhush(&hush);
	return number;
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
			continue; /* it is nobody's any more */
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

	if (!number || (thread->session == number && thread->is_ours))
		return false;
	if (thread->claiming) /* this is a signal handler, and its thread is below */
		return false;
	thread->claiming = true;
	if (thread->session != number) {
		thread->slot = NULL;
		thread->sequence = thread->homeless = 0;
		thread->named = 0;
		thread->tid = 0; /* a forked child has another */
		thread->is_ours = mirror_is_thread();
		thread->session = number;
	}
	if (!thread->is_ours && trace_enter_guest(number)) {
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
