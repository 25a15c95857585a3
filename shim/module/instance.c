/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory of map instances in this process (instance.h): maps it, registers it, copies it.
 *
 * What is in device memory is copied; what is in host memory is the daemon's own, mapped here and
 * registered with the driver, so that the GPU writes where the daemon reads. Each context has a
 * mapping and a registration of its own, that goes when the context is gone: nothing that a kernel
 * may still use is ever taken away, and no context's end takes memory from another one.
 */

#include "instance.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "shim/engine/sass.h"

#define RESIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define HOST_PAGE UINT64_C(4096)

static struct instance
	*left; /* nothing of them but addresses that the driver may still know; with the lock */

static struct map_header *header_of(const struct instance *instance) {
	return instance->mapping;
}

static bool in_host_memory(const struct instance *instance) {
	return instance->layout.place != MAP_PLACE_DEVICE;
}

static void *data_of(const struct instance *instance) {
	return instance->layout.place == MAP_PLACE_KERNEL
		       ? instance->mapping
		       : (char *)instance->mapping + MAP_DATA_OFFSET;
}

/* ---- the mapping -------------------------------------------------------------------- */

/* Is it a memfd that keeps its size, and has this one? */
static bool is_sealed(int fd, uint64_t size) {
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & RESIZE_SEALS) == RESIZE_SEALS && fstat(fd, &status) == 0 &&
	       (uint64_t)status.st_size == size;
}

/* A kernel map does not change its size, and mmap() refuses to go beyond it. */
static bool is_kernel_map(int fd) {
	struct stat status;

	return fstat(fd, &status) == 0 && !(status.st_mode & S_IFMT);
}

static bool is_power_of_two(uint64_t n) {
	return n && !(n & (n - 1));
}

static bool is_ring(const struct map_layout *layout) {
	return layout->kind == MAP_KIND_RING && layout->place == MAP_PLACE_DEVICE &&
	       layout->rings <= MAP_RINGS_MAX && is_power_of_two(layout->rings) &&
	       layout->data_size == layout->rings * sizeof(struct map_ring) &&
	       layout->ring_size >= HOST_PAGE && layout->ring_size <= MAP_RING_TOTAL_MAX &&
	       is_power_of_two(layout->ring_size) &&
	       layout->host_size == map_ring_offset(layout, layout->rings);
}

/* Takes the layout out of the header, and checks that the reply and the memfd are of that kind. */
static bool read_header(struct instance *instance, const struct wire_instance_reply *reply) {
	const struct map_header *header = header_of(instance);
	struct map_layout *layout = &instance->layout;

	*layout = header->layout;
	return header->magic == MAP_MAGIC && header->version == MAP_LAYOUT_VERSION &&
	       header->map_id == reply->map_id && layout->kind == reply->kind &&
	       layout->place == reply->place && layout->data_size == reply->data_size &&
	       layout->kind <= MAP_KIND_RING &&
	       (is_ring(layout) || (layout->kind != MAP_KIND_RING && !layout->host_size)) &&
	       reply->size == map_memfd_size(layout);
}

static bool map_memory(struct instance *instance, const struct wire_instance_reply *reply, int fd) {
	bool kernel = reply->place == MAP_PLACE_KERNEL;

	if (!reply->data_size || reply->data_size > MAP_DATA_SIZE_MAX ||
	    reply->size > 2 * MAP_DATA_SIZE_MAX || reply->place > MAP_PLACE_KERNEL)
		return false;
	if (kernel && (reply->kind != MAP_KIND_ARRAY || reply->size % HOST_PAGE ||
		       reply->data_size > reply->size))
		return false;
	if (!is_sealed(fd, reply->size) && !(kernel && is_kernel_map(fd)))
		return false;
	instance->mapping = mmap(NULL, reply->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (instance->mapping == MAP_FAILED)
		return false;
	madvise(instance->mapping, reply->size, MADV_DONTFORK);
	instance->layout = (struct map_layout){ .kind = reply->kind,
						.place = reply->place,
						.data_size = reply->data_size };
	return kernel || read_header(instance, reply);
}

struct instance *instance_new(const struct wire_instance_reply *reply, int fd) {
	struct instance *instance = calloc(1, sizeof(*instance));
	bool good = false;

	if (instance) {
		instance->mapping = MAP_FAILED;
		instance->map_id = reply->map_id;
		instance->id = reply->instance_id;
		instance->size = reply->size;
		instance->data_size = reply->data_size;
		good = map_memory(instance, reply, fd);
	}
	close(fd);
	if (good)
		return instance;
	instance_free(instance);
	return NULL;
}

/*
 * Unregisters the host memory. False: the driver did not say that it has let go of it, as when no
 * context is current any more.
 */
static bool unregister(struct instance *instance) {
	driver_result result = 0;

	if (instance->registered)
		result = driver_own()->host_unregister(instance->registered);
	if (result && result != DRIVER_ERROR_NOT_REGISTERED)
		return false;
	instance->registered = NULL;
	return true;
}

/* The memory goes. False: the driver may still know the addresses, and nobody else gets them till
 * it has let go of them. */
static bool unmap(struct instance *instance) {
	if (instance->mapping == MAP_FAILED)
		return true;
	if (unregister(instance)) {
		munmap(instance->mapping, instance->size);
		return true;
	}
	mmap(instance->mapping, instance->size, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return false;
}

/* A context is current: what the driver could not let go of without one. */
static void unmap_left(void) {
	for (struct instance **link = &left; *link;) {
		struct instance *instance = *link;

		if (!unmap(instance)) {
			link = &instance->next;
			continue;
		}
		*link = instance->next;
		free(instance);
	}
}

void instance_free(struct instance *instance) {
	if (!instance)
		return;
	while (instance->regions) {
		struct instance_region *region = instance->regions;

		instance->regions = region->next;
		free(region);
	}
	free(instance->sum);
	free(instance->total);
	free(instance->past);
	if (unmap(instance)) {
		free(instance);
	} else {
		instance->next = left;
		left = instance;
	}
}

/* ---- for kernels -------------------------------------------------------------------- */

/* Gives the driver a part of the mapping; *address is where kernels find it. */
static const char *register_memory(struct instance *instance, void *memory, uint64_t size,
				   driver_pointer *address) {
	const struct driver *driver = driver_own();

	unmap_left();
	if (driver->host_register(memory, size,
				  DRIVER_REGISTER_PORTABLE | DRIVER_REGISTER_DEVICE_MAP) != 0)
		return "the driver does not register a map's host memory";
	instance->registered = memory;
	if (driver->host_get_device_pointer(address, memory, 0) == 0 && *address)
		return NULL;
	unregister(instance);
	*address = 0;
	return "the driver has no device address for a map's host memory";
}

/* Registers the rings, and writes down where they are, for the control blocks' upload. */
static const char *register_rings(struct instance *instance) {
	const struct map_layout *layout = &instance->layout;
	struct map_ring *rings = data_of(instance);
	driver_pointer area;
	const char *reason;

	reason = register_memory(instance, (char *)instance->mapping + map_host_offset(layout),
				 layout->host_size, &area);
	for (uint32_t i = 0; !reason && i < layout->rings; i++) {
		rings[i].base = area + map_ring_offset(layout, i);
		rings[i].tail_address = area + (uint64_t)i * MAP_RING_TAIL_STRIDE;
	}
	return reason;
}

/* Makes a buffer for data, if there is none (0). */
static const char *upload(const void *data, size_t size, driver_handle stream,
			  driver_pointer buffer, driver_pointer *address) {
	const struct driver *driver = driver_own();

	if (!buffer && driver->mem_alloc(&buffer, size) != 0)
		return "no memory for a map: the device has none";
	if (driver->copy_to_device(buffer, data, size, stream) == 0 &&
	    driver->stream_synchronize(stream) == 0) {
		*address = buffer;
		return NULL;
	}
	driver->mem_free(buffer);
	return "writing a map's initial data failed";
}

/*
 * The same from within the driver. It is the driver's memory all the same: what the engine
 * allocates cannot be copied with the driver's functions [H200], and the mirror has to.
 */
static const char *upload_inside(const void *data, size_t size,
				 const struct instance_engine *inside, driver_pointer *address) {
	const struct driver *driver = driver_own();
	driver_pointer buffer;
	const char *reason;

	if (driver->mem_alloc(&buffer, size) != 0)
		return "no memory for a map: the device has none";
	reason = inside->engine->write(inside->context, buffer, data, size);
	if (reason)
		driver->mem_free(buffer);
	else
		*address = buffer;
	return reason;
}

const char *instance_prepare(struct instance *instance, driver_handle stream) {
	const char *reason = NULL;

	if (instance->address)
		return NULL;
	if (in_host_memory(instance)) {
		uint64_t size = instance->layout.place == MAP_PLACE_KERNEL ? instance->size
									   : instance->data_size;

		return register_memory(instance, data_of(instance), size, &instance->address);
	}
	if (instance->layout.kind == MAP_KIND_RING)
		reason = register_rings(instance);
	if (!reason)
		reason = upload(data_of(instance), instance->data_size, stream, instance->spare,
				&instance->address);
	instance->spare = 0;
	if (reason)
		unregister(instance);
	return reason;
}

const char *instance_prepare_inside(struct instance *instance, const struct instance_engine *inside,
				    bool *later) {
	*later = !instance->address &&
		 (in_host_memory(instance) || instance->layout.kind == MAP_KIND_RING);
	if (instance->address || *later)
		return NULL;
	return upload_inside(data_of(instance), instance->data_size, inside, &instance->address);
}

const char *instance_prepare_region(struct instance *instance, driver_handle stream,
				    const struct instance_engine *inside, driver_pointer *address) {
	const char *reason;
	void *zeros;

	for (const struct instance_region *region = instance->regions; region;
	     region = region->next)
		if (!region->load) {
			*address = region->address;
			return NULL;
		}
	zeros = map_can_be_resident(&instance->layout) ? calloc(1, instance->data_size) : NULL;
	if (!zeros)
		return "no memory for a map: the process has none, or it cannot be summed up";
	reason = inside ? upload_inside(zeros, instance->data_size, inside, address)
			: upload(zeros, instance->data_size, stream, 0, address);
	free(zeros);
	if (reason)
		return reason;
	if (instance_add_region(instance, NULL, *address))
		return NULL;
	driver_own()->mem_free(*address);
	*address = 0;
	return "no memory for a map: the process has none";
}

bool instance_release(struct instance *instance) {
	for (const struct instance_region *region = instance->regions; region;
	     region = region->next)
		if (region->load)
			return false;
	for (const struct instance_region *region = instance->regions; region;
	     region = region->next)
		driver_own()->mem_free(region->address);
	if (instance->address && !in_host_memory(instance))
		driver_own()->mem_free(instance->address);
	return true;
}

/* Is its data a buffer of its own, and nothing else? */
static bool is_buffer(const struct instance *instance) {
	return !in_host_memory(instance) && instance->layout.kind != MAP_KIND_RING;
}

void instance_disarm(struct instance *instance) {
	instance->disarmed = true;
	if (is_buffer(instance) && unmap(instance))
		instance->mapping = MAP_FAILED;
}

bool instance_follow(struct instance *instance, struct instance *before) {
	if (!before->unused || !before->address || before->regions || !is_buffer(before) ||
	    instance->address || !is_buffer(instance) || instance->data_size != before->data_size)
		return false;
	instance->spare = before->address;
	before->address = 0;
	return true;
}

/* ---- the copy ----------------------------------------------------------------------- */

/* The younger of each pair of elements, {value, time of the store}; 0: never. */
static void keep_latest(const struct instance *instance, uint64_t *to, const uint64_t *from) {
	for (uint64_t i = 0; i < instance->data_size / 8; i += 2)
		if (from[i + 1] > to[i + 1]) {
			to[i] = from[i];
			to[i + 1] = from[i + 1];
		}
}

/* Merges what one module holds into `to`. */
static void merge_data(const struct instance *instance, void *to, const void *from) {
	if (instance->layout.merge == MAP_MERGE_LATEST) {
		keep_latest(instance, to, from);
	} else if (instance->layout.merge == MAP_MERGE_SUM64) {
		uint64_t *sums = to;
		const uint64_t *values = from;

		for (uint64_t i = 0; i < instance->data_size / 8; i++)
			sums[i] += values[i];
	} else {
		uint32_t *sums = to;
		const uint32_t *values = from;

		for (uint64_t i = 0; i < instance->data_size / 4; i++)
			sums[i] += values[i];
	}
}

/* Merges what a region holds into `to`; the instance's room for one's bytes is overwritten. */
static bool add_region(struct instance *instance, driver_pointer region, driver_handle stream,
		       void *to) {
	const struct driver *driver = driver_own();

	if (driver->copy_to_host(instance->sum, region, instance->data_size, stream) != 0 ||
	    driver->stream_synchronize(stream) != 0)
		return false;
	merge_data(instance, to, instance->sum);
	return true;
}

/*
 * Copies the data. What is in the daemon's memory changes only when everything is here: we may be
 * killed at any moment. A region that is gone without our notice holds up no other one; where
 * nothing can be copied any more, as in a context with an error, all stays as it is.
 */
static bool copy_data(struct instance *instance, driver_handle stream) {
	const struct driver *driver = driver_own();
	bool some = !instance->address && !instance->regions;

	if (!instance->past)
		return !instance->address ||
		       (driver->copy_to_host(data_of(instance), instance->address,
					     instance->data_size, stream) == 0 &&
			driver->stream_synchronize(stream) == 0);
	memcpy(instance->total, instance->past, instance->data_size);
	if (instance->address)
		some |= add_region(instance, instance->address, stream, instance->total);
	for (const struct instance_region *region = instance->regions; region;
	     region = region->next)
		some |= add_region(instance, region->address, stream, instance->total);
	if (some)
		memcpy(data_of(instance), instance->total, instance->data_size);
	return some;
}

bool instance_is_copied(const struct instance *instance) {
	return !instance->disarmed && !instance->stale && !in_host_memory(instance);
}

void instance_copy(struct instance *instance, driver_handle stream, bool final) {
	struct map_header *header = header_of(instance);

	if (!instance_is_copied(instance))
		return;
	__atomic_or_fetch(&header->sequence, 1, __ATOMIC_SEQ_CST);
	if (copy_data(instance, stream)) {
		header->mirrored_ns = monotonic_now();
		header->state = final ? MAP_INSTANCE_FINAL : MAP_INSTANCE_LIVE;
	}
	__atomic_add_fetch(&header->sequence, 1, __ATOMIC_RELEASE);
}

void instance_mark_final(struct instance *instance) {
	if (!instance->disarmed && !instance->stale && instance->layout.place != MAP_PLACE_KERNEL)
		header_of(instance)->state = MAP_INSTANCE_FINAL;
}

/* ---- data in modules ---------------------------------------------------------------- */

bool instance_add_region(struct instance *instance, const struct load *load,
			 driver_pointer address) {
	struct instance_region *region;

	if (!map_can_be_resident(&instance->layout))
		return false;
	for (region = instance->regions; region; region = region->next)
		if (region->load == load && region->address == address)
			return true;
	if (!instance->sum)
		instance->sum = malloc(instance->data_size);
	if (!instance->total)
		instance->total = malloc(instance->data_size);
	if (!instance->past && instance->sum &&
	    instance->total) /* where it is, copies rely on the others */
		instance->past = calloc(1, instance->data_size);
	region = malloc(sizeof(*region));
	if (!instance->sum || !instance->total || !instance->past || !region) {
		free(region);
		return false;
	}
	*region = (struct instance_region){ instance->regions, load, address };
	instance->regions = region;
	return true;
}

bool instance_has_region(const struct instance *instance, const struct load *load) {
	for (const struct instance_region *region = instance->regions; region;
	     region = region->next)
		if (region->load == load)
			return true;
	return false;
}

void instance_end_regions(struct instance *instance, const struct load *load,
			  driver_handle stream) {
	for (const struct instance_region *region = instance->regions; region;
	     region = region->next)
		if (region->load == load &&
		    !add_region(instance, region->address, stream, instance->past))
			instance->stale = true;
	instance_drop_regions(instance, load);
}

void instance_drop_regions(struct instance *instance, const struct load *load) {
	for (struct instance_region **link = &instance->regions; *link;) {
		struct instance_region *region = *link;

		if (region->load != load) {
			link = &region->next;
			continue;
		}
		*link = region->next;
		free(region);
	}
}
