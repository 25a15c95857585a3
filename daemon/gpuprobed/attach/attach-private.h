/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An attach on its way, for the files that are its stages. */

#include <json-c/json.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/queue.h>
#include <uv.h>

#include "attach.h"
#include "attach-choose.h"
#include "lib/bpf/linked.h"
#include "daemon/gpuprobed/settings/filter.h"
#include "proto/map-layout.h"
#include "daemon/gpuprobed/verify/verify.h"
#include "proto/job.h"

struct attach_context;
struct host;

struct attach {
	struct attach_context *context;
	bool cancelled;
	attach_fn fn;
	void *userdata;
	uid_t owner;
	struct account *account; /* in which it is charged; NULL: not yet */
	char *only_program, *kernel, *point, *folder; /* what wish points to, host_targets too */
	struct attach_wish wish;
	struct filter filter;
	uint32_t threads;
	uint64_t ring_bytes;
	bool shared;
	uint64_t object_id;
	struct prefix *prefix; /* of its symbols, until the object has it; NULL: not compiled yet */
	/* link */
	struct linked *linked;
	int blob_fd;
	const void *blob; /* linked->size bytes, sealed */
	/* choose */
	struct attach_choices choices;
	size_t chosen[JOB_COMPILE_PROGRAMS_MAX]; /* choices.programs[].program */
	/* compile */
	struct map_shape shapes[LINKED_MAPS_MAX]; /* merge: nothing is proved yet */
	size_t n_patches; /* programs whose patch form was asked for */
	/* verify */
	TAILQ_ENTRY(attach) link; /* of attach_context.verifying */
	bool waits, verifies; /* for a thread; has one */
	uv_work_t work;
	bool verify, allow_exit; /* as the configuration was */
	uint64_t verify_ns; /* how long a thread had it the last time */
	size_t n_verified; /* of chosen */
	int verify_result;
	struct verify_report report;
	uv_timer_t timer; /* interrupts the thread; data NULL: there is none */
	pthread_mutex_t lock; /* of what follows */
	bool in_thread, interrupted;
	pthread_t thread;
	/* programs on the host */
	void *elf; /* a copy of the object */
	size_t n_elf;
	bool hosts_loaded;
	int host_result;
	struct verify_report host_report;
	struct host *host;
	char *host_targets[LINKED_PROGRAMS_MAX]; /* NULL: as the section says */
};

void attach_free(struct attach *attach);

/* Tells the outcome and ends. */
void attach_finish(struct attach *attach, const struct attach_outcome *outcome);
/* program: or what attach_outcome says; log may be NULL. */
void attach_fail(struct attach *attach, enum attach_error error, const char *program,
		 const char *log, const char *format, ...) __attribute__((format(printf, 5, 6)));
void attach_fail_errno(struct attach *attach, int error); /* negative */
void attach_fail_limit(struct attach *attach, const char *what, uint64_t limit);
/* A job failed. refused: what "status": "error" means at this stage. */
void attach_fail_job(struct attach *attach, int result, enum attach_error refused,
		     json_object *reply, const char *message);

/* Has the chosen programs verified, and those on the host loaded; then attach_verified()
 * (attach-verify.c). */
void attach_verify(struct attach *attach);
void attach_verified(struct attach *attach);
/* An attach that is cancelled: whether it is to be freed now; else, if a thread has it, it is made
 * to end, and attach_verify_end() frees it. */
bool attach_verify_cancel(struct attach *attach);
void attach_verify_end(struct attach *attach);

/* The last stages, after verification (attach-compile.c). */
void attach_compile(struct attach *attach);
