/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The state file, as a daemon of another version may have written it, with a store of
 * descriptors of all kinds. What of it is restored can be read, and written: that is restored, too,
 * and written the same.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/map-layout.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/keep/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAP_BYTES_MAX (UINT64_C(16) << 20)
#define ENTRIES_MAX 64 /* of a map, that are read */

static struct {
	struct store *store;
	int fds[8]; /* what the store is given anew each time */
	int blobs[8]; /* in their place: what the objects that were restored would keep; -1 */
	uint32_t slots[8];
	size_t n;
	char path[32];
} fuzz;

/* What g1, g2 ... of the store are. */
static void keep(enum store_kind kind, const char *bytes, size_t size) {
	struct store_record record = { .kind = kind };

	fuzz.fds[fuzz.n] = memfd_new_sealed("fuzz", bytes, size);
	fuzz.slots[fuzz.n] = store_add(fuzz.store, -1, &record);
	if (fuzz.fds[fuzz.n] < 0 || fuzz.slots[fuzz.n] != fuzz.n + 1)
		abort();
	fuzz.blobs[fuzz.n++] = -1;
}

static void remove_file(void) {
	unlink(fuzz.path);
}

static void start(void) {
	static const char blob[256] = {
		[12] = 8
	}; /* 5 bytes of BTF, and of the first map one lane of 8 bytes */
	static const char map[4096];
	int fd;

	unsetenv("NOTIFY_SOCKET");
	strcpy(fuzz.path, "/dev/shm/fuzz-state.XXXXXX"); /* ext4 would write each one to the disk,
							    as they replace one another */
	fd = mkstemp(fuzz.path);
	if (fd < 0 || store_new(&fuzz.store, true, NULL) || store_open(fuzz.store) < 0)
		abort();
	close(fd);
	atexit(remove_file);
	keep(STORE_BLOB, blob, sizeof(blob));
	keep(STORE_PTX, "ptx!", 4);
	keep(STORE_PATCH, "patch!!!", 8);
	keep(STORE_KERNEL_MAP, map, sizeof(map));
	keep(STORE_LINK, "link", 4);
	keep(STORE_PTX, "ptx!", 4);
	keep(STORE_BLOB, blob, sizeof(blob));
}

static void write_file(const uint8_t *data, size_t size) {
	FILE *file = fopen(fuzz.path, "w");

	if (!file || fwrite(data, 1, size, file) != size || fclose(file))
		abort();
}

static void read_objects(const struct registry *registry) {
	const struct object *object;
	struct map_entry entry;

	TAILQ_FOREACH(object, &registry->objects, link) {
		fd_close(fuzz.blobs[object->slot - 1]);
		fuzz.blobs[object->slot - 1] = state_blob(object);
		for (size_t i = 0; i < object->n_maps; i++)
			for (uint32_t j = 0; object->maps[i] && j < ENTRIES_MAX &&
					     map_read(object->maps[i], j, &entry) == 0;
			     j++)
				;
	}
}

/* Reads the file into a registry, which becomes JSON. NULL: it was refused. */
static json_object *restore(void) {
	struct state_numbers numbers = {};
	char error[STATE_ERROR_SIZE] = "";
	json_object *state = NULL, *again;
	struct map_accounts *accounts;
	struct registry registry;
	char name[8];
	int r;

	for (size_t i = 0; i < fuzz.n; i++) {
		snprintf(name, sizeof(name), "g%u", (unsigned)fuzz.slots[i]);
		store_inherit(fuzz.store, name,
			      dup(fuzz.blobs[i] >= 0 ? fuzz.blobs[i] : fuzz.fds[i]));
	}
	registry_init(&registry);
	if (map_accounts_new(&accounts, MAP_BYTES_MAX))
		abort();
	r = state_load(fuzz.path, &state, error);
	if (r == 0 && state_take_numbers(state, &registry, &numbers, error) == 0)
		for (size_t i = 0; i < state_objects(state); i++) {
			*error = '\0';
			if (state_take_object(state, i, &registry, accounts, fuzz.store, error) ==
				    STATE_E_OBJECT &&
			    !*error)
				abort();
		}
	if (r == STATE_E_REFUSED && !*error)
		abort();
	read_objects(&registry);
	again = state ? state_to_json(&registry, &numbers) : NULL;
	json_object_put(state);
	registry_deinit(&registry);
	map_accounts_free(accounts);
	return again;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	json_object *first, *second;

	if (!fuzz.store)
		start();
	for (size_t i = 0; i < fuzz.n; i++)
		fuzz.blobs[i] = fd_close(fuzz.blobs[i]);
	write_file(data, size);
	first = restore();
	if (!first || !state_objects(first)) {
		json_object_put(first);
		return 0;
	}
	if (state_save(fuzz.path, first))
		abort();
	second = restore();
	if (!second ||
	    strcmp(json_object_to_json_string(first), json_object_to_json_string(second)))
		abort();
	json_object_put(first);
	json_object_put(second);
	return 0;
}
