/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of uprobes in the running kernel: programs that call the libcuda of this test
 * (test-uprobe-cuda.c) are traced into a session that keeps all records. Each way to attach is
 * tried. Needs root and a kernel with uprobes; else it is skipped.
 */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/function.h"
#include "test-uprobe-session.h"

/* ---- tracing ---- */

static void check_launch(const struct trace_call *call) {
	static const uint64_t expected[] = { 0x1111, 2, 3, 4, 5, 6, 7, 8, 0x2222, 0x3333, 0x4444 };

	assert_non_null(call);
	assert_int_equal(call->n_arguments, 11);
	for (size_t i = 0; i < 11; i++)
		assert_int_equal(i >= 1 && i <= 7 ? (uint32_t)call->words[i] : call->words[i],
				 expected[i]);
	assert_int_equal(call->result, 0);
	assert_int_equal(call->record.flags, 0);
	assert_true(call->end > call->start);
}

/* All that the program's calls say is there. */
static void check_kinds(const struct target *target) {
	const struct trace_call *call;
	const struct trace_name *name;
	const char *text;
	uint64_t kernel;
	size_t size;

	assert_int_equal(count_calls(NULL), 17);
	for (size_t i = 0; i < 17; i++) {
		call = get_call(NULL, i);
		assert_int_equal(call->pid, target->pid);
		assert_int_equal(call->tid, target->pid);
		assert_int_equal(call->sequence, i + 1);
		assert_int_equal(call->record.source, TRACE_SOURCE_BPF);
		assert_true(i == 0 || call->start >= get_call(NULL, i - 1)->end);
	}
	call = get_call("cuMemAlloc_v2", 0);
	assert_int_equal(call->n_arguments, 2);
	assert_int_equal(call->words[1], 4096);
	assert_int_equal(get_number(call, 0), 0x700000001000);
	call = get_call("cuMemAlloc_v2", 1);
	assert_int_equal(call->result, 1);
	assert_int_equal(call->n_extras, 0); /* it gave nothing */
	check_launch(get_call("cuLaunchKernel", 0));
	call = get_call("cuLaunchKernelEx", 0);
	text = get_extra(call, 0, &size);
	assert_non_null(text);
	assert_true(size == 56 && ((const uint64_t *)text)[4] == 5);
	call = get_call("cuIpcOpenMemHandle_v2", 0);
	assert_int_equal(call->n_arguments, 14);
	assert_int_equal((uint32_t)call->words[1], 9);
	for (size_t i = 6; i < 14; i++)
		assert_int_equal(call->words[i], 0x5a5a5a5a5a5a5a5a);
	assert_int_equal(get_number(call, 0), 0x5000 + 9 + 0x5a);
	call = get_call("cuModuleGetFunction", 0);
	text = get_extra(call, 2, &size);
	assert_non_null(text);
	assert_true(size == 7 && !memcmp(text, "vec_add\0", 8));
	name = get_name(TRACE_NAME_KERNEL, "vec_add");
	assert_non_null(name);
	assert_true(name->id == get_number(call, 0) && name->pid == (uint32_t)target->pid);
	assert_int_equal(get_call("cuModuleGetFunction", 1)->result, 500);
	assert_null(get_name(TRACE_NAME_KERNEL, "absent"));
	call = get_call("cuLibraryGetKernel", 0);
	assert_non_null(get_extra(call, 2, &size));
	assert_int_equal(size, 120); /* the call's is cut, the kernel's name is not */
	kernel = get_number(call, 0);
	name = get_name(TRACE_NAME_KERNEL, "kkkk");
	assert_true(name && strlen(name->name) == 1499 && name->id == kernel);
	call = get_call("cuKernelGetFunction", 0);
	assert_int_equal(call->words[1], kernel);
	for (size_t i = 0, n = 0; i < session.n; i++) {
		name = (const void *)session.records[i];
		n += name->record.type == TRACE_NAME && name->kind == TRACE_NAME_KERNEL &&
		     name->id == get_number(call, 0) && strlen(name->name) == 1499;
		assert_true(i + 1 < session.n || n == 1);
	}
	assert_int_equal(count_calls("cuCtxSynchronize"), 1);
	assert_int_equal(count_calls("cuStreamSynchronize"), 0); /* the driver's own */
	call = get_call("cuParamSetf", 0);
	assert_int_equal(call->n_arguments, 2);
	assert_int_equal(call->record.flags, TRACE_CALL_CUT);
	call = get_call("cuFutureThing", 0);
	assert_true(call && call->function >= TRACE_FUNCTION_DYNAMIC && call->n_arguments == 6 &&
		    call->words[5] == 6 && call->result == 7);
	assert_int_equal(get_call("cuMemFree_v2", 0)->result, 1);
	assert_int_equal(session.lost, 0);
	assert_non_null(get_name(TRACE_NAME_LIBRARY, library));
}

static void test_kinds(enum uprobe_rung rung, bool hash) {
	struct target target;
	struct trace_uprobe *uprobe;
	struct trace_options options;
	uint32_t pid;

	session_reset();
	target_start(&target, program, "kinds");
	options = all_options(&target, &pid);
	uprobe = start(&options, rung, hash);
	target_run(&target);
	trace_uprobe_drain(uprobe);
	check_kinds(&target);
	trace_uprobe_free(uprobe);
	target_stop(&target);
	assert_int_equal(count_calls(NULL), 17);
}

static void test_session(void **state) {
	if (best > UPROBE_SESSION)
		skip();
	test_kinds(UPROBE_SESSION, false);
}

static void test_session_hash(void **state) {
	if (best > UPROBE_SESSION)
		skip();
	test_kinds(UPROBE_SESSION, true);
}

static void test_multi(void **state) {
	if (best > UPROBE_MULTI)
		skip();
	test_kinds(UPROBE_MULTI, false);
	test_kinds(UPROBE_MULTI, true);
}

static void test_classic(void **state) {
	test_kinds(UPROBE_CLASSIC, false);
	assert_non_null(strstr(session.missing, "uprobe_multi"));
}

/* Runs a program under a rung, with options changed by a function, and drains. */
static void run_with(const char *what, enum uprobe_rung rung,
		     void (*change)(struct trace_options *options)) {
	struct target target;
	struct trace_uprobe *uprobe;
	struct trace_options options;
	uint32_t pid;

	session_reset();
	target_start(&target, program, what);
	options = all_options(&target, &pid);
	if (change)
		change(&options);
	uprobe = start(&options, rung, false);
	target_run(&target);
	trace_uprobe_drain(uprobe);
	trace_uprobe_free(uprobe);
	target_stop(&target);
}

static void test_sites(void **state) {
	static const char *const names[] = { "cuSitePush",  "cuSiteNop5", "cuSiteNop",
					     "cuSiteEndbr", "cuSiteSub",  "cuSiteRet",
					     "cuSiteJump",  "cuSiteTest" };

#ifndef __x86_64__
	skip();
#endif
	for (enum uprobe_rung rung = best; rung < _UPROBE_RUNG_N; rung++) {
		run_with("sites", rung, NULL);
		assert_int_equal(count_calls(NULL), 8);
		for (size_t i = 0; i < 8; i++) {
			const struct trace_call *call = get_call(names[i], 0);

			assert_non_null(call); /* cuSiteJump goes on in cuSitePush: one call */
			assert_int_equal(call->result, 0);
			assert_int_equal(call->sequence, i + 1);
		}
	}
}

static void test_jumps(void **state) {
	for (enum uprobe_rung rung = best; rung < _UPROBE_RUNG_N; rung++) {
		run_with("jumps", rung, NULL);
		assert_int_equal(count_calls("cuOccupancyMaxPotentialBlockSize"),
				 2); /* three were left by a jump */
		assert_int_equal(count_calls("cuInit"), 10);
		for (size_t i = 0; i < 10; i++)
			assert_int_equal((uint32_t)get_call("cuInit", i)->words[0], i % 2 ? 0 : 1);
	}
}

static void test_threads(void **state) {
	run_with("threads", best, NULL);
	assert_int_equal(count_calls("cuMemFree_v2"), 400);
	for (size_t i = 0; i < 400; i++) {
		const struct trace_call *call = get_call("cuMemFree_v2", i);

		assert_int_equal(call->sequence, call->words[0] % 1000 + 1);
		assert_int_not_equal(call->tid, call->pid);
	}
}

static void with_errors(struct trace_options *options) {
	options->errors = true;
	options->extras = false;
}

static void with_sample(struct trace_options *options) {
	options->sample = 10;
}

static void with_rate(struct trace_options *options) {
	options->rate = 100;
}

static void with_duration(struct trace_options *options) {
	options->min_duration = UINT64_C(3600000000000);
}

static void with_one_function(struct trace_options *options) {
	uint16_t number = function_by_name("cuMemAlloc_v2")->number;

	memset(options->functions, 0, sizeof(options->functions));
	options->functions[number / 64] |= UINT64_C(1) << number % 64;
}

static void with_stacks(struct trace_options *options) {
	options->stacks = true;
}

static void test_filters(void **state) {
	run_with("kinds", best, with_errors);
	assert_int_equal(count_calls(NULL), 5);
	for (size_t i = 0; i < 5; i++) {
		assert_int_not_equal(get_call(NULL, i)->result, 0);
		assert_int_equal(get_call(NULL, i)->n_extras, 0);
	}
	assert_non_null(get_name(TRACE_NAME_KERNEL, "vec_add"));
	run_with("many", best, with_sample);
	assert_in_range(count_calls(NULL), 4500, 5500);
	assert_int_equal(session.lost, 0);
	run_with("many", best, with_rate);
	assert_true(count_calls(NULL) >= 100 && count_calls(NULL) < 49000);
	assert_int_equal(count_calls(NULL) + session.lost, 50000);
	run_with("kinds", best, with_duration);
	assert_int_equal(count_calls(NULL), 0);
	assert_non_null(get_name(TRACE_NAME_KERNEL, "kkk"));
	run_with("kinds", best, with_one_function);
	assert_int_equal(count_calls(NULL), 3);
	assert_int_equal(count_calls("cuMemAlloc_v2"), 3);
	assert_non_null(get_name(TRACE_NAME_KERNEL, "vec_add"));
	run_with("kinds", best, with_stacks);
	assert_int_equal(count_calls(NULL), 17);
	assert_int_equal(get_call(NULL, 3)->stack, 1);
	assert_true(session.n_frames >= 1 && session.last_stack);
	check_launch(get_call("cuLaunchKernel", 0));
}

static void with_counts(struct trace_options *options) {
	options->aggregate = true;
}

static void with_counts_of_errors(struct trace_options *options) {
	options->aggregate = options->errors = true;
}

/* Calls that are counted have no records; the sums are what the records would say. */
static void test_counts(void **state) {
	struct trace_tally sum;

	for (enum uprobe_rung rung = best; rung < _UPROBE_RUNG_N; rung++) {
		run_with("kinds", rung, with_counts);
		assert_int_equal(count_calls(NULL), 0);
		assert_int_equal(get_tally(NULL, &sum), 17);
		assert_int_equal(sum.errors, 5);
		assert_int_equal(get_tally("cuMemAlloc_v2", &sum), 3);
		assert_true(sum.errors == 2 && sum.bytes == 4096 && sum.bytes_done == 4096);
		assert_true(sum.max >= ~sum.least && sum.time >= sum.max &&
			    sum.time <= 3 * sum.max && sum.buckets[trace_bucket_of(sum.max)]);
		assert_true(sum.buckets[trace_bucket_of(~sum.least)]);
		assert_int_equal(get_tally("cuFutureThing", &sum), 1);
		assert_int_equal(get_tally("cuEventQuery", &sum), 1);
		assert_int_equal(sum.errors, 0); /* not ready */
		assert_int_equal(get_tally("cuModuleGetFunction", &sum), 2);
		assert_int_equal(get_tally("cuStreamSynchronize", &sum), 0); /* the driver's own */
	}
	run_with("many", best, with_counts);
	assert_int_equal(get_tally("cuInit", &sum), 50000);
	assert_int_equal(session.lost, 0);
	run_with("threads", best, with_counts);
	assert_int_equal(get_tally("cuMemFree_v2", &sum), 400);
	run_with("kinds", best, with_counts_of_errors);
	assert_int_equal(get_tally(NULL, &sum), 5);
	assert_int_equal(sum.errors, 5);
}

/* Of a process that nobody means nothing is told, and what was counted of it is not kept. */
static void test_counts_of_others(void **state) {
	struct target mine, other;
	struct trace_uprobe *uprobe;
	struct trace_options options;
	struct uprobe_count_key key;
	struct trace_tally sum;
	uint32_t pid;

	session_reset();
	target_start(&mine, program, "kinds");
	target_start(&other, program, "many");
	options = all_options(&mine, &pid);
	options.follow = options.aggregate = true;
	uprobe = start(&options, best, false);
	target_run(&other);
	target_run(&mine);
	uprobe_counter_read(uprobe->counter, 0, true);
	assert_int_equal(get_tally(NULL, &sum), 17);
	for (uint32_t *last = NULL; bpf_map_get_next_key(uprobe->engine.counts, last, &key) == 0;
	     last = &key.pid)
		assert_int_equal(key.pid, mine.pid);
	/* not meant any more: should it be again, it is counted from 0, which the session must know
	 */
	session.only = other.pid;
	uprobe_counter_read(uprobe->counter, 0, true);
	assert_int_equal(get_tally(NULL, &sum), 0);
	assert_int_not_equal(bpf_map_get_next_key(uprobe->engine.counts, NULL, &key), 0);
	trace_uprobe_free(uprobe);
	target_stop(&mine);
	target_stop(&other);
}

/* A ring of one megabyte and nobody who drains it: what is not there is counted. */
static void test_lost(void **state) {
	struct target target;
	struct trace_uprobe *uprobe;
	struct trace_options options;
	uint32_t pid;

	session_reset();
	target_start(&target, program, "many");
	options = all_options(&target, &pid);
	options.buffer = 4096;
	uprobe = start(&options, best, false);
	target_run(&target);
	trace_uprobe_free(uprobe);
	target_stop(&target);
	assert_true(count_calls(NULL) > 1000 && session.lost > 1000);
	assert_int_equal(count_calls(NULL) + session.lost, 50000);
	assert_int_equal(get_call(NULL, 0)->sequence, 1);
}

/* A counter that falls tells nothing, and nothing twice. */
static void test_lost_falls(void **state) {
	struct uprobe_engine engine = { .n_cpus = (size_t)libbpf_num_possible_cpus() };
	static const struct {
		uint64_t value, lost;
	} steps[] = { { 0, 0 }, { 5, 5 }, { 3, 0 }, { 5, 0 }, { 6, 1 }, { 0, 0 } };
	uint32_t key = 0;

	engine.lost = bpf_map_create(BPF_MAP_TYPE_PERCPU_ARRAY, NULL, sizeof(key), sizeof(uint64_t),
				     1, NULL);
	assert_true(engine.lost >= 0);
	engine.lost_now = calloc(2 * engine.n_cpus, sizeof(*engine.lost_now));
	assert_non_null(engine.lost_now);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		engine.lost_now[engine.n_cpus] = steps[i].value;
		assert_int_equal(bpf_map_update_elem(engine.lost, &key,
						     engine.lost_now + engine.n_cpus, BPF_ANY),
				 0);
		assert_int_equal(uprobe_engine_take_lost(&engine), steps[i].lost);
	}
	free(engine.lost_now);
	close(engine.lost);
}

/* Where links of one process see its first thread only, they are of all, and yet only that one is
 * recorded. */
static void test_wide(void **state) {
	struct trace_options options;
	struct trace_uprobe *uprobe;
	struct target mine, other;
	int control;
	uint32_t pid;

	session_reset();
	target_start(&mine, program, "threads");
	target_start(&other, program, "threads");
	options = all_options(&mine, &pid);
	uprobe = start(&options, best, false);
	assert_false(uprobe->engine.wide);
	assert_int_equal(uprobe_only_process(uprobe), mine.pid);
	control = bpf_map_create(BPF_MAP_TYPE_ARRAY, NULL, sizeof(uint32_t),
				 sizeof(struct uprobe_control), 1, NULL);
	assert_true(control >= 0);
	assert_int_equal(uprobe_link_probe(best, &uprobe->engine.programs, control),
			 UPROBE_LINK_E_THREADS); /* no program writes there */
	close(control);
	trace_uprobe_free(uprobe);
	session_reset();
	session.only = mine.pid;
	uprobe = start_tuned(&options, &(struct uprobe_tuning){ .first = best,
								.only_first = true,
								.wide = true,
								.no_usual = true });
	assert_int_equal(uprobe_only_process(uprobe), 0);
	target_run(&other);
	target_run(&mine);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls("cuMemFree_v2"), 400);
	trace_uprobe_free(uprobe);
	target_stop(&mine);
	target_stop(&other);
}

/* Children are found when they call. */
static void test_forks(void **state) {
	struct trace_uprobe *uprobe;
	struct trace_options options;
	struct target target;
	uint32_t pid;

	for (int follow = 0; follow < 2; follow++) {
		session_reset();
		target_start(&target, program, "forks");
		options = all_options(&target, &pid);
		options.follow = follow;
		uprobe = start(&options, best, false);
		session.follow = follow;
		target_say(&target);
		for (int i = 0; i < 12000 && count_calls("cuInit") < (follow ? 3 : 1); i++) {
			usleep(5000);
			trace_uprobe_drain(uprobe);
		}
		assert_int_equal(count_calls("cuInit"), follow ? 3 : 1);
		assert_int_equal((uint32_t)get_call("cuInit", 0)->words[0], follow ? 2 : 3);
		if (follow)
			assert_int_equal((uint32_t)get_call("cuInit", 1)->words[0], 4);
		trace_uprobe_free(uprobe);
		target_stop(&target);
	}
}

/* Waits until a process is within a call. */
static void wait_for_call(struct trace_uprobe *uprobe, pid_t pid) {
	struct uprobe_state *state = malloc(sizeof(*state));
	size_t n;

	assert_non_null(state);
	while (!uprobe_engine_unfinished(&uprobe->engine, pid, state, &n))
		usleep(1000);
	free(state);
}

/* What runs when the trace ends is told as such; who is killed meanwhile is not. */
static void test_unfinished(void **state) {
	for (int kind = 0; kind < 3; kind++) {
		struct trace_uprobe *uprobe;
		struct trace_options options;
		const struct trace_call *call;
		struct target target;
		uint32_t pid;

		session_reset();
		target_start(&target, program, "waits");
		options = all_options(&target, &pid);
		uprobe = start(&options, best, kind == 2);
		target_say(&target);
		target_expect(&target, "waiting");
		wait_for_call(uprobe, target.pid);
		usleep(50000);
		trace_uprobe_drain(uprobe);
		assert_int_equal(count_calls(NULL), 1);
		if (kind == 1)
			target_stop(&target);
		trace_uprobe_free(uprobe);
		call = get_call("cuCtxSynchronize", 0);
		if (kind == 1) {
			assert_null(call);
		} else {
			assert_non_null(call);
			assert_int_equal(call->record.flags,
					 TRACE_CALL_OPEN | TRACE_CALL_NO_RESULT);
			assert_int_equal(call->sequence, 2);
			assert_true(call->end - call->start >= 50000000);
			target_stop(&target);
		}
	}
}

/* A process with the shim is left alone, and one that nobody means. */
static void test_others(void **state) {
	struct target mine, other;
	struct trace_uprobe *uprobe;
	struct trace_options options;
	uint32_t pid;

	session_reset();
	target_start(&mine, program, "kinds");
	target_start(&other, program, "many");
	options = all_options(&mine, &pid);
	options.n_pids = 0;
	session.shim = other.pid;
	session.only = mine.pid;
	session.also = other.pid;
	uprobe = start(&options, best, false);
	trace_uprobe_exclude(uprobe, other.pid, true);
	session.shim = 0; /* it may be gone again when the ring is looked at */
	target_run(&other);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 0);
	assert_non_null(uprobe->libraries[0].link); /* somebody else uses it */
	if (getuid() == 0) { /* whom a daemon without rights may not send signals is not gone */
		session.shim = other.pid;
		assert_int_equal(seteuid(65534), 0);
		uprobe_libraries_shim(uprobe);
		assert_int_equal(seteuid(0), 0);
		session.shim = 0;
		assert_non_null(uprobe->libraries[0].link);
	}
	target_run(&mine);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 17);
	trace_uprobe_exclude(uprobe, other.pid, false);
	trace_uprobe_free(uprobe);
	target_stop(&mine);
	target_stop(&other);
	session_reset();
	target_start(&mine, program, "kinds");
	target_start(&other, program, "many");
	options = all_options(&mine, &pid);
	options.follow = true; /* others are looked at when they call, and not again for a second */
	uprobe = start(&options, best, false);
	target_run(&other);
	trace_uprobe_drain(uprobe);
	target_run(&mine);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 17);
	trace_uprobe_free(uprobe);
	target_stop(&mine);
	target_stop(&other);
}

/* A page that is not there at the entry is read at the return, when the driver has touched it. */
static void test_untouched(void **state) {
	const char *text;
	size_t size;

	run_with("untouched", best, NULL);
	text = get_extra(get_call("cuModuleGetFunction", 0), 2, &size);
	assert_true(text && size >= 3 && !memcmp(text, "ELF", 3));
	assert_int_equal(get_call("cuModuleGetFunction", 0)->record.flags, 0);
	assert_non_null(get_name(TRACE_NAME_KERNEL, "ELF"));
}

/* One file that was taken for two: each call comes once. */
static void test_twice(void **state) {
	const uint32_t row = function_by_name("cuInit")->number;
	struct trace_uprobe *uprobe;
	struct trace_options options;
	struct uprobe_link *link;
	struct target target;
	struct libcuda *file;
	uint64_t cookie;
	size_t refused;
	uint32_t pid;

	session_reset();
	target_start(&target, program, "many");
	options = all_options(&target, &pid);
	uprobe = start(&options, best, false);
	assert_int_equal(libcuda_new(&file, open(library, O_RDONLY | O_CLOEXEC), library), 0);
	for (size_t i = 0; i < file->n; i++)
		if (!strcmp(file->functions[i].name, "cuInit")) {
			cookie = UPROBE_COOKIE(7, row);
			assert_int_equal(uprobe_link_new(&link, best, &uprobe->engine.programs,
							 file->fd, &file->functions[i].offset,
							 &cookie, 1, 0, &refused),
					 0);
		}
	target_run(&target);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls("cuInit") + session.lost, 50000);
	uprobe_link_free_now(link);
	libcuda_free(file);
	trace_uprobe_free(uprobe);
	target_stop(&target);
}

/* Processes may say anything about what they got: only where functions begin there are probes. */
static void test_pointers_that_lie(void **state) {
	struct libcuda *file;
	uint64_t site;
	size_t n = 0;

	assert_int_equal(libcuda_new(&file, open(library, O_RDONLY | O_CLOEXEC), library), 0);
	for (size_t i = 0; i < file->n; i++) {
		if (libcuda_site(file, file->functions[i].entry, &site))
			continue; /* those that are written in assembler */
		assert_int_equal(site, file->functions[i].offset);
		for (uint64_t at = 1; at < 4; at++)
			assert_int_equal(libcuda_site(file, file->functions[i].entry + at, &site),
					 LIBCUDA_E_INVALID);
		n++;
	}
	assert_true(n >= 10);
	assert_int_equal(libcuda_site(file, 0, &site), LIBCUDA_E_INVALID);
	assert_int_equal(libcuda_site(file, UINT64_MAX, &site), LIBCUDA_E_INVALID);
	libcuda_free(file);
}

/* What cuGetProcAddress() gives is seen, exported or not, once, whatever else was asked for. */
static void test_pointers(void **state) {
	for (enum uprobe_rung rung = best; rung < _UPROBE_RUNG_N; rung++)
		for (int aggregate = 0; aggregate < 2; aggregate++) {
			const uint16_t query = function_by_name("cuGetProcAddress_v2")->number;
			struct target target;
			struct trace_uprobe *uprobe;
			struct trace_options options;
			struct trace_tally sum;
			uint32_t pid;

			session_reset();
			target_start(&target, program, "pointers");
			options = all_options(&target, &pid);
			options.functions[query / 64] &= ~(UINT64_C(1) << query % 64);
			options.extras = false;
			options.aggregate = aggregate;
			uprobe = start(&options, rung, false);
			target_say(&target);
			target_expect(&target, "got");
			trace_uprobe_drain(uprobe); /* finds them */
			trace_uprobe_drain(uprobe); /* attaches */
			target_run(&target);
			trace_uprobe_drain(uprobe);
			trace_uprobe_free(uprobe);
			target_stop(&target);
			assert_int_equal(count_calls("cuGetProcAddress_v2"), 0);
			if (aggregate) {
				assert_int_equal(get_tally("cuHiddenThing", &sum), 3);
				assert_int_equal(get_tally("cuInit", &sum), 1);
				assert_int_equal(get_tally(NULL, &sum), 5);
				continue;
			}
			assert_int_equal(count_calls("cuHiddenThing"), 3);
			assert_int_equal(get_call("cuHiddenThing", 2)->words[1], 2);
			assert_int_equal(get_call("cuHiddenThing", 2)->result, 3);
			assert_int_equal(
				count_calls("cuInit"),
				1); /* the only function of its base: it is known what it has */
			assert_int_equal((uint32_t)get_call("cuInit", 0)->words[0], 5);
			assert_int_equal(get_call("cuInit", 0)->n_arguments, 1);
			assert_int_equal(count_calls("cuMemFree_v2"), 1);
			assert_int_equal(count_calls(NULL), 5);
		}
}

/* Who gets the pid of one that is gone has functions of its own. */
static void test_pointers_of_another(void **state) {
	struct target first, target = {};
	struct trace_uprobe *uprobe;
	struct trace_options options;
	pid_t pid = 0;

	session_reset();
	target_start(&first, program, "kinds"); /* the library stays */
	options = open_options();
	uprobe =
		start_tuned(&options, &(struct uprobe_tuning){ .first = best,
							       .only_first = true,
							       .no_usual = true,
							       .detach_now = best != UPROBE_CLASSIC,
							       .no_linger = true });
	for (size_t i = 0; i < 2; i++) {
		target_start_as(&target, program, "pointers", pid);
		pid = target.pid;
		uprobe->code.next = 0; /* reading mappings may have been slow, on a busy machine */
		target_say(&target);
		target_expect(&target, "got");
		trace_uprobe_drain(uprobe);
		trace_uprobe_drain(uprobe);
		target_run(&target);
		trace_uprobe_drain(uprobe);
		assert_int_equal(count_calls("cuHiddenThing"), 3 * (i + 1));
		target_stop(&target);
		trace_uprobe_drain(uprobe);
		assert_int_equal(uprobe->libraries[0].n_found + uprobe->libraries[0].n_more, 0);
	}
	trace_uprobe_free(uprobe);
	target_stop(&first);
}

/* A process that gets functions one by one has few links for all of them, and each call comes once.
 */
static void test_pointers_one_by_one(void **state) {
	struct uprobe_library *first;
	struct trace_uprobe *uprobe;
	struct trace_options options;
	struct target target;
	uint32_t pid, n = 0;

	if (best == UPROBE_CLASSIC) /* has no links of many */
		skip();
	session_reset();
	target_start(&target, program, "kinds");
	options = all_options(&target, &pid);
	uprobe = start(&options, best, false);
	assert_int_equal(uprobe->n_libraries, 1);
	first = &uprobe->libraries[0];
	for (size_t i = 0; i < first->file->n; i++) {
		const struct libcuda_function *symbol = &first->file->functions[i];
		const struct function *function = function_by_name(symbol->name);
		struct uprobe_row row;
		uint64_t site;

		if (libcuda_site(first->file, symbol->entry, &site) ||
		    !uprobe_make_row(uprobe, symbol->name, function, function, &row))
			continue;
		first->found[first->n_found++] = (struct uprobe_found){ .entry = symbol->entry,
									.row = row.function,
									.pid = target.pid };
		first->found[first->n_found++] = (struct uprobe_found){
			.entry = symbol->entry + 1, .row = row.function, .pid = target.pid
		}; /* a lie */
		uprobe_follow_attach(uprobe);
		assert_true(first->n_more >= 1 && first->n_more <= 5);
		n++;
	}
	assert_true(n >= 10 && first->n_found == 2 * n);
	for (size_t i = 0; i < first->n_more; i++)
		n -= first->more[i].n;
	assert_int_equal(n, 0);
	first->link = uprobe_link_free_now(first->link); /* all that is left are these */
	target_run(&target);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 17);
	assert_null(strstr(session.missing, "cuGetProcAddress"));
	trace_uprobe_free(uprobe);
	target_stop(&target);
}

/* A kernel without bpf(2), as gVisor's. */
static void test_no_bpf(void **state) {
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog code = { sizeof(filter) / sizeof(filter[0]), filter };
	int status;
	pid_t child;

	session_reset();
	child = fork();
	if (!child) {
		const struct trace_options options = { .bpf = true };
		struct trace_uprobe *uprobe = NULL;
		int r;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code))
			_exit(99);
		r = trace_uprobe_new(&uprobe, &session, &options);
		fprintf(stderr, "%s\n", session.missing);
		_exit(r >= 0 || uprobe || !strstr(session.missing, "no BPF"));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* Without rights there is one line that says so. */
static void test_not_permitted(void **state) {
	int status;
	pid_t child;

	session_reset();
	child = fork();
	if (!child) {
		struct trace_options options = { .bpf = true };
		struct trace_uprobe *uprobe = NULL;
		int r;

		if (setresuid(65534, 65534, 65534) < 0)
			_exit(99);
		r = trace_uprobe_new(&uprobe, &session, &options);
		_exit(r >= 0 || uprobe || !strstr(session.missing, "CAP_BPF"));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session),
		cmocka_unit_test(test_session_hash),
		cmocka_unit_test(test_multi),
		cmocka_unit_test(test_classic),
		cmocka_unit_test(test_sites),
		cmocka_unit_test(test_jumps),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_forks),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_not_permitted),
		cmocka_unit_test(test_no_bpf),
		cmocka_unit_test(test_untouched),
		cmocka_unit_test(test_twice),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_counts_of_others),
		cmocka_unit_test(test_pointers),
		cmocka_unit_test(test_pointers_that_lie),
		cmocka_unit_test(test_pointers_of_another),
		cmocka_unit_test(test_pointers_one_by_one),
		cmocka_unit_test(test_lost_falls),
		cmocka_unit_test(test_wide),
	};
	const int r = test_begin(argc, argv);

	if (r)
		return r;
	if (argc > 3)
		cmocka_set_test_filter(argv[3]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
