/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Assigns the items of a trace to tracks and lanes of a timeline (track.h), for the formats chrome,
 * perfetto and folded. Pure bookkeeping in bounded memory.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash-table.h"
#include "track.h"

#define TRACKS_MAX 3072

struct trace_tracks {
	struct hash_table table;
	uint32_t number; /* of the newest */
};

/* 64 bits of anything; never 0. */
uint64_t trace_hash(uint64_t seed, const void *data, size_t n) {
	const uint8_t *bytes = data;
	uint64_t hash = seed ^ n * UINT64_C(0x9e3779b97f4a7c15);

	for (; n >= 8; bytes += 8, n -= 8) {
		uint64_t word;

		memcpy(&word, bytes, sizeof(word));
		hash = (hash ^ word) * UINT64_C(0xd6e8feb86659fd93);
		hash ^= hash >> 32;
	}
	for (; n; n--)
		hash = (hash ^ *bytes++) * UINT64_C(0x100000001b3);
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	hash ^= hash >> 32;
	return hash ? hash : 1;
}

int trace_tracks_new(struct trace_tracks **tracksp) {
	struct trace_tracks *tracks = calloc(1, sizeof(*tracks));

	if (!tracks)
		return -ENOMEM;
	tracks->table.key_size = sizeof(struct trace_track_key);
	tracks->table.entry_size = sizeof(struct trace_track);
	if (!hash_table_reserve(&tracks->table, TRACKS_MAX))
		tracks = trace_tracks_free(tracks);
	*tracksp = tracks;
	return tracks ? 0 : -ENOMEM;
}

struct trace_tracks *trace_tracks_free(struct trace_tracks *tracks) {
	if (tracks)
		hash_table_deinit(&tracks->table);
	free(tracks);
	return NULL;
}

/* The track of that key, a new one if need be (announced is 0 then). Good until the next call. */
struct trace_track *trace_tracks_get(struct trace_tracks *tracks,
				     const struct trace_track_key *key) {
	struct trace_track *track = hash_table_find(&tracks->table, key);

	if (track)
		return track;
	if (tracks->table.n == TRACKS_MAX)
		hash_table_clear(&tracks->table);
	track = hash_table_add(&tracks->table, key, NULL);
	track->number = ++tracks->number;
	return track;
}

bool trace_track_is_news(struct trace_tracks *tracks, const struct trace_track_key *key,
			 unsigned lane, const char *name) {
	struct trace_track *track = trace_tracks_get(tracks, key);
	uint64_t hash = trace_hash(0, name, strlen(name));

	if (track->name != hash)
		track->announced = 0;
	track->name = hash;
	if (track->announced & 1u << lane)
		return false;
	track->announced |= 1u << lane;
	return true;
}

/* Which track an item belongs to. */
struct trace_track_key trace_track_of(const struct trace_item *item) {
	if (item->kind == EVENT_KERNEL)
		return (struct trace_track_key){ TRACK_STREAM, item->pid, item->device,
						 item->context, item->stream };
	if (item->kind == EVENT_CTXSW)
		return (struct trace_track_key){ .kind = TRACK_CONTEXTS, .id = item->device };
	if (item->kind == EVENT_CLOCK)
		return (struct trace_track_key){ .kind = TRACK_GPU,
						 .pid = item->pid,
						 .id = item->device };
	if (!item->pid)
		return (struct trace_track_key){ .kind = TRACK_CPU, .id = item->cpu };
	/* a thread that is not known: what is of a process as a whole is with its main thread */
	return (struct trace_track_key){ .kind = TRACK_THREAD,
					 .pid = item->pid,
					 .id = item->tid ? item->tid : item->pid };
}

static void add_outermost(struct trace_lane *lane, uint64_t start, uint64_t end) {
	memmove(lane->outermost + 1, lane->outermost,
		sizeof(lane->outermost) - sizeof(*lane->outermost));
	lane->outermost[0] = (struct trace_span){ start, end };
	if (lane->n_outermost < TRACK_HISTORY)
		lane->n_outermost++;
}

/* A span that starts after all others: it is within the innermost one that is still open, or
 * crosses its end. */
static bool append_span(struct trace_lane *lane, uint64_t start, uint64_t end, bool flat,
			bool force) {
	while (lane->depth && lane->ends[lane->depth - 1] <= start)
		lane->depth--;
	if (lane->depth && (flat || lane->ends[lane->depth - 1] < end) && !force)
		return false;
	if (!lane->depth)
		add_outermost(lane, start, end);
	/* deeper than what is remembered: the innermost that is known stands for what is within it
	 */
	if (lane->depth < TRACK_DEPTH)
		lane->ends[lane->depth++] = end;
	lane->newest = start;
	return true;
}

/*
 * A span that comes late, as a long call does after those within it: it is around, within, before
 * or behind each of the outermost ones, as far back as these are known. One that starts with
 * another must not be around it: readers would take them the other way round.
 */
static bool insert_span(struct trace_lane *lane, uint64_t start, uint64_t end, bool flat) {
	for (unsigned i = 0; i < lane->n_outermost; i++) {
		const struct trace_span *other = &lane->outermost[i];

		if (other->start <= start && other->end >= end)
			return !flat;
		if (other->end > start && other->start < end &&
		    (flat || other->start <= start || other->end > end))
			return false;
	}
	if (!lane->depth || lane->ends[0] <= end) {
		lane->depth -= lane->depth == TRACK_DEPTH;
		memmove(lane->ends + 1, lane->ends, lane->depth * sizeof(*lane->ends));
		lane->ends[0] = end;
		lane->depth++;
	}
	add_outermost(lane, start, end);
	return true;
}

/* The first lane in which a span has its place, or the last one if there is none. */
unsigned trace_track_lane(struct trace_track *track, uint64_t start, uint64_t end) {
	const bool flat = track->key.kind == TRACK_STREAM;

	for (unsigned i = 0; i + 1 < TRACK_LANES; i++) {
		struct trace_lane *lane = &track->lanes[i];

		if (start >= lane->newest ? append_span(lane, start, end, flat, false)
					  : insert_span(lane, start, end, flat))
			return i;
	}
	append_span(&track->lanes[TRACK_LANES - 1], start, end, flat, true);
	return TRACK_LANES - 1;
}

/* "python", or "pid 1234". */
const char *trace_process_name(const struct trace_item *item, char buffer[32]) {
	size_t n = strnlen(item->process->comm, sizeof(item->process->comm));

	if (!n) {
		snprintf(buffer, 32, "pid %u", item->pid);
		return buffer;
	}
	memcpy(buffer, item->process->comm, n);
	buffer[n] = '\0';
	return buffer;
}
