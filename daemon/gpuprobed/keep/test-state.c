/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the state file: a file of the first version, refused files, and whether the reader
 * gets what was written. The argument is the folder with the old file.
 */

#include "state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/base/notify.h"

static const char *folder;
static char path[] = "/tmp/test-state.XXXXXX";
static struct registry registry;
static struct map_accounts *accounts;
static struct store *store;

/* A descriptor as it comes from systemd. */
static void keep(uint32_t slot, const char *name, enum store_kind kind, const char *bytes,
		 size_t size) {
	int fd = memfd_new_sealed("kept", bytes, size);

	assert_true(fd >= 0);
	assert_int_equal(store_add(store, fd, &(struct store_record){ .kind = kind }), slot);
	assert_true(store_inherit(store, name, fd));
}

static const char blob[16 + sizeof(struct map_lane)] = { 'b', 't', 'f', '!', '!', 0, 0,
							 0,   0,   0,   0,   0,   8 };

static int setup(void **state) {
	registry_init(&registry);
	assert_int_equal(map_accounts_new(&accounts, UINT64_C(1) << 30), 0);
	assert_int_equal(store_new(&store, true, NULL), 0);
	assert_int_equal(store_open(store), 1);
	keep(1, "g1", STORE_BLOB, blob, 16);
	keep(2, "g2", STORE_PTX, "ptx!", 4);
	return 0;
}

static int teardown(void **state) {
	registry_deinit(&registry);
	store_free(store);
	map_accounts_free(accounts);
	unlink(path);
	return 0;
}

static void copy_golden(const char *file) {
	char command[512];

	snprintf(command, sizeof(command), "install -m 600 '%s/%s' '%s'", folder, file, path);
	assert_int_equal(system(command), 0);
}

static void write_state(const char *text) {
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Reads the file into the registry. */
static void restore(struct state_numbers *numbers) {
	char error[STATE_ERROR_SIZE] = "";
	json_object *state = NULL;

	assert_int_equal(state_load(path, &state, error), 0);
	assert_int_equal(state_take_numbers(state, &registry, numbers, error), 0);
	assert_int_equal(state_objects(state), 1);
	if (state_take_object(state, 0, &registry, accounts, store, error))
		fail_msg("%s", error);
	json_object_put(state);
}

static void test_upgrade(void **state) {
	struct state_numbers numbers = {};
	const struct attachment *attachment;
	const struct map *map;

	copy_golden("state-1.json");
	restore(&numbers);
	assert_int_not_equal(numbers.session, 0); /* version 1 had none */
	assert_int_equal(numbers.starts, 1);
	assert_int_equal(registry.last_object, 7);
	assert_int_equal(registry.last_attachment, 12);
	assert_int_equal(registry.last_map, 9);
	attachment = registry_attachment(&registry, 12);
	assert_non_null(attachment);
	assert_string_equal(attachment->program, "cuda__counter");
	assert_string_equal(attachment->section.kernel, "vectorAdd");
	assert_true(attachment->filter.has_uid && attachment->filter.has_exe &&
		    !attachment->filter.has_comm);
	assert_string_equal(attachment->filter.exe, "/usr/bin/*");
	assert_int_equal(attachment->of.gpu.n_context, 2);
	assert_true(attachment->of.gpu.fd >= 0);
	assert_int_equal(attachment->of.gpu.patch_fd, -1);
	assert_int_equal(attachment->object->owner, 1000);
	assert_memory_equal(attachment->object->btf, "btf!!", 5);
	map = registry_map(&registry, 9, NULL);
	assert_non_null(map);
	assert_string_equal(map->name, "counter");
	assert_int_equal(map->spec.layout.shards, 256);
}

/* What is written is read; and what is written then is the same again. */
static void test_round(void **state) {
	struct state_numbers numbers = {}, again = {};
	char error[STATE_ERROR_SIZE], *first;
	json_object *json = NULL;

	copy_golden("state-1.json");
	restore(&numbers);
	json = state_to_json(&registry, &numbers);
	assert_int_equal(state_save(path, json), 0);
	first = strdup(json_object_to_json_string(json));
	json_object_put(json);
	teardown(state);
	setup(state);
	json = state_to_json(&registry, &numbers);
	json_object_put(json);
	{
		json_object *kept = json_tokener_parse(first);

		assert_int_equal(state_save(path, kept), 0);
		json_object_put(kept);
	}
	restore(&again);
	json = state_to_json(&registry, &again);
	assert_string_equal(json_object_to_json_string(json), first);
	json_object_put(json);
	free(first);
	assert_int_equal(numbers.session, again.session);
	assert_int_equal(state_load("/nonexistent/state", &json, error), STATE_E_NONE);
}

static void refused(const char *text, const char *why) {
	char error[STATE_ERROR_SIZE] = "";
	json_object *json = NULL;

	write_state(text);
	assert_int_equal(state_load(path, &json, error), STATE_E_REFUSED);
	assert_null(json);
	if (!strstr(error, why))
		fail_msg("%s: %s, expected %s", text, error, why);
}

static void test_refused(void **state) {
	refused("", "damaged");
	refused("{\"version\":2,\"objects\":[{\"id\":7", "damaged");
	refused("[]", "damaged");
	refused("{\"layout\":3}", "no version");
	refused("{\"version\":4,\"daemon\":\"9.9\"}", "version 4, written by gpuprobed 9.9");
	refused("{\"version\":2,\"layout\":4}", "maps are laid out");
	refused("{\"version\":2,\"layout\":3,\"patch\":2}", "patches of version 2");
	assert_int_equal(chmod(path, 0666), 0);
	refused("{\"version\":2,\"layout\":3}", "alone writes");
}

/* The state of the first version, with a piece of it replaced by another one for each pair. */
static void write_changed(const char *const pairs[][2], size_t n) {
	char file[512], text[8192], changed[sizeof(text)], *at;
	FILE *golden;

	snprintf(file, sizeof(file), "%s/state-1.json", folder);
	golden = fopen(file, "r");
	assert_non_null(golden);
	text[fread(text, 1, sizeof(text) - 1, golden)] = '\0';
	fclose(golden);
	for (size_t i = 0; i < n; i++) {
		at = strstr(text, pairs[i][0]);
		assert_non_null(at);
		snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, pairs[i][1],
			 at + strlen(pairs[i][0]));
		strcpy(text, changed);
	}
	copy_golden("state-1.json"); /* with its mode */
	write_state(text);
}

/* What was attached with --engine=sass is with --engine=sanitizer. */
static void test_sanitizer(void **state) {
	static const char *const pair[1][2] = { { "\"engine\":\"auto\"", "\"engine\":\"sass\"" } };
	char error[STATE_ERROR_SIZE] = "";
	struct state_numbers numbers = {};
	json_object *json = NULL;

	write_changed(pair, 1);
	assert_int_equal(state_load(path, &json, error), 0);
	assert_non_null(strstr(json_object_to_json_string(json), "\"sanitizer\""));
	assert_null(strstr(json_object_to_json_string(json), "\"sass\""));
	json_object_put(json);
	restore(&numbers);
	assert_int_equal(registry_attachment(&registry, 12)->of.gpu.engine, ENGINE_SANITIZER);
}

/* An object of which something is missing or absurd is not restored, and nothing of it is left. */
static void test_objects(void **state) {
	static const char *const wrong[][2] = {
		{ "\"size\":4", "\"size\":5" },
		{ "\"fd\":2", "\"fd\":1" },
		{ "\"fd\":1,", "\"fd\":3," },
		{ "\"maps\":1,", "\"maps\":2," },
		{ "\"context\":[8,16]", "\"context\":[8,65536]" },
		{ "\"btf\":5", "\"btf\":4000" },
		{ "\"kernel\":\"vectorAdd\"", "\"kernel\":7" },
		{ "{\"point\":0", "{\"point\":5" }, /* of a class, and no class has instruction 0 */
		{ "[0,0,1,256,", "[0,0,1,255," },
		{ "\"engine\":\"auto\"", "\"engine\":\"steam\"" },
		{ "\"exe\":\"/usr/bin/*\"", "\"exe\":null" },
	};
	char error[STATE_ERROR_SIZE];
	json_object *json;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		write_changed(&wrong[i], 1);
		json = NULL;
		assert_int_equal(state_load(path, &json, error), 0);
		*error = '\0';
		assert_int_equal(state_take_object(json, 0, &registry, accounts, store, error),
				 STATE_E_OBJECT);
		assert_true(*error);
		assert_true(TAILQ_EMPTY(&registry.objects) && TAILQ_EMPTY(&registry.attachments));
		assert_int_equal(map_accounts_used(accounts, 1000), 0);
		json_object_put(json);
		teardown(state);
		setup(state);
	}
}

/* An object that has a number of another one is not restored: what the other one has would be found
 * in its place. */
static void test_numbers(void **state) {
	static const char *const all[][2] = {
		{ "\"fd\":1,", "\"fd\":3," },   { "\"fd\":2,", "\"fd\":4," },
		{ "\"id\":7,", "\"id\":8," },   { "\"id\":9,", "\"id\":10," },
		{ "\"id\":12,", "\"id\":13," },
	};
	static const char *const taken[] = { "two objects 7", "two maps 9", "two attachments 12" };
	char error[STATE_ERROR_SIZE];
	struct state_numbers numbers;
	const char *pairs[4][2];
	json_object *json;

	for (size_t same = 0; same < 3; same++) {
		copy_golden("state-1.json");
		restore(&numbers);
		keep(3, "g3", STORE_BLOB, blob, 16);
		keep(4, "g4", STORE_PTX, "ptx!", 4);
		for (size_t i = 0, n = 0; i < 5; i++)
			if (i != 2 + same)
				memcpy(pairs[n++], all[i], sizeof(all[i]));
		write_changed(pairs, 4);
		json = NULL;
		assert_int_equal(state_load(path, &json, error), 0);
		assert_int_equal(state_take_object(json, 0, &registry, accounts, store, error),
				 STATE_E_OBJECT);
		assert_non_null(strstr(error, taken[same]));
		assert_int_equal(registry.n_attachments, 1);
		json_object_put(json);
		teardown(state);
		setup(state);
	}
}

/* What nobody has taken is not in a slot. */
static void test_unsent(void **state) {
	const struct store_record record = { .kind = STORE_INSTANCE, .uid = 7 };
	unsigned int of;

	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct notify *notify;
	struct store *unheard;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s.notify", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(notify_new(&notify, address.sun_path), 0);
	assert_int_equal(store_new(&unheard, true, notify), 0);
	assert_int_equal(store_open(unheard), 1);
	assert_int_equal(store_add(unheard, 0, &record), 1);
	close(fd);
	unlink(address.sun_path);
	assert_int_equal(store_add(unheard, 0, &record), 0);
	assert_null(store_record(unheard, 2));
	store_free(unheard);
	notify_free(notify);
	assert_int_equal(store_count(store, 7, &of), 2);
	assert_int_equal(of, 0);
	assert_true(store_add(store, 0, &record) > 0);
	assert_int_equal(store_count(store, 7, &of), 3);
	assert_int_equal(of, 1);
	assert_int_equal(store_count(store, 8, &of), 3);
	assert_int_equal(of, 0);
}

int main(int argc, char *argv[]) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_upgrade, setup, teardown),
		cmocka_unit_test_setup_teardown(test_round, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sanitizer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_objects, setup, teardown),
		cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unsent, setup, teardown),
	};
	int fd;

	folder = argc > 1 ? argv[1] : ".";
	unsetenv("NOTIFY_SOCKET");
	fd = mkstemp(path);
	fd_close(fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
