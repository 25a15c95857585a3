/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Streams and events. Work is done when it is submitted,
 * so everything is always complete; what streams really do here is capture. While somebody captures
 * in the global mode, calls that might disturb a capture are refused for every thread that has not
 * exchanged its mode to relaxed, and the capture is invalid from then on: that is what a real
 * driver does to a careless tool.
 */

#include <stdlib.h>
#include <time.h>

#include "api.h"

static CUstream streams; /* all that live */
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool api_stream(CUstream handle, CUstream *out) {
	*out = NULL;
	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return true;
	if (!api_live(handle, API_STREAM))
		return false;
	*out = handle;
	return true;
}

CUresult api_unsafe_in_capture(void) {
	CUresult r = CUDA_SUCCESS;

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return r;
	api_lock();
	for (CUstream stream = streams; stream; stream = stream->next) {
		bool own = stream->thread == api_thread_id();

		if (!stream->capture || stream->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (!own && (stream->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
			     thread_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
			continue;
		stream->invalidated = true;
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	api_unlock();
	return r;
}

CUresult api_not_in_captures(CUcontext context) {
	CUresult r = CUDA_SUCCESS;

	api_lock();
	for (CUstream stream = streams; stream; stream = stream->next)
		if (stream->capture && (!context || stream->context == context)) {
			stream->invalidated = true;
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	api_unlock();
	return r;
}

/* Takes a stream off the list, and frees it. Under the lock. */
static void end_stream(CUstream *link) {
	CUstream stream = *link;

	*link = stream->next;
	api_live_remove(stream);
	api_graph_free(stream->capture);
	free(stream);
}

void api_streams_end(CUcontext context) {
	for (CUstream *link = &streams; *link;)
		if ((*link)->context == context)
			end_stream(link);
		else
			link = &(*link)->next;
}

int api_capture(CUstream stream, const struct CUgraphNode_st *node) {
	CUgraphNode previous = NULL;
	size_t count = 0;

	if (!stream->capture)
		return 0;
	if (stream->invalidated)
		return -(int)CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (node->child)
		return -(int)CUDA_ERROR_NOT_SUPPORTED;
	if (stream->capture->count) {
		previous = stream->capture->nodes[stream->capture->count - 1];
		count = 1;
	}
	return api_graph_add(stream->capture, node, &previous, count)
		       ? 1
		       : -(int)CUDA_ERROR_OUT_OF_MEMORY;
}

API_EXPORT CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags,
					       int priority) {
	CUresult r = api_enter();
	CUstream stream;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phStream || flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->flags = flags;
	stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	stream->context = api_current();
	api_lock();
	stream->id = api_next_id();
	if (api_live_add(stream, API_STREAM)) {
		stream->next = streams;
		streams = stream;
	} else {
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	api_unlock();
	if (r == CUDA_SUCCESS)
		*phStream = stream;
	else
		free(stream);
	return r;
}

API_EXPORT CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) {
	return cuStreamCreateWithPriority(phStream, Flags, 0);
}

API_EXPORT CUresult cuStreamDestroy_v2(CUstream hStream) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (api_live(hStream, API_STREAM)) {
		CUstream *link = &streams;

		while (*link != hStream)
			link = &(*link)->next;
		end_stream(link);
	} else {
		r = CUDA_ERROR_INVALID_HANDLE;
	}
	api_unlock();
	return r;
}
API_ALIAS(cuStreamDestroy, cuStreamDestroy_v2);

/* A copy of the stream's state, so that getters need not hold the lock; the default stream is one
 * that never captures. */
static CUresult look_at(CUstream handle, struct CUstream_st *out) {
	CUresult r = api_enter();
	CUstream stream;

	if (r != CUDA_SUCCESS)
		return r;
	*out = (struct CUstream_st){ .context = api_current() };
	api_lock();
	if (!api_stream(handle, &stream))
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (stream)
		*out = *stream;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
	struct CUstream_st stream;
	CUresult r = look_at(hStream, &stream);

	if (r == CUDA_SUCCESS && flags)
		*flags = stream.flags;
	return r == CUDA_SUCCESS && !flags ? CUDA_ERROR_INVALID_VALUE : r;
}
API_ALIAS(cuStreamGetFlags_ptsz, cuStreamGetFlags);

API_EXPORT CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
	struct CUstream_st stream;
	CUresult r = look_at(hStream, &stream);

	if (r == CUDA_SUCCESS && priority)
		*priority = stream.priority;
	return r == CUDA_SUCCESS && !priority ? CUDA_ERROR_INVALID_VALUE : r;
}
API_ALIAS(cuStreamGetPriority_ptsz, cuStreamGetPriority);

API_EXPORT CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
	struct CUstream_st stream;
	CUresult r = look_at(hStream, &stream);

	if (r == CUDA_SUCCESS && pctx)
		*pctx = stream.context;
	return r == CUDA_SUCCESS && !pctx ? CUDA_ERROR_INVALID_VALUE : r;
}
API_ALIAS(cuStreamGetCtx_ptsz, cuStreamGetCtx);

API_EXPORT CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
	struct CUstream_st stream;
	CUresult r = look_at(hStream, &stream);

	if (r == CUDA_SUCCESS && streamId)
		*streamId = stream.id;
	return r == CUDA_SUCCESS && !streamId ? CUDA_ERROR_INVALID_VALUE : r;
}
API_ALIAS(cuStreamGetId_ptsz, cuStreamGetId);

/* What needs the stream not to capture: invalidates the capture if it does. */
static CUresult not_capturing(CUstream handle) {
	CUresult r = api_enter();
	CUstream stream;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (!api_stream(handle, &stream)) {
		r = CUDA_ERROR_INVALID_HANDLE;
	} else if (stream && stream->capture) {
		stream->invalidated = true;
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuStreamSynchronize(CUstream hStream) {
	CUresult r = not_capturing(hStream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!api_may_run_on(hStream))
		return CUDA_SUCCESS;
	sim_run_lock(); /* another thread's kernel on this stream */
	sim_run_unlock();
	return api_enter();
}
API_ALIAS(cuStreamSynchronize_ptsz, cuStreamSynchronize);

API_EXPORT CUresult cuStreamQuery(CUstream hStream) {
	return not_capturing(hStream);
}
API_ALIAS(cuStreamQuery_ptsz, cuStreamQuery);

API_EXPORT CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (!hStream || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD) {
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else if (!api_live(hStream, API_STREAM)) {
		r = CUDA_ERROR_INVALID_HANDLE;
	} else if (hStream->capture) {
		r = CUDA_ERROR_ILLEGAL_STATE;
	} else {
		hStream->capture = api_graph_new();
		hStream->mode = mode;
		hStream->invalidated = false;
		hStream->thread = api_thread_id();
		if (!hStream->capture)
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	api_unlock();
	return r;
}
API_ALIAS(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2);

API_EXPORT CUresult cuStreamBeginCapture(CUstream hStream);
API_EXPORT CUresult cuStreamBeginCapture(CUstream hStream) {
	return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
API_ALIAS(cuStreamBeginCapture_ptsz, cuStreamBeginCapture);

API_EXPORT CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (!api_live(hStream, API_STREAM)) {
		r = CUDA_ERROR_INVALID_HANDLE;
	} else if (!hStream->capture) {
		r = CUDA_ERROR_ILLEGAL_STATE;
	} else if (hStream->thread != api_thread_id() &&
		   hStream->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
		r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	} else {
		*phGraph = NULL;
		if (hStream->invalidated) {
			api_graph_free(hStream->capture);
			r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		} else if (!api_live_add(hStream->capture, API_GRAPH)) {
			r = CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			*phGraph = hStream->capture;
		}
		hStream->capture = NULL;
	}
	api_unlock();
	return r;
}
API_ALIAS(cuStreamEndCapture_ptsz, cuStreamEndCapture);

API_EXPORT CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
	struct CUstream_st stream;
	CUresult r = look_at(hStream, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!captureStatus)
		return CUDA_ERROR_INVALID_VALUE;
	*captureStatus = !stream.capture      ? CU_STREAM_CAPTURE_STATUS_NONE
			 : stream.invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}
API_ALIAS(cuStreamIsCapturing_ptsz, cuStreamIsCapturing);

API_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
	CUstreamCaptureMode old = thread_mode;
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

/* --- events --- */

API_EXPORT CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
	API_SLOW(cuEventCreate);
	CUresult r = api_enter();
	CUevent event;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phEvent)
		return CUDA_ERROR_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->flags = Flags;
	api_lock();
	if (!api_live_add(event, API_EVENT))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	api_unlock();
	if (r == CUDA_SUCCESS)
		*phEvent = event;
	else
		free(event);
	return r;
}

API_EXPORT CUresult cuEventDestroy_v2(CUevent hEvent) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (api_live(hEvent, API_EVENT)) {
		api_live_remove(hEvent);
		free(hEvent);
	} else {
		r = CUDA_ERROR_INVALID_HANDLE;
	}
	api_unlock();
	return r;
}
API_ALIAS(cuEventDestroy, cuEventDestroy_v2);

API_EXPORT CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
	CUresult r = api_enter();
	struct timespec now;
	CUstream stream;

	if (r != CUDA_SUCCESS)
		return r;
	clock_gettime(CLOCK_MONOTONIC, &now);
	api_lock();
	if (!api_live(hEvent, API_EVENT) || !api_stream(hStream, &stream)) {
		r = CUDA_ERROR_INVALID_HANDLE;
	} else if (!stream || !stream->capture) { /* in a capture an event only orders, and order is
						     kept anyway */
		hEvent->recorded = true;
		hEvent->time = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	}
	api_unlock();
	return r;
}
API_ALIAS(cuEventRecord_ptsz, cuEventRecord);

/* For all work of a context: none is there while nobody launches. Not in captures, whose streams it
 * ends. */
API_EXPORT CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
	CUresult r = api_initialized();
	bool good;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	good = api_live(hCtx ? hCtx : api_current(), API_CONTEXT);
	api_unlock();
	if (!good)
		return CUDA_ERROR_INVALID_CONTEXT;
	r = api_not_in_captures(hCtx);
	return r == CUDA_SUCCESS ? cuEventRecord(hEvent, NULL) : r;
}

API_EXPORT CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
	return cuEventRecord(hEvent, hStream);
}
API_ALIAS(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags);

API_EXPORT CUresult cuEventQuery(CUevent hEvent) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (!api_live(hEvent, API_EVENT))
		r = CUDA_ERROR_INVALID_HANDLE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuEventSynchronize(CUevent hEvent) {
	API_SLOW(cuEventSynchronize);

	return cuEventQuery(hEvent);
}

API_EXPORT CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
	struct CUstream_st stream;
	CUresult r = look_at(hStream, &stream);

	return r == CUDA_SUCCESS ? cuEventQuery(hEvent) : r;
}
API_ALIAS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent);

API_EXPORT CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pMilliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (!api_live(hStart, API_EVENT) || !api_live(hEnd, API_EVENT) || !hStart->recorded ||
	    !hEnd->recorded || (hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING)
		r = CUDA_ERROR_INVALID_HANDLE;
	else
		*pMilliseconds = (float)((double)(int64_t)(hEnd->time - hStart->time) * 1e-6);
	api_unlock();
	return r;
}
API_ALIAS(cuEventElapsedTime, cuEventElapsedTime_v2);
