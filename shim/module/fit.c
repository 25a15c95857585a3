/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asks the driver how many blocks of an original and of its twin fit on the device (fit.h), and
 * keeps the answers.
 *
 * An answer is two numbers, for grids of any size: up to so many blocks all of the twin surely fit
 * at once; and with more than so many not even those of the original do. In a green context the
 * first is counted with the multiprocessors that the context surely has, the second with all of the
 * device.
 *
 * Answers are in a table of a fixed size, in sets of a few places each. A place has a sequence
 * number, which is odd while it is written: readers take no lock, and take a place that changes
 * for one that is not there. Writers do not wait either.
 */

#include "fit.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define SETS 128 /* a power of 2 */
#define WAYS 4
#define RESOURCE_SM 1 /* CUdevResourceType */
#define RESOURCE_SM_COUNT 24 /* where CUdevResource has the number: its word */
#define AFFINITY_SM_COUNT 0 /* CUexecAffinityType */

/* CUlaunchAttributeID */
enum attribute {
	ATTRIBUTE_IGNORE = 0,
	ATTRIBUTE_ACCESS_POLICY = 1,
	ATTRIBUTE_COOPERATIVE = 2,
	ATTRIBUTE_SYNCHRONIZATION_POLICY = 3,
	ATTRIBUTE_CLUSTER = 4,
	ATTRIBUTE_CLUSTER_SCHEDULING = 5,
	ATTRIBUTE_PROGRAMMATIC_SERIALIZATION = 6,
	ATTRIBUTE_PROGRAMMATIC_EVENT = 7,
	ATTRIBUTE_PRIORITY = 8,
	ATTRIBUTE_DOMAIN_MAP = 9,
	ATTRIBUTE_DOMAIN = 10,
	ATTRIBUTE_PREFERRED_CLUSTER = 11,
	ATTRIBUTE_COMPLETION_EVENT = 12,
	ATTRIBUTE_DEVICE_UPDATABLE = 13,
	ATTRIBUTE_CARVEOUT = 14,
	ATTRIBUTE_NVLINK = 16,
};

/* The words of a key. */
enum {
	KEY_ORIGINAL,
	KEY_TWIN,
	KEY_CONTEXT,
	KEY_SIZES, /* threads of a block, bytes of shared memory */
	KEY_CLUSTER,
	KEY_GENERATION,
	KEY_WORDS,
};

struct answer {
	uint64_t fits; /* up to so many blocks fit at once with the twin */
	uint64_t beyond; /* more than so many do not with the original */
};

struct place {
	uint64_t sequence; /* odd: it is being written; 0: never was */
	uint64_t key[KEY_WORDS];
	struct answer answer;
};

static struct place table[SETS][WAYS];
static uint64_t generation = 1; /* answers of earlier ones are void */
static unsigned next_way; /* of a full set: which is replaced */

void fit_forget(void) {
	__atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
}

/* ---- shapes ----------------------------------------------------------------------------- */

void fit_add_attribute(struct twin_shape *shape, int id, const unsigned *value) {
	switch ((enum attribute)id) {
	case ATTRIBUTE_IGNORE:
	case ATTRIBUTE_ACCESS_POLICY:
	case ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case ATTRIBUTE_CLUSTER_SCHEDULING:
	case ATTRIBUTE_PROGRAMMATIC_SERIALIZATION:
	case ATTRIBUTE_PROGRAMMATIC_EVENT:
	case ATTRIBUTE_PRIORITY:
	case ATTRIBUTE_DOMAIN_MAP:
	case ATTRIBUTE_DOMAIN:
	case ATTRIBUTE_PREFERRED_CLUSTER: /* a wish: the driver may make them as CLUSTER says */
	case ATTRIBUTE_COMPLETION_EVENT:
	case ATTRIBUTE_CARVEOUT: /* of L1 and shared memory, which the twin uses as the original */
	case ATTRIBUTE_NVLINK:
		return;
	case ATTRIBUTE_COOPERATIVE:
		shape->cooperative = value[0];
		return;
	case ATTRIBUTE_CLUSTER:
		memcpy(shape->cluster, value, sizeof(shape->cluster));
		return;
	case ATTRIBUTE_DEVICE_UPDATABLE: /* the device changes parameters of the node */
		shape->own |= value[0] != 0;
		return;
	}
	shape->own = true; /* one that is newer than this */
}

struct twin_shape fit_shape(driver_handle function, const struct fit_configuration *configuration) {
	struct twin_shape shape = { .function = function, .own = !configuration };

	if (!configuration)
		return shape;
	memcpy(shape.grid, configuration->grid, sizeof(shape.grid));
	memcpy(shape.block, configuration->block, sizeof(shape.block));
	shape.shared = configuration->shared;
	shape.stream = configuration->stream;
	for (unsigned i = 0; configuration->attributes && i < configuration->count; i++)
		fit_add_attribute(&shape, configuration->attributes[i].id,
				  configuration->attributes[i].value);
	return shape;
}

/* At most: UINT64_MAX. */
static uint64_t multiply(uint64_t a, uint64_t b) {
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t volume(const unsigned size[3]) {
	return multiply((uint64_t)size[0] * size[1], size[2]);
}

/* ---- the table -------------------------------------------------------------------------- */

/* False: such a launch is none that can be asked about. */
static bool make_key(uint64_t key[KEY_WORDS], const struct twin_shape *shape, driver_handle twin) {
	const uint64_t threads = volume(shape->block);

	key[KEY_ORIGINAL] = (uintptr_t)shape->function;
	key[KEY_TWIN] = (uintptr_t)twin;
	key[KEY_CONTEXT] = (uintptr_t)shape->context;
	key[KEY_SIZES] = threads << 32 | shape->shared;
	key[KEY_CLUSTER] =
		(uint64_t)shape->cluster[0] << 32 | shape->cluster[1] << 16 | shape->cluster[2];
	key[KEY_GENERATION] = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
	return threads && threads <= INT_MAX && shape->cluster[0] <= UINT16_MAX &&
	       shape->cluster[1] <= UINT16_MAX && shape->cluster[2] <= UINT16_MAX;
}

static struct place *set_of(const uint64_t key[KEY_WORDS]) {
	uint64_t hash = 0;

	for (unsigned i = 0; i < KEY_GENERATION; i++)
		hash = (hash << 13 | hash >> 51) ^ key[i];
	return table[hash * UINT64_C(0x9e3779b97f4a7c15) >> 40 & (SETS - 1)];
}

/* Each load is an acquire, so that the sequence is read again after all of them. */
static bool read_place(const struct place *place, const uint64_t key[KEY_WORDS],
		       struct answer *answer) {
	const uint64_t sequence = __atomic_load_n(&place->sequence, __ATOMIC_ACQUIRE);
	bool same = !(sequence & 1);

	for (unsigned i = 0; same && i < KEY_WORDS; i++)
		same = __atomic_load_n(&place->key[i], __ATOMIC_ACQUIRE) == key[i];
	if (!same)
		return false;
	answer->fits = __atomic_load_n(&place->answer.fits, __ATOMIC_ACQUIRE);
	answer->beyond = __atomic_load_n(&place->answer.beyond, __ATOMIC_ACQUIRE);
	return __atomic_load_n(&place->sequence, __ATOMIC_RELAXED) == sequence;
}

static bool look_up(const uint64_t key[KEY_WORDS], struct answer *answer) {
	const struct place *set = set_of(key);

	for (unsigned i = 0; i < WAYS; i++)
		if (read_place(&set[i], key, answer))
			return true;
	return false;
}

/* One whose answer is void, else any. */
static struct place *victim(struct place *set, uint64_t now) {
	for (unsigned i = 0; i < WAYS; i++)
		if (__atomic_load_n(&set[i].key[KEY_GENERATION], __ATOMIC_RELAXED) != now)
			return &set[i];
	return &set[__atomic_fetch_add(&next_way, 1, __ATOMIC_RELAXED) % WAYS];
}

/* Each store is a release, so that whoever sees one sees the odd sequence, too. */
static void keep(const uint64_t key[KEY_WORDS], const struct answer *answer) {
	struct place *place = victim(set_of(key), key[KEY_GENERATION]);
	uint64_t sequence = __atomic_load_n(&place->sequence, __ATOMIC_RELAXED);

	if ((sequence & 1) ||
	    !__atomic_compare_exchange_n(&place->sequence, &sequence, sequence + 1, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	for (unsigned i = 0; i < KEY_WORDS; i++)
		__atomic_store_n(&place->key[i], key[i], __ATOMIC_RELEASE);
	__atomic_store_n(&place->answer.fits, answer->fits, __ATOMIC_RELEASE);
	__atomic_store_n(&place->answer.beyond, answer->beyond, __ATOMIC_RELEASE);
	__atomic_store_n(&place->sequence, sequence + 2, __ATOMIC_RELEASE);
}

/* ---- the driver ------------------------------------------------------------------------- */

/* How many multiprocessors the device has, and how many of them the context, which is current,
 * surely has. */
static bool count_processors(driver_handle context, uint64_t *all, uint64_t *own) {
	const struct driver *driver = driver_own();
	unsigned resource[64] = { 0 }; /* CUdevResource, which has 144 bytes in CUDA 13 */
	unsigned affinity[16] = { 0 }; /* CUexecAffinityParam */
	int device, count;

	if (driver->ctx_get_device(&device) != 0 ||
	    driver->device_get_attribute(&count, DRIVER_ATTRIBUTE_PROCESSORS, device) != 0 ||
	    count <= 0)
		return false;
	*all = *own = (uint64_t)count;
	if (driver->context_get_resource &&
	    driver->context_get_resource(context, resource, RESOURCE_SM) == 0 &&
	    resource[RESOURCE_SM_COUNT] && resource[RESOURCE_SM_COUNT] < *own)
		*own = resource[RESOURCE_SM_COUNT];
	if (driver->context_get_affinity &&
	    driver->context_get_affinity(affinity, AFFINITY_SM_COUNT) == 0 && affinity[1] &&
	    affinity[1] < *own)
		*own = affinity[1];
	return true;
}

/* How many clusters of a kernel fit on the device; 0, too, of one that is launched without
 * clusters. False: the driver does not say. */
static bool count_clusters(const struct twin_shape *shape, driver_handle function, int *count) {
	const struct driver *driver = driver_own();
	struct fit_attribute attribute = { .id = ATTRIBUTE_CLUSTER };
	struct fit_configuration configuration = { .shared = shape->shared,
						   .attributes = &attribute,
						   .count = shape->cluster[0] != 0 };

	memcpy(configuration.grid, shape->grid, sizeof(shape->grid));
	memcpy(configuration.block, shape->block, sizeof(shape->block));
	memcpy(attribute.value, shape->cluster, sizeof(shape->cluster));
	return driver->count_clusters &&
	       driver->count_clusters(count, function, &configuration) == 0;
}

static const struct answer always = { UINT64_MAX, UINT64_MAX }, never = { 0, UINT64_MAX };

/*
 * Clusters: `answer` is for blocks that are scheduled one by one. Where the launch does not say how
 * large clusters are, the kernel may. That shows in the number for the original, which can be
 * launched: if it is 0, there are no clusters.
 */
static bool ask_clusters(const struct twin_shape *shape, driver_handle twin, bool fewer, bool whole,
			 struct answer *answer) {
	const uint64_t size = volume(shape->cluster);
	int original_count = 0, twin_count = 0;
	bool known = count_clusters(shape, shape->function, &original_count);

	if (!size && (!known || !original_count))
		return true;
	if (!known || !count_clusters(shape, twin, &twin_count))
		return false;
	if (!twin_count)
		*answer = never;
	else if (!fewer && twin_count >= original_count)
		*answer = always;
	else if (!size ||
		 !whole) /* the kernel itself says how large they are; a part of the device */
		answer->fits = 0;
	else if (answer->fits > multiply(size, (uint64_t)twin_count))
		answer->fits = multiply(size, (uint64_t)twin_count);
	return true;
}

/* In the shape's context, which is current. */
static bool ask_here(const struct twin_shape *shape, driver_handle twin, struct answer *answer) {
	const struct driver *driver = driver_own();
	const int threads = (int)volume(shape->block);
	int original_blocks, twin_blocks;
	uint64_t all, own;
	bool fewer;

	if (!driver->count_blocks ||
	    driver->count_blocks(&original_blocks, shape->function, threads, shape->shared) != 0 ||
	    driver->count_blocks(&twin_blocks, twin, threads, shape->shared) != 0)
		return false;
	*answer = twin_blocks > 0 ? always : never;
	fewer = twin_blocks < original_blocks;
	if (twin_blocks <= 0 || (!fewer && !shape->cluster[0]))
		return true;
	if (!count_processors(shape->context, &all, &own))
		return false;
	answer->fits = multiply((uint64_t)twin_blocks, own);
	answer->beyond = multiply((uint64_t)original_blocks, all);
	return ask_clusters(shape, twin, fewer, own == all, answer);
}

static __attribute__((noinline)) bool ask(const struct twin_shape *shape, driver_handle twin,
					  struct answer *answer) {
	const struct driver *driver = driver_own();
	int saved = errno, mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle before = NULL;
	bool known = false;

	if (!driver || driver->ctx_get_current(&before) != 0)
		return false;
	driver->exchange_capture_mode(&mode);
	if (before == shape->context || driver->ctx_set_current(shape->context) == 0) {
		known = ask_here(shape, twin, answer);
		if (before != shape->context)
			driver->ctx_set_current(before);
	}
	driver->exchange_capture_mode(&mode);
	errno = saved;
	return known;
}

enum fit fit_ask(const struct twin_shape *shape, driver_handle twin) {
	const uint64_t blocks = volume(shape->grid);
	uint64_t key[KEY_WORDS];
	struct answer answer;

	if (shape->own || !shape->context || !make_key(key, shape, twin))
		return FIT_UNKNOWN;
	if (!look_up(key, &answer)) {
		if (!ask(shape, twin, &answer))
			return FIT_UNKNOWN;
		keep(key, &answer);
	}
	if (blocks <= answer.fits || (blocks > answer.beyond && !shape->cooperative))
		return FIT_YES;
	return answer.fits || answer.beyond != UINT64_MAX ? FIT_NOT_AT_ONCE : FIT_NO_REGISTERS;
}
