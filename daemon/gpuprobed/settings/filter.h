/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The filter of an attachment: to which processes it applies. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/interest.h"

#define FILTER_COMM_SIZE 16
#define FILTER_EXE_SIZE 1024
#define FILTER_CGROUP_SIZE 1024

struct filter {
	bool has_pid, has_uid, has_comm, has_exe, has_cgroup;
	bool own; /* only processes that have no more rights than their user, so that this user may
		     examine them */
	pid_t pid;
	uint64_t start_time; /* as in process_facts: no later process with that pid; 0: not known,
				any */
	uid_t uid; /* real */
	char comm[FILTER_COMM_SIZE];
	char exe[FILTER_EXE_SIZE]; /* absolute path or glob */
	char cgroup[FILTER_CGROUP_SIZE]; /* /a/b: this one and those below */
};

/* What the daemon knows about a process; read by itself, from /proc. */
struct process_facts {
	pid_t pid;
	uid_t uid; /* real */
	bool own; /* all its user ids are this one, and it may be looked into (it is "dumpable") */
	uint64_t start_time; /* clock ticks since boot: pid and this name a process */
	char comm[FILTER_COMM_SIZE];
	char exe[FILTER_EXE_SIZE]; /* empty: could not be read */
	char cgroup[FILTER_CGROUP_SIZE]; /* in the unified hierarchy; empty: there is none */
};

/* Sets one condition. False if the text can never match: too long, or exe or cgroup not absolute;
 * and for the root of all cgroups, which is no condition. */
bool filter_set_comm(struct filter *filter, const char *comm);
bool filter_set_exe(struct filter *filter, const char *exe);
bool filter_set_cgroup(struct filter *filter, const char *cgroup);

/* Sets the condition uid=N, exe=PATH, comm=NAME or cgroup=PATH. NULL, or what is wrong. */
const char *filter_set_match(struct filter *filter, const char *text, bool may_glob);
/* Whether the rule of the page means the same processes as the filter, and no more. */
bool filter_is_exact(const struct filter *filter);

/* Does it mean every process? */
bool filter_is_empty(const struct filter *filter);

bool filter_matches(const struct filter *filter, const struct process_facts *facts);

/* Whether every process that matches this filter also matches `other`. */
bool filter_implies(const struct filter *filter, const struct filter *other);

/* The rule of the interest page: never narrower than the filter. */
void filter_to_rule(const struct filter *filter, struct interest_rule *rule);
