/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Names files and offsets of return addresses in stacks of a trace.
 *
 * Texts of return addresses: the file that is mapped there and the offset in it; whoever reads the
 * trace finds functions in that file. A process's mappings are read when it is first seen, as it
 * may be gone when its stacks come, kept for a second, as reading them may take longer than the
 * records of a whole turn, and read again for an address that is in none. All this reading together
 * gets a tenth of the time: stacks that come while there is none left, because a process has very
 * many mappings or stacks that lie, have no text.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "foreign.h"
#include "sink-private.h"

#define STACK_TEXT_MAX 200 /* of one address */
#define STACK_MAPPINGS_MAX 16384
#define STACK_FRESH_NS UINT64_C(1000000000)
#define STACK_PAUSE 9 /* times as long as reading took */

struct stack_mapping {
	struct foreign_mapping mapping;
	char *file; /* the last part of its path */
};

static void mappings_clear(struct stack_mappings *mappings) {
	for (size_t i = 0; i < mappings->n; i++)
		if (!i || mappings->list[i].mapping.path != mappings->list[i - 1].mapping.path)
			free(mappings->list[i].mapping.path);
	free(mappings->list);
	*mappings = (struct stack_mappings){};
}

void stack_cache_deinit(struct stack_cache *cache) {
	for (size_t i = 0; i < STACK_PROCESSES_MAX; i++)
		mappings_clear(&cache->processes[i]);
}

/* Adds code of a file. False: no room. */
static bool mappings_add(void *userdata, const struct foreign_mapping *mapping) {
	struct stack_mappings *mappings = userdata;
	const size_t n_max = 2 * mappings->n_max + 64;
	struct stack_mapping *last, *grown;

	if (!*mapping->path)
		return true;
	if (mappings->n == mappings->n_max) {
		grown = mappings->n_max < STACK_MAPPINGS_MAX
				? realloc(mappings->list, n_max * sizeof(*grown))
				: NULL;
		if (!grown)
			return false;
		mappings->n_max = n_max;
		mappings->list = grown;
	}
	last = &mappings->list[mappings->n];
	last->mapping = *mapping;
	last->mapping.path = mappings->n && !strcmp(last[-1].mapping.path, mapping->path)
				     ? last[-1].mapping.path
				     : strdup(mapping->path);
	if (!last->mapping.path)
		return false;
	last->file = strrchr(last->mapping.path, '/') ? strrchr(last->mapping.path, '/') + 1
						      : last->mapping.path;
	mappings->n++;
	return true;
}

/* Reads the mappings of code, which are in the order of addresses. False: there are none, as of a
 * process that is gone. */
static bool mappings_read(struct stack_mappings *mappings, pid_t pid) {
	struct stat status;
	char path[64];

	*mappings = (struct stack_mappings){ .pid = pid };
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	/* whose they are is asked behind that: a program with other rights that is executed
	 * meanwhile must not count as its user's */
	if (foreign_each_mapping(pid, mappings_add, mappings) || stat(path, &status) < 0)
		mappings_clear(mappings);
	else
		mappings->uid = status.st_uid; /* root, if it has other rights than its user */
	return mappings->n;
}

static const struct stack_mapping *mappings_find(const struct stack_mappings *mappings,
						 uint64_t address) {
	size_t low = 0, high = mappings->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (address >= mappings->list[middle].mapping.end)
			low = middle + 1;
		else
			high = middle;
	}
	return low < mappings->n && address >= mappings->list[low].mapping.start
		       ? &mappings->list[low]
		       : NULL;
}

/* What is known of a process's mappings; reads them if that is too little, and there is time. NULL:
 * nothing. */
static const struct stack_mappings *cache_get(struct stack_cache *cache, pid_t pid,
					      const uint64_t *addresses, size_t n) {
	struct stack_mappings *mappings = &cache->processes[0];
	uint64_t now = monotonic_now(), end;
	struct stack_mappings fresh;
	bool known;

	for (size_t i = 0; i < STACK_PROCESSES_MAX && mappings->pid != pid; i++)
		if (cache->processes[i].pid == pid || cache->processes[i].time < mappings->time)
			mappings = &cache->processes[i];
	known = mappings->pid == pid && now - mappings->time < STACK_FRESH_NS;
	for (size_t i = 0; i < n && known; i++)
		known = mappings_find(mappings, addresses[i]);
	if (!known && now >= cache->next) {
		if (mappings_read(&fresh, pid)) {
			mappings_clear(mappings);
			*mappings = fresh;
		}
		end = monotonic_now();
		if (mappings->pid == pid)
			mappings->time = end;
		cache->next = end + STACK_PAUSE * (end - now);
	}
	return mappings->pid == pid ? mappings : NULL;
}

void stack_foresee(struct stack_cache *cache, pid_t pid) {
	cache_get(cache, pid, NULL, 0);
}

size_t stack_describe(struct stack_cache *cache, pid_t pid, const uid_t *owner,
		      const uint64_t *addresses, size_t n, char *text, size_t size,
		      stack_file_fn file, void *userdata) {
	const struct stack_mappings *mappings = cache_get(cache, pid, addresses, n);
	size_t done = 0;

	for (size_t i = 0; i < n; i++) {
		const struct stack_mapping *mapping =
			mappings && (!owner || *owner == mappings->uid)
				? mappings_find(mappings, addresses[i])
				: NULL;
		char one[STACK_TEXT_MAX] = "";
		size_t length;

		if (mapping)
			snprintf(one, sizeof(one), "%.*s+0x%lx", STACK_TEXT_MAX - 24, mapping->file,
				 addresses[i] - mapping->mapping.start + mapping->mapping.offset);
		length = strlen(one) + 1;
		if (mapping && mapping->mapping.inode && mapping->mapping.path[0] == '/')
			file(userdata, pid, mapping->mapping.inode, mapping->mapping.path);
		/* each has its NUL, also one without a text, and those for which there is no more
		 * room */
		if (done + length + (n - i - 1) > size) {
			one[0] = '\0';
			length = 1;
		}
		memcpy(text + done, one, length);
		done += length;
	}
	return done;
}
