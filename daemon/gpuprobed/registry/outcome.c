/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Remembers what became of kernels and images, for `gpuprobectl why` (outcome.h).
 *
 * A ring, but with a bound for each uid, so that nobody makes others' outcomes be forgotten. Adding
 * one, and finding out whether it is known, take as long however many there are: a process has them
 * remembered by the hundred. Texts come from workers and shims: they are made printable when they
 * are stored, because they end on terminals.
 */

#include "outcome.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/gpuprobed/settings/filter.h"
#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "proto/kernel-plain.h"
#include "proto/wire.h"

#define OUTCOME_TEXT_MAX 2048 /* names of C++ templates are long */

void outcome_log_init(struct outcome_log *log) {
	*log = (struct outcome_log){};
	TAILQ_INIT(&log->list);
	if (getrandom(&log->seed, sizeof(log->seed), GRND_NONBLOCK) != sizeof(log->seed))
		log->seed = (uint64_t)(uintptr_t)log;
}

static struct outcome_user_list *outcome_users(struct outcome_log *log, uid_t uid) {
	return &log->users[(uid ^ uid >> 16) % OUTCOME_BUCKETS];
}

/* The user's, or NULL: there is nothing of his. */
static struct outcome_user *outcome_user(struct outcome_log *log, uid_t uid) {
	struct outcome_user *user;

	LIST_FOREACH(user, outcome_users(log, uid), link)
		if (user->uid == uid)
			return user;
	return NULL;
}

/* The user's, new if need be; NULL: no memory. */
static struct outcome_user *outcome_user_get(struct outcome_log *log, uid_t uid) {
	struct outcome_user *user = outcome_user(log, uid);

	if (user || !(user = calloc(1, sizeof(*user))))
		return user;
	user->uid = uid;
	TAILQ_INIT(&user->list);
	LIST_INSERT_HEAD(outcome_users(log, uid), user, link);
	return user;
}

/* Where those are that say the same. */
static size_t outcome_bucket(const struct outcome_log *log, pid_t pid, const char *kernel,
			     const uint64_t *attachments, size_t n, const char *reason) {
	XXH64_hash_t hash = XXH3_64bits_withSeed(kernel, strlen(kernel), log->seed ^ (uint64_t)pid);

	hash = XXH3_64bits_withSeed(reason, strlen(reason), hash);
	return XXH3_64bits_withSeed(attachments, n * sizeof(attachments[0]), hash) %
	       OUTCOME_BUCKETS;
}

static void outcome_free(struct outcome_log *log, struct outcome *outcome) {
	struct outcome_user *user = outcome->user;

	TAILQ_REMOVE(&log->list, outcome, link);
	log->n--;
	TAILQ_REMOVE(&user->list, outcome, user_link);
	if (!--user->n) {
		LIST_REMOVE(user, link);
		free(user);
	}
	LIST_REMOVE(outcome, same);
	free(outcome->kernel);
	free(outcome->demangled);
	free(outcome->reason);
	free(outcome);
}

void outcome_log_deinit(struct outcome_log *log) {
	while (!TAILQ_EMPTY(&log->list))
		outcome_free(log, TAILQ_FIRST(&log->list));
}

static char *outcome_text(const char *text) {
	char *copy;

	copy = strndup(text, OUTCOME_TEXT_MAX);
	if (copy)
		text_make_printable(copy);
	return copy;
}

/* Forgets the oldest of uid if it has too many, else the oldest of all if there are too many. */
static void outcome_log_trim(struct outcome_log *log, uid_t uid) {
	const struct outcome_user *user = outcome_user(log, uid);

	if (user && user->n >= OUTCOME_UID_MAX)
		outcome_free(log, TAILQ_LAST(&user->list, outcome_list));
	else if (log->n >= OUTCOME_MAX)
		outcome_free(log, TAILQ_LAST(&log->list, outcome_list));
}

int outcome_log_add(struct outcome_log *log, uid_t uid, pid_t pid, const char *comm,
		    enum outcome_kind kind, const struct outcome_subject *subject,
		    const char *reason) {
	size_t n_attachments = subject->n_attachments;
	struct outcome *outcome = NULL;
	struct outcome_user *user;

	outcome_log_trim(log, uid);
	if (n_attachments > OUTCOME_ATTACHMENTS_MAX)
		n_attachments = OUTCOME_ATTACHMENTS_MAX;
	user = outcome_user_get(log, uid);
	if (user)
		outcome = calloc(1, sizeof(*outcome) + n_attachments * sizeof(uint64_t));
	if (!outcome) {
		if (user && !user->n) {
			LIST_REMOVE(user, link);
			free(user);
		}
		return -ENOMEM;
	}
	outcome->user = user;
	outcome->number = ++log->last;
	outcome->uid = uid;
	outcome->pid = pid;
	outcome->time = clock_us(CLOCK_REALTIME);
	outcome->kind = kind;
	outcome->engine = subject->engine;
	strncpy(outcome->comm, comm, sizeof(outcome->comm) - 1);
	text_make_printable(outcome->comm);
	outcome->kernel = outcome_text(subject->kernel ?: "");
	outcome->demangled = outcome_text(subject->demangled ?: "");
	outcome->device_function = subject->device_function;
	outcome->reason = outcome_text(reason);
	outcome->n_attachments = n_attachments;
	if (n_attachments)
		memcpy(outcome->attachments, subject->attachments,
		       n_attachments * sizeof(uint64_t));
	TAILQ_INSERT_HEAD(&log->list, outcome, link);
	log->n++;
	TAILQ_INSERT_HEAD(&user->list, outcome, user_link);
	user->n++;
	LIST_INSERT_HEAD(
		&log->same[outcome_bucket(log, pid, outcome->kernel ?: "", outcome->attachments,
					  n_attachments, outcome->reason ?: "")],
		outcome, same);
	if (!outcome->kernel || !outcome->demangled || !outcome->reason) {
		outcome_free(log, outcome);
		return -ENOMEM;
	}
	return 0;
}

void outcome_tell(struct outcome_log *log, const struct process_facts *facts,
		  enum outcome_kind kind, const struct outcome_subject *subject,
		  const char *reason) {
	outcome_log_add(log, facts->uid, facts->pid, facts->comm, kind, subject, reason);
}

void outcome_tell_once(struct outcome_log *log, const struct process_facts *facts,
		       enum outcome_kind kind, const struct outcome_subject *subject,
		       const char *reason) {
	if (!outcome_log_has(log, facts->pid, subject, reason))
		outcome_tell(log, facts, kind, subject, reason);
}

bool outcome_log_has(const struct outcome_log *log, pid_t pid,
		     const struct outcome_subject *subject, const char *reason) {
	const size_t bucket = outcome_bucket(log, pid, subject->kernel ?: "", subject->attachments,
					     subject->n_attachments, reason);
	const struct outcome *outcome;

	LIST_FOREACH(outcome, &log->same[bucket], same)
		if (outcome->pid == pid && outcome->n_attachments == subject->n_attachments &&
		    strcmp(outcome->reason, reason) == 0 && outcome->engine == subject->engine &&
		    strcmp(outcome->kernel, subject->kernel ?: "") == 0 &&
		    (!subject->n_attachments ||
		     memcmp(outcome->attachments, subject->attachments,
			    subject->n_attachments * sizeof(subject->attachments[0])) == 0))
			return true;
	return false;
}

const char *outcome_engine_name(enum outcome_engine engine) {
	static const char *const names[] = {
		[OUTCOME_ENGINE_NONE] = "",
		[OUTCOME_ENGINE_PTX] = "ptx",
		[OUTCOME_ENGINE_SANITIZER] = "sanitizer",
		[OUTCOME_ENGINE_MACHINE_CODE] = "machine code",
	};

	return names[engine];
}

const char *outcome_kind_name(enum outcome_kind kind) {
	switch (kind) {
	case OUTCOME_PROBED:
		return "probed";
	case OUTCOME_NOT_PROBED:
		return "not-probed";
	case OUTCOME_FAILED:
		break;
	}
	return "failed";
}

static bool outcome_name_means(const char *pattern, const char *name, size_t n) {
	char copy[OUTCOME_TEXT_MAX + 1];

	if (n >= sizeof(copy))
		return false;
	memcpy(copy, name, n);
	copy[n] = '\0';
	if (strcmp(pattern, copy) == 0 || fnmatch(pattern, copy, 0) == 0)
		return true;
	kernel_plain_untag(copy);
	kernel_plain_unhash(copy);
	return strcmp(pattern, copy) == 0 || fnmatch(pattern, copy, 0) == 0;
}

bool outcome_is_left_alone(const char *text) {
	return strncmp(text, WIRE_REPORT_MODULE, strlen(WIRE_REPORT_MODULE)) == 0;
}

bool outcome_means(const struct outcome *outcome, const char *pattern) {
	return outcome_kernel_means(outcome->kernel, outcome->demangled, pattern);
}

bool outcome_kernel_means(const char *kernel, const char *demangled, const char *pattern) {
	const char *name = demangled, *end, *start = name;
	size_t n = strlen(name), base;
	int depth = 0;

	if (outcome_name_means(pattern, kernel, strlen(kernel)) ||
	    outcome_name_means(pattern, name, n))
		return true;
	/* without the parameters: up to the first '(' outside of template arguments that does not
	 * begin "(anonymous" */
	for (end = name; *end; end++) {
		if (*end == '<')
			depth++;
		else if (*end == '>')
			depth--;
		else if (*end == ' ' && depth == 0)
			start = end + 1; /* what was before is the return type */
		else if (*end == '(' && depth == 0 && strncmp(end, "(anonymous", 10) != 0)
			break;
		else if (*end == '(' && depth == 0 && strchr(end, ')'))
			end = strchr(end, ')');
	}
	if (end == name)
		return false;
	if (outcome_name_means(pattern, start, (size_t)(end - start)))
		return true;
	base = strcspn(start, "<");
	return base < (size_t)(end - start) && outcome_name_means(pattern, start, base);
}
