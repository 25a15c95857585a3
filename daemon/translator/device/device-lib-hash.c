/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the device library for hash maps; it runs on the GPU.
 *
 * Hash maps, as proto/map-layout.h lays them out. Nobody waits for anybody, and these hold however
 * threads interleave (test-hash-schedules.c tries it):
 *
 *   - One element a key. A slot that is to become one is PENDING first, with its key in it. Only
 *     who knows that it is PENDING, then fences (sequentially consistent), then looks through the
 *     key's whole path and finds neither an element of the key nor a second PENDING slot makes it
 *     LIVE. Of two slots of one key, take those who made them LIVE and the later of their two
 *     fences: behind it, the other slot is seen PENDING or LIVE (or is gone again), and one of the
 *     two is killed instead. It is seen, because the slots before it were not EMPTY when it was
 *     taken and never will be, and `overflow` was set before if it is beyond the window.
 *   - Of several PENDING slots of a key the first on the path stays, the others are KILLED, by
 *     whoever sees them. Anybody who wants to insert the key and finds one PENDING slot completes
 *     it, so that one that stalls holds nobody up. Its writer learns from its word what became of
 *     it: KILLED is for the writer alone to make DEAD; anything else means that it has been LIVE.
 *   - At most max_entries elements, and full only where they are that many. `taken` is raised
 *     before a slot is made LIVE and lowered if that fails, `count` follows once it is. Taken but
 *     not full means that somebody is between the two: then it is tried again, HASH_PATIENT times.
 *   - A miss is one: a key changes its slot by being deleted first.
 *   - Who inserts into a full LRU map deletes another element, and takes over its room: `count` is
 *     lowered, `taken` is not. Of HASH_SAMPLE slots it is the element with the lowest `used`, which
 *     a look-up or an update sets to the map's clock plus 1; the clock goes on by 2 with each slot
 *     that is taken, which is that slot's first `used`. In a large map `used` only is a part of it,
 *     so that it is not written each time. To anybody else that is a deletion like others.
 *
 * To keep threads that insert one key at once from filling its path, a slot bears its tag from the
 * moment that it is taken; who sees one with its own tag looks again some times before it takes
 * another or completes that one.
 *
 * No L1 cache answers loads of the GPU's scope. A load behind a branch on what an earlier one gave
 * is performed after it, and one of 16 aligned bytes at once, as GPUs do both. Where nobody
 * deletes, an element stays: a hit may come from an L1 cache, but a miss is looked at again.
 *
 * An update of an element writes in place, as of arrays. If the element is deleted meanwhile, it
 * may write into the slot's next one, like any other holder of a pointer to the value.
 */

#include "proto/map-layout.h"

#ifdef __NVPTX__
#include "device-lib-hash-gpu.h"
#endif

#ifndef HASH_POLITE
#define HASH_POLITE 64 /* looks before one meddles with what another is about to complete */
#define HASH_PATIENT 4096 /* looks before it is full because others are in between */
#endif
#define HASH_SAMPLE 64 /* slots that are looked at for an element to evict */

/* of a slot's word: what tells an element's */
#define HASH_LIVE_MASK ~(((1ull << 32) - 1) & ~MAP_SLOT_STATE_MASK)

enum {
	HASH_NOEXIST = 1,
	HASH_EXIST = 2
};
enum {
	HASH_ENOENT = 2,
	HASH_E2BIG = 7,
	HASH_EEXIST = 17,
	HASH_ENODEV = 19,
	HASH_EINVAL = 22
};

/* What is constant of a map, as its program has it. */
struct hash {
	u64 base; /* of struct map_hash */
	u64 mask; /* capacity - 1 */
	u64 stride;
	u32 group_bits; /* see map_hash_group_bits() */
	u32 key_words;
	u32 shards;
	u32 value_stride;
	u32 max_entries;
	_Bool small; /* the tag is the key */
	_Bool immortal; /* nobody deletes */
	_Bool system; /* in host memory */
	u32 lru; /* 0: none; else `used` is the clock without so many low bits, less 1 */
};

/* A value to store. */
struct hash_value {
	const char *data;
	u32 size;
	_Bool aligned; /* to 8 bytes; and the size is a multiple of 8 */
};

/* A slot and its word, or address 0. */
struct slot {
	u64 address, word;
};

/* What a search finds. No value is at 0, but the compiler does not know that. */
struct element {
	struct slot slot;
	u64 value; /* its address, or 0 */
	_Bool found;
};

/* What is on a key's path. */
struct path {
	struct slot live;
	struct slot pending; /* with the key */
	struct slot free; /* the first that can be taken */
	_Bool twin; /* somebody writes one with the same tag */
	_Bool busy; /* not all others are elements */
	_Bool whole; /* it ended where the map does, not the window */
};

static inline u64 with_state(u64 word, u64 state) {
	return (word & ~MAP_SLOT_STATE_MASK) | state;
}

/*
 * Where a key's path begins (the lower half), and what tells it from others there (the upper half).
 * Keys that differ in the last word's low bits only, as numbers in a row do, are neighbours within
 * their group, and the groups are spread evenly, as multiples of the golden ratio are. All other
 * bits move them together, to anywhere.
 */
static inline u64 hash_key(const struct hash *h, const u64 *key) {
	u64 last = key[h->key_words - 1], hash = 0;
	u32 group = (u32)((last & h->mask) >> h->group_bits) * 0x9e3779b9u;
	u32 position = (u32)((u64)group * (h->mask + 1) >> 32), within = (1u << h->group_bits) - 1;

	for (u32 i = 0; i < h->key_words - 1; i++)
		hash = map_hash_mix(hash, key[i]);
	hash = map_hash_mix(hash, last >> __builtin_popcountll(h->mask));
	hash = map_hash_mix(hash, 0);
	position += (u32)hash;
	position = (position & ~within) | ((position + (u32)last) & within);
	return ((hash >> 32) + last) << 32 | position;
}

static inline u64 hash_tag(const struct hash *h, const u64 *key, u64 hash) {
	return h->small ? key[0] << 32 : hash & 0xffffffff00000000ull;
}

/*
 * Slot number n of a key's path: the same one of each group, from group to group; then the next one
 * of each, until it has been to all slots of the map.
 */
static inline u64 hash_slot(const struct hash *h, u64 hash, u64 n) {
	u64 groups = (h->mask + 1) >> h->group_bits;
	u64 position = (u32)hash + (n << h->group_bits) + n / groups;

	return h->base + sizeof(struct map_hash) + (position & h->mask) * h->stride;
}

/* Whether a key's path has a slot number n. */
static inline _Bool is_on_path(const struct hash *h, u64 n) {
	return n <= h->mask &&
	       (n < MAP_HASH_WINDOW || load(h, h->base + offsetof(struct map_hash, overflow)));
}

/* Compares the words of a key behind the first. */
static inline _Bool is_key(const struct hash *h, u64 slot, const u64 *key) {
	for (u32 i = 1; i < h->key_words; i++)
		if (load(h, slot + 8 + 8 * i) != key[i])
			return 0;
	return 1;
}

/* Whether a slot is what it was, so that what was read of its key is one key. */
static inline _Bool is_same(const struct hash *h, struct slot slot) {
	return h->key_words == 1 || load(h, slot.address) == slot.word;
}

static inline u64 value_of(const struct hash *h, u64 slot) {
	u64 value = slot + 8 + 8 * h->key_words;

	return h->shards > 1 ? value + (shard() & (h->shards - 1)) * h->value_stride : value;
}

/* When a slot's element was last used, of an LRU map. */
static inline u64 used_of(const struct hash *h, u64 slot) {
	return slot + 8 + 8 * h->key_words + (u64)h->shards * h->value_stride;
}

/* An element is used. */
static inline void touch(const struct hash *h, u64 slot) {
	u64 now;

	if (!h->lru)
		return;
	now = (load(h, h->base + offsetof(struct map_hash, clock)) + 1) >> (h->lru - 1);
	if (load(h, used_of(h, slot)) != now)
		store(h, used_of(h, slot), now);
}

/* Stores a value in pieces of 8 bytes, the last one with zeros. */
static inline void store_value(const struct hash *h, u64 to, const struct hash_value *value) {
	for (u32 i = 0; i < value->size; i += 8) {
		u64 piece = 0;

		if (value->aligned)
			piece = *(const u64 *)(value->data + i);
		else
			for (u32 n = 0; n < 8 && i + n < value->size; n++)
				piece |= (u64)(unsigned char)value->data[i + n] << 8 * n;
		store(h, to + i, piece);
	}
}

/*
 * The element of a key. `strong`: not from an L1 cache. Most are where their path begins: nothing
 * is between the first load and what comes after a hit.
 */
static inline struct element find(const struct hash *h, const u64 *key, _Bool strong) {
	u64 hash = hash_key(h, key), live = hash_tag(h, key, hash) | MAP_SLOT_LIVE, first;
	struct slot slot = { .address = hash_slot(h, hash, 0) };
	u32 n = 0;

	load_pair(h, slot.address, strong, &slot.word, &first);
	for (;;) {
		if (__builtin_expect((slot.word & HASH_LIVE_MASK) == live, 1) &&
		    (h->small || (first == key[0] && is_key(h, slot.address, key)))) {
			if (h->small || h->immortal || is_same(h, slot))
				return (struct element){ slot, value_of(h, slot.address), 1 };
			/* no longer the one that was compared: once more */
		} else if (slot.word != 0 && is_on_path(h, n + 1)) {
			n++;
		} else if (!strong) {
			strong = 1;
			n = 0;
		} else {
			return (struct element){ 0 };
		}
		slot.address = hash_slot(h, hash, n);
		load_pair(h, slot.address, strong, &slot.word, &first);
	}
}

/* Looks through a key's path, up to its element if there is one. Kills PENDING slots but one. */
static inline void look(const struct hash *h, const u64 *key, u64 hash, u64 tag,
			struct path *path) {
	u64 n;

	*path = (struct path){ 0 };
	for (n = 0; is_on_path(h, n); n++) {
		struct slot slot = { .address = hash_slot(h, hash, n) };
		u64 state, first;
		_Bool same;

		load_pair(h, slot.address, 1, &slot.word, &first);
		state = slot.word & MAP_SLOT_STATE_MASK;
		same = (slot.word ^ tag) >> 32 == 0;
		if ((state == MAP_SLOT_EMPTY || state == MAP_SLOT_DEAD) && !path->free.address)
			path->free = slot;
		if (state == MAP_SLOT_EMPTY)
			return;
		path->busy |= state != MAP_SLOT_LIVE;
		path->twin |= same && state == MAP_SLOT_BUSY;
		if (!same || (state != MAP_SLOT_LIVE && state != MAP_SLOT_PENDING))
			continue;
		if (!h->small) {
			if (first != key[0] || !is_key(h, slot.address, key))
				continue;
			if (!is_same(h, slot)) {
				n--; /* no longer the one that was compared */
				continue;
			}
		}
		if (state == MAP_SLOT_LIVE) {
			path->live = slot;
			return;
		}
		if (!path->pending.address)
			path->pending = slot;
		else if (compare_and_swap(h, slot.address, slot.word,
					  with_state(slot.word, MAP_SLOT_KILLED)) != slot.word)
			n--;
	}
	path->whole = n > h->mask;
}

/* Writes key and value to a slot that was free. Returns it PENDING, or with address 0. */
static inline struct slot take(const struct hash *h, struct slot slot, u64 tag, const u64 *key,
			       const struct hash_value *value) {
	u64 word = (slot.word & 0xffffffffull & ~MAP_SLOT_STATE_MASK) + MAP_SLOT_VERSION_ONE;

	word = tag | (word & 0xffffffffull) | MAP_SLOT_BUSY;
	if (compare_and_swap(h, slot.address, slot.word, word) != slot.word) {
		slot.address = 0;
		return slot;
	}
	for (u32 i = 0; i < h->key_words; i++)
		store(h, slot.address + 8 + 8 * i, key[i]);
	if (h->shards > 1)
		for (u64 i = 0; i < (u64)h->shards * h->value_stride; i += 8)
			store(h, slot.address + 8 + 8 * h->key_words + i, 0);
	store_value(h, value_of(h, slot.address), value);
	if (h->lru)
		store(h, used_of(h, slot.address),
		      (add(h, h->base + offsetof(struct map_hash, clock), 2) + 2) >> (h->lru - 1));
	slot.word = with_state(word, MAP_SLOT_PENDING);
	fence_all(h);
	store(h, slot.address, slot.word);
	return slot;
}

/* Gives a PENDING slot of one's own back. False: it has become an element. */
static inline _Bool retire(const struct hash *h, struct slot own) {
	u64 dead = with_state(own.word, MAP_SLOT_DEAD);
	u64 word = compare_and_swap(h, own.address, own.word, dead);

	if (word == own.word)
		return 1;
	if (word != with_state(own.word, MAP_SLOT_KILLED))
		return 0;
	store(h, own.address, dead);
	return 1;
}

enum room {
	ROOM_TAKEN,
	ROOM_LATER,
	ROOM_FULL
};

/* Takes room for one element more. */
static inline enum room take_room(const struct hash *h) {
	u64 room = load(h, h->base);

	/* `count` may be below 0 for a moment */
	if ((int)(room >> 32) >= (int)h->max_entries)
		return ROOM_FULL;
	if ((u32)room >= h->max_entries)
		return ROOM_LATER;
	if ((u32)add(h, h->base, 1) < h->max_entries)
		return ROOM_TAKEN;
	add(h, h->base, -1ull);
	return ROOM_LATER;
}

/* Whether a slot that is an element's has this key. */
static inline _Bool has_key(const struct hash *h, struct slot slot, u64 tag, const u64 *key) {
	if ((slot.word ^ tag) >> 32 != 0)
		return 0;
	return h->small || (load(h, slot.address + 8) == key[0] && is_key(h, slot.address, key));
}

/*
 * Deletes the element of a sample that was used least recently, and keeps its room. False: there is
 * none, or somebody was faster. Another thread may have inserted the key meanwhile: not that one.
 */
static inline _Bool evict(const struct hash *h, const u64 *key, u64 hash, u64 tag) {
	struct slot victim = { 0 };
	u64 oldest = 0;

	for (u64 n = 0; n <= h->mask && (n < HASH_SAMPLE || !victim.address); n++) {
		struct slot slot = { .address = hash_slot(h, hash, n) };
		u64 used;

		slot.word = load(h, slot.address);
		if ((slot.word & MAP_SLOT_STATE_MASK) != MAP_SLOT_LIVE)
			continue;
		used = load(h, used_of(h, slot.address));
		if ((!victim.address || used < oldest) && !has_key(h, slot, tag, key)) {
			victim = slot;
			oldest = used;
		}
	}
	if (!victim.address ||
	    compare_and_swap(h, victim.address, victim.word,
			     with_state(victim.word, MAP_SLOT_DEAD)) != victim.word)
		return 0;
	add(h, h->base, -(1ull << 32));
	return 1;
}

/* Makes a PENDING slot LIVE, for which room is taken. False: it is no longer what it was. */
static inline _Bool complete(const struct hash *h, struct slot slot) {
	_Bool done = compare_and_swap(h, slot.address, slot.word,
				      with_state(slot.word, MAP_SLOT_LIVE)) == slot.word;

	add(h, h->base, done ? 1ull << 32 : -1ull);
	return done;
}

/* Somebody's insertion of a key. */
struct insertion {
	struct slot own; /* PENDING when it was last seen */
	struct slot known; /* PENDING, since before the last fence */
	_Bool full; /* the map was, before the last look, and will be */
	u32 looks;
};

/* What an insertion goes on with, if it has no result: look again, at once or later. */
enum {
	HASH_NOW = 1,
	HASH_LATER = 2
};

/* There is one PENDING slot with the key. */
static inline long insert_pending(const struct hash *h, struct insertion *in, struct slot slot,
				  const u64 *key, u64 hash, u64 tag) {
	enum room room;

	if (slot.address != in->known.address || slot.word != in->known.word) {
		if (!in->own.address && in->looks < HASH_POLITE)
			return HASH_LATER;
		in->known = slot;
		return HASH_NOW;
	}
	room = take_room(h);
	if (h->lru && (room == ROOM_FULL || (room == ROOM_LATER && in->looks >= HASH_POLITE)))
		room = evict(h, key, hash, tag)   ? ROOM_TAKEN
		       : in->looks < HASH_PATIENT ? ROOM_LATER
						  : ROOM_FULL;
	if (room == ROOM_TAKEN) {
		if (complete(h, slot) && slot.address == in->own.address)
			return 0;
	} else if (room == ROOM_LATER && in->looks < HASH_PATIENT) {
		return HASH_LATER;
	} else {
		/* that it is PENDING until now means that there is no element */
		u64 gone = with_state(slot.word, slot.address == in->own.address ? MAP_SLOT_DEAD
										 : MAP_SLOT_KILLED);

		if (compare_and_swap(h, slot.address, slot.word, gone) == slot.word)
			return -HASH_E2BIG;
	}
	return HASH_NOW;
}

/* There is neither an element with the key nor a PENDING slot. */
static inline long insert_new(const struct hash *h, struct insertion *in, const struct path *path,
			      u64 tag, const u64 *key, const struct hash_value *value) {
	if (in->full)
		return -HASH_E2BIG;
	if (h->immortal && (int)(load(h, h->base) >> 32) >= (int)h->max_entries) {
		in->full = 1;
		return HASH_NOW;
	}
	if (path->twin && in->looks < HASH_POLITE)
		return HASH_LATER; /* it may be the same key */
	if (path->free.address) {
		in->own = in->known = take(h, path->free, tag, key, value);
		return HASH_NOW;
	}
	if (path->busy && in->looks < (path->whole ? HASH_PATIENT : HASH_POLITE))
		return HASH_LATER;
	if (path->whole)
		return -HASH_E2BIG;
	store(h, h->base + offsetof(struct map_hash, overflow), 1);
	return HASH_NOW;
}

static inline long update(const struct hash *h, const u64 *key, const struct hash_value *value,
			  u64 flags) {
	u64 hash = hash_key(h, key), tag = hash_tag(h, key, hash);
	struct insertion in = { 0 };
	struct path path;
	long r;

	for (;; in.looks++) {
		if (in.known.address)
			fence_all(h);
		look(h, key, hash, tag, &path);
		if (in.own.address &&
		    (path.live.address || load(h, in.own.address) != in.own.word)) {
			if (!retire(h, in.own))
				return 0;
			in.own.address = in.known.address = 0;
			if (!path.live.address)
				continue;
		}
		if (path.live.address) {
			if (flags == HASH_NOEXIST)
				return -HASH_EEXIST;
			store_value(h, value_of(h, path.live.address), value);
			touch(h, path.live.address);
			return 0;
		}
		if (flags == HASH_EXIST)
			return -HASH_ENOENT;
		if (path.pending.address)
			r = insert_pending(h, &in, path.pending, key, hash, tag);
		else
			r = insert_new(h, &in, &path, tag, key, value);
		if (r == HASH_LATER)
			look_again();
		else if (r != HASH_NOW)
			return r;
	}
}

static inline long erase(const struct hash *h, const u64 *key) {
	struct element element;
	struct slot slot;

	do {
		element = find(h, key, 1);
		if (!element.found)
			return -HASH_ENOENT;
		slot = element.slot;
	} while (compare_and_swap(h, slot.address, slot.word,
				  with_state(slot.word, MAP_SLOT_DEAD)) != slot.word);
	add(h, h->base, -(1ull << 32 | 1));
	return 0;
}

#ifdef __NVPTX__

/* All but `base` are constants where these are called; see emit-hash.c. `base` 0: not armed. */
#define HASH_PARAMETERS                                                                       \
	u64 base, u64 mask, u64 stride, u32 group_bits, u32 key_words, u32 shards,            \
		u32 value_stride, u32 max_entries, _Bool small, _Bool immortal, _Bool system, \
		u32 lru, const u64 *key

#define HASH_ARGUMENTS                                                      \
	{ base,         mask,        stride, group_bits, key_words, shards, \
	  value_stride, max_entries, small,  immortal,   system,    lru }

/* Pads a key that is too long for registers. */
void gpuprobe_hash_pad(u64 *to, const unsigned char *from, u32 size);
void gpuprobe_hash_pad(u64 *to, const unsigned char *from, u32 size) {
	to[(size - 1) / 8] = 0;
	for (u32 i = 0; i < size; i++) {
		u32 byte = from[i];

		/* one that the program never wrote is something, and the same each time */
		__asm__("" : "+r"(byte));
		((unsigned char *)to)[i] = (unsigned char)byte;
	}
}

u64 gpuprobe_hash_lookup(HASH_PARAMETERS, _Bool *found);
u64 gpuprobe_hash_lookup(HASH_PARAMETERS, _Bool *found) {
	struct hash hash = HASH_ARGUMENTS;
	struct element element = { 0 };

	if (__builtin_expect(base != 0, 1))
		element = find(&hash, key, !immortal);
	if (element.found)
		touch(&hash, element.slot.address);
	*found = element.found;
	return element.value;
}

long gpuprobe_hash_update(HASH_PARAMETERS, const char *value, u32 size, _Bool aligned, u64 flags);
long gpuprobe_hash_update(HASH_PARAMETERS, const char *value, u32 size, _Bool aligned, u64 flags) {
	struct hash hash = HASH_ARGUMENTS;
	struct hash_value stored = { value, size, aligned };

	if (flags > HASH_EXIST)
		return -HASH_EINVAL;
	return base ? update(&hash, key, &stored, flags) : -HASH_ENODEV;
}

long gpuprobe_hash_delete(HASH_PARAMETERS);
long gpuprobe_hash_delete(HASH_PARAMETERS) {
	struct hash hash = HASH_ARGUMENTS;

	return base ? erase(&hash, key) : -HASH_ENODEV;
}

#endif
