/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks whether a library may be loaded into every program of this machine (check.h), before `shim
 * enable` does so.
 *
 * A library in /etc/ld.so.preload runs in every program, root's among them. So nobody but root may
 * be able to change it, or a folder on the way to it; every user must be able to read it, because
 * ld.so complains in each program that cannot; and it must have shown, in a child, that programs
 * start and end with it, and say what they say without it. ld.so tells of a library that it cannot
 * load on standard error, which the child shares with us.
 */

#include "check.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"

#define CHECK_SECONDS 10

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#error "which machine is this?"
#endif

static enum ctl_exit __attribute__((format(printf, 3, 4))) refuse(char *reason,
								  enum ctl_exit status,
								  const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, CHECK_REASON_SIZE, format, arguments);
	va_end(arguments);
	return status;
}

/* ---- the file ---- */

/* Where a descriptor's file is in the root. False: not in there. */
static bool path_in_root(int root, int fd, char path[static 4096]) {
	char link[64], base[4096], full[4096];
	ssize_t n, m;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
	n = readlink(link, base, sizeof(base));
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	m = readlink(link, full, sizeof(full) - 1);
	if (n < 1 || m < 1)
		return false;
	if (n == 1)
		n = 0; /* "/" */
	full[m] = '\0';
	if (m <= n || memcmp(base, full, (size_t)n) || full[n] != '/')
		return false;
	strcpy(path, full + n);
	return true;
}

/* Who may change it, and who may read it. */
static enum ctl_exit check_status(const struct stat *status, mode_t needed, const char *path,
				  char *reason) {
	if (status->st_uid != 0)
		return refuse(reason, CTL_ERROR,
			      "%s: belongs to user %u, who could change it; it must be root's",
			      path, status->st_uid);
	if (status->st_mode & 022)
		return refuse(reason, CTL_ERROR, "%s: others than root may write to it (mode %04o)",
			      path, status->st_mode & 07777);
	if ((status->st_mode & needed) != needed)
		return refuse(reason, CTL_ERROR, "%s: not every user may read it (mode %04o)", path,
			      status->st_mode & 07777);
	return CTL_OK;
}

/* The folders on the way to a path without links. */
static enum ctl_exit check_folders(int root, const char *path, char *reason) {
	char folder[4096];
	struct stat status;
	int fd, r;

	for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
		snprintf(folder, sizeof(folder), "/%.*s",
			 slash == path ? 0 : (int)(slash - path) - 1, path + 1);
		fd = preload_open_in_root(root, folder, O_PATH | O_DIRECTORY);
		r = fd < 0 ? fd : fstat(fd, &status) < 0 ? -errno : 0;
		if (fd >= 0)
			close(fd);
		if (r < 0)
			return refuse(reason, CTL_ERROR, "%s: %s", folder, strerror(-r));
		r = (int)check_status(&status, 0001, folder, reason);
		if (r)
			return (enum ctl_exit)r;
	}
	return CTL_OK;
}

/* Whether all that is loaded is there: ld.so does not look, and a program finds out later, by
 * SIGBUS. */
static bool is_whole(int fd, const Elf64_Ehdr *header, off_t size) {
	Elf64_Phdr segment;

	if (header->e_phentsize != sizeof(segment))
		return false;
	for (unsigned int i = 0; i < header->e_phnum; i++) {
		if (pread(fd, &segment, sizeof(segment),
			  (off_t)(header->e_phoff + i * sizeof(segment))) != sizeof(segment))
			return false;
		if (segment.p_type == PT_LOAD &&
		    (segment.p_filesz > (size_t)size ||
		     segment.p_offset > (size_t)size - segment.p_filesz))
			return false;
	}
	return header->e_phnum > 0;
}

static enum ctl_exit check_elf(int fd, off_t size, const char *path, char *reason) {
	Elf64_Ehdr header;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG))
		return refuse(reason, CTL_ERROR, "%s: is not a library (no ELF file)", path);
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_machine != MACHINE)
		return refuse(reason, CTL_ERROR,
			      "%s: is not for this machine (class %d, machine %d)", path,
			      header.e_ident[EI_CLASS], header.e_machine);
	if (header.e_type != ET_DYN)
		return refuse(reason, CTL_ERROR, "%s: is not a shared library", path);
	if (!is_whole(fd, &header, size))
		return refuse(reason, CTL_ERROR, "%s: is cut off", path);
	return CTL_OK;
}

static enum ctl_exit check_file(int root, const char *path, char resolved[static 4096],
				char *reason) {
	struct stat status;
	enum ctl_exit r;
	int fd;

	if (*path != '/')
		return refuse(reason, CTL_ERROR, "%s: is not an absolute path", path);
	fd = preload_open_in_root(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return refuse(reason,
			      fd == -ENOENT || fd == -ENOTDIR ? CTL_NOT_FOUND
			      : fd == -EACCES                 ? CTL_PERMISSION
							      : CTL_ERROR,
			      "%s: %s", path, strerror(-fd));
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		r = refuse(reason, CTL_ERROR, "%s: is not a file", path);
	else if (!path_in_root(root, fd, resolved))
		r = refuse(reason, CTL_ERROR, "%s: cannot be found again", path);
	else if (strpbrk(resolved, " \t\r\n:#$"))
		r = refuse(reason, CTL_ERROR,
			   "%s: has a character in its path that ld.so.preload cannot have",
			   resolved);
	else
		r = check_status(&status, 0444, resolved, reason);
	if (r == CTL_OK)
		r = check_folders(root, resolved, reason);
	if (r == CTL_OK)
		r = check_elf(fd, status.st_size, resolved, reason);
	close(fd);
	return r;
}

/* ---- a program that has it ---- */

/* In the child: one group for all that it starts, no core file, not much time. */
static void __attribute__((noreturn)) run_child(int root, const char *program,
						char *const *arguments, char *const *environment,
						int out) {
	const struct rlimit none = {}, seconds = { CHECK_SECONDS, CHECK_SECONDS };
	int null = open("/dev/null", O_RDWR);

	setpgid(0, 0);
	setrlimit(RLIMIT_CORE, &none);
	setrlimit(RLIMIT_CPU, &seconds);
	if (fchdir(root) < 0 || null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 ||
	    dup2(out, 2) < 0)
		_exit(127);
	execve(program, arguments, environment);
	dprintf(2, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

static int milliseconds_until(const struct timespec *end) {
	struct timespec now;
	long ms;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
	return ms > 0 ? (int)ms : 0;
}

/* Collects what the child says until it has ended. False: it did not in time. */
static bool listen_to(int process, int in, char *said, size_t size) {
	struct pollfd polls[2] = { { .fd = process, .events = POLLIN },
				   { .fd = in, .events = POLLIN } };
	struct timespec end;
	size_t n = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += CHECK_SECONDS;
	for (;;) {
		char rest[512];
		ssize_t got;

		polls[0].revents = 0;
		if (poll(polls, 2, milliseconds_until(&end)) == 0)
			return false;
		while ((got = read(in, n < size - 1 ? said + n : rest,
				   n < size - 1 ? size - 1 - n : sizeof(rest))) > 0)
			n += n < size - 1 ? (size_t)got : 0;
		said[n] = '\0';
		if (got == 0)
			polls[1].fd = -1;
		if (polls[0].revents)
			return true;
	}
}

/* What became of a program. */
struct trial {
	bool in_time;
	int status; /* as waitpid() has it */
	char said[4096];
};

/* Runs a program with the library at this path in the root, or without one (NULL). */
static enum ctl_exit try_program(int root, const char *library, const char *program,
				 const char *argument, struct trial *trial, char *reason) {
	char variable[4200], *arguments[] = { (char *)program, (char *)argument, NULL };
	char *environment[] = { variable, (char *)"PATH=/usr/bin:/bin", (char *)"LC_ALL=C", NULL };
	int pipes[2], process;
	pid_t pid;

	/* seen from the root, whose own path may have what ld.so splits a list at */
	snprintf(variable, sizeof(variable), "LD_PRELOAD=.%s", library ?: "");
	if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) < 0)
		return refuse(reason, CTL_ERROR, "cannot try it: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		run_child(root, program, arguments, library ? environment : environment + 1,
			  pipes[1]);
	close(pipes[1]);
	if (pid > 0)
		setpgid(pid, pid); /* here, too: who comes first does it */
	process = pid < 0 ? -1 : pidfd_open(pid, 0);
	if (process < 0) {
		int error = errno;

		if (pid > 0)
			kill(-pid, SIGKILL), waitpid(pid, NULL, 0);
		close(pipes[0]);
		return refuse(reason, CTL_ERROR, "cannot try it: %s", strerror(error));
	}
	trial->in_time = listen_to(process, pipes[0], trial->said, sizeof(trial->said));
	kill(-pid, SIGKILL); /* and what it has left behind */
	waitpid(pid, &trial->status, 0);
	close(process);
	close(pipes[0]);
	return CTL_OK;
}

/* The first line that one says and the other does not. */
static const char *first_difference(const char *said, const char *other) {
	const char *line = said;

	for (size_t i = 0; said[i] && said[i] == other[i]; i++)
		if (said[i] == '\n')
			line = said + i + 1;
	return line;
}

/*
 * Runs a program with the library; if it does not say what it should, without, too: what another
 * library in /etc/ld.so.preload adds to it, or ld.so about one that is missing, is not this one's
 * fault. @name is for messages.
 */
static enum ctl_exit check_program(int root, const char *library, const char *program,
				   const char *name, const char *argument, const char *expected,
				   char *reason) {
	struct trial with = {}, without = {};
	const char *line;
	enum ctl_exit r;

	r = try_program(root, library, program, argument, &with, reason);
	if (r)
		return r;
	if (!with.in_time)
		return refuse(reason, CTL_ERROR, "%s: with it, %s does not end in %d s", library,
			      name, CHECK_SECONDS);
	if (WIFSIGNALED(with.status))
		return refuse(reason, CTL_ERROR, "%s: with it, %s is killed by signal %d (%s)",
			      library, name, WTERMSIG(with.status),
			      strsignal(WTERMSIG(with.status)));
	if (strcmp(with.said, expected)) {
		r = try_program(root, NULL, program, argument, &without, reason);
		if (r)
			return r;
		line = first_difference(with.said, without.said);
		if (strcmp(with.said, without.said))
			return refuse(reason, CTL_ERROR, "%s: with it, %s says: %.*s", library,
				      name, (int)strcspn(line, "\n"), line);
	}
	if (with.status)
		return refuse(reason, CTL_ERROR, "%s: with it, %s fails with status %d", library,
			      name, WEXITSTATUS(with.status));
	return CTL_OK;
}

enum ctl_exit check_library(int root, const char *path, char resolved[static 4096],
			    char reason[static CHECK_REASON_SIZE]) {
	enum ctl_exit r;

	*resolved = '\0';
	r = check_file(root, path, resolved, reason);
	if (r)
		return r;
	r = check_program(root, resolved, "/bin/true", "/bin/true", NULL, "", reason);
	if (r == CTL_OK)
		r = check_program(root, resolved, "/proc/self/exe", "gpuprobectl", "--version",
				  "gpuprobectl " PROJECT_VERSION "\n", reason);
	return r;
}
