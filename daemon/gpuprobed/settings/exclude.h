/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Processes that are left alone (setting `exclude`): neither probed nor traced, whatever is
 * attached. The interest page tells them, so that they ask nothing; where they cannot know, and of
 * globs, the daemon decides.
 */

#include "config.h"
#include "proto/interest.h"

#define EXCLUDE_REASON "excluded by configuration: exclude = %s"

/* The item of the setting that means the process, as it was written; NULL: it is not excluded. */
const char *exclude_find(const struct config *config, const struct process_facts *facts);

/* The rules for the interest page; how many. */
size_t exclude_to_page(const struct config *config,
		       struct interest_rule page[static INTEREST_EXCLUDE_RULES_MAX]);
