/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where formats with timelines draw an item: a thread, a CPU (what interrupts did), a stream of a
 * GPU. A timeline shows spans that nest; those that overlap otherwise get lanes. What is on a
 * stream of a GPU is within nothing, so there all that overlap do, as kernels of a graph. How many
 * tracks are remembered is bounded: when there are too many all are forgotten, and announced again
 * when they are next used.
 */

#include <stdbool.h>
#include <stdint.h>

#include "item.h"

#define TRACK_LANES 8
#define TRACK_DEPTH 16
#define TRACK_HISTORY 4

enum trace_track_kind {
	TRACK_NONE,
	TRACK_PROCESS,
	TRACK_THREAD,
	TRACK_CPU, /* id: its number; pid 0 */
	TRACK_GPU, /* id: device; of a process, as ordinals are */
	TRACK_STREAM,
	TRACK_CONTEXTS, /* id: N of /dev/nvidiaN; of all processes */
	TRACK_CLOCK, /* id: device */
};

struct trace_track_key {
	enum trace_track_kind kind;
	uint32_t pid;
	uint64_t id, context, stream;
};

struct trace_span {
	uint64_t start, end;
};

/* Spans that nest. */
struct trace_lane {
	uint64_t newest; /* start */
	uint8_t depth, n_outermost;
	uint64_t ends[TRACK_DEPTH]; /* of those that are open, outermost first */
	struct trace_span
		outermost[TRACK_HISTORY]; /* the latest ones within no other, newest first */
};

struct trace_track {
	struct trace_track_key key;
	uint32_t number; /* never used twice in a trace, from 1 */
	uint32_t announced; /* lanes, as bits: the writer's to set */
	uint64_t name; /* a hash of the name that was announced */
	struct trace_span last; /* CLOCK: the latest pair, GPU and host */
	struct trace_lane lanes[TRACK_LANES];
};

struct trace_tracks;

int trace_tracks_new(struct trace_tracks **tracksp);
struct trace_tracks *trace_tracks_free(struct trace_tracks *tracks);
struct trace_track *trace_tracks_get(struct trace_tracks *tracks,
				     const struct trace_track_key *key);
/* Whether a lane of a track is yet to be announced, or had another name: it is announced then. */
bool trace_track_is_news(struct trace_tracks *tracks, const struct trace_track_key *key,
			 unsigned lane, const char *name);
struct trace_track_key trace_track_of(const struct trace_item *item);
unsigned trace_track_lane(struct trace_track *track, uint64_t start, uint64_t end);
uint64_t trace_hash(uint64_t seed, const void *data, size_t n);
const char *trace_process_name(const struct trace_item *item, char buffer[32]);
