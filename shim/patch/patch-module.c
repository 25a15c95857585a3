/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The list of the modules that the process has loaded, for the sanitizer engine (patch-module.h).
 * Callbacks of the driver add to it and mark entries under a lock of its own.
 */

#include "patch-module.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/patch.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around the list, not what is in it */
static struct patch_module_entry *modules;
static uint32_t last_number;

struct patch_module_entry *patch_module_add(driver_handle context, driver_handle module,
					    driver_handle library, const void *cubin, size_t size) {
	struct patch_module_entry *entry = calloc(1, sizeof(*entry));

	patch_module_mark(NULL, module, NULL, PATCH_MODULE_LOADED, PATCH_MODULE_GONE);
	if (!entry || !patch_names_read(&entry->names, cubin, size)) {
		free(entry);
		return NULL;
	}
	entry->context = context;
	entry->module = module;
	entry->library = library;
	pthread_mutex_lock(&lock);
	entry->number = ++last_number;
	entry->next = modules;
	__atomic_store_n(&modules, entry, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return entry;
}

void patch_module_mark(driver_handle context, driver_handle module, driver_handle library,
		       enum patch_module_state from, enum patch_module_state to) {
	pthread_mutex_lock(&lock);
	for (struct patch_module_entry *entry = modules; entry; entry = entry->next)
		if ((!context || entry->context == context) &&
		    (!module || entry->module == module) &&
		    (!library || entry->library == library) &&
		    __atomic_load_n(&entry->state, __ATOMIC_RELAXED) == (int)from)
			__atomic_store_n(&entry->state, to, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

struct patch_module_entry *patch_module_first(void) {
	return __atomic_load_n(&modules, __ATOMIC_ACQUIRE);
}

bool patch_module_is_loaded(const struct patch_module_entry *entry) {
	return __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) == PATCH_MODULE_LOADED;
}

struct patch_module_entry *patch_module_by_number(uint32_t number) {
	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		if (entry->number == number)
			return entry;
	return NULL;
}

struct patch_module_entry *patch_module_take_gone(void) {
	struct patch_module_entry *gone = NULL;

	pthread_mutex_lock(&lock);
	for (struct patch_module_entry **link = &modules; *link; link = &(*link)->next) {
		if (__atomic_load_n(&(*link)->state, __ATOMIC_RELAXED) != PATCH_MODULE_GONE)
			continue;
		gone = *link;
		__atomic_store_n(link, gone->next, __ATOMIC_RELEASE);
		break;
	}
	pthread_mutex_unlock(&lock);
	return gone;
}

void patch_module_free(struct patch_module_entry *entry) {
	patch_names_free(&entry->names);
	free(entry->attachments);
	free(entry->kernel_ids);
	free(entry);
}

static size_t record_size(const struct patch_module_entry *entry) {
	return (sizeof(struct patch_module) + entry->names.size + 7) & ~(size_t)7;
}

static bool is_listed(const struct patch_module_entry *entry,
		      const struct patch_module_entry *only) {
	return patch_module_is_loaded(entry) && !entry->names.left &&
	       (only ? entry == only : !entry->asked);
}

/* Adds the record of a module at a place of a list; returns where the next one goes. */
static size_t add_record(char *list, size_t at, const struct patch_module_entry *entry) {
	const struct patch_module record = {
		.size = (uint32_t)record_size(entry),
		.number = entry->number,
		.name_count = entry->names.count,
	};

	memcpy(list + at, &record, sizeof(record));
	memcpy(list + at + sizeof(record), entry->names.text, entry->names.size);
	return at + record.size;
}

void *patch_module_list(const struct patch_module_entry *only, size_t *size, bool *left) {
	const struct patch_module_entry *first = patch_module_first();
	size_t total = 0, at = 0;
	char *list;

	*left = false;
	for (const struct patch_module_entry *entry = first; entry; entry = entry->next)
		if (is_listed(entry, only))
			total += record_size(entry);
	if (total > PATCH_NAMES_SIZE_MAX)
		total = PATCH_NAMES_SIZE_MAX;
	*size = total;
	list = total ? calloc(1, total) : NULL;
	if (!list)
		return NULL;
	for (int patched = 1; patched >= 0;
	     patched--) /* what is patched comes first: it is to stay so */
		for (const struct patch_module_entry *entry = first; entry; entry = entry->next) {
			/* what was unloaded since leaves room; what was marked since was counted */
			if ((entry->patched != 0) != patched || !is_listed(entry, only))
				continue;
			if (record_size(entry) <= total - at)
				at = add_record(list, at, entry);
			else
				*left = true;
		}
	*size = at;
	if (at)
		return list;
	free(list);
	return NULL;
}
