/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The stage of an attach in which Linux verifies the programs (attach-private.h), in threads.
 *
 * The kernel's verifier may take seconds for a program, and an object may have 60 of them. So
 * attaches take turns, a program each: whose user has waited longest is the next, a user has one
 * thread, and root has one that nobody else gets. Not all of libuv's four, as others are for
 * hashing images, which processes wait for.
 *
 * An attach that is cancelled ends now: the verifier gives up (EAGAIN) when its thread has a
 * signal. A signal that comes before bpf(2) begins is lost, so it is sent again until the thread is
 * done.
 */

#include "attach-private.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "daemon/gpuprobed/settings/account.h"
#include "daemon/gpuprobed/verify/host.h"

#define VERIFYING_MAX 2 /* threads for all, and one more for root */
#define INTERRUPT_SIGNAL SIGURG /* else ignored */
#define INTERRUPT_PERIOD_MS 10

/* ---- in the thread; the configuration may be another one meanwhile ---- */

/* From here to attach_leave() signals come here. False: nothing is to be done any more. */
static bool attach_enter(struct attach *attach) {
	sigset_t set;
	bool go;

	sigemptyset(&set);
	sigaddset(&set, INTERRUPT_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	pthread_mutex_lock(&attach->lock);
	attach->thread = pthread_self();
	attach->in_thread = go = !attach->interrupted;
	pthread_mutex_unlock(&attach->lock);
	return go;
}

static void attach_leave(struct attach *attach) {
	pthread_mutex_lock(&attach->lock);
	attach->in_thread = false;
	pthread_mutex_unlock(&attach->lock);
}

static void attach_load_hosts(struct attach *attach) {
	uint64_t programs = 0, hosts = 0;

	for (size_t i = 0; i < attach->choices.n; i++)
		programs |= UINT64_C(1) << attach->chosen[i];
	for (size_t i = 0; i < attach->choices.n_hosts; i++)
		hosts |= UINT64_C(1) << attach->choices.hosts[i];
	if (hosts)
		attach->host_result = host_new(&attach->host, attach->elf, attach->n_elf,
					       attach->linked, attach->blob, programs, hosts,
					       attach->host_targets, &attach->host_report);
}

/* The next program; after the last one those on the host. */
static void attach_on_verify(uv_work_t *work) {
	struct attach *attach = work->data;
	struct verify_options options = { .allow_exit = attach->allow_exit };
	const uint64_t begun = uv_hrtime();

	if (!attach_enter(attach))
		return;
	if (attach->verify && attach->n_verified < attach->choices.n) {
		attach->verify_result =
			verify_object(attach->linked, attach->blob,
				      UINT64_C(1) << attach->chosen[attach->n_verified], &options,
				      &attach->report);
		attach->n_verified++;
	} else {
		attach_load_hosts(attach);
		attach->hosts_loaded = true;
	}
	attach_leave(attach);
	attach->verify_ns = uv_hrtime() - begun;
}

/* ---- on the loop ---- */

static bool attach_needs_thread(const struct attach *attach) {
	return (attach->verify && attach->n_verified < attach->choices.n) ||
	       (attach->choices.n_hosts && !attach->hosts_loaded);
}

/* The next one for a thread, or NULL. */
static struct attach *attach_verify_first(const struct attach_context *context) {
	struct attach *attach, *first = NULL;

	TAILQ_FOREACH(attach, &context->verifying, link)
		if (!attach->account->verifies &&
		    context->n_verifying < VERIFYING_MAX + (attach->owner == 0) &&
		    (!first || attach->account->verify_turn < first->account->verify_turn))
			first = attach;
	return first;
}

static void attach_on_verified(uv_work_t *work, int status);

/* Those that wait for a thread get one. */
static void attach_verify_next(struct attach_context *context) {
	struct attach *attach;
	int r;

	while ((attach = attach_verify_first(context))) {
		TAILQ_REMOVE(&context->verifying, attach, link);
		attach->waits = false;
		attach->work.data = attach;
		r = uv_queue_work(context->image->loop, &attach->work, attach_on_verify,
				  attach_on_verified);
		if (r < 0) {
			attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL, "%s", uv_strerror(r));
			continue;
		}
		context->n_verifying++;
		attach->account->verifies = attach->verifies = true;
	}
}

/* Whether a user has a place in the order of those who wait. */
static bool account_waits(const struct attach_context *context, const struct account *account) {
	const struct attach *attach;

	TAILQ_FOREACH(attach, &context->verifying, link)
		if (attach->account == account)
			return true;
	return account->verifies;
}

static void attach_wait(struct attach *attach) {
	struct attach_context *context = attach->context;

	if (!account_waits(context, attach->account))
		attach->account->verify_turn = ++context->verify_turns;
	TAILQ_INSERT_TAIL(&context->verifying, attach, link);
	attach->waits = true;
}

static void attach_on_verified(uv_work_t *work, int status) {
	struct attach *attach = work->data;
	struct attach_context *context = attach->context;

	/* the verifier's time is charged as workers' is: threads are for all, too */
	account_charge_time(attach->account, attach->verify_ns / 1000000,
			    uv_now(context->image->loop));
	context->n_verifying--;
	attach->account->verifies = attach->verifies = false;
	attach->account->verify_turn = ++context->verify_turns;
	if (!attach->cancelled && !attach->verify_result && attach_needs_thread(attach)) {
		attach_wait(attach);
		attach = NULL;
	}
	attach_verify_next(context);
	if (attach && attach->cancelled)
		attach_verify_end(attach);
	else if (attach)
		attach_verified(attach);
}

void attach_verify(struct attach *attach) {
	struct attach_context *context = attach->context;

	if (!attach_needs_thread(attach)) {
		attach_verified(attach);
		return;
	}
	attach_wait(attach);
	attach_verify_next(context);
}

/* ---- giving up ---- */

static void on_interrupt(int number) {
}

static void attach_interrupt(struct attach *attach) {
	pthread_mutex_lock(&attach->lock);
	attach->interrupted = true;
	if (attach->in_thread)
		pthread_kill(attach->thread, INTERRUPT_SIGNAL);
	pthread_mutex_unlock(&attach->lock);
}

static void attach_on_timer(uv_timer_t *timer) {
	attach_interrupt(timer->data);
}

static void attach_on_timer_closed(uv_handle_t *timer) {
	attach_free(timer->data);
}

void attach_verify_end(struct attach *attach) {
	if (attach->timer.data)
		uv_close((uv_handle_t *)&attach->timer, attach_on_timer_closed);
	else
		attach_free(attach);
}

bool attach_verify_cancel(struct attach *attach) {
	const struct sigaction action = { .sa_handler = on_interrupt }; /* without SA_RESTART */

	if (attach->waits) {
		TAILQ_REMOVE(&attach->context->verifying, attach, link);
		attach->waits = false;
		return true;
	}
	if (!attach->verifies)
		return false;
	sigaction(INTERRUPT_SIGNAL, &action, NULL);
	uv_timer_init(attach->context->image->loop, &attach->timer);
	attach->timer.data = attach;
	uv_timer_start(&attach->timer, attach_on_timer, 0, INTERRUPT_PERIOD_MS);
	return false;
}
