/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes and maps instances (map.h).
 *
 * Instances of maps (map-layout.h): one process's copy on one device, or one for all processes. It
 * is a memfd that is filled, sealed against a change of size and then given to the process, which
 * may write to it as it likes; or a kernel's map. The daemon maps it read-only, but for the host
 * area of rings, and takes sizes from its own struct map, never from the header. The pages are
 * allocated at the start: a reader must not die of SIGBUS when memory is short later.
 *
 * An instance in device memory is a copy, read under the sequence lock in its header. A process can
 * leave that lock odd for ever, by dying or on purpose; we wait for a bounded time, once for each
 * odd number, and then take what is there.
 */

#include "map-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring.h"

#define PAGE_SIZE 4096
#define PATIENCE_MAX 256 /* looks in vain, whatever its process writes */
#define PATIENCE_BYTES 4096 /* of which a copy in vain is one more */

/* What a process maps, which also is what is charged. */
static uint64_t instance_size(const struct map *map) {
	const struct map_layout *layout = &map->spec.layout;

	return layout->place == MAP_PLACE_KERNEL ? map_round_up(layout->data_size, PAGE_SIZE)
						 : map_memfd_size(layout);
}

struct map_instance *map_instance_free(struct map_instance *instance) {
	const struct map_keeper *keeper;
	const struct map_layout *layout;

	if (!instance)
		return NULL;
	layout = &instance->map->spec.layout;
	keeper = map_accounts_keeper(instance->map->accounts);
	if (keeper && instance->slot)
		keeper->drop(instance->slot, keeper->userdata);
	ring_consumer_free(instance->consumer);
	if (instance->host)
		munmap(instance->host, layout->host_size);
	if (instance->bytes)
		munmap((void *)instance->bytes, instance->size);
	if (instance->fd >= 0)
		close(instance->fd);
	free(instance);
	return NULL;
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
static int map_instance_fill(struct map_instance *instance, uint64_t cookie) {
	const struct map_spec *spec = &instance->map->spec;
	struct map_ring rings[MAP_RINGS_MAX];
	struct map_header header = {
		.magic = MAP_MAGIC,
		.version = MAP_LAYOUT_VERSION,
		.map_id = instance->map->id,
		.instance_id = instance->id,
		.type = spec->type,
		.key_size = spec->key_size,
		.value_size = spec->value_size,
		.max_entries = spec->max_entries,
		.layout = spec->layout,
		.state = MAP_INSTANCE_NEW,
	};
	int r;

	r = write_all(instance->fd, &header, sizeof(header), 0);
	if (!r && instance->map->start && !map_is_sum(spec) &&
	    spec->layout.merge != MAP_MERGE_LATEST)
		r = write_all(instance->fd, instance->map->start_data, spec->layout.data_size,
			      MAP_DATA_OFFSET);
	else if (!r && map_start_value(instance->map, 0, 0))
		r = write_all(instance->fd, map_start_value(instance->map, 0, 0), spec->value_size,
			      MAP_DATA_OFFSET);
	if (!r && spec->layout.kind == MAP_KIND_RING) {
		ring_start(rings, spec->layout.rings, cookie);
		r = write_all(instance->fd, rings, spec->layout.data_size, MAP_DATA_OFFSET);
	}
	return r;
}

/* Maps the descriptor, which is of the instance's size. */
static int map_instance_map(struct map_instance *instance, uint64_t cookie) {
	const struct map_layout *layout = &instance->map->spec.layout;
	void *bytes;

	bytes = mmap(NULL, instance->size, PROT_READ, MAP_SHARED, instance->fd, 0);
	if (bytes == MAP_FAILED)
		return -errno;
	instance->bytes = bytes;
	instance->data = bytes;
	if (layout->place != MAP_PLACE_KERNEL)
		instance->data += MAP_DATA_OFFSET;
	if (layout->kind != MAP_KIND_RING)
		return 0;
	bytes = mmap(NULL, layout->host_size, PROT_READ | PROT_WRITE, MAP_SHARED, instance->fd,
		     (off_t)map_host_offset(layout));
	if (bytes == MAP_FAILED)
		return -errno;
	instance->host = bytes;
	return ring_consumer_new(&instance->consumer, layout, cookie, instance->data,
				 instance->host);
}

int map_instance_make(struct map_instance **instancep, struct map *map, uint64_t id) {
	struct map_instance *instance;
	char name[sizeof("gpuprobe-map:") + MAP_NAME_SIZE];
	uint64_t cookie = 0;
	int r;

	if (map->spec.layout.kind == MAP_KIND_RING &&
	    getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
		return -EIO;
	instance = calloc(1, sizeof(*instance));
	if (!instance)
		return -ENOMEM;
	instance->map = map;
	instance->patience = PATIENCE_MAX;
	instance->id = id;
	instance->cookie = cookie;
	instance->size = instance_size(map);

	snprintf(name, sizeof(name), "gpuprobe-map:%s", map->name);
	instance->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (instance->fd < 0 || ftruncate(instance->fd, (off_t)instance->size) < 0 ||
	    fallocate(instance->fd, 0, 0, (off_t)instance->size) < 0)
		goto fail_errno;
	r = map_instance_fill(instance, cookie);
	if (r)
		goto fail;
	if (fcntl(instance->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		goto fail_errno;
	r = map_instance_map(instance, cookie);
	if (r)
		goto fail;
	*instancep = instance;
	return 0;
fail_errno:
	r = -errno;
fail:
	map_instance_free(instance);
	return r;
}

int map_instance_add_kernel(struct map *map, int fd) {
	struct map_instance *instance;
	int r;

	r = map_charge(map, instance_size(map), false);
	if (r)
		return r; /* what is charged goes with the map */
	instance = calloc(1, sizeof(*instance));
	if (!instance)
		return -ENOMEM;
	instance->map = map;
	instance->size = instance_size(map);
	instance->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	r = instance->fd < 0 ? -errno : map_instance_map(instance, 0);
	if (r) {
		map_instance_free(instance);
		return r;
	}
	map->instances = instance;
	map->n_instances = 1;
	return 0;
}

static bool count_record(const struct ring_batch *batch, void *userdata) {
	*(uint64_t *)userdata += batch->count;
	return true;
}

/*
 * Counts records that nobody has read as lost, over `budget` bytes of their ring, whose process is
 * gone. Whether there may be more. What cannot be read for want of memory is not counted.
 */
static bool map_lose_records(struct map_instance *instance, uint64_t budget) {
	unsigned char *scratch = malloc(RING_SCRATCH_SIZE);
	uint64_t n = 0;
	bool more;

	if (!scratch)
		return false;
	more = ring_consume(instance->consumer, scratch, budget, count_record, &n) != RING_E_EMPTY;
	instance->map->lost = ring_add_records(instance->map->lost, n);
	free(scratch);
	return more;
}

void map_instance_remove(struct map *map, struct map_instance **at) {
	struct map_instance *instance = *at;

	*at = instance->next;
	if (!instance->gone)
		map->n_instances--;
	if (instance->consumer)
		map_totals_ring_gone(
			map, instance->id,
			ring_add_records(map->written, ring_consumer_written(instance->consumer)),
			ring_add_records(map->lost, ring_consumer_lost(instance->consumer)));
	map->folds++;
	map->retained = true;
	map_discharge(map, instance->size);
	map_instance_free(instance);
}

/* The place of the oldest ring whose process is gone, or of NULL. */
static struct map_instance **map_oldest_ring(struct map *map) {
	struct map_instance **at = &map->instances;

	while (*at && !((*at)->gone && (*at)->consumer))
		at = &(*at)->next;
	return at;
}

/*
 * The oldest ring whose process is gone goes at once; what nobody read of it is lost: who needs its
 * room does not wait until all of a large one is searched, and believes of the rest what the
 * process has counted. False: there is none.
 */
static bool map_drop_oldest(struct map *map) {
	struct map_instance **at = map_oldest_ring(map);

	if (!*at)
		return false;
	if (map_lose_records(*at, MAP_FOLD_BYTES))
		ring_consumer_drop((*at)->consumer);
	map_instance_remove(map, at);
	return true;
}

/* Room for one more: while the owner has none left, rings that nobody reads give way. */
static int map_make_room(struct map *map, uint64_t bytes) {
	int r;

	do
		r = map_charge(map, bytes, false);
	while (r == MAP_E_QUOTA && map_drop_oldest(map));
	return r;
}

/* Rings that nobody reads do not pile up with every process that ends: the newest stay. As
 * map_fold_rings(). */
static int map_trim(struct map *map, uint64_t *budgetp) {
	uint64_t n = 0, bytes;

	for (const struct map_instance *i = map->instances; i; i = i->next)
		n += i->gone && i->consumer;
	for (; n > 1 && n * instance_size(map) > MAP_GONE_BYTES_MAX; n--) {
		bytes = *budgetp;
		map_spend(budgetp, instance_size(map));
		if (!bytes || map_lose_records(*map_oldest_ring(map), bytes))
			return MAP_E_AGAIN;
		map_instance_remove(map, map_oldest_ring(map));
	}
	return 0;
}

int map_fold_rings(struct map *map, uint64_t *budgetp) {
	struct map_instance **at = &map->instances;

	while (*at) {
		struct map_instance *instance = *at;

		if (instance->gone && !instance->searched) {
			if (!*budgetp)
				return MAP_E_AGAIN;
			instance->searched = ring_consumer_skip(instance->consumer, budgetp);
			if (!instance->searched) {
				*budgetp = 0;
				return MAP_E_AGAIN;
			}
		}
		if (!instance->gone || !ring_consumer_drained(instance->consumer)) {
			at = &instance->next;
			continue;
		}
		if (!*budgetp)
			return MAP_E_AGAIN;
		map_spend(budgetp, instance->size);
		map_instance_remove(map, at);
	}
	return map_trim(map, budgetp);
}

/* Puts an instance into its place. */
static void map_instance_link(struct map *map, struct map_instance *instance) {
	struct map_instance **at = &map->instances;

	while (*at && ((*at)->process < instance->process ||
		       ((*at)->process == instance->process && (*at)->device <= instance->device)))
		at = &(*at)->next;
	instance->next = *at;
	*at = instance;
	map->n_instances++;
}

/* What it belonged to has ended: a ring holds what it holds now. */
static void map_instance_gone(struct map_instance *instance) {
	if (instance->consumer)
		ring_consumer_end(instance->consumer);
	map_instance_end(instance);
}

int map_instance_get(struct map *map, uint64_t process, pid_t pid, uint32_t device,
		     uint64_t instance_id, struct map_instance **instancep) {
	struct map_instance *instance = NULL;
	int r;

	if (map->spec.layout.place == MAP_PLACE_KERNEL)
		process = device = 0;
	for (instance = map->instances; instance; instance = instance->next)
		if (!instance->gone && instance->process == process && instance->device == device) {
			if (!instance->id) /* of a kernel's map: asked for the first time */
				instance->id = instance_id;
			*instancep = instance;
			return 0;
		}
	r = map_make_room(map, instance_size(map));
	if (r)
		return r;
	r = map_instance_make(&instance, map, instance_id);
	if (r) {
		map_discharge(map, instance_size(map));
		return r;
	}
	instance->process = process;
	instance->pid = pid;
	instance->device = device;
	map_instance_link(map, instance);
	*instancep = instance;
	return 0;
}

void map_instance_keep(struct map_instance *instance) {
	const struct map_keeper *keeper = map_accounts_keeper(instance->map->accounts);

	if (keeper && !instance->slot)
		instance->slot = keeper->keep_instance(instance, keeper->userdata);
}

/* Whether a descriptor is of an instance of the map: the bytes in it are anybody's, but its size
 * cannot be. */
static bool instance_valid(const struct map *map, int fd) {
	const int seals = fcntl(fd, F_GET_SEALS), wanted = F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat status;

	return seals >= 0 && (seals & wanted) == wanted && fstat(fd, &status) == 0 &&
	       (uint64_t)status.st_size == instance_size(map);
}

int map_adopt_instance(struct map *map, const struct map_instance *like, int fd, bool gone,
		       struct map_instance **instancep) {
	struct map_instance *instance;
	int r;

	if (map->spec.layout.place == MAP_PLACE_KERNEL || !like->id || !instance_valid(map, fd)) {
		close(fd);
		return MAP_E_INVALID;
	}
	if (map_totals_have(map, like->id)) {
		close(fd);
		return MAP_E_END;
	}
	instance = calloc(1, sizeof(*instance));
	if (!instance) {
		close(fd);
		return -ENOMEM;
	}
	*instance = *like;
	instance->map = map;
	instance->fd = fd;
	instance->slot = 0;
	instance->size = instance_size(map);
	r = map_instance_map(instance, instance->cookie);
	if (r == 0)
		r = map_charge(map, instance->size, true);
	if (r) {
		map_instance_free(instance);
		return r;
	}
	if (instance->consumer)
		ring_consumer_resume(instance->consumer);
	instance->slot = like->slot;
	if (!instance->process) { /* no process has one of that number */
		r = map->start ? MAP_E_INVALID : map_start_adopt(map, instance);
		if (r) {
			map_discharge(map, instance->size);
			instance->slot = 0;
			map_instance_free(instance);
		}
		*instancep = instance;
		return r;
	}
	map_instance_link(map, instance);
	if (map_totals_resume(map, instance) ||
	    gone) /* what is partly in the totals was gone then */
		map_instance_gone(instance);
	*instancep = instance;
	return 0;
}

void map_instance_end(struct map_instance *instance) {
	instance->gone = true;
	instance->map->n_instances--;
}

void map_process_end(struct map *map, uint64_t process) {
	for (struct map_instance *i = map->instances; i; i = i->next)
		if (i->process == process && !i->gone)
			map_instance_gone(i);
}

void map_reap(struct map *map) {
	struct map_instance **at = &map->instances;

	while (*at)
		if ((*at)->gone && (*at)->consumer && ring_consumer_drained((*at)->consumer))
			map_instance_remove(map, at);
		else
			at = &(*at)->next;
}

bool map_was_carried(const struct map *map) {
	return map->n_instances || map->folds || map->retained;
}

uint64_t map_written(const struct map *map) {
	uint64_t sum = map->written;

	for (const struct map_instance *i = map->instances; i; i = i->next)
		if (i->consumer)
			sum = ring_add_records(sum, ring_consumer_written(i->consumer));
	return sum;
}

uint64_t map_lost(const struct map *map) {
	uint64_t sum = map->lost;

	for (const struct map_instance *i = map->instances; i; i = i->next)
		if (i->consumer)
			sum = ring_add_records(sum, ring_consumer_lost(i->consumer));
	return sum;
}

/* Its header; a kernel's map has none. */
static const struct map_header *header_of(const struct map_instance *instance) {
	return (const void *)instance->bytes;
}

uint64_t map_instance_mirrored(const struct map_instance *instance) {
	if (instance->map->spec.layout.place != MAP_PLACE_DEVICE)
		return 0;
	return __atomic_load_n(&header_of(instance)->mirrored_ns, __ATOMIC_RELAXED);
}

/* What is not copied has no time: the instance that was made last counts as the newest. */
uint64_t map_instance_recency(const struct map_instance *instance) {
	if (instance->map->spec.layout.place == MAP_PLACE_DEVICE)
		return map_instance_mirrored(instance);
	return instance->id ? instance->id : 1;
}

bool map_instance_read(struct map_instance *instance, map_copy copy, uint64_t at,
		       unsigned char *out) {
	const struct map_header *header = header_of(instance);
	const unsigned int cost =
		1 + (unsigned int)(map_scratch_size(instance->map) / PATIENCE_BYTES);
	uint64_t before;
	unsigned int spent;

	if (instance->map->spec.layout.place != MAP_PLACE_DEVICE) {
		copy(instance, at, out);
		return true;
	}
	for (;; instance->patience -= spent) {
		before = __atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE);
		spent = before & 1 ? 1 : cost;
		if (before & 1) {
			__builtin_ia32_pause();
		} else {
			copy(instance, at, out);
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (__atomic_load_n(&header->sequence, __ATOMIC_RELAXED) == before) {
				instance->patience += instance->patience < PATIENCE_MAX;
				return true;
			}
		}
		if (instance->patience < spent)
			break;
	}
	if (before & 1)
		copy(instance, at, out);
	return false;
}
