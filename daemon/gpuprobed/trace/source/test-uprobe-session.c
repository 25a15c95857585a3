/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What test-uprobe.c and test-uprobe-library.c share (test-uprobe-session.h): a session that keeps
 * all records, and programs to trace.
 */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "lib/function.h"
#include "daemon/gpuprobed/trace/sink/foreign.h"
#include "test-uprobe-session.h"

struct trace_session session;
enum uprobe_rung best;
const char *program, *library;

static pid_t parent_of(pid_t pid) {
	char path[64], text[512], *at;
	int parent = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fgets(text, sizeof(text), file) && (at = strrchr(text, ')')))
		sscanf(at, ") %*c %d", &parent);
	fclose(file);
	return parent;
}

/* One process and its children, or all of this test's. */
bool trace_session_means(struct trace_session *s, pid_t pid) {
	if (s->only)
		return pid == s->only || pid == s->also || parent_of(pid) == s->only ||
		       (s->follow && kill(pid, 0) < 0);
	return parent_of(pid) == getpid();
}

bool trace_session_meant(struct trace_session *s, pid_t pid, uint64_t time) {
	return trace_session_means(s, pid);
}

bool trace_session_missed(struct trace_session *s, pid_t pid) {
	return false;
}

static bool is_told(const struct trace_session *s, pid_t pid) {
	for (size_t i = 0; i < s->n_told; i++)
		if (s->told[i] == pid)
			return true;
	return false;
}

bool trace_session_emit(struct trace_session *s, const struct trace_record *record, uint32_t pid,
			uint32_t tid) {
	assert_true(record->size >= sizeof(*record) && record->size % 8 == 0 &&
		    record->size <= TRACE_RECORD_MAX);
	assert_true(s->n < RECORDS_MAX);
	assert_true(!pid || is_told(s, (pid_t)pid)); /* no record comes before its process */
	s->records[s->n] = malloc(record->size);
	assert_non_null(s->records[s->n]);
	memcpy(s->records[s->n++], record, record->size);
	return true;
}

bool trace_session_counts(struct trace_session *s, enum trace_source source, uint32_t pid,
			  uint16_t function, const struct trace_tally *tally) {
	size_t i = 0;

	assert_true(source == TRACE_SOURCE_BPF && function > 0);
	while (i < s->n_tallies && (s->tallies[i].pid != pid || s->tallies[i].function != function))
		i++;
	assert_true(i < TALLIES_MAX);
	s->n_tallies += i == s->n_tallies;
	s->tallies[i].pid = pid;
	s->tallies[i].function = function;
	s->tallies[i].tally = *tally;
	return true;
}

void trace_session_counts_anew(struct trace_session *s, enum trace_source source, uint32_t pid,
			       uint16_t function) {
	size_t n = 0;

	assert_true(source == TRACE_SOURCE_BPF);
	for (size_t i = 0; i < s->n_tallies; i++)
		if (s->tallies[i].pid != pid || s->tallies[i].function != function)
			s->tallies[n++] = s->tallies[i];
	s->n_tallies = n;
}

void trace_session_lost(struct trace_session *s, enum trace_source source, uint32_t pid,
			uint32_t tid, uint64_t count) {
	s->lost += count;
}

void trace_session_process(struct trace_session *s, pid_t pid) {
	if (is_told(s, pid))
		return;
	assert_true(s->n_told < TOLD_MAX);
	s->told[s->n_told++] = pid;
}

void trace_session_thread(struct trace_session *s, pid_t pid, pid_t tid) {
}

bool trace_session_has_shim(struct trace_session *s, pid_t pid) {
	return pid == s->shim;
}

uint16_t trace_session_function(struct trace_session *s, const char *name) {
	for (size_t i = 0; i < s->n_dynamic; i++)
		if (!strcmp(s->dynamic[i], name))
			return (uint16_t)(TRACE_FUNCTION_DYNAMIC + i);
	assert_true(s->n_dynamic < DYNAMIC_MAX);
	snprintf(s->dynamic[s->n_dynamic], sizeof(s->dynamic[0]), "%s", name);
	return (uint16_t)(TRACE_FUNCTION_DYNAMIC + s->n_dynamic++);
}

void trace_session_foresee(struct trace_session *s, pid_t pid) {
}

uint32_t trace_session_stack(struct trace_session *s, pid_t pid, const uint64_t *addresses,
			     size_t n) {
	s->n_frames = n;
	s->last_stack = addresses[0];
	return 1;
}

void trace_session_missing(struct trace_session *s, const char *format, ...) {
	size_t n = strlen(s->missing);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(s->missing + n, sizeof(s->missing) - n, format, arguments);
	va_end(arguments);
}

void session_reset(void) {
	for (size_t i = 0; i < session.n; i++)
		free(session.records[i]);
	session = (struct trace_session){};
}

static const char *function_text(uint16_t number) {
	const struct function *function = function_by_number(number);

	if (function)
		return function->name;
	return number >= TRACE_FUNCTION_DYNAMIC &&
			       (size_t)(number - TRACE_FUNCTION_DYNAMIC) < session.n_dynamic
		       ? session.dynamic[number - TRACE_FUNCTION_DYNAMIC]
		       : "?";
}

uint64_t get_tally(const char *name, struct trace_tally *sum) {
	uint64_t n = 0;

	*sum = (struct trace_tally){};
	for (size_t i = 0; i < session.n_tallies; i++) {
		const struct trace_tally *tally = &session.tallies[i].tally;

		if (name && strcmp(function_text(session.tallies[i].function), name) != 0)
			continue;
		sum->errors += tally->errors;
		sum->time += tally->time;
		sum->bytes += tally->bytes;
		sum->bytes_done += tally->bytes_done;
		sum->max = tally->max > sum->max ? tally->max : sum->max;
		sum->least = tally->least > sum->least ? tally->least : sum->least;
		for (size_t k = 0; k < TRACE_BUCKETS; k++) {
			sum->buckets[k] += tally->buckets[k];
			n += tally->buckets[k];
		}
	}
	return n;
}

/* A record that is a call of a function (NULL: of any), or NULL. */
static const struct trace_call *as_call(const struct trace_record *record, const char *name) {
	const struct trace_call *call = (const void *)record;

	return record->type == TRACE_CALL && (!name || !strcmp(function_text(call->function), name))
		       ? call
		       : NULL;
}

const struct trace_call *get_call(const char *name, size_t i) {
	for (size_t k = 0; k < session.n; k++)
		if (as_call(session.records[k], name) && !i--)
			return as_call(session.records[k], name);
	return NULL;
}

size_t count_calls(const char *name) {
	size_t n = 0;

	for (size_t i = 0; i < session.n; i++)
		n += as_call(session.records[i], name) != NULL;
	return n;
}

const struct trace_name *get_name(enum trace_name_kind kind, const char *begin) {
	for (size_t i = 0; i < session.n; i++) {
		const struct trace_name *name = (const void *)session.records[i];

		if (name->record.type == TRACE_NAME && name->kind == kind &&
		    !strncmp(name->name, begin, strlen(begin)))
			return name;
	}
	return NULL;
}

const void *get_extra(const struct trace_call *call, uint8_t argument, size_t *sizep) {
	const char *at = (const char *)(call->words + call->n_arguments);

	for (uint8_t i = 0; i < call->n_extras; i++) {
		const struct trace_extra *extra = (const void *)at;

		assert_true(at + sizeof(*extra) + extra->size <=
			    (const char *)call + call->record.size);
		if (extra->argument == argument) {
			*sizep = extra->size;
			return extra + 1;
		}
		at += sizeof(*extra) + ((size_t)extra->size + 7) / 8 * 8;
	}
	return NULL;
}

uint64_t get_number(const struct trace_call *call, uint8_t argument) {
	uint64_t number = 0;
	size_t size;
	const void *bytes = get_extra(call, argument, &size);

	assert_non_null(bytes);
	memcpy(&number, bytes, size);
	return number;
}

/* ---- programs ---- */

void target_expect(struct target *target, const char *text) {
	char line[64];

	assert_non_null(fgets(line, sizeof(line), target->in));
	line[strcspn(line, "\n")] = '\0';
	assert_string_equal(line, text);
}

void target_start(struct target *target, const char *executable, const char *what) {
	target_start_as(target, executable, what, 0);
}

void target_start_as(struct target *target, const char *executable, const char *what, pid_t pid) {
	struct clone_args clone = { .exit_signal = SIGCHLD,
				    .set_tid = (uintptr_t)&pid,
				    .set_tid_size = 1 };
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	target->pid = pid ? (pid_t)syscall(SYS_clone3, &clone, sizeof(clone)) : fork();
	assert_true(target->pid >= 0);
	if (!target->pid) {
		dup2(out[0], STDIN_FILENO);
		dup2(in[1], STDOUT_FILENO);
		execl(executable, executable, what, NULL);
		_exit(127);
	}
	close(in[1]);
	close(out[0]);
	target->in = fdopen(in[0], "r");
	target->out = out[1];
	target_expect(target, "ready");
}

void target_say(struct target *target) {
	assert_int_equal(write(target->out, "\n", 1), 1);
}

void target_run(struct target *target) {
	target_say(target);
	target_expect(target, "done");
}

void target_stop(struct target *target) {
	if (target->pid) {
		kill(target->pid, SIGKILL);
		waitpid(target->pid, NULL, 0);
		close(target->out);
		fclose(target->in);
	}
	target->pid = 0;
}

/* ---- tracing ---- */

struct trace_options open_options(void) {
	struct trace_options options = {
		.all_users = true, .bpf = true, .extras = true, .sample = 1
	};

	memset(options.functions, 0xff, sizeof(options.functions));
	session.only = 0;
	return options;
}

struct trace_options all_options(const struct target *target, uint32_t *pid) {
	struct trace_options options = open_options();

	*pid = (uint32_t)target->pid;
	options.pids = pid;
	options.n_pids = 1;
	session.only = target->pid;
	return options;
}

struct trace_uprobe *start_tuned(const struct trace_options *options,
				 const struct uprobe_tuning *tuning) {
	struct uprobe_tuning whole = *tuning;
	struct trace_uprobe *uprobe = NULL;
	int r;

	whole.whole_scan = true;
	r = uprobe_new_tuned(&uprobe, &session, options, &whole);
	if (r)
		print_message("%s\n", session.missing);
	assert_int_equal(r, 0);
	return uprobe;
}

struct trace_uprobe *start(const struct trace_options *options, enum uprobe_rung rung, bool hash) {
	return start_tuned(options,
			   &(struct uprobe_tuning){ .first = rung,
						    .only_first = true,
						    .hash = hash,
						    .no_usual = true,
						    .detach_now = rung != UPROBE_CLASSIC });
}

/* ---- files ---- */

/* In place of foreign.c's, which gives up a process that a busy machine lets wait: the programs of
 * these tests answer. */
char *foreign_read(pid_t pid, const char *name, size_t max, size_t *np) {
	char path[64], *bytes = NULL;
	int fd, r;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : file_load_start(fd, max, &bytes, np);
	if (fd >= 0)
		close(fd);
	errno = -r;
	return r ? NULL : bytes;
}

static char folder[] = "/tmp/test-uprobe-own-XXXXXX", own_program[64], own_library[64];

static void remove_own(void) {
	unlink(own_program);
	unlink(own_library);
	rmdir(folder);
}

bool copy_file(const char *from, const char *to) {
	int in = open(from, O_RDONLY | O_CLOEXEC),
	    out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	struct stat status;
	bool copied = in >= 0 && out >= 0 && fstat(in, &status) == 0 &&
		      sendfile(out, in, NULL, (size_t)status.st_size) == status.st_size;

	close(in);
	close(out);
	return copied;
}

/* A program and a libcuda of this test's own, which the program finds beside itself: a probe is in
 * a file for all processes, and another test's calls would fill the ring. */
static bool make_own(const char *from_program, const char *from_library) {
	if (!mkdtemp(folder))
		return false;
	snprintf(own_program, sizeof(own_program), "%s/program", folder);
	snprintf(own_library, sizeof(own_library), "%s/libcuda.so.1", folder);
	atexit(remove_own);
	program = own_program;
	library = own_library;
	unsetenv("LD_LIBRARY_PATH"); /* meson's, which has the first one */
	return copy_file(from_program, program) && copy_file(from_library, library);
}

/* Whether this machine lets anybody do it. */
static const char *reason_to_skip(void) {
	const struct uprobe_tuning tuning = { .no_usual = true };
	const struct trace_options options = { .bpf = true };
	struct trace_uprobe *uprobe;

	if (geteuid() != 0)
		return "not root";
	if (uprobe_new_tuned(&uprobe, &session, &options, &tuning) < 0)
		return session.missing;
	best = uprobe->engine.rung;
	print_message("the kernel's best: %s\n", best == UPROBE_SESSION ? "session"
						 : best == UPROBE_MULTI ? "multi"
									: "classic");
	trace_uprobe_free(uprobe);
	return NULL;
}

int test_begin(int argc, char **argv) {
	const char *reason;

	if (argc < 3)
		return 2;
	if (!make_own(argv[1], argv[2])) {
		perror(folder);
		return 1;
	}
	reason = reason_to_skip();
	if (!reason)
		return 0;
	printf("skipped: %s\n", reason);
	return 77;
}
