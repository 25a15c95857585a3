/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A session that keeps all records, and programs to be traced: for test-uprobe.c and
 * test-uprobe-library.c. */

#include <stdio.h>

#include "daemon/gpuprobed/trace/bpf/tally.h"
#include "source.h"
#include "uprobe-private.h"

#define RECORDS_MAX 200000
#define DYNAMIC_MAX 64
#define TALLIES_MAX 64
#define TOLD_MAX 256

struct trace_session {
	size_t n;
	struct trace_record *records[RECORDS_MAX];
	size_t n_dynamic;
	char dynamic[DYNAMIC_MAX][64];
	char missing[4096];
	uint64_t lost;
	pid_t only, shim, also; /* only: 0, all children of this test */
	bool follow; /* who is gone was a child */
	uint64_t last_stack;
	size_t n_told;
	pid_t told[TOLD_MAX]; /* processes */
	size_t n_tallies;
	struct {
		uint32_t pid;
		uint16_t function;
		struct trace_tally tally; /* what came last */
	} tallies[TALLIES_MAX];
	size_t n_frames;
};

extern struct trace_session session;

void session_reset(void);
/* The call number i of those of a function (NULL: of any), or NULL. */
const struct trace_call *get_call(const char *name, size_t i);
size_t count_calls(const char *name);
/* What was counted of a function (NULL: of all); how many calls that are. */
uint64_t get_tally(const char *name, struct trace_tally *sum);
const struct trace_name *get_name(enum trace_name_kind kind, const char *begin);
/* The bytes of an extra; NULL: there is none. */
const void *get_extra(const struct trace_call *call, uint8_t argument, size_t *sizep);
uint64_t get_number(const struct trace_call *call, uint8_t argument);

/* A program (test-uprobe-target.c). */
struct target {
	pid_t pid;
	FILE *in;
	int out;
};

void target_start(struct target *target, const char *executable,
		  const char *what); /* until it says "ready" */
void target_start_as(struct target *target, const char *executable, const char *what,
		     pid_t pid); /* with that pid, which nobody has; 0: any */
void target_say(struct target *target);
void target_expect(struct target *target, const char *text);
void target_run(struct target *target); /* until it says "done" */
void target_stop(struct target *target);

/* ---- tracing ---- */

extern enum uprobe_rung best; /* of this kernel */
extern const char *program, *library;

/* All calls of a target, which the session means. */
struct trace_options all_options(const struct target *target, uint32_t *pid);
/* All calls of all processes. */
struct trace_options open_options(void);
struct trace_uprobe *start_tuned(const struct trace_options *options,
				 const struct uprobe_tuning *tuning);
struct trace_uprobe *start(const struct trace_options *options, enum uprobe_rung rung, bool hash);

bool copy_file(const char *from, const char *to);

/* Takes copies of the arguments' program and library. 0; 77: this machine does not let anybody do
 * it, which is said; or 2. */
int test_begin(int argc, char **argv);
