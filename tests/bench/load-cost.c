/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. What a module load costs more with the shim loaded, in a process that no attachment
 * means: cuModuleLoadData of a stand-in driver that does nothing, bare, under the shim without a
 * daemon, and with a daemon's interest page whose rules mean others.
 *
 *   load-cost SHIM DRIVER-FOLDER [LOADS=20000] [ROUNDS=5]
 *
 * Prints one JSON object: medians of the rounds in nanoseconds a load. Exits 1 if one of the two
 * costs more than 10 us.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/interest.h"
#include "proto/paths.h"

#define ROUNDS_MAX 101
#define FOLDER_MAX 128
#define LIMIT_NS 10000.0

enum {
	BARE,
	NO_DAEMON,
	NOT_MEANT,
	WAYS
};

typedef int load_function(void **, const void *);

static double now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The child: prints nanoseconds a load. */
static int measure(long loads) {
	static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *module = NULL;
	load_function *load = driver ? (load_function *)dlsym(driver, "cuModuleLoadData") : NULL;
	int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
	double start;

	if (!load || !init || init(0) != 0) {
		fprintf(stderr, "no driver: %s\n", dlerror());
		return 1;
	}
	load(&module, image);
	start = now_ns();
	for (long i = 0; i < loads; i++)
		load(&module, image);
	printf("%.1f\n", (now_ns() - start) / (double)loads);
	return 0;
}

/* A session's folder with an interest page of eight rules, none of which means us. */
static void write_page(char folder[FOLDER_MAX], const char *session) {
	static struct interest_page page = {
		.magic = INTEREST_MAGIC,
		.version = INTEREST_VERSION,
		.generation = 2,
		.deadline_ms = 2000,
		.rule_count = 8,
	};
	static char bytes[INTEREST_PAGE_SIZE];
	char user[32], base[64], path[FOLDER_MAX + 16];
	struct stat status;
	int fd;

	for (unsigned i = 0; i < page.rule_count; i++) {
		struct interest_rule *rule = &page.rules[i];

		rule->flags = i % 4 == 0   ? INTEREST_RULE_PID
			      : i % 4 == 1 ? INTEREST_RULE_COMM
					   : INTEREST_RULE_EXE;
		rule->pid = 1 + i;
		snprintf(rule->comm, sizeof(rule->comm), "other%u", i);
		rule->exe = interest_hash("/usr/bin/other") + i;
	}
	memcpy(bytes, &page, sizeof(page));
	snprintf(user, sizeof(user), PATHS_USER_DIR, (unsigned)getuid());
	snprintf(base, sizeof(base),
		 stat(user, &status) == 0 ? PATHS_SESSION_IN_USER_DIR : PATHS_SESSION_IN_TMP,
		 (unsigned)getuid());
	snprintf(folder, FOLDER_MAX, "%s-%s", base, session);
	snprintf(path, sizeof(path), "%.*s/%s", FOLDER_MAX, folder, PATHS_INTEREST_PAGE);
	if (mkdir(folder, 0700) < 0 || (fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600)) < 0 ||
	    write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes)) {
		perror(path);
		exit(2);
	}
	close(fd);
}

static void remove_page(const char folder[FOLDER_MAX]) {
	char path[FOLDER_MAX + 16];

	snprintf(path, sizeof(path), "%.*s/%s", FOLDER_MAX, folder, PATHS_INTEREST_PAGE);
	unlink(path);
	rmdir(folder);
}

static double run_child(char *const *argv, int way, const char *session, const char *loads) {
	int pipes[2], status = -1;
	double result = -1;
	FILE *output;
	pid_t child;

	if (pipe(pipes) < 0)
		exit(2);
	child = fork();
	if (!child) {
		dup2(pipes[1], STDOUT_FILENO);
		setenv("LD_LIBRARY_PATH", argv[2], 1);
		setenv(PATHS_SESSION_VARIABLE, way == NOT_MEANT ? session : "no_such_session", 1);
		if (way != BARE)
			setenv("LD_PRELOAD", argv[1], 1);
		execl("/proc/self/exe", argv[0], "--measure", loads, (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	output = fdopen(pipes[0], "r");
	if (!output || fscanf(output, "%lf", &result) != 1)
		result = -1;
	fclose(output);
	waitpid(child, &status, 0);
	return status ? -1 : result;
}

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	double times[WAYS][ROUNDS_MAX], medians[WAYS];
	const char *loads = argc > 3 ? argv[3] : "20000";
	int rounds = argc > 4 ? atoi(argv[4]) : 5, failed = 0;
	char folder[FOLDER_MAX], session[PATHS_SESSION_NAME_MAX + 1];

	if (argc == 3 && !strcmp(argv[1], "--measure"))
		return measure(atol(argv[2]));
	if (argc < 3 || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "load-cost SHIM DRIVER-FOLDER [LOADS] [ROUNDS]\n");
		return 2;
	}
	snprintf(session, sizeof(session), "bench_%d", getpid());
	write_page(folder, session);
	for (int i = 0; i < rounds; i++)
		for (int way = 0; way < WAYS; way++) {
			times[way][i] = run_child(argv, way, session, loads);
			failed |= times[way][i] < 0;
		}
	remove_page(folder);
	if (failed) {
		fprintf(stderr, "a measurement failed\n");
		return 2;
	}
	for (int way = 0; way < WAYS; way++) {
		qsort(times[way], (size_t)rounds, sizeof(double), compare);
		medians[way] = times[way][rounds / 2];
	}
	printf("{\"benchmark\": \"load-cost\", \"loads\": %s, \"rounds\": %d, \"bare_ns\": %.0f, "
	       "\"no_daemon_ns\": %.0f, "
	       "\"not_meant_ns\": %.0f, \"limit_ns\": %.0f}\n",
	       loads, rounds, medians[BARE], medians[NO_DAEMON], medians[NOT_MEANT], LIMIT_NS);
	return medians[NO_DAEMON] - medians[BARE] > LIMIT_NS ||
	       medians[NOT_MEANT] - medians[BARE] > LIMIT_NS;
}
