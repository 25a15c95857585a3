/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks the daemon what to load in place of an image. With the loader's lock held. */

#include <stdint.h>

#include "shim/interest/wire-client.h"
#include "load.h"

struct image;

/*
 * Sends the image and takes the answer; NULL but with a plan, or an image in place of the own one.
 * Which daemon it is of is the caller's to fill in.
 */
struct load *load_ask(struct wire_client *client, const struct image *image, uint64_t deadline_ms,
		      enum load_answer *answer);

/* NULL is fine. */
void load_free(struct load *load);
