/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of totals when a daemon is killed while it folds, again and again. The next daemon goes on,
 * and each instance is counted once. A child folds what it has inherited, in shared memory, and is
 * killed at some moment.
 */

#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test-map-view.h"

#define INSTANCES 6
#define ELEMENTS 3000

static struct map_accounts *accounts;
static int totals_fd;
static unsigned int killed;
static bool full;

/* What the store of descriptors is to the daemon; shared with children, who take instances away. */
static struct kept {
	bool there;
	uint64_t id, process;
} *kept;
static int instance_fds[INSTANCES];

static uint32_t keep_instance(const struct map_instance *instance, void *userdata) {
	return 0;
}

static uint32_t keep_totals(const struct map *map, int fd, void *userdata) {
	if (full)
		return 0;
	/* a store that hands a descriptor on: written to where the parent finds it */
	dup2(fd, totals_fd);
	return 1000;
}

static void drop(uint32_t slot, void *userdata) {
	if (slot <= INSTANCES)
		kept[slot - 1].there = false;
}

static const struct map_keeper keeper = { keep_instance, keep_totals, drop, NULL };

static struct map *map_of(const struct map_shape *shape) {
	struct map_spec spec = spec_of(shape);
	struct map *map;

	assert_int_equal(map_new(&map, 1, 1, OWNER, &spec, accounts), 0);
	return map;
}

/* The map as a daemon that starts finds it. */
static struct map *adopt(const struct map_shape *shape) {
	struct map *map = map_of(shape);
	struct map_instance *instance;

	if (fcntl(totals_fd, F_GET_SEALS) > 0)
		assert_int_equal(map_adopt_totals(map, dup(totals_fd), 1000), 0);
	for (uint32_t i = 0; i < INSTANCES; i++) {
		struct map_instance like = {
			.id = kept[i].id, .process = kept[i].process, .pid = 1, .slot = i + 1
		};
		int r;

		if (!kept[i].there)
			continue;
		r = map_adopt_instance(map, &like, dup(instance_fds[i]), true, &instance);
		assert_true(r == 0 || r == MAP_E_END);
		if (r)
			kept[i].there = false;
	}
	return map;
}

/* Folds until it is done or killed. */
static void fold(struct map *map) {
	uint64_t budget;

	do
		budget = 64;
	while (map_fold(map, &budget));
}

/* Whether a child came to the end. */
static bool run_child(const struct map_shape *shape, unsigned int us) {
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fold(adopt(shape));
		_exit(0);
	}
	usleep(us);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void run(const struct map_shape *shape, void (*fill)(struct view *view, unsigned int number),
		uint64_t expected) {
	struct map *map = map_of(shape);
	struct map_cursor cursor;
	struct map_entry entry;
	uint64_t sum = 0, n = 0;
	unsigned int kills = 0;

	/* the totals have to exist before there are children: an instance that is folded at once */
	for (unsigned int i = 0; i <= INSTANCES; i++) {
		struct view view = view_make(map, i + 1, 0);

		fill(&view, i);
		if (i == INSTANCES)
			continue;
		instance_fds[i] = dup(view.instance->fd);
		kept[i] = (struct kept){ true, view.instance->id, view.instance->process };
	}
	assert_int_equal(map_process_gone(map, INSTANCES + 1), 0);
	map_accounts_set_keeper(accounts, NULL);
	map_free(map);
	map_accounts_set_keeper(accounts, &keeper);
	while (!run_child(shape, (unsigned int)rand() %
					 (500 + 20 * kills))) /* longer each time, or a slow machine
								 never comes to the end */
		assert_true(++kills < 100000);
	map = adopt(shape);
	fold(map);
	map_cursor_init(&cursor, &(struct map_order){});
	while (!next_entry(map, &cursor, &entry)) {
		sum += value64(&entry, 0);
		n++;
	}
	map_cursor_deinit(&cursor);
	assert_int_equal(n, ELEMENTS);
	assert_int_equal(sum, expected);
	map_free(map);
	killed += kills;
}

static void fill_array(struct view *view, unsigned int number) {
	for (uint64_t i = 0; i < ELEMENTS; i++)
		put64(view, i * 8, 1 + i + number);
}

static void test_array(void **state) {
	uint64_t expected = 0;

	for (uint64_t number = 0; number <= INSTANCES; number++)
		for (uint64_t i = 0; i < ELEMENTS; i++)
			expected += 1 + i + number;
	run(&(struct map_shape){ .type = BPF_MAP_TYPE_ARRAY,
				 .key_size = 4,
				 .value_size = 8,
				 .max_entries = ELEMENTS },
	    fill_array, expected);
}

/* Instances share most keys; the first ones have new ones each. */
static void fill_hash(struct view *view, unsigned int number) {
	const uint64_t stride = view->instance->map->spec.layout.entry_stride;

	for (uint64_t i = 0; i < ELEMENTS; i++) {
		uint64_t at = sizeof(struct map_hash) + i * stride;

		if (number < INSTANCES && i > (number + 1) * ELEMENTS / INSTANCES)
			continue;
		put64(view, at + 8, i * 7919);
		put64(view, at + 16, 5);
		put64(view, at, MAP_SLOT_LIVE);
	}
}

static void test_hash(void **state) {
	uint64_t expected = 5 * ELEMENTS;

	for (uint64_t number = 0; number < INSTANCES; number++)
		for (uint64_t i = 0; i < ELEMENTS && i <= (number + 1) * ELEMENTS / INSTANCES; i++)
			expected += 5;
	run(&(struct map_shape){ .type = BPF_MAP_TYPE_HASH,
				 .key_size = 8,
				 .value_size = 8,
				 .max_entries = ELEMENTS },
	    fill_hash, expected);
}

/* There is no room for the totals when they are made, and later there is. */
static void test_full(void **state) {
	const struct map_shape shape = {
		.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = ELEMENTS
	};
	struct map *map = map_of(&shape);
	struct map_entry entry;
	struct view view;

	for (unsigned int i = 0; i < 2; i++) {
		view = view_make(map, i + 1, 0);
		put64(&view, 8, 20 + i);
		full = !i;
		assert_int_equal(map_process_gone(map, i + 1), 0);
	}
	map_accounts_set_keeper(accounts, NULL);
	map_free(map);
	map_accounts_set_keeper(accounts, &keeper);
	map = adopt(&shape);
	assert_int_equal(map_read(map, 1, &entry), 0);
	assert_int_equal(value64(&entry, 0), 41);
	map_free(map);
}

#define ROUNDS 12

static int setup(void **state) {
	kept = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	totals_fd = open("/dev/null", O_RDWR);
	assert_int_equal(map_accounts_new(&accounts, UINT64_C(1) << 32), 0);
	map_accounts_set_keeper(accounts, &keeper);
	return 0;
}

static int teardown(void **state) {
	for (int i = 0; i < INSTANCES; i++)
		close(instance_fds[i]);
	close(totals_fd);
	map_accounts_free(accounts);
	munmap(kept, 4096);
	return 0;
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_array, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hash, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
	};

	int failed = 0;

	for (int i = 0; i < ROUNDS && !failed; i++)
		failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("killed %u times\n", killed);
	return failed;
}
