/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a span lies among those of its thread: in which layer, and in what. By its parent if the
 * trace tells, else by time. Items come by their start; a span that comes after what lies in it is
 * late: its children were counted as if they had none.
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
