/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Maps: what an object declares. Their instances are in map-instance.c, reading them is in
 * map-merge.c (elements), map-hash.c (hash maps) and map-cursor.c (dumps).
 *
 * Every byte is charged to the uid that attached the object, what a map has without instances
 * included. Totals of dead processes are charged too, but never refused: the instance they replace
 * is about as large. Memory that dumps of hash maps take for a moment has limits of its own, which
 * count for who reads: a user gets half of it, and users together leave a quarter to root.
 */

#include "map-internal.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct map_account {
	uid_t uid;
	uint64_t used; /* by its maps */
	uint64_t totals; /* of that, by totals of hash maps */
	uint64_t held; /* for its dumps */
};

struct map_accounts {
	uint64_t limit;
	const struct map_keeper *keeper; /* NULL: none */
	uint64_t held, held_users; /* for dumps: of all, and of all but root */
	uint64_t refused;
	size_t n;
	struct map_account *accounts;
};

static struct map_account *account_find(const struct map_accounts *accounts, uid_t uid) {
	for (size_t i = 0; i < accounts->n; i++)
		if (accounts->accounts[i].uid == uid)
			return &accounts->accounts[i];
	return NULL;
}

/* The account of a user, which may be new. NULL without memory. */
static struct map_account *account_get(struct map_accounts *accounts, uid_t uid) {
	struct map_account *account = account_find(accounts, uid), *grown;

	if (account)
		return account;
	grown = realloc(accounts->accounts, (accounts->n + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	accounts->accounts = grown;
	account = &grown[accounts->n++];
	*account = (struct map_account){ .uid = uid };
	return account;
}

/* An account that has nothing left goes away. */
static void account_put(struct map_accounts *accounts, struct map_account *account) {
	if (!account->used && !account->held)
		*account = accounts->accounts[--accounts->n];
}

/* limit: bytes that the maps of one uid may use. */
int map_accounts_new(struct map_accounts **accountsp, uint64_t limit) {
	struct map_accounts *accounts;

	accounts = calloc(1, sizeof(*accounts));
	if (!accounts)
		return -ENOMEM;
	accounts->limit = limit;
	*accountsp = accounts;
	return 0;
}

struct map_accounts *map_accounts_free(struct map_accounts *accounts) {
	if (accounts) {
		free(accounts->accounts);
		free(accounts);
	}
	return NULL;
}

void map_accounts_set_keeper(struct map_accounts *accounts, const struct map_keeper *keeper) {
	accounts->keeper = keeper;
}

const struct map_keeper *map_accounts_keeper(const struct map_accounts *accounts) {
	return accounts->keeper;
}

uint64_t map_accounts_used(const struct map_accounts *accounts, uid_t uid) {
	const struct map_account *account = account_find(accounts, uid);

	return account ? account->used : 0;
}

uint64_t map_accounts_totals(const struct map_accounts *accounts, uid_t uid) {
	const struct map_account *account = account_find(accounts, uid);

	return account ? account->totals : 0;
}

/* Who has more keeps it, and gets no more. */
void map_accounts_set_limit(struct map_accounts *accounts, uint64_t limit) {
	accounts->limit = limit;
}

uint64_t map_accounts_limit(const struct map_accounts *accounts) {
	return accounts->limit;
}

uint64_t map_accounts_refused(const struct map_accounts *accounts) {
	return accounts->refused;
}

int map_accounts_hold(struct map_accounts *accounts, uid_t reader, uint64_t *heldp,
		      uint64_t bytes) {
	struct map_account *account;

	if (bytes == *heldp)
		return 0;
	if (bytes > *heldp && bytes - *heldp > map_accounts_room(accounts, reader))
		return MAP_E_QUOTA;
	account = account_get(accounts, reader);
	if (!account)
		return -ENOMEM;
	account->held += bytes - *heldp;
	accounts->held += bytes - *heldp;
	if (reader)
		accounts->held_users += bytes - *heldp;
	*heldp = bytes;
	account_put(accounts, account);
	return 0;
}

uint64_t map_accounts_room(const struct map_accounts *accounts, uid_t reader) {
	const struct map_account *account = reader ? account_find(accounts, reader) : NULL;
	uint64_t room = MAP_SNAPSHOT_BYTES_MAX - accounts->held, users, own;

	if (!reader)
		return room;
	users = MAP_SNAPSHOT_BYTES_MAX / 4 * 3 - accounts->held_users;
	own = MAP_SNAPSHOT_BYTES_MAX / 2 - (account ? account->held : 0);
	room = users < room ? users : room;
	return own < room ? own : room;
}

int map_charge(struct map *map, uint64_t bytes, bool force) {
	struct map_accounts *accounts = map->accounts;
	struct map_account *account = account_get(accounts, map->owner);

	if (!account)
		return -ENOMEM;
	if (!force &&
	    (account->used > accounts->limit || bytes > accounts->limit - account->used)) {
		accounts->refused++;
		account_put(accounts, account);
		return MAP_E_QUOTA;
	}
	account->used += bytes;
	map->charged += bytes;
	return 0;
}

int map_charge_totals(struct map *map) {
	const uint64_t now = map_totals_bytes(map), before = map->charged_totals;
	struct map_account *account;
	int r;

	if (now < before)
		map_discharge(map, before - now);
	else if (now > before && (r = map_charge(map, now - before, true)))
		return r;
	account = account_find(map->accounts, map->owner);
	if (account && map->spec.layout.kind == MAP_KIND_HASH)
		account->totals += now - before;
	map->charged_totals = now;
	return 0;
}

uint64_t map_totals_room(const struct map *map) {
	const uint64_t used = map_accounts_totals(map->accounts, map->owner) - map->charged_totals +
			      map_totals_bytes(map),
		       half = map->accounts->limit / 2;

	return used < half ? half - used : 0;
}

/* Takes a charge back. */
void map_discharge(struct map *map, uint64_t bytes) {
	struct map_account *account = account_find(map->accounts, map->owner);

	map->charged -= bytes;
	if (!account)
		return;
	account->used -= bytes;
	account_put(map->accounts, account);
}

/* Whether the layout is the one that map-layout.h prescribes for the map's sizes. */
static bool layout_valid(const struct map_spec *spec) {
	const struct map_shape shape = {
		.type = spec->type,
		.key_size = spec->key_size,
		.value_size = spec->value_size,
		.max_entries = spec->max_entries,
		.place = spec->layout.place,
		.merge = spec->layout.merge,
		.threads = spec->layout.threads,
		.ring_bytes = spec->layout.rings * spec->layout.ring_size,
	};
	struct map_layout layout;

	_Static_assert(sizeof(layout) == 6 * 4 + 7 * 8, "there is nothing between the members");
	if (spec->layout.kind != MAP_KIND_RING && spec->value_size > MAP_VALUE_SIZE_MAX)
		return false;
	if (spec->layout.place > MAP_PLACE_KERNEL || spec->layout.merge > MAP_MERGE_LATEST ||
	    (spec->layout.merge == MAP_MERGE_LATEST && spec->value_size > 8))
		return false;
	return !map_layout_init(&layout, &shape) &&
	       !memcmp(&layout, &spec->layout, sizeof(layout)) &&
	       map_memfd_size(&layout) <= MAP_DATA_OFFSET + MAP_DATA_SIZE_MAX;
}

static bool lanes_valid(const struct map_spec *spec) {
	uint64_t end = 0;

	if (!spec->lanes)
		return true;
	if (spec->n_lanes > spec->value_size)
		return false;
	for (size_t i = 0; i < spec->n_lanes; i++) {
		const struct map_lane *lane = &spec->lanes[i];

		if (lane->size != 1 && lane->size != 2 && lane->size != 4 && lane->size != 8)
			return false;
		if (lane->offset < end)
			return false;
		end = (uint64_t)lane->offset + lane->size;
	}
	return end <= spec->value_size;
}

/*
 * Initial bytes are those of a data section: one value, that is on no map that keeps one for each
 * SM.
 */
static bool initial_valid(const struct map_spec *spec) {
	if (!spec->n_initial)
		return true;
	return spec->n_initial <= spec->value_size && spec->max_entries == 1 &&
	       spec->layout.kind == MAP_KIND_ARRAY && spec->layout.merge != MAP_MERGE_PERCPU;
}

uint32_t map_lane_size(const struct map_spec *spec) {
	if (spec->layout.merge == MAP_MERGE_SUM64)
		return 8;
	if (spec->layout.merge == MAP_MERGE_SUM32)
		return 4;
	return spec->value_size % 8 == 0 ? 8 : spec->value_size % 4 == 0 ? 4 : 1;
}

/* Whether the map needs a table of its lanes: they are not what map_lane_size() says. */
static bool has_own_lanes(const struct map_spec *spec) {
	const uint32_t size = map_lane_size(spec);

	if (!spec->lanes || map_is_sum(spec) || spec->layout.kind == MAP_KIND_RING)
		return false;
	for (size_t i = 0; i < spec->n_lanes; i++)
		if (spec->lanes[i].size != size || spec->lanes[i].offset != i * size)
			return true;
	return spec->n_lanes != spec->value_size / size;
}

/* Charges what the map has without instances: lanes, initial bytes and scratch. As map_charge(). */
static int map_charge_own(struct map *map, const struct map_spec *spec) {
	if (has_own_lanes(spec))
		map->own += spec->n_lanes * sizeof(*spec->lanes);
	if (spec->n_initial)
		map->own += spec->value_size;
	if (spec->layout.kind != MAP_KIND_RING)
		map->own += 2 * map_scratch_size(map);
	return map_charge(map, map->own, false);
}

/* The map's own copies of what spec points to. The initial bytes are filled up to a whole value. */
static int map_copy_spec(struct map *map, const struct map_spec *spec) {
	struct map_lane *lanes;
	unsigned char *initial;

	if (spec->n_initial) {
		initial = calloc(1, spec->value_size);
		if (!initial)
			return -ENOMEM;
		memcpy(initial, spec->initial, spec->n_initial);
		map->spec.initial = initial;
		map->spec.n_initial = spec->value_size;
	}
	if (has_own_lanes(spec)) {
		lanes = calloc(spec->n_lanes ? spec->n_lanes : 1, sizeof(*lanes));
		if (!lanes)
			return -ENOMEM;
		memcpy(lanes, spec->lanes, spec->n_lanes * sizeof(*lanes));
		map->spec.lanes = lanes;
		map->spec.n_lanes = spec->n_lanes;
	}
	if (spec->layout.kind == MAP_KIND_RING) /* has no values */
		return 0;
	map->scratch = calloc(2, map_scratch_size(map));
	return map->scratch ? 0 : -ENOMEM;
}

int map_new(struct map **mapp, uint64_t id, uint64_t object, uid_t owner,
	    const struct map_spec *spec, struct map_accounts *accounts) {
	struct map *map;
	int r;

	if (!spec->name || !*spec->name || strlen(spec->name) >= MAP_NAME_SIZE ||
	    !layout_valid(spec) || !initial_valid(spec) || !lanes_valid(spec))
		return MAP_E_INVALID;
	map = calloc(1, sizeof(*map));
	if (!map)
		return -ENOMEM;
	map->id = id;
	map->object = object;
	map->owner = owner;
	map->accounts = accounts;
	map->n_values = spec->layout.merge == MAP_MERGE_PERCPU ? spec->layout.shards : 1;
	map->spec = *spec;
	map->spec.initial = NULL;
	map->spec.lanes = NULL;
	map->spec.n_lanes = 0;
	map->spec.kernel_fd = -1;
	snprintf(map->name, sizeof(map->name), "%s", spec->name);
	map->spec.name = map->name;
	r = map_charge_own(map, spec);
	if (!r)
		r = map_copy_spec(map, spec);
	if (!r && spec->layout.place == MAP_PLACE_KERNEL)
		r = map_instance_add_kernel(map, spec->kernel_fd);
	if (r)
		goto fail;
	*mapp = map;
	return 0;
fail:
	map_free(map);
	return r;
}

struct map *map_free(struct map *map) {
	struct map_instance *instance;

	if (!map)
		return NULL;
	while ((instance = map->instances)) {
		map->instances = instance->next;
		map_instance_free(instance);
	}
	map_start_free(map);
	map->totals = map_totals_free(map->totals);
	map_charge_totals(map);
	map_discharge(map, map->charged);
	free((void *)map->spec.initial);
	free((void *)map->spec.lanes);
	free(map->scratch);
	free(map);
	return NULL;
}

uint64_t map_bytes(const struct map *map) {
	return map->charged;
}

const char *map_type_name(uint32_t type, char buffer[static 16]) {
	const struct map_type *found = map_type_find(type);

	if (found)
		return found->name;
	snprintf(buffer, 16, "%u", type);
	return buffer;
}

/* The name of a number, where names of all of them follow one another. */
static const char *name_of(const char *const names[], size_t n, uint32_t number) {
	return number < n ? names[number] : "unknown";
}

const char *map_merge_name(uint32_t merge) {
	static const char *const names[] = { "none", "sum64", "sum32", "percpu", "latest" };

	return name_of(names, sizeof(names) / sizeof(names[0]), merge);
}

const char *map_kind_name(uint32_t kind) {
	static const char *const names[] = { "array", "threads", "hash", "ring" };

	return name_of(names, sizeof(names) / sizeof(names[0]), kind);
}

const char *map_place_name(uint32_t place) {
	static const char *const names[] = { "device", "host", "kernel" };

	return name_of(names, sizeof(names) / sizeof(names[0]), place);
}
