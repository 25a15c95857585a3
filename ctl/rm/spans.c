/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Turns events of context switches into spans (spans.h): from when to when a context was on an
 * engine. It makes no calls.
 */

#include <string.h>

#include "ctxsw-tag.h"
#include "spans.h"

/* The engine of that instance, a new one if need be; NULL: too many. */
static struct rm_engine *engine_of(struct rm_spans *spans, const struct rm_ctxsw_record *record) {
	for (struct rm_engine *engine = spans->engines; engine < spans->engines + RM_ENGINES_MAX;
	     engine++) {
		if (!engine->used)
			*engine = (struct rm_engine){ true,
						      record->gpu_instance,
						      record->compute_instance,
						      spans->since,
						      false,
						      {} };
		if (engine->gpu_instance == record->gpu_instance &&
		    engine->compute_instance == record->compute_instance)
			return engine;
	}
	return NULL;
}

/* A span of the record's context, which has begun by that event (0: an unknown one). */
static void begin(struct rm_spans *spans, struct rm_engine *engine,
		  const struct rm_ctxsw_record *record, uint64_t time, uint32_t error, uint8_t by) {
	engine->on = true;
	engine->span = (struct trace_ctxsw){
		.record = { .size = sizeof(engine->span),
			    .type = TRACE_CTXSW,
			    .source = TRACE_SOURCE_GPU },
		.start = time,
		.pid = record->pid,
		.device = spans->device,
		.context = record->context,
		.error = error,
		.began = by,
		.vmid = record->vmid,
		.gpu_instance = record->gpu_instance,
		.compute_instance = record->compute_instance,
		.sequence = record->sequence,
	};
}

static void end(struct rm_spans *spans, struct rm_engine *engine, uint64_t time, uint32_t error,
		uint8_t by, uint16_t sequence) {
	engine->on = false;
	engine->span.end = time > engine->span.start ? time : engine->span.start;
	engine->span.error = error;
	engine->span.ended = by;
	engine->span.sequence = sequence;
	spans->emit(spans->userdata, &engine->span);
}

/* The end of a context: of the one that is there, or of one whose beginning nobody saw. */
static void take_end(struct rm_spans *spans, struct rm_engine *engine,
		     const struct rm_ctxsw_record *record, uint64_t time, uint32_t error) {
	if (engine->on &&
	    (engine->span.pid != record->pid || engine->span.context != record->context))
		end(spans, engine, time, error, 0, record->sequence);
	if (!engine->on)
		begin(spans, engine, record, engine->last < time ? engine->last : time, error, 0);
	end(spans, engine, time, error, record->tag, record->sequence);
}

static void take_instant(struct rm_spans *spans, struct rm_engine *engine,
			 const struct rm_ctxsw_record *record, uint64_t time, uint32_t error) {
	const struct rm_engine before = *engine;

	begin(spans, engine, record, time, error, record->tag);
	engine->span.record.flags = TRACE_CTXSW_INSTANT;
	end(spans, engine, time, error, 0, record->sequence);
	*engine = before;
}

static unsigned int lost_before(struct rm_spans *spans, uint16_t sequence) {
	const unsigned int lost = spans->sequenced ? (uint16_t)(sequence - spans->sequence - 1) : 0;

	spans->sequenced = true;
	spans->sequence = sequence;
	return lost;
}

unsigned int rm_spans_add(struct rm_spans *spans, const struct rm_ctxsw_record *record,
			  uint64_t time, uint32_t error) {
	struct rm_engine *engine = engine_of(spans, record);
	unsigned int lost = lost_before(spans, record->sequence);

	if (!engine)
		return lost + 1;
	switch (record->tag) {
	case CTXSW_SIMPLE_START:
	case CTXSW_CONTEXT_START:
		if (engine->on)
			end(spans, engine, time, error, 0, record->sequence);
		begin(spans, engine, record, time, error, record->tag);
		break;
	case CTXSW_SIMPLE_END:
	case CTXSW_SAVE_END:
		take_end(spans, engine, record, time, error);
		break;
	case CTXSW_FE_ACK_WFI:
	case CTXSW_FE_ACK_GFXP:
	case CTXSW_FE_ACK_CTAP:
	case CTXSW_FE_ACK_CILP:
		if (engine->on)
			engine->span.preemption = record->tag;
		break;
	case CTXSW_SO:
	case CTXSW_REQUEST_BY_HOST: /* parts of a switch that the others say, too */
	case CTXSW_FE_ACK:
	case CTXSW_RESTORE_START:
		break;
	case CTXSW_ENGINE_RESET:
		if (engine->on)
			end(spans, engine, time, error, record->tag, record->sequence);
		__attribute__((fallthrough));
	default:
		take_instant(spans, engine, record, time, error);
	}
	engine->last = time > engine->last ? time : engine->last;
	return lost;
}

unsigned int rm_spans_lose(struct rm_spans *spans, const struct rm_ctxsw_record *record) {
	return lost_before(spans, record->sequence) + 1;
}

void rm_spans_finish(struct rm_spans *spans, uint64_t now) {
	for (struct rm_engine *engine = spans->engines; engine < spans->engines + RM_ENGINES_MAX;
	     engine++)
		if (engine->on) {
			engine->span.record.flags |= TRACE_CTXSW_OPEN;
			end(spans, engine, now, engine->span.error, 0, engine->span.sequence);
		}
}
