/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs a pass, an executable that users may supply, with a request and a time limit (pass-run.h).
 *
 * Three processes: we; a supervisor, the leader of a new process group; the pass in that group.
 * Whatever the pass starts is in the group, too (the pass worker's filter forbids leaving it), so
 * killing the group ends all of it. If we die before, the supervisor kills the group. Where we have
 * a pid namespace of our own, the supervisor is its first process, and nothing at all outlives it.
 *
 * We write the request, read the answer and what is said on standard error, all at once, until the
 * pass has ended or the time is up. What is not read by then is lost; an answer that is too long
 * ends the pass.
 *
 * A pass that is killed does not tidy up: its temporary files are in a folder of this run, which we
 * remove.
 */

#include "pass-run.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "lib/json.h"
#include "lib/ptx/ptx-module.h"

#define PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define FILE_SIZE_MAX (UINT64_C(64) << 20) /* that a pass may write */
#define WORDS_MAX 4096 /* of standard error that are kept */
#define FAILED_TO_START 127
#define TEMPORARY "TMPDIR="
#define FOLDERS_OPEN 16 /* while the folder is removed */

enum {
	REQUEST,
	ANSWER,
	WORDS,
	STATUS,
	N_PIPES
};

/* A run under way. */
struct running {
	const struct pass_run *run;
	int ours[N_PIPES], theirs[N_PIPES]; /* ends of pipes; -1: closed */
	pid_t supervisor;
	const char *request; /* what is still to be written */
	size_t request_length;
	char *answer; /* owned */
	size_t answer_length, answer_size, answer_max;
	char words[WORDS_MAX + 1];
	size_t words_length;
	int status; /* of waitpid() */
	bool ended, too_long;
	int64_t deadline;
	char temporary[40]; /* TMPDIR= and the folder; empty: there is none */
};

__attribute__((format(printf, 2, 3))) static int failed(char error[static PASS_ERROR_SIZE],
							const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, PASS_ERROR_SIZE, format, arguments);
	va_end(arguments);
	for (char *c = error; *c; c++)
		if (is_control(*c))
			*c = ' ';
	return PASS_RUN_E_FAILED;
}

static void close_end(int *fd) {
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where) {
	remove(path);
	return 0;
}

/* What was killed may still end a call that makes a file: a second try finds that, too. */
static void remove_folder(const struct running *running) {
	const char *folder = running->temporary + strlen(TEMPORARY);

	for (int i = 0; *running->temporary && i < 3 && !access(folder, F_OK); i++)
		nftw(folder, remove_one, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- in the new processes: nothing but system calls, until we are gone ---- */

static void limit(__rlimit_resource_t resource, uint64_t value) {
	struct rlimit new = { value, value }, old;

	if (!getrlimit(resource, &old) && old.rlim_max < value)
		new.rlim_cur = new.rlim_max = old.rlim_max;
	setrlimit(resource, &new);
}

static const struct running *supervised; /* in the supervisor, for its handler */
static volatile sig_atomic_t remover;

/* We have died: the group ends, the supervisor with it, so that a child outside of it removes the
 * folder. */
static void kill_group(int signal) {
	pid_t group = getpgrp(), pid = *supervised->temporary ? fork() : -1;

	if (!pid) {
		setpgid(0, 0);
		kill(-group, SIGKILL);
		remove_folder(supervised);
		_exit(0);
	}
	remover = pid;
	if (pid > 0)
		setpgid(pid, pid);
	kill(0, SIGKILL);
}

static void mask_orphaned(int how) {
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(how, &signals, NULL);
}

static void become_pass(const struct running *running, char *const *environment) {
	const struct pass_run *run = running->run;
	char *const arguments[] = { (char *)run->executable, NULL };
	int r = 0;

	signal(SIGUSR1, SIG_DFL);
	mask_orphaned(SIG_UNBLOCK);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	if (dup2(running->theirs[REQUEST], 0) < 0 || dup2(running->theirs[ANSWER], 1) < 0 ||
	    dup2(running->theirs[WORDS], 2) < 0 || close_range(3, ~0U, 0))
		_exit(FAILED_TO_START);
	limit(RLIMIT_AS, (uint64_t)run->memory_mib << 20);
	limit(RLIMIT_CPU, run->timeout_ms / 1000 + 1);
	limit(RLIMIT_FSIZE, FILE_SIZE_MAX);
	limit(RLIMIT_CORE, 0);
	if (run->prepare)
		r = run->prepare();
	if (!r) {
		execve(run->executable, arguments, environment);
		r = -errno;
	}
	dprintf(2, "cannot be run: %s\n", strerror(-r));
	_exit(FAILED_TO_START);
}

static void supervise(const struct running *running, char *const *environment) {
	int status = -1;
	pid_t pid, ended;

	setpgid(0, 0);
	supervised = running;
	mask_orphaned(SIG_BLOCK); /* the handler forks, too */
	signal(SIGUSR1, kill_group);
	prctl(PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0);
	pid = fork();
	if (!pid)
		become_pass(running, environment);
	mask_orphaned(SIG_UNBLOCK);
	close_range(0, (unsigned int)running->theirs[STATUS] - 1, 0);
	do
		ended = pid < 0 ? -1 : waitpid(-1, &status, 0);
	while (ended != pid && (ended >= 0 || errno == EINTR));
	if (ended == pid && pid > 0 &&
	    write(running->theirs[STATUS], &status, sizeof(status)) < 0 && remover <= 0)
		_exit(1);
	/* The first process of a namespace is not killed from within it, and takes all others with
	 * it. */
	while (remover > 0 && waitpid(remover, NULL, 0) < 0 && errno == EINTR)
		;
	_exit(0);
}

/* ---- here ---- */

/* Where none can be made, passes do as they do without TMPDIR. */
static void make_folder(struct running *running) {
	strcpy(running->temporary, TEMPORARY "/tmp/gpuprobe-pass-XXXXXX");
	if (!mkdtemp(running->temporary + strlen(TEMPORARY)))
		*running->temporary = '\0';
}

static int start(struct running *running) {
	char *environment[4] = { (char *)PATH };
	int fd, r;

	for (int i = 0; i < N_PIPES; i++) {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC))
			return -errno;
		running->ours[i] = ends[i == REQUEST];
		running->theirs[i] = ends[i != REQUEST];
		if (fcntl(running->ours[i], F_SETFL, O_NONBLOCK))
			return -errno;
	}
	/* The supervisor closes what lies below it. */
	fd = fcntl(running->theirs[STATUS], F_DUPFD_CLOEXEC, 64);
	if (fd < 0)
		return -errno;
	close(running->theirs[STATUS]);
	running->theirs[STATUS] = fd;
	if (asprintf(&environment[1], "PTX_ATTACH_POINT=%s", running->run->attach_point) < 0)
		return -ENOMEM;
	make_folder(running);
	if (*running->temporary)
		environment[2] = running->temporary;
	running->supervisor = fork();
	if (!running->supervisor)
		supervise(running, environment);
	r = running->supervisor < 0 ? -errno : 0;
	if (!r)
		setpgid(running->supervisor, running->supervisor);
	free(environment[1]);
	for (int i = 0; i < N_PIPES; i++)
		close_end(&running->theirs[i]);
	return r;
}

static void write_request(struct running *running) {
	ssize_t n = running->request_length ? write(running->ours[REQUEST], running->request,
						    running->request_length)
					    : 0;

	if (n > 0) {
		running->request += n;
		running->request_length -= (size_t)n;
	}
	/* A pass may answer without having read it all. */
	if (!running->request_length || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_end(&running->ours[REQUEST]);
}

static int read_answer(struct running *running) {
	ssize_t n;

	if (running->answer_length + 1 >= running->answer_size) {
		size_t size = running->answer_size ? 2 * running->answer_size : 1 << 16;
		char *more = realloc(running->answer, size);

		if (!more)
			return -ENOMEM;
		running->answer = more;
		running->answer_size = size;
	}
	n = read(running->ours[ANSWER], running->answer + running->answer_length,
		 running->answer_size - running->answer_length - 1);
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_end(&running->ours[ANSWER]);
	running->answer_length += n > 0 ? (size_t)n : 0;
	running->answer[running->answer_length] = '\0';
	running->too_long = running->answer_length > running->answer_max;
	return 0;
}

static void read_words(struct running *running) {
	char lost[1024];
	size_t room = WORDS_MAX - running->words_length;
	ssize_t n = read(running->ours[WORDS], room ? running->words + running->words_length : lost,
			 room ? room : sizeof(lost));

	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_end(&running->ours[WORDS]);
	else if (n > 0 && room)
		running->words_length += (size_t)n;
}

/* The pass has ended: so does everything that it has started. */
static void read_status(struct running *running) {
	if (read(running->ours[STATUS], &running->status, sizeof(running->status)) ==
	    sizeof(running->status))
		running->ended = true;
	close_end(&running->ours[STATUS]);
	kill(-running->supervisor, SIGKILL);
}

/* Until all pipes are at their ends, or time is up. */
static int serve(struct running *running) {
	int r = 0;

	while (!r && !running->too_long &&
	       (running->ours[ANSWER] >= 0 || running->ours[WORDS] >= 0 ||
		running->ours[STATUS] >= 0)) {
		int64_t left = running->deadline - clock_ms(CLOCK_MONOTONIC);
		struct pollfd polled[N_PIPES];

		if (left <= 0)
			return 0;
		for (int i = 0; i < N_PIPES; i++)
			polled[i] = (struct pollfd){ running->ours[i],
						     i == REQUEST ? POLLOUT : POLLIN, 0 };
		if (poll(polled, N_PIPES, (int)left) < 0)
			continue;
		if (polled[REQUEST].revents)
			write_request(running);
		if (polled[ANSWER].revents)
			r = read_answer(running);
		if (polled[WORDS].revents)
			read_words(running);
		if (polled[STATUS].revents)
			read_status(running);
	}
	return r;
}

static void stop(struct running *running) {
	for (int i = 0; i < N_PIPES; i++) {
		close_end(&running->ours[i]);
		close_end(&running->theirs[i]);
	}
	if (running->supervisor <= 0)
		return;
	kill(-running->supervisor, SIGKILL);
	kill(running->supervisor, SIGKILL);
	while (waitpid(running->supervisor, NULL, 0) < 0 && errno == EINTR)
		;
}

/* The first line that was said on standard error. */
static const char *first_line(struct running *running) {
	running->words[running->words_length] = '\0';
	running->words[strcspn(running->words, "\n")] = '\0';
	return running->words;
}

/* How it ended. */
static int judge_end(struct running *running, struct pass_output *output,
		     char error[static PASS_ERROR_SIZE]) {
	const char *line = first_line(running);

	if (running->too_long)
		return failed(error, "its answer is longer than %llu bytes",
			      (unsigned long long)running->run->max_output_bytes);
	if (!running->ended && clock_ms(CLOCK_MONOTONIC) >= running->deadline)
		return failed(error, "timed out after %u ms", running->run->timeout_ms);
	if (!running->ended)
		return failed(error, "it was not started");
	if (WIFSIGNALED(running->status)) {
		output->status = 128 + WTERMSIG(running->status);
		return failed(error, "ended by signal %d (%s)%s%s", WTERMSIG(running->status),
			      strsignal(WTERMSIG(running->status)), *line ? ": " : "", line);
	}
	output->status = WEXITSTATUS(running->status);
	if (output->status)
		return failed(error, "exit status %d%s%s", output->status, *line ? ": " : "", line);
	return 0;
}

/* The request: flat, as passes have known it before ours. */
static int make_request(const struct pass_run *run, json_object **requestp) {
	json_object *request = json_object_new_object(),
		    *ptx = json_object_new_string_len(run->ptx, (int)run->ptx_length);

	*requestp = request;
	if (!request || !ptx)
		return -ENOMEM;
	if (run->parameters) {
		json_object_object_foreach(run->parameters, key, value)
			json_add(request, key, json_object_get(value));
	}
	json_add(request, "full_ptx", ptx);
	if (run->kernel)
		json_add_string(request, "to_patch_kernel", run->kernel);
	json_add_string(request, "global_ebpf_map_info_symbol", "map_info");
	json_add_string(request, "ebpf_communication_data_symbol", "constData");
	return 0;
}

/* The output has to be PTX and to define what the definition says. */
static int check_output(const struct pass_run *run, const struct pass_output *output,
			char error[static PASS_ERROR_SIZE]) {
	struct ptx_module module;
	struct ptx_error why = {};
	int r;

	if (output->length > run->max_output_bytes)
		return failed(error, "output_ptx has %zu bytes, at most %llu are allowed",
			      output->length, (unsigned long long)run->max_output_bytes);
	r = ptx_module_parse(&module, output->ptx, output->length, &why);
	if (r > 0)
		return failed(error, "output_ptx, line %u: %s", why.line, why.message);
	if (r)
		return r;
	for (size_t i = 0; !r && run->required_symbols && i < run->required_symbols->n; i++) {
		const char *symbol = run->required_symbols->strings[i];

		if (!ptx_module_has_symbol(&module, symbol, strlen(symbol)))
			r = failed(error, "output_ptx lacks %.200s", symbol);
	}
	ptx_module_deinit(&module);
	return r;
}

/* The answer: one object, nothing behind it. */
static int read_output(const struct running *running, struct pass_output *output,
		       char error[static PASS_ERROR_SIZE]) {
	json_object *answer = json_parse(running->answer, running->answer_length, 16),
		    *ptx = json_get(answer, "output_ptx", json_type_string);
	bool good = answer && (ptx || !json_member(answer, "output_ptx"));

	if (ptx && json_object_get_string_len(ptx)) {
		output->length = (size_t)json_object_get_string_len(ptx);
		output->ptx = malloc(output->length + 1);
		if (output->ptx)
			memcpy(output->ptx, json_object_get_string(ptx), output->length + 1);
	}
	json_object_put(answer);
	if (!good)
		return failed(error, "its answer is not a JSON object with the string output_ptx");
	return output->length && !output->ptx ? -ENOMEM : 0;
}

static int run_request(struct running *running, struct pass_output *output,
		       char error[static PASS_ERROR_SIZE]) {
	void (*old)(int) = signal(SIGPIPE, SIG_IGN);
	int r;

	running->deadline = clock_ms(CLOCK_MONOTONIC) + running->run->timeout_ms;
	r = start(running);
	if (!r)
		r = serve(running);
	stop(running);
	remove_folder(running);
	signal(SIGPIPE, old);
	if (!r)
		r = judge_end(running, output, error);
	if (!r)
		r = read_output(running, output, error);
	return !r && output->ptx ? check_output(running->run, output, error) : r;
}

int pass_run(const struct pass_run *run, struct pass_output *output,
	     char error[static PASS_ERROR_SIZE]) {
	struct running *running = calloc(1, sizeof(*running));
	json_object *request = NULL;
	int r;

	*output = (struct pass_output){ .status = -1 };
	if (!running)
		return -ENOMEM;
	running->run = run;
	for (int i = 0; i < N_PIPES; i++)
		running->ours[i] = running->theirs[i] = -1;
	/* JSON may need six bytes for one. */
	running->answer_max = 6 * run->max_output_bytes + 4096;
	r = run->ptx_length > INT32_MAX / 8 ? -EFBIG : make_request(run, &request);
	if (!r) {
		running->request = json_object_to_json_string_length(
			request, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
			&running->request_length);
		r = running->request ? run_request(running, output, error) : -ENOMEM;
	}
	if (r) {
		free(output->ptx);
		output->ptx = NULL;
	}
	json_object_put(request);
	free(running->answer);
	free(running);
	return r;
}
