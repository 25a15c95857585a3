/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The totals of a map (map-internal.h): memory in which the values of ended processes live on.
 *
 * Where totals lie: in a memfd, so that the next daemon finds them as this one left them, even if
 * it was killed in the middle of folding.
 *
 *     page | undo | sums, latest, latest            of an array: these are sparse
 *     page | undo | entries of the table            of a hash map; grows
 *     page                                          of a ring
 *
 * What is folded must be in the totals once. A step is one element: its old bytes are kept in
 * `undo`, then it is changed, then fold_at goes on. All stores are this thread's, and a process
 * that is killed stops between two instructions, so the order of the program is all that matters,
 * and no CPU's. Who adopts the totals puts the bytes back if the step was under way, and goes on
 * with the instance at fold_at; an instance that was just finished is known by its id, until nobody
 * keeps it any more. An entry of a table that is new counts only once n_entries does.
 *
 * An array's newest instance is kept in one of two areas while the other one is being made; which
 * one counts is said at the end.
 */

#include "map-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "map-table.h"

#define TOTALS_MAGIC UINT64_C(0x31544f5450525047)
#define PAGE_SIZE 4096
#define TOTALS_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK)

/* What counts of a ring map: one store says which of two pairs, and the instance that is in it
 * since. */
struct totals_records {
	uint64_t written, lost;
};

struct map_totals_page {
	uint64_t magic;
	uint64_t map;
	uint64_t undo_size;
	/* the instance that is being folded */
	uint64_t fold_instance; /* its id; 0: none */
	uint64_t fold_at, fold_recency;
	uint32_t fold_newest;
	uint32_t into; /* area of its `latest`, 1 or 2; 0: it has none yet */
	uint64_t folded; /* id of the last one that is complete */
	uint64_t undo; /* fold_at + 1: what is in the undo area was there before */
	uint64_t undo_entry; /* of a table */
	uint64_t recency;
	uint64_t latest; /* area that counts, 1 or 2; 0: none */
	uint64_t n_entries, capacity; /* of a table */
	uint64_t removed; /* id of the ring that went last, twice, and which of `records` counts */
	struct totals_records records[2];
};

_Static_assert(sizeof(struct map_totals_page) <= PAGE_SIZE, "a page");

/* The compiler keeps the order of what is before and behind. */
static inline void in_order(void) {
	__asm__ volatile("" ::: "memory");
}

struct map_totals *map_totals_free(struct map_totals *totals) {
	if (!totals)
		return NULL;
	map_table_free(totals->table);
	if (totals->page)
		munmap(totals->page, totals->size);
	if (totals->fd >= 0)
		close(totals->fd);
	if (totals->keeper && totals->slot)
		totals->keeper->drop(totals->slot, totals->keeper->userdata);
	free(totals);
	return NULL;
}

static size_t area_size(const struct map *map) {
	return map_round_up(map_n_elements(map) * map_scratch_size(map), PAGE_SIZE);
}

/* Of the whole memfd, but for the entries of a table. */
static size_t totals_size(const struct map *map, size_t undo) {
	const uint32_t kind = map->spec.layout.kind;

	if (kind == MAP_KIND_RING)
		return PAGE_SIZE;
	return PAGE_SIZE + undo + (kind == MAP_KIND_HASH ? 0 : 3 * area_size(map));
}

/* Bytes that one step may change. */
static size_t undo_size(const struct map *map) {
	const uint32_t kind = map->spec.layout.kind;

	if (kind == MAP_KIND_RING)
		return 0;
	return map_round_up(kind == MAP_KIND_HASH ? map_hash_entry_size(map)
						  : map_scratch_size(map),
			    PAGE_SIZE);
}

/* The memory becomes `size` bytes, perhaps elsewhere. 0 or -errno. */
static int totals_resize(struct map_totals *totals, size_t size) {
	void *memory;

	if (ftruncate(totals->fd, (off_t)size) < 0)
		return -errno;
	memory = totals->page ? mremap(totals->page, totals->size, size, MREMAP_MAYMOVE)
			      : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, totals->fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	totals->page = memory;
	totals->size = size;
	return 0;
}

static unsigned char *totals_undo(const struct map_totals *totals) {
	return (unsigned char *)totals->page + PAGE_SIZE;
}

static unsigned char *totals_area(const struct map *map, uint64_t number) {
	return totals_undo(map->totals) + map->totals->page->undo_size + number * area_size(map);
}

/* A map_table_resize. */
static void *totals_resize_table(size_t bytes, void *userdata) {
	struct map_totals *totals = userdata;
	const size_t before = PAGE_SIZE + totals->page->undo_size;

	if (totals->size < before + bytes &&
	    totals_resize(totals, map_round_up(before + bytes, PAGE_SIZE)) < 0)
		return NULL;
	return (unsigned char *)totals->page + before;
}

/* What is in the memory becomes what map.c knows. 0 or negative errno. */
static int totals_bind(struct map *map) {
	struct map_totals *totals = map->totals;
	const struct map_totals_page *page = totals->page;
	int r = 0;

	if (map->spec.layout.kind == MAP_KIND_HASH) {
		r = map_hash_totals_table(map, &(struct map_table_memory){ totals_resize_table,
									   totals });
		if (!r && page->n_entries)
			r = map_table_adopt(totals->table, (uint32_t)page->n_entries,
					    (uint32_t)page->capacity);
	} else if (map->spec.layout.kind != MAP_KIND_RING) {
		totals->sums = totals_area(map, 0);
		totals->latest = page->latest ? totals_area(map, page->latest) : NULL;
	}
	totals->recency = totals->page->recency;
	return r;
}

static struct map_totals *totals_alloc(const struct map *map, int fd) {
	struct map_totals *totals = calloc(1, sizeof(*totals));

	if (!totals) {
		close(fd);
		return NULL;
	}
	totals->fd = fd;
	totals->keeper = map_accounts_keeper(map->accounts);
	return totals;
}

/* Has somebody keep them, who perhaps had no room the last time. */
static void totals_keep(const struct map *map) {
	struct map_totals *totals = map->totals;

	if (!totals->slot && totals->keeper)
		totals->slot =
			totals->keeper->keep_totals(map, totals->fd, totals->keeper->userdata);
}

int map_totals_make(struct map *map) {
	const size_t undo = undo_size(map);
	struct map_totals *totals;
	int fd, r;

	if (map->totals)
		return 0;
	fd = memfd_create("gpuprobe-totals", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	totals = fd < 0 ? NULL : totals_alloc(map, fd);
	if (!totals)
		return -ENOMEM;
	r = totals_resize(totals, totals_size(map, undo));
	if (!r && fcntl(fd, F_ADD_SEALS, TOTALS_SEALS) < 0)
		r = -errno;
	if (!r) {
		*totals->page = (struct map_totals_page){ .magic = TOTALS_MAGIC,
							  .map = map->id,
							  .undo_size = undo };
		map->totals = totals;
		r = totals_bind(map);
	}
	if (r) {
		map->totals = map_totals_free(totals);
		return -ENOMEM;
	}
	map_totals_fold_begin(map);
	totals_keep(map);
	return 0;
}

/* ---- folding ---- */

void map_totals_fold_begin(struct map *map) {
	struct map_totals_page *page;

	if (!map->totals || !map->fold.instance)
		return;
	page = map->totals->page;
	page->undo = 0;
	page->into = 0;
	page->fold_recency = map->fold.recency;
	page->fold_newest = map->fold.newest;
	in_order();
	page->fold_at = 0;
	in_order();
	page->fold_instance = map->fold.instance->id;
	in_order();
	totals_keep(map);
}

int map_totals_fold_latest(struct map *map) {
	struct map_totals *totals = map->totals;
	const uint32_t into = totals->page->latest == 1 ? 2 : 1;
	unsigned char *area = totals_area(map, into);

	/* what was the newest before the last one is in there */
	if (fallocate(totals->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      area - (unsigned char *)totals->page, (off_t)area_size(map)) < 0)
		return -errno;
	in_order();
	totals->page->into = into;
	map->fold.latest = area;
	return 0;
}

void map_totals_step_begin(struct map *map, const void *bytes, size_t size, uint64_t entry) {
	struct map_totals_page *page = map->totals->page;

	if (size)
		memcpy(totals_undo(map->totals), bytes, size);
	page->undo_entry = entry;
	in_order();
	page->fold_at = map->fold.at;
	in_order();
	page->undo = map->fold.at + 1;
	in_order();
}

void map_totals_step_end(struct map *map) {
	struct map_totals_page *page = map->totals->page;

	in_order();
	if (map->totals->table) {
		page->capacity = map_table_capacity(map->totals->table);
		in_order();
		page->n_entries = map_table_count(map->totals->table);
	}
	in_order();
	page->fold_at = map->fold.at + 1;
	in_order();
}

void map_totals_fold_end(struct map *map, bool newest) {
	struct map_totals *totals = map->totals;
	struct map_totals_page *page;

	if (!totals)
		return;
	page = totals->page;
	if (newest) {
		totals->latest = map->fold.latest;
		totals->recency = map->fold.recency;
		page->recency = totals->recency;
		page->latest = totals->latest ? page->into : 0;
	}
	in_order();
	page->folded = map->fold.instance->id;
	in_order();
	page->fold_instance = 0;
	in_order();
}

void map_totals_ring_gone(struct map *map, uint64_t instance, uint64_t written, uint64_t lost) {
	struct map_totals_page *page;
	uint64_t which;

	map->written = written;
	map->lost = lost;
	if (map_totals_make(map))
		return; /* the next daemon will not know of these */
	totals_keep(map);
	page = map->totals->page;
	which = !(page->removed & 1);
	page->records[which] = (struct totals_records){ written, lost };
	in_order();
	page->removed = instance << 1 | which;
	in_order();
}

/* ---- adopting ---- */

/* Whether the memfd is one of a map like this. */
static bool totals_valid(const struct map *map, int fd, size_t *sizep) {
	const int seals = fcntl(fd, F_GET_SEALS);
	struct map_totals_page page;
	struct stat status;
	size_t size;

	if (seals < 0 || (seals & TOTALS_SEALS) != TOTALS_SEALS || fstat(fd, &status) < 0 ||
	    pread(fd, &page, sizeof(page), 0) != sizeof(page))
		return false;
	*sizep = (size_t)status.st_size;
	size = totals_size(map, undo_size(map));
	return page.magic == TOTALS_MAGIC && page.map == map->id &&
	       page.undo_size == undo_size(map) && *sizep >= size && page.latest <= 2 &&
	       page.into <= 2 && page.n_entries <= page.capacity &&
	       page.capacity <= UINT32_MAX / 2 &&
	       (!page.capacity || page.capacity * map_hash_entry_size(map) <= *sizep - size);
}

/* Puts back what a step has changed that was under way. */
static void totals_undo_step(struct map *map) {
	struct map_totals_page *page = map->totals->page;
	const unsigned char *undo = totals_undo(map->totals);
	const uint64_t at = page->fold_at;

	if (!page->fold_instance || page->undo != at + 1)
		return;
	if (map->spec.layout.kind != MAP_KIND_HASH)
		memcpy(totals_area(map, 0) + at * map_scratch_size(map), undo,
		       map_scratch_size(map));
	else if (page->undo_entry < page->n_entries)
		memcpy((unsigned char *)totals_undo(map->totals) + page->undo_size +
			       page->undo_entry * map_hash_entry_size(map),
		       undo, map_hash_entry_size(map));
	in_order();
	page->undo = 0;
}

int map_adopt_totals(struct map *map, int fd, uint32_t slot) {
	struct map_totals *totals;
	size_t size = 0;
	int r;

	if (map->totals || map->spec.layout.place == MAP_PLACE_KERNEL ||
	    !totals_valid(map, fd, &size)) {
		close(fd);
		return MAP_E_INVALID;
	}
	totals = totals_alloc(map, fd);
	if (!totals)
		return -ENOMEM;
	map->totals = totals;
	r = totals_resize(totals, size);
	if (!r) {
		totals_undo_step(map);
		r = totals_bind(map);
	}
	if (!r)
		r = map_charge_totals(map);
	if (r) {
		map->totals = map_totals_free(totals);
		return r < 0 ? r : -ENOMEM;
	}
	totals->slot = slot;
	map->retained = true;
	if (map->spec.layout.kind == MAP_KIND_RING) {
		map->written = totals->page->records[totals->page->removed & 1].written;
		map->lost = totals->page->records[totals->page->removed & 1].lost;
	}
	return 0;
}

uint32_t map_totals_slot(const struct map *map) {
	return map->totals ? map->totals->slot : 0;
}

bool map_totals_have(const struct map *map, uint64_t instance) {
	const struct map_totals_page *page = map->totals ? map->totals->page : NULL;

	if (!page || !instance || page->fold_instance == instance)
		return false;
	return page->folded == instance || page->removed >> 1 == instance;
}

bool map_totals_resume(struct map *map, struct map_instance *instance) {
	struct map_totals_page *page = map->totals ? map->totals->page : NULL;

	if (!page || !instance->id || page->fold_instance != instance->id)
		return false;
	map->fold = (struct map_fold){
		.instance = instance,
		.at = page->fold_at,
		.recency = page->fold_recency,
		.newest = page->fold_newest,
		.latest = page->into ? totals_area(map, page->into) : NULL,
	};
	map->folds++;
	return true;
}
