/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which processes the setting `exclude` leaves alone (exclude.h), and writes that part of
 * the interest page. It reads the configuration only.
 */

#include "exclude.h"

#include "config.h"

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
