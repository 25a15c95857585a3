/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the driver tells a trace by its resource manager, as records of proto/trace.h: how the timer
 * of each GPU relates to the host's clock, and context switches. Calls of it may take long: opening
 * a GPU that sleeps a second or two, others as long as the driver is busy with something else.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

struct rm_source;

struct rm_source_options {
	const struct rm_driver *driver;
	bool ctxsw; /* context switches, not the clocks alone */
	/* Gets one line about what is not available, and why. */
	void (*tell)(void *userdata, const char *line);
	void *userdata;
};

/* Opens what is available; without a GPU that is nothing. Returns 0 or -ENOMEM. */
int rm_source_new(struct rm_source **sourcep, const struct rm_source_options *options);
struct rm_source *rm_source_free(struct rm_source *source);
/* Reads what is new, and clocks now and then. now: CLOCK_MONOTONIC. */
int rm_source_poll(struct rm_source *source, uint64_t now);
/* The last call: contexts that are still on an engine end now. */
int rm_source_finish(struct rm_source *source, uint64_t now);
/* Whole records that came since the last time; the caller frees them. NULL: none. */
void *rm_source_take(struct rm_source *source, size_t *np);
