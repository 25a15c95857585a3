/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Demangles names of kernels and functions in a trace, by libstdc++. A name that was made for it
 * can take any time and memory: each reference in it may double what the one before stands for.
 * Names with many references are demangled in a child that gets a bounded time. After some such
 * timeouts, these names stay mangled.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/rust-name.h"
#include "demangle.h"

#define REFERENCES_MAX 20 /* which can make a thousand times as much of a name */
#define TIME_US 50000 /* of a processor */
#define FAILURES_MAX 20

/* of libstdc++; C has no header for it */
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

/* Each reference has one. */
static size_t count_underscores(const char *text) {
	size_t n = 0;

	for (; *text; text++)
		n += *text == '_';
	return n;
}

/* In the child. */
static void demangle_and_exit(const char *mangled, int out) {
	const struct itimerval limit = { .it_value.tv_usec = TIME_US };
	int status;
	char *name;

	setitimer(ITIMER_PROF, &limit, NULL);
	name = __cxa_demangle(mangled, NULL, NULL, &status);
	if (name && strlen(name) <= DEMANGLED_MAX && write(out, name, strlen(name)) < 0)
		_exit(1);
	_exit(0);
}

static char *demangle_apart(const char *mangled, unsigned int *failures) {
	char *name = *failures < FAILURES_MAX ? calloc(1, DEMANGLED_MAX + 1) : NULL;
	int out[2], status = 0;
	size_t n = 0;
	ssize_t r;
	pid_t pid;

	if (!name || pipe2(out, O_CLOEXEC) < 0) {
		free(name);
		return NULL;
	}
	pid = fork();
	if (pid == 0)
		demangle_and_exit(mangled, out[1]);
	close(out[1]);
	while (pid > 0 && n < DEMANGLED_MAX &&
	       ((r = read(out[0], name + n, DEMANGLED_MAX - n)) > 0 || (r < 0 && errno == EINTR)))
		n += r > 0 ? (size_t)r : 0;
	close(out[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	*failures += WIFSIGNALED(status);
	if (n)
		return name;
	free(name);
	return NULL;
}

/* Rust's own mangling takes a bounded time. */
static char *demangle_rust(const char *mangled) {
	char *name = malloc(DEMANGLED_MAX + 1);

	if (name && rust_name(mangled, RUST_NAME_FULL, name, DEMANGLED_MAX + 1))
		return name;
	free(name);
	return NULL;
}

char *demangle(const char *mangled, unsigned int *failures) {
	char *name;
	int status;

	if (mangled[0] == '_' && mangled[1] == 'R')
		return demangle_rust(mangled);
	if (mangled[0] != '_' || mangled[1] != 'Z')
		return NULL;
	if (count_underscores(mangled) > REFERENCES_MAX)
		return demangle_apart(mangled, failures);
	name = __cxa_demangle(mangled, NULL, NULL, &status);
	if (!name || strlen(name) <= DEMANGLED_MAX)
		return name;
	free(name);
	return NULL;
}

const char *trace_demangle(struct trace_demangler *demangler, const char *mangled) {
	char *name = trace_map_get(&demangler->names, (uintptr_t)mangled, 0);

	if (name)
		return name;
	/* one that cannot be is remembered, too: it may come with each line, and each time take a
	 * child */
	name = demangle(mangled, &demangler->failures) ?: strdup(mangled);
	if (name && trace_map_set(&demangler->names, (uintptr_t)mangled, 0, name)) {
		free(name);
		name = NULL;
	}
	return name ?: mangled;
}

void trace_demangler_deinit(struct trace_demangler *demangler) {
	trace_map_deinit(&demangler->names, free);
}
