/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a span lies among those of its thread: in which layer, and within which call. The trace's
 * parent ids tell, else the times. Items come in the order of their start. A span that comes after
 * spans within it is late: those were counted as if nothing was around them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "ctl/trace/base/item.h"

enum report_layer {
	REPORT_LAYER_API,
	REPORT_LAYER_IOCTL,
	REPORT_LAYER_RPC, /* waits for the GSP firmware and for locks of the driver */
	REPORT_LAYER_DRIVER, /* other hooks */
	_REPORT_LAYER_N,
	REPORT_LAYER_NONE = _REPORT_LAYER_N,
};

struct report_place {
	enum report_layer layer; /* NONE: it is not a span of a thread */
	enum report_layer around; /* of the span around it; NONE: there is none */
	bool outermost; /* none of the same layer is around it */
	bool late;
	uint64_t duration; /* as far as it lies in what is around it */
	const char *call; /* base name of the outermost call around it, or its own; NULL: none */
};

struct report_places;

int report_places_new(struct report_places **placesp);
struct report_places *report_places_free(struct report_places *places);
/* 0, or -ENOMEM. */
int report_places_item(struct report_places *places, const struct trace_item *item,
		       struct report_place *place);
