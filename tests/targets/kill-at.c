/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Kills a process at a point of its life that a number names: the Nth time that its first thread
 * enters or leaves a system call.
 *
 *   kill-at N PID                attaches to a process that runs, says "ready" when it counts
 *   kill-at N PRELOAD COMMAND... starts a command with LD_PRELOAD=PRELOAD, which counts from its
 *   first socket(2): what comes before has to do with nobody
 *
 * Prints "killed at N before CALL" or "... after CALL" (the number of the system call), or "ended
 * after N" when the process ended or SIGTERM let it go. N of 0 kills nobody. The exit status is not
 * that of the process.
 */

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS PTRACE_O_TRACESYSGOOD

/* A stopped child, in which nothing has run yet. */
static pid_t start(const char *preload, char **command) {
	pid_t pid = fork();

	if (pid == 0) {
		setenv("LD_PRELOAD", preload, 1);
		raise(SIGSTOP);
		execvp(command[0], command);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, NULL, WUNTRACED) == pid &&
			       !ptrace(PTRACE_SEIZE, pid, 0, OPTIONS) && !kill(pid, SIGCONT)
		       ? pid
		       : -1;
}

static pid_t attach(pid_t pid) {
	return ptrace(PTRACE_SEIZE, pid, 0, OPTIONS) || ptrace(PTRACE_INTERRUPT, pid, 0, 0) ? -1
											    : pid;
}

/* What is traced, for who asks us to end. */
static pid_t traced;
static volatile sig_atomic_t ending;

static void on_end(int signal_number) {
	(void)signal_number;
	ending = true;
	ptrace(PTRACE_INTERRUPT, traced, 0, 0);
}

/* Its next stop, which is one of a system call that is entered or left: true, with that call's
 * number in call. */
static bool next_stop(pid_t pid, int status, bool *enters, unsigned long long *call) {
	struct __ptrace_syscall_info info = {};

	if (WSTOPSIG(status) != (SIGTRAP | 0x80))
		return false;
	ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info);
	*enters = info.op == PTRACE_SYSCALL_INFO_ENTRY;
	if (*enters)
		*call = info.entry.nr;
	return true;
}

static int follow(pid_t pid, unsigned long wanted, bool attached) {
	bool ready = !attached, counts = attached, enters;
	unsigned long long call = 0;
	unsigned long n = 0;
	int status;

	while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status) && !ending) {
		int signal_number = 0;

		if (!ready) {
			puts("ready");
			fflush(stdout);
			ready = true;
		}
		if (next_stop(pid, status, &enters, &call)) {
			counts |= call == SYS_socket;
			n += counts;
			if (counts && n == wanted) {
				kill(pid, SIGKILL);
				waitpid(pid, &status, __WALL);
				printf("killed at %lu %s %llu\n", n, enters ? "before" : "after",
				       call);
				return 0;
			}
		} else if (status >> 16 == 0) {
			signal_number = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, pid, 0, signal_number);
	}
	if (ending)
		ptrace(PTRACE_DETACH, pid, 0, 0);
	printf("ended after %lu\n", n);
	return 0;
}

int main(int argc, char **argv) {
	const bool attached = argc == 3;

	if (argc < 3) {
		fprintf(stderr, "usage: kill-at N PID | kill-at N PRELOAD COMMAND...\n");
		return 2;
	}
	signal(SIGTERM, on_end);
	traced = attached ? attach(atoi(argv[2])) : start(argv[2], argv + 3);
	if (traced < 0) {
		fprintf(stderr, "kill-at: %s\n", strerror(errno));
		return 1;
	}
	return follow(traced, strtoul(argv[1], NULL, 10), attached);
}
