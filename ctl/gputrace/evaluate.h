/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Runs the bodies of host probes: over items of a trace, at the beginning, at the end, from time to
 * time. The maps of the script are its state.
 */

#include "ctl/trace/base/item.h"
#include "ctl/trace/decode/demangle.h"
#include "show.h"
#include "store.h"

struct event {
	const struct probe *probe;
	const struct trace_item *item; /* NULL: none */
	uint64_t nsecs;
};

struct evaluator {
	const struct script *script;
	struct show show;
	struct store host[SCRIPT_MAPS_MAX]; /* what host probes have put there */
	struct store gpu[SCRIPT_MAPS_MAX]; /* as of the last refresh */
	struct store base[SCRIPT_MAPS_MAX]; /* what was there when the map was cleared */
	/* Fills in gpu. Called at most once a body; NULL: nothing is on the GPU. */
	void (*refresh)(void *userdata);
	/* Gives the GPU what the host has set; NULL: nothing is on the GPU. */
	void (*share)(void *userdata, size_t map, int64_t number);
	void *userdata;
	bool changed[SCRIPT_MAPS_MAX]; /* maps that are shared: since they were */
	bool exited; /* by exit() */
	int status;
	bool failed; /* no memory: the results are not complete */
	const struct node *endless; /* a while that did not end; NULL: none */
	/* private */
	bool refreshed;
	struct trace_demangler demangler;
	struct store_key key;
	struct kept_text *texts; /* of the body that runs */
	struct launched *launched; /* by the number of its item; NULL: none so far */
	struct busy *busy; /* GPUs of processes */
	size_t n_busy;
	uint64_t idle; /* nanoseconds without a kernel before the item, which is one; 0: none */
	uint64_t unnamed; /* launches of kernels without a name, which a name or glob cannot mean */
	uint64_t graphs; /* launches of CUDA graphs, whose kernels launch: does not see */
};

void evaluator_init(struct evaluator *evaluator, const struct script *script);
void evaluator_deinit(struct evaluator *evaluator);

/* Runs all probes of a kind that has no item: BEGIN, END; of an INTERVAL one. */
void evaluate_kind(struct evaluator *evaluator, enum probe_kind kind, uint64_t nsecs);
void evaluate_probe(struct evaluator *evaluator, const struct clause *clause,
		    const struct event *event);
/* Gives the GPU what has been set for it. */
void evaluate_share(struct evaluator *evaluator);
/* Runs all probes that an item is an event of. */
void evaluate_item(struct evaluator *evaluator, const struct trace_item *item, uint64_t nsecs);
/* A copy of a text that lives until evaluator_forget(), which the end of a body calls. */
const char *evaluator_keep(struct evaluator *evaluator, const char *text);
void evaluator_forget(struct evaluator *evaluator);
/* Prints what a printf() says, with values in place of its arguments. */
void evaluate_format(struct evaluator *evaluator, const struct node *call,
		     const struct value *values);
/* Prints all maps that have something in them. */
void evaluate_print_all(struct evaluator *evaluator);
/* Elements that were lost, for want of room. */
uint64_t evaluate_lost(const struct evaluator *evaluator, size_t map);
