/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. What a launch costs more with the shim loaded and nothing attached: cuLaunchKernel
 * of a stand-in driver that does nothing, bare and under the shim, in turns.
 *
 *   launch-cost SHIM DRIVER-FOLDER [LAUNCHES=10000000] [ROUNDS=7]
 *
 * Prints one JSON object: the median of the rounds in nanoseconds a launch, for a program that
 * finds the function by dlsym. "added_ns": the difference; exits 1 if that is more than 20 ns. The
 * program starts itself anew for each round, with LD_PRELOAD or without.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 101
#define LIMIT_NS 20.0

typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			    unsigned, void *, void **, void **);

static double now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The child: prints nanoseconds a launch. */
static int measure(long launches) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	launch_function *launch =
		driver ? (launch_function *)dlsym(driver, "cuLaunchKernel") : NULL;
	int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
	double start;

	if (!launch || !init || init(0) != 0) {
		fprintf(stderr, "no driver: %s\n", dlerror());
		return 1;
	}
	for (long i = 0; i < launches / 100; i++)
		launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	start = now_ns();
	for (long i = 0; i < launches; i++)
		launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	printf("%.4f\n", (now_ns() - start) / (double)launches);
	return 0;
}

static double run_child(char *const *argv, const char *preload, const char *launches) {
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
		if (preload)
			setenv("LD_PRELOAD", preload, 1);
		execl("/proc/self/exe", argv[0], "--measure", launches, (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	output = fdopen(pipes[0], "r");
	if (!output || fscanf(output, "%lf", &result) != 1)
		result = -1;
	fclose(output);
	waitpid(child, &status, 0);
	if (status || result < 0) {
		fprintf(stderr, "a measurement failed: %s\n", preload ? preload : "bare");
		exit(2);
	}
	return result;
}

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int count) {
	qsort(values, (size_t)count, sizeof(*values), compare);
	return values[count / 2];
}

int main(int argc, char **argv) {
	double bare[ROUNDS_MAX], shim[ROUNDS_MAX], bare_ns, shim_ns;
	const char *launches = argc > 3 ? argv[3] : "10000000";
	int rounds = argc > 4 ? atoi(argv[4]) : 7;

	if (argc == 3 && !strcmp(argv[1], "--measure"))
		return measure(atol(argv[2]));
	if (argc < 3 || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "launch-cost SHIM DRIVER-FOLDER [LAUNCHES] [ROUNDS]\n");
		return 2;
	}
	for (int i = 0; i < rounds; i++) {
		bare[i] = run_child(argv, NULL, launches);
		shim[i] = run_child(argv, argv[1], launches);
	}
	bare_ns = median(bare, rounds);
	shim_ns = median(shim, rounds);
	printf("{\"benchmark\": \"launch-cost\", \"launches\": %s, \"rounds\": %d, \"bare_ns\": "
	       "%.2f, \"shim_ns\": %.2f, "
	       "\"added_ns\": %.2f, \"limit_ns\": %.0f}\n",
	       launches, rounds, bare_ns, shim_ns, shim_ns - bare_ns, LIMIT_NS);
	return shim_ns - bare_ns > LIMIT_NS;
}
