/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asks the daemon for twins and plans, and knows those that there are (load.h).
 *
 * One connection to the daemon, one list of twins, one lock around both (guard.h). The
 * lock is waited for no longer than the daemon's deadline, which is also the time that a load has
 * from its begin to its arming, and is never held while the driver loads or unloads. Without the
 * lock a launch goes on without us. So does a process that forked after it came here first: CUDA
 * does not work in the child either.
 *
 * After a failure (late, broken, absurd) the connection is closed and no daemon is asked until its
 * interest page has changed or ten seconds have passed, and then it has RETRY_MS to say hello, so
 * that a sick daemon costs one deadline and not one a module. How long all loads together may wait
 * for compilers is the daemon's to count (its image-budget.h).
 *
 * Ids are good for one daemon, and for those that continue with its state (resume.h). Each load has
 * the number of its daemon (its epoch). Once another daemon has come, it is neither armed nor told
 * of; its probes go on writing to memory that is not read any more.
 */

#include "load.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arm.h"
#include "handles.h"
#include "shim/base/deadline.h"
#include "shim/base/guard.h"
#include "image.h"
#include "shim/interest/interest-lock.h"
#include "load-ask.h"
#include "mirror.h"
#include "resume.h"
#include "twin.h"
#include "shim/engine/sass-start.h"

#define BACK_OFF_MS 10000
#define AT_ONCE_MS 50 /* what is asked while the program goes on is answered so soon, */
#define AT_ONCE_BACK_OFF 20 /* or asked for again after so many times as long */
#define AT_ONCE_DOUBLED_MAX 6
#define RETRY_MS 200
#define END_WAIT_MS 1000
#define RESUME_WAIT_MS 100
#define OWNER_PARENT \
	-1 /* in a child, which may have the number of its parent in another namespace */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around all that follows */
static pid_t owner; /* the process that came here first; 0: none yet */
static struct load *loads;
static struct wire_client client = WIRE_CLIENT_NONE;
static struct interest interest; /* what the connection is opened for */
static bool reached; /* it was, or was once */
static struct interest failed; /* what was tried in vain, */
static uint64_t failed_until_ms; /* and till when it is not tried again */
static unsigned missed; /* how often a launch has waited in vain since an answer came */
static uint64_t epoch; /* the number of the daemon */
static struct wire_welcome welcome; /* what it said, */
static struct interest welcomed; /* and for what that was */
static uint64_t operation_until_ms; /* how long the lock's owner may wait for the daemon */
static uint32_t wait_ms; /* the deadline of the last daemon; read without the lock */
static bool asking; /* the lock's owner waits for the daemon; read without the lock */

/* Unloaded by a thread that did not get the lock: the lock's next owner forgets it. */
struct unloaded {
	struct unloaded *next;
	enum load_kind kind;
	driver_handle handle;
};

static struct unloaded *unloaded;

static void forget_unloaded(void);

static void before_fork(void) {
	if (__atomic_load_n(&owner, __ATOMIC_RELAXED) == getpid())
		mirror_forking();
}

static void in_child(void) {
	__atomic_store_n(&owner, OWNER_PARENT, __ATOMIC_RELAXED);
	wire_client_close(&client); /* or the daemon would not notice the end of the parent */
	arm_forked();
	mirror_forked(true);
}

static void in_parent(void) {
	mirror_forked(false);
}

/* Is this the process that came here first, and no child of it? */
bool load_is_owner(void) {
	pid_t none = 0, self = getpid();

	if (__atomic_load_n(&owner, __ATOMIC_RELAXED) == self)
		return true;
	if (!__atomic_compare_exchange_n(&owner, &none, self, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return false;
	pthread_atfork(before_fork, in_parent, in_child);
	return true;
}

bool load_lock_twice(uint64_t until_ms, uint64_t daemon_until_ms) {
	if (!load_is_owner() || !guard_lock(&lock, until_ms))
		return false;
	operation_until_ms = daemon_until_ms;
	return true;
}

bool load_lock_until(uint64_t until_ms) {
	if (!load_lock_twice(until_ms, until_ms))
		return false;
	if (__atomic_load_n(&unloaded, __ATOMIC_RELAXED))
		forget_unloaded();
	return true;
}

bool load_lock_for_end(void) {
	return load_lock_until(deadline_now_ms() + 2 * load_deadline_ms() + END_WAIT_MS);
}

bool load_lock(void) {
	return load_lock_until(deadline_now_ms() + __atomic_load_n(&wait_ms, __ATOMIC_RELAXED));
}

void load_unlock(void) {
	guard_unlock(&lock);
}

struct load *load_first(void) {
	return loads;
}

bool load_is_current(const struct load *load) {
	return load->epoch == epoch;
}

void load_give_up(void) {
	wire_client_close(&client);
	failed = interest;
	failed_until_ms = deadline_now_ms() + BACK_OFF_MS;
}

struct wire_client *load_client(uint64_t *deadline_ms) {
	*deadline_ms = operation_until_ms;
	return wire_client_is_open(&client) ? &client : NULL;
}

const char *load_folder(void) {
	return interest.folder;
}

uint32_t load_driver_version(void) {
	static int known;
	int version = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!version && driver_own()->driver_get_version(&version) != 0)
		version = 0;
	__atomic_store_n(&known, version, __ATOMIC_RELAXED);
	return (uint32_t)version;
}

uint32_t load_deadline_ms(void) {
	return __atomic_load_n(&wait_ms, __ATOMIC_RELAXED);
}

bool load_is_asking(void) {
	return __atomic_load_n(&asking, __ATOMIC_RELAXED);
}

void load_process(int device, struct gpuprobe_process *process) {
	*process = (struct gpuprobe_process){
		.pid_tgid = (uint64_t)welcome.pid << 32 | welcome.pid,
		.device = (uint64_t)device,
	};
	memcpy(process->comm, welcome.comm, sizeof(process->comm));
}

void load_report(uint64_t module_id, const char *reason) {
	union wire_message message;
	uint64_t deadline_ms;

	if (!load_client(&deadline_ms))
		return;
	memset(&message, 0, sizeof(message));
	wire_client_prepare(&client, &message, WIRE_REPORT, 0);
	message.report.module_id = module_id;
	strncpy(message.report.reason, reason, WIRE_REASON_MAX - 1);
	if (!wire_client_send(&client, &message, -1, deadline_ms))
		load_give_up();
}

void load_report_map(uint64_t module_id, uint64_t map_id, const char *reason) {
	char text[WIRE_REASON_MAX];

	snprintf(text, sizeof(text), WIRE_REPORT_MAP "%llu: %s", (unsigned long long)map_id,
		 reason);
	load_report(module_id, text);
}

void load_report_own(uint64_t module_id, uint64_t number, const char *kernel, enum handles_why why,
		     unsigned launches) {
	char reason[WIRE_REASON_MAX];

	snprintf(reason, sizeof(reason),
		 WIRE_REPORT_KERNEL "%s: launched %u time%s without probes, with which %s", kernel,
		 launches, launches == 1 ? "" : "s",
		 why == HANDLES_NOT_AT_ONCE ? "its blocks may not all fit on the device at once"
					    : "registers do not suffice");
	if (!load_lock())
		return;
	if (number == epoch)
		load_report(module_id, reason);
	load_unlock();
}

static bool same_daemon(const struct interest *a, const struct interest *b) {
	return a->daemon == b->daemon && a->device == b->device && a->inode == b->inode &&
	       !strcmp(a->folder, b->folder);
}

/* Has it just failed us? */
static bool has_failed(const struct interest *found) {
	return same_daemon(found, &failed) && found->generation == failed.generation &&
	       deadline_now_ms() < failed_until_ms;
}

/*
 * A new connection. The daemon may be the one of before, or one that goes on with what that had,
 * and is told what we have; else it knows nothing of that.
 */
static bool go_on(bool same, const struct wire_welcome *before, uint64_t deadline_ms) {
	if (same && welcome.session == before->session && welcome.start == before->start &&
	    mirror_is_connected())
		return true;
	if (welcome.session && welcome.session == before->session)
		return resume_all(&client, welcome.start, deadline_ms);
	if (epoch++)
		twin_look_again();
	mirror_forget_daemon();
	return true;
}

/* Till when a daemon may take to answer a hello: not long if it has failed us before. */
static uint64_t hello_until(const struct interest *found, uint64_t deadline_ms) {
	uint64_t soon = deadline_now_ms() + RETRY_MS;

	return same_daemon(found, &failed) && soon < deadline_ms ? soon : deadline_ms;
}

/* Connects to the interested daemon, if that is not done. */
static bool connected(const struct interest *found, uint64_t deadline_ms) {
	const bool open = same_daemon(found, &interest) && wire_client_is_alive(&client);
	const struct wire_welcome before = welcome;

	interest = *found;
	__atomic_store_n(&wait_ms, found->deadline_ms, __ATOMIC_RELAXED);
	if (open)
		return true;
	wire_client_close(&client);
	reached = false;
	if (!wire_client_open(&client, found->folder, WIRE_ROLE_LOADER, load_driver_version(),
			      hello_until(found, deadline_ms), &welcome))
		return false;
	if (sass_why_not())
		load_report(0, sass_why_not());
	reached = go_on(same_daemon(found, &welcomed), &before, deadline_ms);
	if (reached) {
		welcomed = *found;
		failed = (struct interest){ 0 };
		return true;
	}
	wire_client_close(&client);
	welcome = before; /* a daemon that received half of the messages must receive all of them
			     next time */
	return false;
}

bool load_is_welcome(const struct wire_welcome *other) {
	bool same;

	if (!load_lock())
		return true;
	same = welcome.session == other->session && welcome.start == other->start;
	load_unlock();
	return same;
}

enum load_resumed load_resume(void) {
	enum load_resumed result = LOAD_RESUME_LATER;
	enum interest_change change;
	struct interest found;
	uint64_t deadline_ms;

	if (!load_lock_until(deadline_now_ms() + RESUME_WAIT_MS))
		return result;
	change = interest_look_again(&interest, &found);
	if (change == INTEREST_UNCHANGED && !reached) { /* it did not answer yet */
		found = interest;
		change = INTEREST_OTHER;
	}
	switch (change) {
	case INTEREST_ENDED:
		result = LOAD_RESUME_NEVER;
		break;
	case INTEREST_UNCHANGED:
		result = wire_client_is_alive(&client) ? LOAD_RESUMED : LOAD_RESUME_LATER;
		break;
	case INTEREST_OTHER:
		deadline_ms = deadline_now_ms() + found.deadline_ms;
		if (has_failed(&found))
			break;
		if (connected(&found, deadline_ms))
			result = LOAD_RESUMED;
		else
			load_give_up();
		break;
	}
	load_unlock();
	return result;
}

static void tell_unload(const struct load *load) {
	union wire_message message;
	uint64_t deadline_ms;

	if (!load_is_current(load) || !load_client(&deadline_ms))
		return;
	memset(&message, 0, sizeof(message));
	wire_client_prepare(&client, &message, WIRE_UNLOAD, 0);
	message.unload.module_id = load->module_id;
	if (!wire_client_send(&client, &message, -1, deadline_ms))
		load_give_up();
}

/* Connects and asks, with the lock held. */
static struct load *connect_and_ask(const struct interest *found, const struct image *image,
				    uint64_t deadline_ms, enum load_answer *answer) {
	struct load *load = NULL;

	*answer = LOAD_ANSWER_NONE;
	if (has_failed(found))
		return NULL;
	__atomic_store_n(&asking, true, __ATOMIC_RELAXED);
	if (connected(found, deadline_ms))
		load = load_ask(&client, image, deadline_ms, answer);
	if (load) {
		load->epoch = epoch;
		load->start = welcome.start;
	}
	__atomic_store_n(&asking, false, __ATOMIC_RELAXED);
	if (*answer == LOAD_ANSWER_NONE)
		load_give_up();
	return load;
}

/*
 * How long a launch may wait for the daemon: if its twin is not awaited, not long; twice as long
 * after each time when that was too short.
 */
static uint64_t patience_ms(const struct interest *found, const struct image *image, bool awaited) {
	const uint64_t ms = (AT_ONCE_MS << missed) + (image->size >> 20);

	return awaited || ms > found->deadline_ms ? found->deadline_ms : ms;
}

/* The daemon was late: the next launch that asks may wait longer, and comes later. */
static void miss(uint64_t waited_ms) {
	failed_until_ms = deadline_now_ms() + waited_ms * AT_ONCE_BACK_OFF;
	if (missed < AT_ONCE_DOUBLED_MAX)
		missed++;
}

struct load *load_twin(const struct interest *found, const struct image *image, bool awaited,
		       enum load_answer *answer) {
	const uint64_t patience = patience_ms(found, image, awaited);
	struct image twin = *image;
	struct load *load;
	bool tried;

	twin.flags = awaited ? WIRE_IMAGE_FLAG_AWAITED : 0;
	*answer = LOAD_ANSWER_NONE;
	if (!driver_own() || !load_lock_until(deadline_now_ms() + patience))
		return NULL;
	tried = !has_failed(found);
	load = connect_and_ask(found, &twin, deadline_now_ms() + patience, answer);
	if (*answer != LOAD_ANSWER_NONE)
		missed = 0;
	else if (tried && !awaited)
		miss(patience);
	load_unlock();
	return load;
}

bool load_report_to(const struct interest *found, const char *reason) {
	if (has_failed(found))
		return false;
	if (!connected(found, operation_until_ms)) {
		load_give_up();
		return false;
	}
	load_report(0, reason);
	return wire_client_is_open(&client);
}

enum load_answer load_ask_plan(const struct interest *found, const void *names, size_t size,
			       bool may_connect, struct load **plan) {
	const struct image image = { .data = names, .size = size, .kind = WIRE_IMAGE_NAMES };
	enum load_answer answer;

	*plan = NULL;
	if (!may_connect && !(same_daemon(found, &interest) && wire_client_is_alive(&client)))
		return LOAD_ANSWER_NONE;
	*plan = connect_and_ask(found, &image, operation_until_ms, &answer);
	return answer;
}

void load_refuse_plan(struct load *plan) {
	load_give_up();
	load_free(plan);
}

void load_end_plan(struct load *plan) {
	tell_unload(plan);
	load_free(plan);
}

void load_commit(struct load *load, enum load_kind kind, driver_handle handle) {
	load->kind = kind;
	load->handle = handle;
	if (!load_lock())
		return; /* never armed, and its image stays mapped */
	if (driver_own()->ctx_get_current(&load->context) == 0 && load->context)
		load->context_id = driver_context_id(load->context);
	load->next = loads;
	__atomic_store_n(&loads, load, __ATOMIC_RELAXED);
	arm_load_added(load);
	if (load_is_current(load) && load->start != welcome.start && wire_client_is_open(&client) &&
	    !resume_load(&client, load, welcome.start, operation_until_ms))
		load_give_up(); /* the daemon was another one when it was asked for */
	load_unlock();
	arm_current(load->deadline_ms); /* what takes longer is done before the first launch */
}

/* It is not used, for a reason that the daemon is told, or NULL. */
static void give_back(struct load *load, const char *reason) {
	if (load_lock()) {
		if (reason && load_is_current(load))
			load_report(load->module_id, reason);
		tell_unload(load);
		load_unlock();
	}
	load_free(load);
}

void load_refused(struct load *load, driver_result result) {
	char reason[WIRE_REASON_MAX];

	snprintf(reason, sizeof(reason), "the driver refused the probed image: error %d", result);
	give_back(load, reason);
}

void load_unused(struct load *load) {
	give_back(load, NULL);
}

void load_twin_refused(struct load *load, const char *missing) {
	char reason[WIRE_REASON_MAX];

	if (missing)
		snprintf(reason, sizeof(reason),
			 "no twin can be made: the driver does not find variable %.120s of the "
			 "module",
			 missing);
	else
		snprintf(reason, sizeof(reason), "no twin can be made: its image is malformed");
	give_back(load, reason);
}

/* Takes it off the list. */
static struct load *take(enum load_kind kind, driver_handle handle) {
	for (struct load **link = &loads; *link; link = &(*link)->next) {
		struct load *load = *link;

		if (load->kind != kind || load->handle != handle)
			continue;
		__atomic_store_n(link, load->next, __ATOMIC_RELAXED);
		return load;
	}
	return NULL;
}

static struct load *find(enum load_kind kind, driver_handle handle) {
	struct load *load = loads;

	while (load && (load->kind != kind || load->handle != handle))
		load = load->next;
	return load;
}

static void leave_unloaded(enum load_kind kind, driver_handle handle) {
	struct unloaded *one = malloc(sizeof(*one));

	if (!one)
		return;
	*one = (struct unloaded){ __atomic_load_n(&unloaded, __ATOMIC_RELAXED), kind, handle };
	while (!__atomic_compare_exchange_n(&unloaded, &one->next, one, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

/* With the lock held. The driver may be about to unload it: nothing is read, the image stays. */
static void forget_unloaded(void) {
	struct unloaded *one = __atomic_exchange_n(&unloaded, NULL, __ATOMIC_ACQUIRE);

	while (one) {
		struct load *load = take(one->kind, one->handle);
		struct unloaded *next = one->next;

		if (load) {
			mirror_lock();
			mirror_drop_regions(load);
			mirror_unlock();
			arm_load_removed(load, false);
			tell_unload(load);
			load->image = NULL;
			load_free(load);
		}
		free(one);
		one = next;
	}
}

void load_settle(void) {
	if (__atomic_load_n(&unloaded, __ATOMIC_RELAXED) && load_lock())
		load_unlock();
}

/*
 * What the module counts itself is read when its kernels have ended. They are waited for with no
 * lock held, as the driver does in the call that follows: it may be long.
 */
struct load *load_begin_unload(enum load_kind kind, driver_handle handle) {
	if (!__atomic_load_n(&loads, __ATOMIC_RELAXED) || !load_is_owner())
		return NULL;
	while (load_lock_for_end()) {
		struct load *load = find(kind, handle);
		driver_handle context = load ? arm_next_awaited(load) : NULL;

		if (load && !context) {
			take(kind, handle);
			arm_load_removed(load, true);
		}
		load_unlock();
		if (!context)
			return load;
		arm_await(context);
	}
	leave_unloaded(kind, handle);
	return NULL;
}

void load_end_unload(struct load *load, driver_result result) {
	if (result)
		return; /* the driver may still read the image: it stays mapped */
	if (load_lock()) {
		tell_unload(load);
		load_unlock();
	}
	load_free(load);
}

void load_forget_context(driver_handle context, uint64_t now, uint64_t until) {
	for (struct load **link = &loads; *link;) {
		struct load *load = *link;

		if (load->kind != LOAD_MODULE || load->context != context ||
		    arm_outlives(load->context_id, load->born, now, until)) {
			link = &load->next;
			continue;
		}
		__atomic_store_n(link, load->next, __ATOMIC_RELAXED);
		arm_load_removed(load, false);
		tell_unload(load);
		load_free(load);
	}
}
