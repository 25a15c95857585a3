/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The source of a trace in the resource manager (source.h): opens each GPU, reads its clock and its
 * context switches from time to time, and makes records of proto/trace.h from them.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "clock.h"
#include "ctxsw.h"
#include "source.h"
#include "spans.h"

#define MS UINT64_C(1000000)
#define CLOCK_FIRST (100 * MS) /* between the first pairs, until the drift is known */
#define CLOCK_PERIOD (500 * MS)
#define CLOCK_FIRST_N 10
#define FLUSH_PERIOD (500 * MS)
#define CLOCK_REACH              \
	(UINT64_C(3600) * 1000 * \
	 MS) /* what is further off from the latest pair is no time of an event */
#define READ_MAX 512 /* records at a time */
#define COMMS 64 /* names of processes that are remembered, a power of two */
#define COMM_PERIOD (1000 * MS) /* they may change */
#define PID_NAMESPACE_INITIAL 0xeffffffc /* its inode */

struct source_gpu {
	struct rm_gpu gpu;
	struct rm_ctxsw ctxsw;
	struct rm_spans spans;
	struct gpu_clock clock;
	struct rm_source *source;
	bool clocked, switched; /* it has clocks, context switches */
	unsigned int n_pairs;
	uint64_t clock_at, flush_at;
};

struct comm {
	uint32_t pid;
	uint64_t read_at;
	char text[16];
};

struct rm_source {
	struct rm_source_options options;
	struct rm_client client;
	struct source_gpu *gpus;
	size_t n_gpus;
	bool foreign; /* pids of the driver are of another namespace than ours */
	bool failed; /* no memory */
	struct comm comms[COMMS];
	char *bytes;
	size_t n, n_max;
	uint64_t now;
};

/* ---- output ---- */

static void put(struct rm_source *source, const void *record, size_t n) {
	char *bytes = source->bytes;

	if (source->n_max - source->n < n) {
		source->n_max = source->n_max * 2 + 65536;
		bytes = realloc(source->bytes, source->n_max);
		if (!bytes) {
			source->n_max = source->n;
			source->failed = true;
			return;
		}
		source->bytes = bytes;
	}
	memcpy(bytes + source->n, record, n);
	source->n += n;
}

static void tell(struct rm_source *source, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void tell(struct rm_source *source, const char *format, ...) {
	char line[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (source->options.tell)
		source->options.tell(source->options.userdata, line);
}

/* What would help against what the driver said to a binding, of which it may have told the reason.
 */
static const char *help_for(const struct rm_client *client, uint32_t reason) {
	static const char root[] = "; root may, or all if the driver is loaded with "
				   "NVreg_RestrictProfilingToAdminUsers=0";

	switch (reason) {
	case RM_CTXSW_REASON_GPU_TOO_OLD:
	case RM_CTXSW_REASON_NOT_ENABLED_GPU:
		return "; this GPU does not log them";
	case RM_CTXSW_REASON_NOT_ENABLED:
		return "; they are not told to this instance of MIG or virtual GPU";
	case RM_CTXSW_REASON_NEED_CAPABILITY:
		return "; the host of this virtual GPU does not allow profiling";
	case RM_CTXSW_REASON_NEED_ADMIN:
		return root;
	default:
		if (client->status == RM_INSUFFICIENT_PERMISSIONS)
			return root;
		return client->status == RM_INVALID_PARAM_STRUCT && client->branch > RM_NEWEST_TRIED
			       ? "; this driver is newer than what gpuprobe was tried with"
			       : "";
	}
}

/* ---- processes ---- */

/* The name of a process; what it was is remembered for a while, as it may have ended. */
static const char *comm_of(struct rm_source *source, uint32_t pid) {
	struct comm *comm = &source->comms[pid & (COMMS - 1)];
	char path[32];
	ssize_t n = -1;
	int fd;

	if (comm->pid == pid && source->now < comm->read_at + COMM_PERIOD)
		return comm->text;
	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (comm->pid != pid)
		*comm = (struct comm){ .pid = pid };
	comm->read_at = source->now;
	if (fd >= 0) {
		n = read(fd, comm->text, sizeof(comm->text));
		close(fd);
	}
	if (n > 0)
		memset(comm->text + n - 1, 0,
		       sizeof(comm->text) - (size_t)n + 1); /* the end of the line, too */
	return comm->text;
}

static bool is_foreign(void) {
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 && status.st_ino != PID_NAMESPACE_INITIAL;
}

/* ---- a GPU ---- */

static void emit(void *userdata, struct trace_ctxsw *span) {
	struct rm_source *source = userdata;
	const bool process = span->pid != RM_CTXSW_PID_HIDDEN && span->pid != RM_CTXSW_PID_KERNEL;

	if (process && source->foreign)
		span->record.flags |= TRACE_CTXSW_FOREIGN;
	else if (process)
		memcpy(span->comm, comm_of(source, span->pid), sizeof(span->comm));
	put(source, span, sizeof(*span));
}

static void put_lost(struct rm_source *source, uint64_t time, uint64_t n) {
	const struct trace_lost lost = {
		.record = { .size = sizeof(lost), .type = TRACE_LOST, .source = TRACE_SOURCE_GPU },
		.time = time,
		.count = n,
	};

	put(source, &lost, sizeof(lost));
}

/* A pair of clocks, and what they say by now. */
static void read_clock(struct source_gpu *gpu) {
	struct trace_clock clock = {
		.record = { .size = sizeof(clock), .type = TRACE_CLOCK, .source = TRACE_SOURCE_GPU }
	};
	struct rm_pair pair;

	if (rm_clock_pair(&gpu->gpu, &pair)) {
		tell(gpu->source, "clock of GPU %" PRIu32 ": %s%s", gpu->gpu.card.minor,
		     gpu->gpu.client->error, help_for(gpu->gpu.client, RM_CTXSW_REASON_NONE));
		gpu->clocked = false;
		return;
	}
	gpu->n_pairs++;
	gpu_clock_add(&gpu->clock, pair.gpu, pair.host, pair.half);
	clock.device = gpu->gpu.card.minor;
	clock.gpu_time = gpu->clock.base_gpu;
	clock.host_time = gpu->clock.base_host;
	clock.drift = gpu_clock_drift_ppb(&gpu->clock);
	clock.error = gpu->clock.error;
	put(gpu->source, &clock, sizeof(clock));
}

static void take_record(struct source_gpu *gpu, const struct rm_ctxsw_record *record) {
	const uint64_t distance = record->gpu_time - gpu->clock.base_gpu;
	const uint32_t error =
		gpu->clock.error < UINT32_MAX ? (uint32_t)gpu->clock.error : UINT32_MAX;
	unsigned int lost = 0;
	uint64_t time = gpu->source->now;

	if (distance < CLOCK_REACH || -distance < CLOCK_REACH) {
		time = gpu_clock_nanoseconds(&gpu->clock, record->gpu_time);
		lost = rm_spans_add(&gpu->spans, record, time, error);
	} else {
		lost = rm_spans_lose(&gpu->spans, record);
	}
	if (lost)
		put_lost(gpu->source, time, lost);
}

static void read_switches(struct source_gpu *gpu, bool flush) {
	struct rm_ctxsw_record records[READ_MAX];
	size_t n = READ_MAX, n_all = 0;
	int r = flush ? rm_ctxsw_flush(&gpu->ctxsw) : 0;

	/* as much as there is room for, so that it comes to an end */
	while (!r && n == READ_MAX && n_all < gpu->ctxsw.n) {
		r = rm_ctxsw_read(&gpu->ctxsw, records, READ_MAX, &n);
		for (size_t i = 0; i < n; i++)
			take_record(gpu, &records[i]);
		n_all += n;
	}
	if (!r)
		return;
	gpu->switched = false;
	rm_spans_finish(&gpu->spans, gpu->source->now); /* nothing is known of what comes */
	tell(gpu->source, "context switches of GPU %" PRIu32 " from here on: %s",
	     gpu->gpu.card.minor, gpu->gpu.client->error);
}

static void poll_gpu(struct source_gpu *gpu, bool last) {
	const uint64_t now = gpu->source->now;
	const bool flush = last || now >= gpu->flush_at;

	if (gpu->clocked && now >= gpu->clock_at) {
		gpu->clock_at = now + (gpu->n_pairs < CLOCK_FIRST_N ? CLOCK_FIRST : CLOCK_PERIOD);
		read_clock(gpu);
	}
	if (flush)
		gpu->flush_at = now + FLUSH_PERIOD;
	if (gpu->switched)
		read_switches(gpu, flush);
}

/* Begins what there is to be had of it. */
static void open_gpu(struct source_gpu *gpu, struct rm_source *source, const struct rm_card *card) {
	int r = rm_gpu_open(&gpu->gpu, &source->client, card);

	gpu->source = source;
	gpu->spans = (struct rm_spans){
		.device = card->minor, .since = monotonic_now(), .emit = emit, .userdata = source
	};
	if (r) {
		tell(source, "GPU %" PRIu32 ": %s", card->minor, source->client.error);
		return;
	}
	gpu->clocked = true;
	source->now = monotonic_now();
	poll_gpu(gpu, false);
	if (!source->options.ctxsw)
		return;
	/* times of events are told by the clock */
	if (gpu->n_pairs)
		r = rm_ctxsw_init(&gpu->ctxsw, &gpu->gpu);
	gpu->switched = gpu->n_pairs && !r;
	if (r)
		tell(source, "context switches of GPU %" PRIu32 ": %s%s", card->minor,
		     source->client.error, help_for(&source->client, gpu->ctxsw.reason));
}

/* ---- all of them ---- */

static int open_all(struct rm_source *source) {
	struct rm_card cards[RM_GPUS_MAX];
	size_t n = 0;
	int r;

	r = rm_client_init(&source->client, source->options.driver);
	if (!r)
		r = rm_cards(&source->client, cards, &n);
	if (r) {
		tell(source, "the GPU's clock%s: %s",
		     source->options.ctxsw ? " and context switches" : "", source->client.error);
		return 0;
	}
	if (!n && source->options.ctxsw)
		tell(source, "context switches: the driver has no GPU");
	source->gpus = calloc(n + 1, sizeof(*source->gpus));
	if (!source->gpus)
		return -ENOMEM;
	source->n_gpus = n;
	for (size_t i = 0; i < n; i++)
		open_gpu(&source->gpus[i], source, &cards[i]);
	return source->failed ? -ENOMEM : 0;
}

int rm_source_new(struct rm_source **sourcep, const struct rm_source_options *options) {
	struct rm_source *source = calloc(1, sizeof(*source));
	int r;

	if (!source)
		return -ENOMEM;
	source->options = *options;
	source->foreign = is_foreign();
	r = open_all(source);
	if (r)
		rm_source_free(source);
	else
		*sourcep = source;
	return r;
}

struct rm_source *rm_source_free(struct rm_source *source) {
	if (!source)
		return NULL;
	for (size_t i = 0; i < source->n_gpus; i++) {
		rm_ctxsw_deinit(&source->gpus[i].ctxsw);
		rm_gpu_close(&source->gpus[i].gpu);
	}
	if (source->client.driver)
		rm_client_deinit(&source->client);
	free(source->gpus);
	free(source->bytes);
	free(source);
	return NULL;
}

static int poll_all(struct rm_source *source, uint64_t now, bool last) {
	source->now = now;
	for (size_t i = 0; i < source->n_gpus; i++)
		poll_gpu(&source->gpus[i], last);
	return source->failed ? -ENOMEM : 0;
}

int rm_source_poll(struct rm_source *source, uint64_t now) {
	return poll_all(source, now, false);
}

int rm_source_finish(struct rm_source *source, uint64_t now) {
	int r = poll_all(source, now, true);

	for (size_t i = 0; !r && i < source->n_gpus; i++)
		rm_spans_finish(&source->gpus[i].spans, now);
	return source->failed ? -ENOMEM : r;
}

void *rm_source_take(struct rm_source *source, size_t *np) {
	void *bytes = source->n ? source->bytes : NULL;

	*np = source->n;
	if (bytes) {
		source->bytes = NULL;
		source->n = source->n_max = 0;
	}
	return bytes;
}
