/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of struct trace_uprobe: its programs (uprobe-load.c), its libraries (uprobe-library.c),
 * the rest (uprobe.c). */

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/gpuprobed/trace/bpf/uprobe.h"
#include "libcuda.h"
#include "daemon/gpuprobed/trace/sink/number-map.h"
#include "source.h"
#include "uprobe-link.h"

#define UPROBE_LIBRARIES_MAX 64
#define UPROBE_USERS_MAX 256
#define UPROBE_FOUND_MAX 4096
#define UPROBE_MORE_MAX 256
#define UPROBE_LATE_MAX 16
#define UPROBE_PATH_MAX 256 /* of what is shown of a path */

struct bpf_object;
struct function;
struct libcuda_watch;
struct ring_buffer;

/* What tests force. */
struct uprobe_tuning {
	enum uprobe_rung first; /* of the ladder */
	bool only_first; /* no others */
	bool hash; /* states in a hash, as without BTF */
	bool wide; /* as where links may not be of one process */
	bool no_usual; /* no libraries but those of processes */
	bool detach_now;
	bool whole_scan; /* the first look at all processes takes as long as it takes */
	bool no_linger; /* what nobody uses goes when that is seen */
};

/* The programs, in the kernel. */
struct uprobe_engine {
	struct bpf_object *object;
	struct uprobe_programs programs;
	enum uprobe_rung rung;
	int rows, processes, lost, storage, threads, counts; /* maps */
	bool hash;
	bool wide; /* links of libraries are of all processes, whichever are meant: the programs
		      refuse others */
	struct uprobe_control *control; /* shared with the programs */
	struct ring_buffer *ring;
	size_t n_cpus;
	uint64_t *lost_now; /* one for each CPU */
	uint64_t n_lost; /* that have been told */
};

/* A file, and who of those that are traced has it mapped, as far as they had no shim when that was
 * seen. */
struct uprobe_library {
	struct libcuda *file;
	struct uprobe_link *link; /* NULL: dormant, as only processes with the shim use it; or it
				     could not be attached */
	uint32_t id; /* of names and cookies: never that of another */
	bool kept; /* as one of the host's it stays */
	size_t n_users;
	pid_t users[UPROBE_USERS_MAX];
	uint64_t unused; /* CLOCK_MONOTONIC: since when it has no user that is known; 0: it has */
	bool broken,
		told; /* it could not be attached; what is to be said about its functions was */
	uint64_t retry; /* CLOCK_MONOTONIC: when a broken one is tried again */
	/* functions that it has given to processes and does not export, and links of them: those of
	 * a process from the oldest and largest on */
	size_t n_found;
	struct uprobe_found {
		uint64_t entry, offset;
		uint32_t row;
		pid_t pid;
		uint32_t link; /* id; 0: none yet */
	} found[UPROBE_FOUND_MAX];
	size_t n_more;
	uint32_t last_more; /* id */
	struct uprobe_more {
		struct uprobe_link *link;
		pid_t pid;
		uint32_t id;
		uint32_t n; /* functions */
	} more[UPROBE_MORE_MAX];
};

struct trace_uprobe {
	struct trace_session *session;
	struct uprobe_tuning tuning;
	uint64_t functions[TRACE_FUNCTION_MAX / 64];
	uint32_t *pids;
	size_t n_pids;
	bool closed; /* these alone */
	bool extras, aggregate;
	struct uprobe_engine engine;
	struct uprobe_library libraries[UPROBE_LIBRARIES_MAX];
	size_t n_libraries;
	uint32_t last_library; /* id */
	bool full; /* there were once more of them than that, which was said */
	bool unfollowed; /* there were once more functions by pointers than can be followed, which
			    was said */
	uint64_t looked; /* CLOCK_MONOTONIC: when one looked whether libraries have users */
	pid_t finding; /* the process that is being looked at, or 0 */
	struct libcuda_watch *watch;
	struct uprobe_pending {
		pid_t pid;
		uint64_t due, inode;
		char path[UPROBE_PATH_MAX];
	} pending[UPROBE_USERS_MAX]; /* have mapped a library; if one is dormant looked at when the
					shim would have said that it is there */
	size_t n_pending;
	bool started; /* what was there at the beginning has been attached */
	struct uprobe_late { /* libraries of which calls are missing, told or about to be */
		pid_t pid;
		uint64_t inode, due;
		bool gone, told;
		char path[UPROBE_PATH_MAX];
	} late[UPROBE_LATE_MAX];
	size_t n_late;
	struct number_map names; /* of kernels: to texts */
	struct number_map seen; /* processes: to 1 */
	struct uprobe_code { /* where a process has code of libraries */
		pid_t pid;
		uint64_t read, next; /* CLOCK_MONOTONIC: when it was read, and when one may be read
					again */
		size_t n;
		struct {
			uint64_t start, end, offset;
			size_t library;
		} ranges[16];
	} code;
	size_t n_taken; /* records of a drain */
	struct uprobe_counter *counter; /* NULL: nothing is counted */
	void *scan; /* DIR of /proc, while all processes are looked at */
	uint64_t scanned; /* when that ended */
	uint64_t scan_began, last_scan; /* when that began, and the one that ended last */
	bool scan_again;
};

/* Loads the programs by the best rung. 0, or negative errno after trace_session_missing(). */
int uprobe_engine_init(struct uprobe_engine *engine, struct trace_session *session,
		       const struct trace_options *options, const struct uprobe_tuning *tuning,
		       int (*record)(void *userdata, void *data, size_t size), void *userdata);
void uprobe_engine_deinit(struct uprobe_engine *engine);
/* Says whether a process's calls are wanted: a value of `processes`, or 0: nothing is known about
 * it. */
void uprobe_engine_set_process(struct uprobe_engine *engine, pid_t pid, uint64_t value);
/* How many records were lost since the last time. */
uint64_t uprobe_engine_take_lost(struct uprobe_engine *engine);
/* The call that a thread is within, as a record of *np bytes; NULL: none. It is the state's. */
const struct uprobe_record *uprobe_engine_unfinished(struct uprobe_engine *engine, pid_t tid,
						     struct uprobe_state *state, size_t *np);

/* uprobe-count.c: what the programs count. */
struct uprobe_counter;
/* Ends by free(). */
int uprobe_counter_new(struct uprobe_counter **counterp, struct trace_uprobe *uprobe);
/* Tells the session, if it is time or the last one. */
void uprobe_counter_read(struct uprobe_counter *counter, uint64_t now, bool last);

/* What to record of a function; one that the table does not have (NULL) is as wanted as another (or
 * NULL). False: nothing. */
bool uprobe_make_row(struct trace_uprobe *uprobe, const char *name, const struct function *function,
		     const struct function *like, struct uprobe_row *row);
/* The one process that links of libraries may be of; 0: there may be others. */
pid_t uprobe_only_process(const struct trace_uprobe *uprobe);

/* uprobe-follow.c: functions that libraries give away by cuGetProcAddress() and do not export. */
bool uprobe_gives_pointers(const char *name);
/* A process got a function. */
void uprobe_follow(struct trace_uprobe *uprobe, pid_t pid, const char *name, uint64_t address);
/* Attaches to those that have been found. */
void uprobe_follow_attach(struct trace_uprobe *uprobe);
/* Lets go of them; they stay known. */
void uprobe_follow_detach(struct uprobe_library *library);
/* Forgets what was found for processes that are gone: another may get the pid. */
void uprobe_follow_forget_gone(struct uprobe_library *library);

static inline bool uprobe_is_gone(pid_t pid) {
	return kill(pid, 0) < 0 && errno == ESRCH;
}

/* uprobe-late.c: calls of a library are missing, of which a process has made use before it was
 * probed; gone: that process has ended by now. */
void uprobe_late_add(struct trace_uprobe *uprobe, pid_t pid, uint64_t inode, const char *path,
		     bool gone);
void uprobe_late_tell(struct trace_uprobe *uprobe, uint64_t now);

/* Finds and attaches what matters at the beginning. */
void uprobe_libraries_start(struct trace_uprobe *uprobe);
/* Finds what has come. */
void uprobe_libraries_continue(struct trace_uprobe *uprobe, uint64_t now);
/* A process with the shim pays for the probes in its library: removes them where nobody else uses
 * it. */
void uprobe_libraries_shim(struct trace_uprobe *uprobe);
void uprobe_libraries_stop(struct trace_uprobe *uprobe);

/* A process that is not traced: its calls are not wanted, for a while. */
void uprobe_refuse_process(struct trace_uprobe *uprobe, pid_t pid);
/* A process of which calls have been seen. */
void uprobe_saw_process(struct trace_uprobe *uprobe, pid_t pid);

int uprobe_new_tuned(struct trace_uprobe **uprobep, struct trace_session *session,
		     const struct trace_options *options, const struct uprobe_tuning *tuning);
