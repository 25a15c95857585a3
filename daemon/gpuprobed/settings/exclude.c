/* SPDX-License-Identifier: Apache-2.0 */

#include "exclude.h"

#include "daemon/gpuprobed/clients/client.h"
#include "daemon/gpuprobed/daemon.h"
#include "daemon/gpuprobed/trace/session/session.h"

const char *exclude_find(const struct config *config, const struct process_facts *facts) {
	for (size_t i = 0; i < config->excludes.n; i++)
		if (filter_matches(&config->exclude_filters[i], facts))
			return config->excludes.items[i];
	return NULL;
}

size_t exclude_to_page(const struct config *config,
		       struct interest_rule page[static INTEREST_EXCLUDE_RULES_MAX]) {
	size_t n = 0;

	for (size_t i = 0; i < config->excludes.n && n < INTEREST_EXCLUDE_RULES_MAX; i++)
		if (filter_is_exact(&config->exclude_filters[i]))
			filter_to_rule(&config->exclude_filters[i], &page[n++]);
	return n;
}

void exclude_apply(struct daemon *daemon) {
	struct process *process;

	LIST_FOREACH(process, &daemon->processes.list, link)
		if (exclude_find(daemon->config, &process->facts))
			client_retire_all(daemon, process);
	if (daemon->traces)
		trace_table_look_again(daemon->traces);
}
