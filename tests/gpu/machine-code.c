/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A test on a GPU: kernels of machine-code.cu run as they are and as machine-code twins, which have
 * a counter at their entry, at their exits, or at both (daemon/worker/sass). Their results have to
 * be the same to the bit, and the counts exact. Then vectorAdd's time at 32, 1M and 16.8M threads.
 *
 *     machine-code [--rewrite-only | --cubins FOLDER]
 *
 * --rewrite-only makes the twins and loads nothing; --cubins also writes them to a folder. Exit
 * code: 0 right, 1 wrong or no device with sm_90, 77 no CUDA driver.
 */

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "daemon/worker/sass/rewrite.h"
#include "tests/targets/driver.h"

#define WORDS (1U << 24) /* of each buffer */
#define SMALL (1U << 18) /* threads of the largest shape of results */
#define BLOCK 256
#define COUNTERS 1024 /* one for each multiprocessor, 128 bytes apart */
#define STRIDE 16
#define ROUNDS 9
#define LAUNCHES 100
#define NO_GPU 77

extern const unsigned char kernels_cubin[], probe_cubin[];

enum places {
	ENTRY = 1,
	EXIT = 2,
	BOTH = 3,
};

static const char *const place_names[] = { "bare", "entry", "exit", "both" };

/* A kernel; whether it needs whole warps; a kernel that is launched before it; no parameters. */
struct test {
	const char *name;
	bool whole, bare;
	const char *before;
};

static const struct test tests[] = {
	{ "vectorAdd" },
	{ "loops" },
	{ "calls" },
	{ "reduce" },
	{ "diverged" },
	{ "halves", true },
	{ "doubles" },
	{ "tensor", true },
	{ "asserted" },
	{ "pointers" },
	{ "nothing", .bare = true, .before = "setPlace" },
};

#define N_TESTS (sizeof(tests) / sizeof(*tests))

struct shape {
	unsigned blocks, threads;
};

static const struct shape shapes[] = { { 1, 32 }, { 61, 77 }, { 130, 96 }, { 256, 1024 } };

#define N_SHAPES (sizeof(shapes) / sizeof(*shapes))

struct made {
	struct sass_twin twin;
	uint8_t *cubin;
	size_t size;
};

struct world {
	struct sass_cubin probe_cubin;
	struct sass_probe probe;
	struct made twins[N_TESTS][BOTH + 1];
	CUdeviceptr out, in, counters;
	uint64_t *host_counters;
	uint8_t *results[2];
	bool wrong;
};

/* The size of an ELF file: its section headers are its end. */
static size_t size_of(const unsigned char *cubin) {
	Elf64_Ehdr header;
	size_t end;

	memcpy(&header, cubin, sizeof(header));
	end = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
	if (header.e_phnum && header.e_phoff + (size_t)header.e_phnum * header.e_phentsize > end)
		end = header.e_phoff + (size_t)header.e_phnum * header.e_phentsize;
	return end;
}

static double now(void) {
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void make_twin(struct world *world, size_t test, enum places places, const char *folder) {
	const struct sass_request request = {
		.kernel = tests[test].name,
		.entry = places & ENTRY ? &world->probe : NULL,
		.exit = places & EXIT ? &world->probe : NULL,
	};
	struct made *made = &world->twins[test][places];
	const struct sass_twin *twin = &made->twin;
	struct sass_refusal refusal;
	struct sass_cubin cubin;
	const double begin = now();
	char path[4096];
	int r = sass_cubin_init(&cubin, kernels_cubin, size_of(kernels_cubin), &refusal);

	if (!r) {
		r = sass_rewrite(&made->twin, &cubin, &request, &refusal);
		if (!r)
			r = sass_cubin_write(&cubin, &made->cubin, &made->size);
		sass_cubin_deinit(&cubin);
	}
	if (r) {
		printf("%s %s: no twin: %s\n", request.kernel, place_names[places],
		       r < 0 ? strerror(-r) : refusal.text);
		world->wrong = true;
		return;
	}
	printf("%s %s: registers %u -> %u, exits %u, made in %.0f us\n", request.kernel,
	       place_names[places], twin->registers_before, twin->registers, twin->exits,
	       1e6 * (now() - begin));
	if (!folder)
		return;
	snprintf(path, sizeof(path), "%s/%s-%s.cubin", folder, request.kernel, place_names[places]);
	driver_dump(path, made->cubin, made->size);
}

static void make_twins(struct world *world, const char *folder) {
	struct sass_refusal refusal;
	int r = sass_cubin_init(&world->probe_cubin, probe_cubin, size_of(probe_cubin), &refusal);

	if (!r)
		r = sass_probe_init(&world->probe, &world->probe_cubin, "probe", &refusal);
	if (r) {
		printf("the probe: %s\n", r < 0 ? strerror(-r) : refusal.text);
		exit(1);
	}
	for (size_t i = 0; i < N_TESTS; i++)
		for (enum places places = ENTRY; places <= BOTH; places++)
			make_twin(world, i, places, folder);
	if (world->wrong)
		exit(1);
}

static void launch(struct world *world, CUfunction function, const struct test *test,
		   const struct shape *shape, int n) {
	void *parameters[4] = { &world->out, &world->in, &n, &world->counters };

	/* A kernel without a probe ignores the last one. */
	CHECK(driver.launch_kernel(function, shape->blocks, 1, 1, shape->threads, 1, 1, 0, NULL,
				   test && test->bare ? parameters + 3 : parameters, NULL));
}

static uint64_t read_counters(struct world *world) {
	uint64_t sum = 0;

	CHECK(driver.memcpy_to_host(world->host_counters, world->counters,
				    COUNTERS * STRIDE * sizeof(uint64_t)));
	for (size_t i = 0; i < COUNTERS; i++)
		sum += world->host_counters[i * STRIDE];
	return sum;
}

/* Runs a kernel of a cubin on fresh memory; its results go to world->results[slot]. */
static uint64_t run_once(struct world *world, const void *cubin, const struct test *test,
			 const struct shape *shape, unsigned slot) {
	const unsigned threads = shape->blocks * shape->threads;
	const int n = (int)(test->whole ? SMALL : threads > 64 ? threads - 39 : threads);
	CUfunction function, before;
	CUmodule module;

	CHECK(driver.module_load_data(&module, cubin));
	CHECK(driver.module_get_function(&function, module, test->name));
	CHECK(driver.memset_d8(world->out, 0xa5, SMALL * sizeof(double)));
	if (test->before) {
		CHECK(driver.module_get_function(&before, module, test->before));
		launch(world, before, NULL, &shapes[0], n);
		CHECK(driver.ctx_synchronize());
	}
	CHECK(driver.memset_d8(world->counters, 0, COUNTERS * STRIDE * sizeof(uint64_t)));
	launch(world, function, test, shape, n);
	CHECK(driver.ctx_synchronize());
	CHECK(driver.memcpy_to_host(world->results[slot], world->out, SMALL * sizeof(double)));
	CHECK(driver.module_unload(module));
	return read_counters(world);
}

static void compare(struct world *world, size_t index, const struct shape *shape) {
	const struct test *test = &tests[index];
	const uint64_t threads = (uint64_t)shape->blocks * shape->threads;

	run_once(world, kernels_cubin, test, shape, 0);
	for (enum places places = ENTRY; places <= BOTH; places++) {
		const uint64_t want = threads * (places == BOTH ? 2 : 1);
		uint64_t count = 0;
		bool same = true;

		for (unsigned i = 0; i < 5 && same && (!i || count == want); i++) {
			count = run_once(world, world->twins[index][places].cubin, test, shape, 1);
			same = !memcmp(world->results[0], world->results[1],
				       SMALL * sizeof(double));
		}
		printf("%s %s %ux%u: result %s, count %llu %s %llu\n", test->name,
		       place_names[places], shape->blocks, shape->threads, same ? "same" : "WRONG",
		       (unsigned long long)count, count == want ? "of" : "WRONG, not",
		       (unsigned long long)want);
		world->wrong |= !same || count != want;
	}
}

static int by_value(const void *a, const void *b) {
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, size_t n) {
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

/* vectorAdd as it is and as twins, in turns. */
static void measure(struct world *world, const CUfunction functions[BOTH + 1], unsigned threads) {
	const unsigned block = threads < BLOCK ? threads : BLOCK;
	const struct shape shape = { threads / block, block };
	double times[BOTH + 1][ROUNDS], bare = 0;

	for (unsigned places = 0; places <= BOTH; places++)
		launch(world, functions[places], &tests[0], &shape, (int)threads);
	CHECK(driver.ctx_synchronize());
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned places = 0; places <= BOTH; places++) {
			const double begin = now();

			for (unsigned i = 0; i < LAUNCHES; i++)
				launch(world, functions[places], &tests[0], &shape, (int)threads);
			CHECK(driver.ctx_synchronize());
			times[places][round] = 1e6 * (now() - begin) / LAUNCHES;
		}
	for (unsigned places = 0; places <= BOTH; places++) {
		const double time = median(times[places], ROUNDS);

		bare = places ? bare : time;
		printf("vectorAdd %u threads %s: %.2f us, x%.3f\n", threads, place_names[places],
		       time, time / bare);
	}
}

static void measure_all(struct world *world) {
	static const unsigned sizes[] = { 32, 1 << 20, WORDS };
	CUfunction functions[BOTH + 1];
	CUmodule module;

	for (unsigned places = 0; places <= BOTH; places++) {
		CHECK(driver.module_load_data(&module, places ? world->twins[0][places].cubin
							      : kernels_cubin));
		CHECK(driver.module_get_function(&functions[places], module, "vectorAdd"));
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		measure(world, functions, sizes[i]);
}

static void prepare(struct world *world) {
	uint32_t *words = malloc(WORDS * sizeof(*words));
	uint64_t state = 88172645463325252ULL;

	world->host_counters = malloc(COUNTERS * STRIDE * sizeof(uint64_t));
	world->results[0] = malloc(SMALL * sizeof(double));
	world->results[1] = malloc(SMALL * sizeof(double));
	if (!words || !world->host_counters || !world->results[0] || !world->results[1])
		exit(1);
	/* Numbers of all kinds as words, and between 1 and 4096 as float and double. */
	for (size_t i = 0; i < WORDS; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		words[i] = 0x40000000 | (uint32_t)(state >> 20 & 0x05ffffff);
	}
	driver_start(false);
	CHECK(driver.mem_alloc(&world->out, WORDS * sizeof(uint32_t)));
	CHECK(driver.mem_alloc(&world->in, WORDS * sizeof(uint32_t)));
	CHECK(driver.mem_alloc(&world->counters, COUNTERS * STRIDE * sizeof(uint64_t)));
	CHECK(driver.memcpy_to_device(world->in, words, WORDS * sizeof(uint32_t)));
	free(words);
}

int main(int argc, char **argv) {
	const bool only = argc > 1 && !strcmp(argv[1], "--rewrite-only");
	const char *folder = argc > 2 && !strcmp(argv[1], "--cubins") ? argv[2] : NULL;
	static struct world world;

	make_twins(&world, folder);
	if (only)
		return 0;
	if (!dlopen("libcuda.so.1", RTLD_NOW)) {
		printf("SKIP: no CUDA driver\n");
		return NO_GPU;
	}
	prepare(&world);
	for (size_t i = 0; i < N_TESTS; i++)
		for (size_t k = 0; k < N_SHAPES; k++)
			if (!tests[i].whole || shapes[k].threads % 32 == 0)
				compare(&world, i, &shapes[k]);
	measure_all(&world);
	printf(world.wrong ? "FAIL\n" : "PASS\n");
	return world.wrong;
}
