/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The way of an image: from a shim to a worker and back, through a cache in memory. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "image-result.h"
#include "image-work.h"
#include "proto/wire.h"

struct image_context;
struct client;
struct image_entry;
struct image_query;

#define IMAGE_CACHE_ENTRIES_MAX 1024
#define IMAGE_CACHE_BYTES_MAX (UINT64_C(256) << 20)

TAILQ_HEAD(image_entry_list, image_entry);
TAILQ_HEAD(image_parked_list, image_query);

struct image_cache {
	struct image_entry_list list; /* most recently used first */
	struct image_parked_list parked; /* requests that the quota has no room for, in the order in
					    which they came */
	unsigned int n;
	uint64_t bytes; /* of the images in it */
	uint64_t seed; /* seed of the hash, so that no process can make two images collide on
			  purpose */
	uint32_t last_image; /* number given to an image; 31 bits, and not from 1: images on the
				disk have theirs */
};

int image_cache_init(struct image_cache *cache);
void image_cache_deinit(struct image_cache *cache);

/* Whether a process has, or may get, an image with this number. userdata: the daemon. */
bool image_number_taken(uint32_t number, void *userdata);

/* Forgets what was made with this attachment. */
void image_cache_forget(struct image_cache *cache, uint64_t attachment);

/* Calls fn for each result in the cache, with the uid whose processes may get it. */
void image_cache_each(const struct image_cache *cache,
		      void (*fn)(struct image_result *result, uid_t uid, void *userdata),
		      void *userdata);

/*
 * An IMAGE from a client, with its descriptor, which is consumed. Answered now or later. Negative:
 * the message is a breach, or there is no memory.
 */
int image_submit(struct image_context *context, struct client *client,
		 const struct wire_image *message, int fd);

/* The client is gone; work that was started for it goes on without it. */
void image_abandon(struct image_query *request);
