/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Maps and their instances (map-layout.h). A map is what an object declares; an instance is one
 * process's copy on one device: a memfd that is filled, sealed against a change of size and then
 * given to the process, which may write to it as it likes. The daemon maps it read-only and takes
 * sizes from its own struct map, never from the header. The pages are allocated at the start: a
 * reader must not die of SIGBUS when memory is short later.
 *
 * Every byte is charged to the uid that attached the object. Totals of dead processes are charged
 * too, but never refused: the instance they replace is at least as large.
 */

#include "map.h"
#include "map-merge.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct map_account {
	uid_t uid;
	uint64_t used;
};

struct map_accounts {
	uint64_t limit;
	size_t n;
	struct map_account *accounts;
};

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

uint64_t map_accounts_used(const struct map_accounts *accounts, uid_t uid) {
	for (size_t i = 0; i < accounts->n; i++)
		if (accounts->accounts[i].uid == uid)
			return accounts->accounts[i].used;
	return 0;
}

/* Charges the owner of map. force: even over the limit. */
static int map_charge(struct map *map, uint64_t bytes, bool force) {
	struct map_accounts *accounts = map->accounts;
	struct map_account *account = NULL, *grown;

	for (size_t i = 0; i < accounts->n; i++)
		if (accounts->accounts[i].uid == map->owner)
			account = &accounts->accounts[i];
	if (!account) {
		grown = realloc(accounts->accounts, (accounts->n + 1) * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		accounts->accounts = grown;
		account = &grown[accounts->n++];
		*account = (struct map_account){ .uid = map->owner };
	}
	if (!force && (account->used > accounts->limit || bytes > accounts->limit - account->used))
		return MAP_E_QUOTA;
	account->used += bytes;
	map->charged += bytes;
	return 0;
}

/* Takes a charge back; an account that has nothing left goes away. */
static void map_discharge(struct map *map, uint64_t bytes) {
	struct map_accounts *accounts = map->accounts;

	map->charged -= bytes;
	for (size_t i = 0; i < accounts->n; i++)
		if (accounts->accounts[i].uid == map->owner) {
			accounts->accounts[i].used -= bytes;
			if (!accounts->accounts[i].used)
				accounts->accounts[i] = accounts->accounts[--accounts->n];
			return;
		}
}

static uint64_t round_up(uint64_t value, uint64_t to) {
	return (value + to - 1) / to * to;
}

/* Whether the layout is the one that map-layout.h prescribes for the map's sizes. */
static bool layout_valid(const struct map_spec *spec) {
	uint64_t stride = round_up(spec->value_size, 8), shard;

	if (spec->key_size != 4 || !spec->value_size || spec->value_size > MAP_VALUE_SIZE_MAX ||
	    !spec->max_entries || spec->merge > MAP_MERGE_PERCPU)
		return false;
	if (!spec->shards || spec->shards > MAP_SHARDS_MAX || (spec->shards & (spec->shards - 1)))
		return false;
	if (spec->merge == MAP_MERGE_NONE && spec->shards != 1)
		return false;
	if (stride > MAP_DATA_SIZE_MAX / spec->max_entries)
		return false;
	shard = stride * spec->max_entries;
	if (spec->shards > 1)
		shard = round_up(shard, MAP_SHARD_ALIGN);
	return spec->value_stride == stride && spec->shard_stride == shard &&
	       spec->data_size == shard * spec->shards &&
	       spec->data_size <= (spec->shards > 1 ? MAP_SHARDED_SIZE_MAX : MAP_DATA_SIZE_MAX);
}

static bool lanes_valid(const struct map_spec *spec) {
	uint64_t end = 0;

	if (!spec->lanes)
		return true;
	if (spec->n_lanes > MAP_LANES_MAX)
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
	       spec->merge != MAP_MERGE_PERCPU;
}

/* The size of the map's lanes if they are even; 0: it has lanes of its own. */
static uint32_t default_lane_size(const struct map_spec *spec) {
	if (spec->merge == MAP_MERGE_SUM64)
		return 8;
	if (spec->merge == MAP_MERGE_SUM32)
		return 4;
	if (spec->lanes)
		return 0;
	return spec->value_size % 8 == 0 ? 8 : spec->value_size % 4 == 0 ? 4 : 1;
}

/* The map's own copies of what spec points to. The initial bytes are filled up to a whole value. */
static int map_copy_spec(struct map *map, const struct map_spec *spec) {
	uint32_t even = default_lane_size(spec);
	struct map_lane *lanes;
	unsigned char *initial;

	map->spec = *spec;
	map->spec.initial = NULL;
	map->spec.lanes = NULL;
	snprintf(map->name, sizeof(map->name), "%s", spec->name);
	map->spec.name = map->name;

	if (spec->n_initial) {
		initial = calloc(1, spec->value_size);
		if (!initial)
			return -ENOMEM;
		memcpy(initial, spec->initial, spec->n_initial);
		map->spec.initial = initial;
		map->spec.n_initial = spec->value_size;
	}
	map->spec.n_lanes = even ? spec->value_size / even : spec->n_lanes;
	lanes = calloc(map->spec.n_lanes ? map->spec.n_lanes : 1, sizeof(*lanes));
	if (!lanes)
		return -ENOMEM;
	for (size_t i = 0; i < map->spec.n_lanes; i++)
		lanes[i] = even ? (struct map_lane){ .offset = (uint32_t)i * even, .size = even }
				: spec->lanes[i];
	map->spec.lanes = lanes;
	return 0;
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
	map->n_values = spec->merge == MAP_MERGE_PERCPU ? spec->shards : 1;
	r = map_copy_spec(map, spec);
	if (r)
		goto fail;
	map->scratch = calloc(2 * (size_t)map->n_values, spec->value_size);
	if (!map->scratch) {
		r = -ENOMEM;
		goto fail;
	}
	*mapp = map;
	return 0;
fail:
	map_free(map);
	return r;
}

/* Accepts half-built ones. */
static void map_instance_free(struct map_instance *instance) {
	if (!instance)
		return;
	if (instance->bytes)
		munmap((void *)instance->bytes, instance->size);
	if (instance->fd >= 0)
		close(instance->fd);
	free(instance);
}

struct map *map_free(struct map *map) {
	struct map_instance *instance;

	if (!map)
		return NULL;
	while ((instance = map->instances)) {
		map->instances = instance->next;
		map_instance_free(instance);
	}
	map_discharge(map, map->charged);
	free((void *)map->spec.initial);
	free((void *)map->spec.lanes);
	free(map->totals);
	free(map->scratch);
	free(map);
	return NULL;
}

uint64_t map_bytes(const struct map *map) {
	return map->charged;
}

static int write_all(int fd, const void *data, size_t size, off_t offset) {
	while (size) {
		ssize_t n = pwrite(fd, data, size, offset);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		data = (const char *)data + n;
		size -= (size_t)n;
		offset += n;
	}
	return 0;
}

/* Writes the header and what the values start with. The rest is zeros already. */
static int map_instance_fill(struct map_instance *instance) {
	const struct map_spec *spec = &instance->map->spec;
	struct map_header header = {
		.magic = MAP_MAGIC,
		.version = MAP_LAYOUT_VERSION,
		.map_id = instance->map->id,
		.instance_id = instance->id,
		.type = spec->type,
		.key_size = spec->key_size,
		.value_size = spec->value_size,
		.max_entries = spec->max_entries,
		.shards = spec->shards,
		.merge = spec->merge,
		.value_stride = spec->value_stride,
		.shard_stride = spec->shard_stride,
		.data_size = spec->data_size,
		.state = MAP_INSTANCE_NEW,
	};
	int r;

	r = write_all(instance->fd, &header, sizeof(header), 0);
	if (!r && map_start(spec))
		r = write_all(instance->fd, map_start(spec), spec->value_size, MAP_DATA_OFFSET);
	return r;
}

static int map_instance_new(struct map_instance **instancep, struct map *map, uint64_t id) {
	struct map_instance *instance;
	char name[sizeof("gpuprobe-map:") + MAP_NAME_SIZE];
	void *bytes;
	int r;

	instance = calloc(1, sizeof(*instance));
	if (!instance)
		return -ENOMEM;
	instance->map = map;
	instance->id = id;
	instance->size = MAP_DATA_OFFSET + map->spec.data_size;

	snprintf(name, sizeof(name), "gpuprobe-map:%s", map->name);
	instance->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (instance->fd < 0)
		goto fail_errno;
	if (ftruncate(instance->fd, (off_t)instance->size) < 0 ||
	    fallocate(instance->fd, 0, 0, (off_t)instance->size) < 0)
		goto fail_errno;
	r = map_instance_fill(instance);
	if (r)
		goto fail;
	if (fcntl(instance->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		goto fail_errno;
	bytes = mmap(NULL, instance->size, PROT_READ, MAP_SHARED, instance->fd, 0);
	if (bytes == MAP_FAILED)
		goto fail_errno;
	instance->bytes = bytes;
	*instancep = instance;
	return 0;
fail_errno:
	r = -errno;
fail:
	map_instance_free(instance);
	return r;
}

int map_instance_get(struct map *map, uint64_t process, pid_t pid, uint32_t device,
		     uint64_t instance_id, struct map_instance **instancep) {
	struct map_instance **at = &map->instances, *instance = NULL;
	int r;

	for (; *at; at = &(*at)->next) {
		if ((*at)->process == process && (*at)->device == device) {
			*instancep = *at;
			return 0;
		}
		if ((*at)->process > process ||
		    ((*at)->process == process && (*at)->device > device))
			break;
	}
	r = map_charge(map, MAP_DATA_OFFSET + map->spec.data_size, false);
	if (r)
		return r;
	r = map_instance_new(&instance, map, instance_id);
	if (r) {
		map_discharge(map, MAP_DATA_OFFSET + map->spec.data_size);
		return r;
	}
	instance->process = process;
	instance->pid = pid;
	instance->device = device;
	instance->next = *at;
	*at = instance;
	map->n_instances++;
	*instancep = instance;
	return 0;
}

int map_process_gone(struct map *map, uint64_t process) {
	struct map_instance **at = &map->instances, *instance = NULL;
	bool had_totals;
	int r;

	while ((instance = *at)) {
		if (instance->process != process) {
			at = &instance->next;
			continue;
		}
		had_totals = map->totals;
		r = map_totals_add(map, instance);
		if (!r && map->totals && !had_totals)
			r = map_charge(map, map_totals_size(map), true);
		if (r)
			return r;
		map->retained = true;
		*at = instance->next;
		map->n_instances--;
		map_discharge(map, instance->size);
		map_instance_free(instance);
	}
	return 0;
}

const char *map_type_name(uint32_t type, char buffer[static 16]) {
	static const struct {
		uint32_t type;
		const char *name;
	} names[] = {
		{ BPF_MAP_TYPE_HASH, "hash" },
		{ BPF_MAP_TYPE_ARRAY, "array" },
		{ BPF_MAP_TYPE_PERF_EVENT_ARRAY, "perf_event_array" },
		{ BPF_MAP_TYPE_PERCPU_HASH, "percpu_hash" },
		{ BPF_MAP_TYPE_PERCPU_ARRAY, "percpu_array" },
		{ BPF_MAP_TYPE_RINGBUF, "ringbuf" },
		{ 1501, "gpu_hash" },
		{ 1502, "gpu_thread_array" },
		{ 1503, "gpu_array" },
		{ 1504, "gpu_kernel_shared_array" },
		{ 1512, "gpu_thread_array_host" },
		{ 1513, "gpu_array_host" },
		{ 1527, "gpu_ringbuf" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].type == type)
			return names[i].name;
	snprintf(buffer, 16, "%u", type);
	return buffer;
}

const char *map_merge_name(uint32_t merge) {
	static const char *const names[] = { "none", "sum64", "sum32", "percpu" };

	return merge < sizeof(names) / sizeof(names[0]) ? names[merge] : "unknown";
}
