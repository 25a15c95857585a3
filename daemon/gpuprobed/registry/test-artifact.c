/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of artifact.c: files that the daemon keeps of what it made, their numbers across
 * daemons, and files that cannot be written.
 */

#include "artifact.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"

struct world {
	uv_loop_t loop;
	struct artifact_store *store;
	char folder[64], inner[128];
};

static int setup(void **state) {
	struct world *world = calloc(1, sizeof(*world));

	strcpy(world->folder, "/tmp/test-artifact-XXXXXX");
	assert_non_null(mkdtemp(world->folder));
	snprintf(world->inner, sizeof(world->inner), "%s/kept", world->folder);
	assert_int_equal(uv_loop_init(&world->loop), 0);
	assert_int_equal(artifact_store_new(&world->store, &world->loop, world->inner), 0);
	*state = world;
	return 0;
}

static int teardown(void **state) {
	struct world *world = *state;
	char command[160];

	artifact_store_free(world->store);
	assert_int_equal(uv_loop_close(&world->loop), 0);
	snprintf(command, sizeof(command), "rm -rf %s", world->folder);
	assert_int_equal(system(command), 0);
	free(world);
	return 0;
}

/* Keeps one and waits. limit: of the bytes of a file that is written meanwhile; 0: none. */
static void keep_limited(struct world *world, const char *name, const char *text, const char *image,
			 rlim_t limit) {
	struct artifact artifact = {
		.name = name,
		.text = text ? memfd_new_sealed("text", text, strlen(text)) : -1,
		.text_size = text ? strlen(text) : 0,
		.image = memfd_new_sealed("image", image, strlen(image)),
		.image_size = strlen(image),
	};

	struct rlimit all;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
	if (limit)
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ limit, all.rlim_max }),
				 0);
	artifact_store_keep(world->store, &artifact);
	fd_close(artifact.text); /* it has its own */
	fd_close(artifact.image);
	uv_run(&world->loop, UV_RUN_DEFAULT);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
}

static void keep(struct world *world, const char *name, const char *text, const char *image) {
	keep_limited(world, name, text, image, 0);
}

static void assert_file(const struct world *world, const char *name, const char *text) {
	char path[256], bytes[256] = "";
	struct stat st;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", world->inner, name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(bytes, 1, sizeof(bytes) - 1, file), strlen(text));
	assert_string_equal(bytes, text);
	assert_int_equal(fstat(fileno(file), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	fclose(file);
}

/* Entries of the folder but . and .. */
static int entries(const struct world *world) {
	DIR *dir = opendir(world->inner);
	int n = -2;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void test_keep(void **state) {
	struct world *world = *state;
	char name[300], path[256];
	struct stat st;

	assert_int_equal(stat(world->inner, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	keep(world, "_Z1fPf", "ptx", "image");
	assert_file(world, "1-_Z1fPf/main.ptx", "ptx");
	assert_file(world, "1-_Z1fPf/out.fatbin", "image");
	snprintf(path, sizeof(path), "%s/1-_Z1fPf", world->inner);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	keep(world, "../../a b\n$", NULL, "x"); /* no way out */
	assert_file(world, "2-.._.._a_b__/out.fatbin", "x");
	keep(world, "", "p", "i");
	assert_file(world, "3-image/main.ptx", "p");
	memset(name, 'k', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	keep(world, name, "p", "i");
	snprintf(path, sizeof(path), "4-%.64s/main.ptx", name);
	assert_file(world, path, "p");
	assert_int_equal(entries(world), 4);
}

/* Another daemon goes on where this one ended. */
static void test_numbers(void **state) {
	struct world *world = *state;
	char left[160];

	keep(world, "a", "p", "i");
	keep(world, "b", "p", "i");
	artifact_store_free(world->store);
	snprintf(left, sizeof(left), "%s/.3.new", world->inner); /* it was killed */
	assert_int_equal(mkdir(left, 0700), 0);
	strcat(left, "/main.ptx");
	close(open(left, O_WRONLY | O_CREAT, 0600));
	assert_int_equal(artifact_store_new(&world->store, &world->loop, world->inner), 0);
	keep(world, "c", "p", "i");
	assert_file(world, "3-c/main.ptx", "p");
	assert_int_equal(entries(world), 3);
}

/* What cannot be written leaves nothing behind, and the next one is written again. */
static void test_trouble(void **state) {
	struct world *world = *state;
	char taken[160];

	keep(world, "a", "p", "i");
	snprintf(taken, sizeof(taken), "%s/2-b", world->inner);
	assert_int_equal(mkdir(taken, 0700), 0);
	strcat(taken, "/x");
	close(open(taken, O_WRONLY | O_CREAT, 0600)); /* a name that is taken */
	keep(world, "b", "p", "i");
	assert_int_equal(entries(world), 2);
	signal(SIGXFSZ, SIG_IGN);
	keep_limited(world, "full", "ptx", "an image that finds no room", 8);
	assert_int_equal(entries(world), 2);
	keep(world, "c", "p", "i");
	assert_file(world, "4-c/out.fatbin", "i");
	assert_int_equal(artifact_store_new(&(struct artifact_store *){ NULL }, &world->loop,
					    taken),
			 -ENOTDIR);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_keep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_trouble, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
