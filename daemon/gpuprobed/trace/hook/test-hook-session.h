/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For tests of hooks: a session of our own that keeps all records, and children that do what is to
 * be seen. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hook-private.h"

struct trace_session {
	unsigned char *records;
	size_t n;
	char missing[64][512];
	size_t n_missing;
	pid_t meant; /* and its children that were told; 0: nobody */
	pid_t children[64];
	size_t n_children;
	struct {
		char what;
		pid_t pid;
		int status;
		uint64_t time;
	} told[64];
	size_t n_told;
	uint64_t lost;
};

bool trace_session_means(struct trace_session *session, pid_t pid) {
	for (size_t i = 0; i < session->n_children; i++)
		if (session->children[i] == pid)
			return true;
	return pid == session->meant;
}

bool trace_session_emit(struct trace_session *session, const struct trace_record *record,
			uint32_t pid, uint32_t tid) {
	assert_true(record->size >= sizeof(*record) && record->size % 8 == 0 &&
		    record->size <= TRACE_RECORD_MAX);
	session->records = realloc(session->records, session->n + record->size);
	assert_non_null(session->records);
	memcpy(session->records + session->n, record, record->size);
	session->n += record->size;
	return true;
}

void trace_session_lost(struct trace_session *session, enum trace_source source, uint32_t pid,
			uint32_t tid, uint64_t count) {
	assert_int_equal(source, TRACE_SOURCE_BPF);
	session->lost += count;
}

void trace_session_process(struct trace_session *session, pid_t pid) {
	assert_true(trace_session_means(session, pid));
}

void trace_session_thread(struct trace_session *session, pid_t pid, pid_t tid) {
	assert_true(trace_session_means(session, pid));
}

static void told(struct trace_session *session, char what, pid_t pid, int status, uint64_t time) {
	if (session->n_told == 64)
		return;
	session->told[session->n_told].what = what;
	session->told[session->n_told].pid = pid;
	session->told[session->n_told].status = status;
	session->told[session->n_told++].time = time;
}

void trace_session_forked(struct trace_session *session, pid_t parent, pid_t child, uint64_t time) {
	assert_true(trace_session_means(session, parent));
	if (session->n_children < 64)
		session->children[session->n_children++] = child;
	told(session, 'f', child, parent, time);
}

bool trace_session_execed(struct trace_session *session, pid_t pid, uint64_t time) {
	told(session, 'e', pid, 0, time);
	return kill(pid, 0) == 0;
}

void trace_session_ended(struct trace_session *session, pid_t pid, int status, uint64_t time) {
	told(session, 'x', pid, status, time);
}

bool trace_session_has_shim(struct trace_session *session, pid_t pid) {
	return false;
}

void trace_session_missing(struct trace_session *session, const char *format, ...) {
	va_list arguments;

	if (session->n_missing == 64)
		return;
	va_start(arguments, format);
	vsnprintf(session->missing[session->n_missing++], sizeof(session->missing[0]), format,
		  arguments);
	va_end(arguments);
}

static struct trace_session session;
static struct trace_hooks *hooks;

/* Until probes of files are attached. */
static void wait_until_ready(void) {
	while (!trace_hooks_ready(hooks)) {
		usleep(1000);
		trace_hooks_drain(hooks);
	}
}

/* Traces a process. */
static void begin_at(pid_t pid, struct trace_options options, const struct hook_places *where) {
	uint32_t target = (uint32_t)pid;

	free(session.records);
	memset(&session, 0, sizeof(session));
	session.meant = pid;
	options.pids = &target;
	options.n_pids = 1;
	options.all_users = true;
	assert_int_equal(trace_hooks_new_at(&hooks, &session, &options, where), 0);
	wait_until_ready();
}

static void finish(void) {
	trace_hooks_drain(hooks);
	hooks = trace_hooks_free(hooks);
}

/* The next record of a type behind one, NULL: from the beginning. */
static const void *next(const void *behind, uint16_t type) {
	const unsigned char *at =
		behind ? (const unsigned char *)behind + ((const struct trace_record *)behind)->size
		       : session.records;

	while (session.records && at < session.records + session.n &&
	       ((const struct trace_record *)at)->type != type)
		at += ((const struct trace_record *)at)->size;
	return session.records && at < session.records + session.n ? at : NULL;
}

/* The name that was told for a hook before a record. */
static __attribute__((unused)) const char *name_of(const struct trace_event *event) {
	const struct trace_name *name = NULL;

	while ((name = next(name, TRACE_NAME)) && (const void *)name < (const void *)event)
		if (name->kind == TRACE_NAME_HOOK && name->id == event->hook)
			return name->name;
	return NULL;
}

static __attribute__((unused)) const char *text_of(const struct trace_event *event) {
	return (const char *)(event->words + event->n_words);
}

static bool is_missing(const char *words) {
	for (size_t i = 0; i < session.n_missing; i++)
		if (strstr(session.missing[i], words))
			return true;
	return false;
}

/* A child that waits to be told, does what is to be seen, and ends: the daemon, which this is, is
 * never traced itself. */
struct child {
	pid_t pid;
	int go;
};

static struct child child_new(void (*act)(void)) {
	struct child child;
	int pipes[2];
	char byte;

	assert_int_equal(pipe(pipes), 0);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (!child.pid) {
		close(pipes[1]);
		if (read(pipes[0], &byte, 1) == 1)
			act();
		_exit(7);
	}
	close(pipes[0]);
	child.go = pipes[1];
	return child;
}

static void child_run(struct child *child) {
	int status;

	assert_int_equal(write(child->go, "x", 1), 1);
	close(child->go);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
}

#define HOOKS(...)                                     \
	.hooks = (const char *const[]){ __VA_ARGS__ }, \
	.n_hooks = sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)
#define PROBES(...)                                     \
	.probes = (const char *const[]){ __VA_ARGS__ }, \
	.n_probes = sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)
