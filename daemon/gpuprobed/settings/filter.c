/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which processes an attachment applies to (filter.h), and makes a rule for the interest
 * page from it. A rule has no room for globs: a filter whose exe is a glob gives a rule that
 * matches more.
 */

#include "filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_MOUNT "/sys/fs/cgroup"
#define FILTER_GLOB "*?[\\"

bool filter_set_comm(struct filter *filter, const char *comm) {
	size_t n = strlen(comm);

	if (n == 0 || n >= sizeof(filter->comm))
		return false;
	memset(filter->comm, 0, sizeof(filter->comm));
	memcpy(filter->comm, comm, n);
	filter->has_comm = true;
	return true;
}

bool filter_set_exe(struct filter *filter, const char *exe) {
	size_t n = strlen(exe);

	if (n == 0 || n >= sizeof(filter->exe) || !strchr("/*?[", exe[0]))
		return false;
	memcpy(filter->exe, exe, n + 1);
	filter->has_exe = true;
	return true;
}

bool filter_set_cgroup(struct filter *filter, const char *cgroup) {
	size_t n = strlen(cgroup);

	while (n > 1 && cgroup[n - 1] == '/')
		n--;
	if (n <= 1 || n >= sizeof(filter->cgroup) || cgroup[0] != '/')
		return false;
	memcpy(filter->cgroup, cgroup, n);
	filter->cgroup[n] = '\0';
	filter->has_cgroup = true;
	return true;
}

static const char *filter_set_uid(struct filter *filter, const char *text) {
	unsigned long long uid;
	char *end;

	errno = 0;
	uid = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || uid >= UINT32_MAX)
		return "expected a number after uid=";
	filter->has_uid = true;
	filter->uid = (uid_t)uid;
	return NULL;
}

const char *filter_set_match(struct filter *filter, const char *text, bool may_glob) {
	if (strncmp(text, "uid=", 4) == 0)
		return filter_set_uid(filter, text + 4);
	if (strncmp(text, "exe=", 4) == 0 && may_glob)
		return filter_set_exe(filter, text + 4)
			       ? NULL
			       : "expected an absolute path or a glob after exe=";
	if (strncmp(text, "exe=", 4) == 0)
		return text[4] == '/' && !strpbrk(text + 4, FILTER_GLOB) &&
				       filter_set_exe(filter, text + 4)
			       ? NULL
			       : "expected an absolute path after exe=, and no glob";
	if (strncmp(text, "comm=", 5) == 0)
		return filter_set_comm(filter, text + 5)
			       ? NULL
			       : "expected a name of 1 to 15 bytes after comm=";
	if (strncmp(text, "cgroup=", 7) == 0) {
		text += 7;
		if (strncmp(text, CGROUP_MOUNT "/", strlen(CGROUP_MOUNT "/")) == 0)
			text += strlen(CGROUP_MOUNT); /* as a shell sees it */
		return filter_set_cgroup(filter, text)
			       ? NULL
			       : "expected a path below / after cgroup=, as in /proc/PID/cgroup";
	}
	return "expected uid=N, exe=PATH, comm=NAME or cgroup=PATH";
}

bool filter_is_empty(const struct filter *filter) {
	return !filter->has_pid && !filter->has_uid && !filter->has_comm && !filter->has_exe &&
	       !filter->has_cgroup;
}

bool filter_is_exact(const struct filter *filter) {
	return !filter->has_exe || !strpbrk(filter->exe, FILTER_GLOB);
}

/* Whether the cgroup is that of the filter, or lies under it. */
static bool filter_cgroup_matches(const char *wanted, const char *cgroup) {
	size_t n = strlen(wanted);

	return strncmp(wanted, cgroup, n) == 0 && (!cgroup[n] || cgroup[n] == '/');
}

bool filter_matches(const struct filter *filter, const struct process_facts *facts) {
	if (filter->has_pid && (filter->pid != facts->pid ||
				(filter->start_time && filter->start_time != facts->start_time)))
		return false;
	if (filter->has_uid && filter->uid != facts->uid)
		return false;
	if (filter->own && !facts->own)
		return false;
	if (filter->has_comm && strncmp(filter->comm, facts->comm, sizeof(filter->comm)) != 0)
		return false;
	if (filter->has_exe && strcmp(filter->exe, facts->exe) != 0 &&
	    (!facts->exe[0] || fnmatch(filter->exe, facts->exe, 0) != 0))
		return false;
	if (filter->has_cgroup && !filter_cgroup_matches(filter->cgroup, facts->cgroup))
		return false;
	return true;
}

bool filter_implies(const struct filter *filter, const struct filter *other) {
	return (!other->has_pid || (filter->has_pid && filter->pid == other->pid &&
				    filter->start_time == other->start_time)) &&
	       (!other->has_uid || (filter->has_uid && filter->uid == other->uid)) &&
	       (!other->own || filter->own) &&
	       (!other->has_comm || (filter->has_comm && memcmp(filter->comm, other->comm,
								sizeof(filter->comm)) == 0)) &&
	       (!other->has_exe || (filter->has_exe && strcmp(filter->exe, other->exe) == 0)) &&
	       (!other->has_cgroup ||
		(filter->has_cgroup && filter_cgroup_matches(other->cgroup, filter->cgroup)));
}

void filter_to_rule(const struct filter *filter, struct interest_rule *rule) {
	memset(rule, 0, sizeof(*rule));
	if (filter->has_pid) {
		rule->flags |= INTEREST_RULE_PID;
		rule->pid = (uint32_t)filter->pid;
	}
	if (filter->has_uid) {
		rule->flags |= INTEREST_RULE_UID;
		rule->uid = (uint32_t)filter->uid;
	}
	if (filter->has_comm) {
		rule->flags |= INTEREST_RULE_COMM;
		memcpy(rule->comm, filter->comm, sizeof(rule->comm));
	}
	if (filter->has_exe && filter_is_exact(filter)) {
		rule->flags |= INTEREST_RULE_EXE;
		rule->exe = interest_hash(filter->exe);
	}
	if (filter->has_cgroup) {
		rule->flags |= INTEREST_RULE_CGROUP;
		rule->cgroup = interest_hash(filter->cgroup);
	}
}
