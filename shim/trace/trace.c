/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whether this process is traced, from its first call of the driver on. Trampolines come here
 * (trace_look) when a page of interest.h has changed since it was last looked at; then the process
 * asks the daemon, if a rule matches. A forked child asks for a trace of its own. One thread asks.
 * Calls of other threads wait for the answer, WAIT_NS at most; a call that does not wait any longer
 * is made without a trace, and is counted as lost if the trace begins after all.
 */

#include "trace-session.h"

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
#include "shim/base/deadline.h"
#include "shim/driver/driver.h"
#include "shim/interest/interest-lock.h"
#include "trace-gpu.h"

#define REQUIRED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define RING_SIZE_MAX (UINT64_C(1) << 36)
#define WAIT_NS UINT64_C(300000000) /* for another thread that asks the daemon */
#define SPINS 1000 /* for one that looks at a page */

uint64_t trace_seen[2];

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
static uint32_t passed[DRIVER_FUNCTION_COUNT]; /* calls that were made without knowing whether there
					     is a trace */

/* In a child. */
static void forget_parent(void) {
	looked = false;
	interest_lock_forked();
	trace_session_forked();
	trace_gpu_forked(true);
}

/* In a child: threads that looked in the parent are not here. */
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
	static bool told; /* of forks */

	if (!told)
		told = pthread_atfork(trace_gpu_forking, in_parent, in_child) == 0;
	return told && trace_session_prepare();
}

/* ---- calls that are not traced, though they may have to be
 * --------------------------------------- */

/* Calls of functions that the session records are lost; those that come later find the session. */
static void lose_passed(void) {
	uint64_t lost = 0;

	for (uint32_t i = 0; i < DRIVER_FUNCTION_COUNT; i++)
		if (__atomic_load_n(&passed[i], __ATOMIC_SEQ_CST)) {
			uint64_t count = __atomic_exchange_n(&passed[i], 0, __ATOMIC_SEQ_CST);

			lost += trace_wants(i) ? count : 0;
		}
	if (lost)
		__atomic_add_fetch(&trace_session.ring->homeless, lost, __ATOMIC_RELAXED);
}

static void forget_passed(void) {
	for (unsigned i = 0; i < DRIVER_FUNCTION_COUNT; i++)
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
	uint64_t number;

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
	number = trace_session_begin();
	lose_passed();
	if (trace_flag(TRACE_RING_GPU))
		trace_gpu_began(number);
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
	if (!wire_client_open(&trace_client, found->folder, WIRE_ROLE_TRACE, (uint32_t)version,
			      deadline_ms, &welcome))
		return;
	memset(&message, 0, sizeof(message));
	wire_client_prepare(&trace_client, &message, WIRE_TRACE, 0);
	message.trace.ancestor = from;
	if (!wire_client_call(&trace_client, &message, -1, WIRE_TRACE_REPLY, &fd, deadline_ms) ||
	    fd < 0 || !begin_session(fd, message.trace_reply.size))
		wire_client_close(&trace_client);
	else
		ancestor = welcome.pid;
}

/* Are both pages as they were when they were last looked at? */
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
	     wire_client_is_alive(&trace_client);
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

	if (!interest_allowed()) {
		interest_ignore_traces();
		return;
	}
	if (!prepare())
		return;
	if (trace_session_has_parent())
		forget_parent(); /* libc did not know */
	if (__atomic_load_n(&trace_session.ring, __ATOMIC_SEQ_CST) || !interest_lock())
		return; /* the last one is still there; the next call tries again */
	wanted = interest_wants_trace(&found);
	interest_unlock();
	__atomic_store_n(&looked, true, __ATOMIC_RELAXED);
	if (wanted) {
		ask_for_patience();
		ask(&found);
	}
	if (!trace_session_number())
		interest_traces_seen();
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

	if (trace_session_notice_fork())
		forget_looks();
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

	trace_hush(&hush); /* so that this thread leaves what it enters, and finishes its look */
	if (!number || !session_goes_on(number))
		number = trace_mine.outermost || watch_is_seen() ? 0 : find_session(index);
	trace_unhush(&hush);
	return number;
}
