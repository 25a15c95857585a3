/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which processes a session is about (session.h), from /proc.
 *
 * Which processes a session is about. What /proc says of one is kept for a second: sources ask for
 * each record. A process that has ended keeps what it was, because its last records come later; one
 * that takes its pid is told from it by its start time. Children of traced processes (`follow`) are
 * known by fork events where a source has them, else by their parents in /proc as long as those
 * live, and by what they say themselves: a daemon's parents are gone when it begins.
 *
 * A caller who may not trace others' processes does not get those of his own that have other rights
 * than he (set-user-id programs).
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "daemon/gpuprobed/settings/exclude.h"
#include "foreign.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "sink-private.h"

#define PIDFD_EXIT (UINT64_C(1) << 3) /* PIDFD_INFO_EXIT */
#define MEMBER_FRESH_MS                                                                            \
	1000 /* that what /proc says is believed; in a trace of who may not trace all, one turn of \
		the loop: rights change by an exec */
#define MEMBER_GENERATIONS_MAX 16
#define MEANT_DRAINS_MAX                                                                     \
	8 /* parts of what hooks saw, more than their ring holds, to find the beginning of a \
	     process */
#define REFUSED_NS UINT64_C(1000000000)
#define LEAVING_MAX 1024 /* processes without connections that are watched for their end */
#define TARGET_LINGER 3 /* ticks after the end of a process, in which its last records come */

/* ---- facts ---- */

struct member_status {
	pid_t parent;
	uid_t uids[3]; /* real, effective, saved */
};

static bool status_read(pid_t pid, struct member_status *status) {
	char text[4096], path[64], *line;
	unsigned int a, b, c;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (file_read_text(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return false;
	line = strstr(text, "\nPPid:\t");
	if (!line)
		return false;
	status->parent = (pid_t)strtol(line + 7, NULL, 10);
	line = strstr(text, "\nUid:\t");
	if (!line || sscanf(line + 6, "%u %u %u", &a, &b, &c) != 3)
		return false;
	status->uids[0] = a;
	status->uids[1] = b;
	status->uids[2] = c;
	return true;
}

static bool session_may(const struct trace_session *session, const struct member_status *status) {
	const uid_t caller = session->options->caller;

	return session->options->all_users ||
	       (status->uids[0] == caller && status->uids[1] == caller &&
		status->uids[2] == caller);
}

static bool session_excludes(const struct trace_session *session,
			     const struct process_facts *facts) {
	return session->shared->config && exclude_find(*session->shared->config, facts);
}

static bool session_tell(struct trace_session *session, const struct trace_member *member,
			 uint32_t what, uint64_t time, int status);

static bool session_targets(const struct trace_session *session,
			    const struct process_facts *facts) {
	for (size_t i = 0; i < session->n_targets; i++)
		if (session->targets[i].pid == facts->pid &&
		    session->targets[i].start_time == facts->start_time)
			return true;
	return false;
}

static struct trace_member *session_member_at(struct trace_session *session, pid_t pid,
					      unsigned int generation);

static bool member_matches(struct trace_session *session, struct trace_member *member,
			   unsigned int generation) {
	const struct trace_options *options = session->options;
	const struct trace_member *parent;

	if (member->child)
		return true;
	if (options->n_pids ? session_targets(session, &member->facts)
			    : filter_matches(&options->filter, &member->facts) &&
				      filter_matches(&session->cgroup, &member->facts))
		return true;
	if (!options->follow || member->parent <= 1 || generation == MEMBER_GENERATIONS_MAX)
		return false;
	parent = session_member_at(session, member->parent, generation + 1);
	member->child = parent && parent->means;
	return member->child;
}

/* Reads what /proc says now. */
static void member_refresh(struct trace_session *session, struct trace_member *member, pid_t pid,
			   unsigned int generation) {
	const uint64_t now = monotonic_now();
	uint64_t known = member->known ?: now;
	struct member_status status;
	struct process_facts facts;
	bool renamed, execed;

	member->checked = uv_now(session->shared->loop);
	if (process_facts_read(&facts, pid, -1) < 0 || !status_read(pid, &status)) {
		member->alive = false;
		return;
	}
	if (member->facts.start_time &&
	    member->facts.start_time != facts.start_time) /* another process has its pid */
		*member = (struct trace_member){ .checked = member->checked };
	if (!facts.exe[0]) /* it is about to end */
		memcpy(facts.exe, member->facts.exe, sizeof(facts.exe));
	renamed = member->announced && strcmp(member->facts.comm, facts.comm) != 0;
	execed = member->announced && strcmp(member->facts.exe, facts.exe) != 0;
	member->alive = true;
	member->known = now;
	member->facts = facts;
	member->parent = status.parent;
	member->busy = true;
	member->means = session_may(session, &status) && !session_excludes(session, &facts) &&
			member_matches(session, member, generation);
	member->busy = false;
	if (execed && !session->hooks) /* when, is not known: after that, and before all that the
					  program has called */
		session_tell(session, member, TRACE_PROCESS_EXEC, known, 0);
	else if (execed || renamed) /* hooks tell of an exec themselves, and when it was */
		session_tell(session, member, TRACE_PROCESS_SEEN, now, 0);
}

/* Makes room: drops those that nobody means. */
static void session_prune(struct trace_session *session) {
	struct hash_table *table = &session->members.table;

	session->last_member = NULL;
	for (size_t i = table->n; i-- > 0;) {
		struct number_entry *entry = hash_table_at(table, i);
		struct trace_member *member = entry->pointer;

		if (member->busy ||
		    ((member->means || member->announced) && (!member->ended || member->alive)))
			continue;
		free(member);
		hash_table_remove(table, entry);
	}
}

static struct trace_member *session_known(struct trace_session *session, pid_t pid) {
	struct trace_member *member = session->last_member;

	if (!member || member->facts.pid != pid)
		member = pid > 0 ? number_map_pointer(&session->members, (uint64_t)pid) : NULL;
	if (member)
		session->last_member = member;
	return member;
}

static struct trace_member *session_add_member(struct trace_session *session, pid_t pid) {
	struct trace_member *member;

	if (session->members.table.n >= SESSION_PROCESSES_MAX)
		session_prune(session);
	member = session->members.table.n < SESSION_PROCESSES_MAX ? calloc(1, sizeof(*member))
								  : NULL;
	if (!member || !number_map_add_pointer(&session->members, (uint64_t)pid, member)) {
		free(member);
		return NULL;
	}
	member->facts.pid = pid;
	return member;
}

static struct trace_member *session_member_at(struct trace_session *session, pid_t pid,
					      unsigned int generation) {
	struct trace_member *member;

	if (pid <= 0)
		return NULL;
	member = session_known(session, pid);
	if (!member) {
		member = session_add_member(session, pid);
		if (member)
			member_refresh(session, member, pid, generation);
	} else if (!member->checked ||
		   uv_now(session->shared->loop) - member->checked >=
			   (session->options->all_users ? MEMBER_FRESH_MS : 1)) {
		member_refresh(session, member, pid, generation);
		member->facts.pid = pid;
	}
	return member;
}

struct trace_member *session_member(struct trace_session *session, pid_t pid) {
	return session_member_at(session, pid, 0);
}

void session_forget_facts(struct trace_session *session, pid_t pid) {
	struct trace_member *member = session_known(session, pid);

	if (member)
		member->checked = 0;
}

void session_descends(struct trace_session *session, pid_t pid, pid_t ancestor) {
	const struct trace_member *from = session->options->follow && ancestor != pid
						  ? session_member(session, ancestor)
						  : NULL;
	struct trace_member *member;
	uint64_t since;
	uid_t uid;

	if (!from || !from->means)
		return;
	since = from->facts.start_time;
	uid = from->facts.uid;
	member = session_member(session, pid); /* may let go of the other one */
	if (!member || !member->alive || member->child || member->facts.uid != uid ||
	    member->facts.start_time < since)
		return;
	member->child = true;
	member->checked = 0;
}

void session_forget_all_facts(struct trace_session *session) {
	for (size_t i = 0; i < session->members.table.n; i++) {
		struct trace_member *member = number_map_at(&session->members, i)->pointer;

		member->checked = 0;
	}
}

bool trace_session_means(struct trace_session *session, pid_t pid) {
	const struct trace_member *member = session_member(session, pid);

	return member && member->means;
}

bool trace_session_meant(struct trace_session *session, pid_t pid, uint64_t time) {
	for (int i = 0; i < MEANT_DRAINS_MAX; i++) {
		if (trace_session_means(session, pid))
			return true;
		if (!session->hooks || time < session->hooks_read)
			return false;
		session->catch_up(session);
	}
	return trace_session_means(session, pid);
}

bool trace_session_missed(struct trace_session *session, pid_t pid) {
	const struct trace_member *member = session_known(session, pid);

	/* who traces others' processes alone hears that there was one; and children of processes
	 * are known by their forks */
	return session->options->all_users && !(session->options->n_pids && session->hooks) &&
	       (!member || (!member->alive && !member->known));
}

bool trace_session_has_shim(struct trace_session *session, pid_t pid) {
	const struct trace_member *member = session_known(session, pid);

	return member && member->shim;
}

bool session_within_rate(struct trace_session *session, pid_t pid) {
	struct trace_member *member;
	uint64_t now;

	if (!session->options->rate || pid <= 0)
		return true;
	member = session_member(session, pid);
	if (!member)
		return true;
	now = uv_now(session->shared->loop);
	if (now - member->second >= 1000) {
		member->second = now;
		member->n_second = 0;
	}
	return member->n_second++ < session->options->rate;
}

/* ---- records ---- */

static uint64_t thread_key(pid_t pid, pid_t tid) {
	return (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid;
}

static bool session_tell(struct trace_session *session, const struct trace_member *member,
			 uint32_t what, uint64_t time, int status) {
	union {
		struct trace_process process;
		unsigned char bytes[sizeof(struct trace_process) + FILTER_EXE_SIZE + 8];
	} record = {};
	size_t n = strlen(member->facts.exe);

	record.process.record =
		(struct trace_record){ .size = (uint32_t)(sizeof(record.process) + (n + 8) / 8 * 8),
				       .type = TRACE_PROCESS };
	record.process.time = time;
	record.process.pid = (uint32_t)member->facts.pid;
	record.process.parent = (uint32_t)member->parent;
	record.process.uid = (uint32_t)member->facts.uid;
	record.process.what = what;
	record.process.status = status;
	memcpy(record.process.comm, member->facts.comm, sizeof(record.process.comm));
	memcpy(record.process.exe, member->facts.exe, n);
	number_map_remove(&session->threads,
			  thread_key(member->facts.pid,
				     member->facts.pid)); /* whose name may be another, too */
	return trace_session_emit(session, &record.process.record, record.process.pid, 0);
}

void trace_session_process(struct trace_session *session, pid_t pid) {
	struct trace_member *member = session_member(session, pid);

	if (member && !member->announced)
		member->announced =
			session_tell(session, member, TRACE_PROCESS_SEEN, monotonic_now(), 0);
}

void trace_session_thread(struct trace_session *session, pid_t pid, pid_t tid) {
	struct trace_thread record = { .record = { .size = sizeof(record), .type = TRACE_THREAD },
				       .pid = (uint32_t)pid,
				       .tid = (uint32_t)tid };
	const uint64_t key = thread_key(pid, tid);
	char path[64];

	if (tid <= 0 || number_map_find(&session->threads, key))
		return;
	if (session->threads.table.n >= SESSION_THREADS_MAX) /* begin anew: told twice is fine */
		number_map_deinit(&session->threads);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)tid);
	file_read_text(AT_FDCWD, path, record.comm, sizeof(record.comm));
	record.comm[strcspn(record.comm, "\n")] = '\0';
	if (trace_session_emit(session, &record.record, record.pid, record.tid))
		number_map_add(&session->threads, key, 1);
}

void trace_session_forked(struct trace_session *session, pid_t parent, pid_t child, uint64_t time) {
	const struct trace_member *from = session_known(session, parent);
	struct trace_member *member;
	struct process_facts facts;
	bool child_too;

	if (!from || !from->means)
		return;
	facts = from->facts;
	child_too = session->options->follow || !session->options->n_pids;
	member = session_known(session, child);
	if (member && member->announced && !member->ended)
		return; /* somebody else told it */
	member = member ?: session_add_member(session, child);
	if (!member || !child_too)
		return;
	*member = (struct trace_member){ .facts = facts,
					 .known = time,
					 .parent = parent,
					 .means = true,
					 .child = session->options->follow };
	member->facts.pid = child;
	member->facts.start_time = 0; /* not read yet */
	member->announced = session_tell(session, member, TRACE_PROCESS_FORK, time, 0);
}

bool trace_session_execed(struct trace_session *session, pid_t pid, uint64_t time) {
	struct trace_member *member = session_known(session, pid);
	const bool announced = member && member->announced;

	if (member) {
		member->checked = 0;
		member->announced = false; /* it is told here */
		member->facts.exe[0] = '\0'; /* that of a zombie cannot be read any more: it has
						none, rather than the one before */
	}
	member = session_member(session, pid);
	if (!member)
		return false;
	member->announced = announced; /* one that is gone already stays as it was */
	if (member->means && member->alive)
		member->announced =
			session_tell(session, member, TRACE_PROCESS_EXEC, time, 0) || announced;
	return member->alive;
}

void trace_session_ended(struct trace_session *session, pid_t pid, int status, uint64_t time) {
	struct trace_member *member = session_known(session, pid);

	if (!member || !member->means || member->ended)
		return;
	if (!member->announced)
		member->announced = session_tell(session, member, TRACE_PROCESS_SEEN, time, 0);
	member->ended = true;
	member->alive = false;
	session_tell(session, member, TRACE_PROCESS_EXIT, time, status);
}

/* ---- pids ---- */

/* Whether there is something that only the shim tells. */
static bool needs_shim(const struct trace_options *options) {
	return options->shim && (!options->bpf || options->gpu);
}

void session_tell_refused(struct trace_session *session, bool last) {
	const size_t n = session->refused.n;
	char pids[128] = "", more[32] = "";
	size_t n_text = 0;

	if (!n || (!last && monotonic_now() - session->refused.since < REFUSED_NS))
		return;
	for (size_t i = 0; i < n && i < SESSION_REFUSED_SHOWN; i++)
		n_text += (size_t)snprintf(pids + n_text, sizeof(pids) - n_text, "%s%d",
					   i ? ", " : "", (int)session->refused.pids[i]);
	if (n > SESSION_REFUSED_SHOWN)
		snprintf(more, sizeof(more), " and %zu more", n - SESSION_REFUSED_SHOWN);
	trace_session_missing(session, "process%s %s%s: %s", n > 1 ? "es" : "", pids, more,
			      session->refused.why);
	session->refused.n = 0;
}

void session_refused(struct trace_session *session, pid_t pid, const char *why) {
	struct trace_member *member;

	if (session->finished || !needs_shim(session->options))
		return;
	member = session_known(session, pid);
	if (member && member->refused) /* anybody can cause it, as often as they like */
		return;
	member = session_member(session, pid);
	if (!member || !member->means || member->shim || member->refused)
		return;
	member->refused = true;
	if (strcmp(session->refused.why, why) != 0)
		session_tell_refused(session, true);
	if (!session->refused.n)
		session->refused.since = monotonic_now();
	snprintf(session->refused.why, sizeof(session->refused.why), "%s", why);
	if (session->refused.n < SESSION_REFUSED_SHOWN)
		session->refused.pids[session->refused.n] = pid;
	session->refused.n++;
}

/* Says what only the shim would tell of a process that has libcuda without it. One without libcuda
 * may be about to begin its program (`trace -- CMD`). */
static void session_look_for_shim(struct trace_session *session, pid_t pid) {
	const struct trace_options *options = session->options;
	char *maps;
	size_t n;

	if (!needs_shim(options))
		return;
	maps = foreign_read(pid, "maps", FOREIGN_MAPS_MAX, &n);
	if (maps && strstr(maps, "/libcuda.so") && !strstr(maps, "/libgpuprobe-shim"))
		trace_session_missing(session, "process %d has no shim (gpuprobe-shim(7)): %s",
				      (int)pid,
				      options->bpf   ? "times of its kernels"
				      : options->gpu ? "its calls and kernels"
						     : "its calls");
	free(maps);
}

/* One of `pids`. 0, TRACE_E_GONE, TRACE_E_FOREIGN, TRACE_E_EXCLUDED, or -ENOMEM. */
static int session_add_target(struct trace_session *session, pid_t pid) {
	struct trace_target *target = &session->targets[session->n_targets];
	struct member_status status;
	struct process_facts facts;
	int r;

	target->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (target->pidfd < 0)
		return TRACE_E_GONE;
	session->n_targets++;
	r = process_facts_read(&facts, pid, target->pidfd);
	if (r == -ENOMEM)
		return r;
	if (r < 0 || !status_read(pid, &status))
		return TRACE_E_GONE;
	target->pid = pid;
	target->start_time = facts.start_time;
	if (!session_may(session, &status))
		return TRACE_E_FOREIGN;
	if (session_excludes(session, &facts))
		return TRACE_E_EXCLUDED;
	trace_session_process(session, pid);
	session_look_for_shim(session, pid);
	return 0;
}

int session_add_targets(struct trace_session *session, uint32_t *bad_pid) {
	const struct trace_options *options = session->options;
	int r = 0;

	session->targets = calloc(options->n_pids ?: 1, sizeof(*session->targets));
	if (!session->targets)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < options->n_pids; i++) {
		*bad_pid = options->pids[i];
		r = session_add_target(session, (pid_t)options->pids[i]);
	}
	return r;
}

void session_watch_end(struct trace_session *session, pid_t pid, int pidfd) {
	struct trace_target *grown;

	if (pidfd < 0 || session->hooks ||
	    session->n_leaving == LEAVING_MAX) /* hooks tell it themselves, and how it ended */
		return;
	for (size_t i = 0; i < session->n_leaving; i++)
		if (session->leaving[i].pid == pid) /* it had left before, and come again */
			return;
	grown = realloc(session->leaving, (session->n_leaving + 1) * sizeof(*grown));
	if (!grown)
		return;
	session->leaving = grown;
	session->leaving[session->n_leaving++] =
		(struct trace_target){ .pid = pid, .pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3) };
}

/* As of waitpid(), where the kernel says that of others' children (Linux 6.15, once the parent has
 * waited for it); else 0. */
static int target_status(int pidfd) {
	struct {
		uint64_t mask, cgroup;
		uint32_t ids[11];
		int32_t status;
	} info = { .mask = PIDFD_EXIT };

	_Static_assert(sizeof(info) == 64, "the first version of the kernel's struct");
	return ioctl(pidfd, _IOWR(0xff, 11, info), &info) == 0 && info.mask & PIDFD_EXIT
		       ? info.status
		       : 0;
}

/* Processes whose connections were closed: most are about to end. */
static void session_look_at_leaving(struct trace_session *session, bool last) {
	size_t n = 0;

	for (size_t i = 0; i < session->n_leaving; i++) {
		struct trace_target *leaving = &session->leaving[i];
		const bool ended = pidfd_has_ended(leaving->pidfd);

		if (ended)
			trace_session_ended(session, leaving->pid, target_status(leaving->pidfd),
					    monotonic_now());
		if (ended || last || leaving->pidfd < 0)
			fd_close(leaving->pidfd);
		else
			session->leaving[n++] = *leaving;
	}
	session->n_leaving = n;
}

bool session_look_at_targets(struct trace_session *session, bool last) {
	size_t n_ended = 0;

	session_look_at_leaving(session, last);

	for (size_t i = 0; i < session->n_targets; i++) {
		struct trace_target *target = &session->targets[i];

		if (pidfd_has_ended(target->pidfd) && (last || ++target->ending > TARGET_LINGER)) {
			trace_session_ended(session, target->pid, target_status(target->pidfd),
					    monotonic_now());
			target->pidfd = fd_close(target->pidfd);
		}
		n_ended += target->pidfd < 0;
	}
	return session->n_targets && n_ended == session->n_targets;
}

void session_deinit_processes(struct trace_session *session) {
	number_map_free(&session->members);
	number_map_deinit(&session->threads);
	for (size_t i = 0; i < session->n_targets; i++)
		fd_close(session->targets[i].pidfd);
	free(session->targets);
	for (size_t i = 0; i < session->n_leaving; i++)
		fd_close(session->leaving[i].pidfd);
	free(session->leaving);
}
