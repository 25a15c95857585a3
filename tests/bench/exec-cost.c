/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. What the preload costs a process that never uses CUDA: posix_spawn of /bin/true
 * without a preload, with an empty library, and with the shim, in turns.
 *
 *   exec-cost SHIM EMPTY-LIBRARY [SPAWNS=800]
 *
 * Prints one JSON object: medians in microseconds from the spawn to the end of the process;
 * "added_us" is what the shim costs more than the empty library. Exits 1 if that is more than 10
 * us.
 */

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define SPAWNS_MAX 20000
#define LIMIT_US 10.0

enum {
	BARE,
	EMPTY,
	SHIM,
	WAYS
};

static double now_us(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* One process, from its start to its end. */
static double spawn(const char *preload) {
	char variable[4096];
	char *const argv[] = { (char *)"true", NULL };
	char *const environment[] = { preload ? variable : NULL, NULL };
	double start;
	pid_t child;
	int status;

	snprintf(variable, sizeof(variable), "LD_PRELOAD=%s", preload ? preload : "");
	start = now_us();
	if (posix_spawn(&child, "/bin/true", NULL, NULL, argv, environment) != 0 ||
	    waitpid(child, &status, 0) != child || status) {
		fprintf(stderr, "/bin/true failed with %s\n", variable);
		exit(2);
	}
	return now_us() - start;
}

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	static double times[WAYS][SPAWNS_MAX];
	int spawns = argc > 3 ? atoi(argv[3]) : 800;
	double medians[WAYS];

	if (argc < 3 || spawns < 1 || spawns > SPAWNS_MAX) {
		fprintf(stderr, "exec-cost SHIM EMPTY-LIBRARY [SPAWNS]\n");
		return 2;
	}
	for (int i = -5; i < spawns; i++) /* some first, unmeasured */
		for (int way = 0; way < WAYS; way++) {
			/* each one follows each other one equally often */
			int turn = (way + (i + 6)) % WAYS;
			double time = spawn(turn == SHIM    ? argv[1]
					    : turn == EMPTY ? argv[2]
							    : NULL);

			if (i >= 0)
				times[turn][i] = time;
		}
	for (int way = 0; way < WAYS; way++) {
		qsort(times[way], (size_t)spawns, sizeof(double), compare);
		medians[way] = times[way][spawns / 2];
	}
	printf("{\"benchmark\": \"exec-cost\", \"spawns\": %d, \"bare_us\": %.1f, \"empty_us\": "
	       "%.1f, \"shim_us\": %.1f, "
	       "\"added_us\": %.1f, \"limit_us\": %.0f}\n",
	       spawns, medians[BARE], medians[EMPTY], medians[SHIM], medians[SHIM] - medians[EMPTY],
	       LIMIT_US);
	return medians[SHIM] - medians[EMPTY] > LIMIT_US;
}
