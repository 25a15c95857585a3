/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the CPU driver (tests/sim). What kernels may access: device allocations, registered
 * host memory and variables of modules, as a sorted array of ranges that do not overlap. A lock of
 * its own, so that copies work while a kernel runs.
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

static struct {
	pthread_mutex_t lock;
	struct sim_region *regions;
	size_t count, allocated;
	uint64_t generation, next_id;
	size_t used, registered;
} memory = { .lock = PTHREAD_MUTEX_INITIALIZER, .generation = 1 };

/* The first range that ends behind address. */
static size_t position_of(uintptr_t address) {
	size_t low = 0, high = memory.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (memory.regions[middle].base + memory.regions[middle].size <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static CUresult add_locked(uintptr_t base, size_t size, enum sim_region_kind kind,
			   unsigned int flags) {
	size_t at = position_of(base);

	if (at < memory.count && memory.regions[at].base < base + size)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (memory.count == memory.allocated) {
		size_t allocated = memory.allocated ? memory.allocated * 2 : 64;
		struct sim_region *regions = realloc(memory.regions, allocated * sizeof(*regions));

		if (!regions)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memory.regions = regions;
		memory.allocated = allocated;
	}
	memmove(&memory.regions[at + 1], &memory.regions[at],
		(memory.count - at) * sizeof(*memory.regions));
	memory.regions[at] = (struct sim_region){ base, size, kind, flags, ++memory.next_id };
	memory.count++;
	if (kind == SIM_REGION_DEVICE || kind == SIM_REGION_TOOL)
		memory.used += size;
	if (kind == SIM_REGION_REGISTERED)
		memory.registered += size;
	return CUDA_SUCCESS;
}

CUresult sim_memory_add(uintptr_t base, size_t size, enum sim_region_kind kind,
			unsigned int flags) {
	CUresult r;

	if (!size || base + size < base)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&memory.lock);
	r = add_locked(base, size, kind, flags);
	pthread_mutex_unlock(&memory.lock);
	return r;
}

bool sim_memory_remove(uintptr_t base, enum sim_region_kind kind, struct sim_region *out) {
	bool found = false;
	size_t at;

	pthread_mutex_lock(&memory.lock);
	at = position_of(base);
	if (at < memory.count && memory.regions[at].base == base &&
	    memory.regions[at].kind == kind) {
		found = true;
		if (out)
			*out = memory.regions[at];
		if (kind == SIM_REGION_DEVICE || kind == SIM_REGION_TOOL)
			memory.used -= memory.regions[at].size;
		if (kind == SIM_REGION_REGISTERED)
			memory.registered -= memory.regions[at].size;
		memory.count--;
		memmove(&memory.regions[at], &memory.regions[at + 1],
			(memory.count - at) * sizeof(*memory.regions));
		memory.generation++;
	}
	pthread_mutex_unlock(&memory.lock);
	return found;
}

bool sim_memory_find(uintptr_t address, struct sim_region *out) {
	bool found = false;
	size_t at;

	pthread_mutex_lock(&memory.lock);
	at = position_of(address);
	if (at < memory.count && memory.regions[at].base <= address) {
		*out = memory.regions[at];
		found = true;
	}
	pthread_mutex_unlock(&memory.lock);
	return found;
}

bool sim_memory_holds(uintptr_t address, size_t size) {
	struct sim_region region;

	return sim_memory_find(address, &region) && size <= region.base + region.size - address;
}

uint64_t sim_memory_generation(void) {
	uint64_t generation;

	pthread_mutex_lock(&memory.lock);
	generation = memory.generation;
	pthread_mutex_unlock(&memory.lock);
	return generation;
}

size_t sim_memory_used(void) {
	size_t used;

	pthread_mutex_lock(&memory.lock);
	used = memory.used;
	pthread_mutex_unlock(&memory.lock);
	return used;
}

size_t sim_memory_registered(void) {
	size_t registered;

	pthread_mutex_lock(&memory.lock);
	registered = memory.registered;
	pthread_mutex_unlock(&memory.lock);
	return registered;
}
