/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an item of a trace is to a script: which probes it is an event of, and its words. */

#include "evaluate.h"

/* What later items need of this one: how a kernel was launched, when its GPU had work last. */
void item_note(struct evaluator *evaluator, const struct trace_item *item);
bool item_fits(struct evaluator *evaluator, const struct probe *probe,
	       const struct trace_item *item);
struct value item_word(struct evaluator *evaluator, const struct event *event,
		       const struct node *node);
