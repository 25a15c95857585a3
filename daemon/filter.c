/* SPDX-License-Identifier: Apache-2.0 */

/* A rule of the interest page has no room for globs: a filter whose exe is one gives a rule that is
 * wider. */

#include "filter.h"

#include <fnmatch.h>
#include <string.h>

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

bool filter_matches(const struct filter *filter, const struct process_facts *facts) {
	if (filter->has_pid && filter->pid != facts->pid)
		return false;
	if (filter->has_uid && filter->uid != facts->uid)
		return false;
	if (filter->has_comm && strncmp(filter->comm, facts->comm, sizeof(filter->comm)) != 0)
		return false;
	if (filter->has_exe && strcmp(filter->exe, facts->exe) != 0 &&
	    (!facts->exe[0] || fnmatch(filter->exe, facts->exe, 0) != 0))
		return false;
	return true;
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
	if (filter->has_exe && !strpbrk(filter->exe, "*?[\\")) {
		rule->flags |= INTEREST_RULE_EXE;
		rule->exe = interest_hash(filter->exe);
	}
}
