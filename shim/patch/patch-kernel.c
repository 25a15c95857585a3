/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of library kernels that were not launched yet (patch-kernel.h), for the sanitizer
 * engine.
 *
 * The table is read by launches without a lock: entries are added to chains and never taken off.
 * One whose kernel was launched is used again in its chain.
 */

#include "patch-kernel.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define BUCKETS 1024

struct entry {
	struct entry *next; /* of the bucket; stays */
	driver_handle kernel; /* NULL: not in use */
	driver_handle library; /* only for who holds the lock */
};

static pthread_mutex_t lock =
	PTHREAD_MUTEX_INITIALIZER; /* around all but reading; held for no call */
static struct entry *buckets[BUCKETS];

static struct entry **bucket_of(driver_handle kernel) {
	return &buckets[(uint64_t)(uintptr_t)kernel * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

/* The entry of a kernel, or (NULL) one of the chain that is not in use. */
static struct entry *find(struct entry *const *bucket, driver_handle kernel) {
	struct entry *entry = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);

	while (entry && __atomic_load_n(&entry->kernel, __ATOMIC_RELAXED) != kernel)
		entry = entry->next;
	return entry;
}

void patch_kernel_got(driver_handle library, driver_handle kernel) {
	struct entry **bucket = bucket_of(kernel), *entry;

	pthread_mutex_lock(&lock);
	entry = find(bucket, kernel);
	if (!entry)
		entry = find(bucket, NULL);
	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (entry) {
			entry->next = *bucket;
			__atomic_store_n(bucket, entry, __ATOMIC_RELEASE);
		}
	}
	if (entry) {
		entry->library = library;
		__atomic_store_n(&entry->kernel, kernel, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
}

void patch_kernel_forget(driver_handle library) {
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct entry *entry = buckets[i]; entry; entry = entry->next)
			if (entry->library == library)
				__atomic_store_n(&entry->kernel, NULL, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

bool patch_kernel_take(driver_handle kernel) {
	struct entry *entry = kernel ? find(bucket_of(kernel), kernel) : NULL;

	return entry && __atomic_compare_exchange_n(&entry->kernel, &kernel, NULL, false,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
