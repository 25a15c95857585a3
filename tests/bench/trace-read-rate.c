/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A benchmark. How fast a trace is read, put in order and written, in time of the CPU:
 * trace-read-rate FORMAT [EVENTS]. Calls of four threads, each with a value that it gave back, go
 * through the stream to /dev/null; `none`: nothing is written; `raw`: nothing is decoded.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/function.h"
#include "ctl/trace/read/stream.h"

struct job {
	const struct trace_format *format;
	struct trace_writer *writer;
	FILE *file;
	uint64_t n;
};

static int begin(const struct trace_about *about, void *userdata) {
	struct job *job = userdata;

	return job->format ? job->format->open(&job->writer, job->file, about) : 0;
}

static int take(const struct trace_item *item, void *userdata) {
	struct job *job = userdata;

	job->n++;
	return job->format ? job->format->item(job->writer, item) : 0;
}

/* One call of cuMemAlloc_v2: two words, and the pointer that came back. */
static size_t make_call(unsigned char *at, uint64_t i) {
	static uint16_t number;
	struct trace_call *call = (struct trace_call *)at;
	struct trace_extra *extra;
	uint64_t pointer = UINT64_C(0x7f0000000000) + i * 512;

	number = number ?: function_by_name("cuMemAlloc_v2")->number;
	*call = (struct trace_call){ .record = { .size = sizeof(*call) + 32,
						 .type = TRACE_CALL,
						 .source = TRACE_SOURCE_SHIM },
				     .start = 1000 + i * 250,
				     .end = 1000 + i * 250 + 800,
				     .pid = 10,
				     .tid = 10 + (uint32_t)(i % 4),
				     .sequence = (uint32_t)(i / 4),
				     .function = number,
				     .n_arguments = 2,
				     .n_extras = 1 };
	call->words[0] = 0x7ffe1000;
	call->words[1] = 4096 + i % 100;
	extra = (struct trace_extra *)(call->words + 2);
	*extra = (struct trace_extra){ .when = TRACE_EXTRA_RETURN, .size = 8 };
	memcpy(extra + 1, &pointer, sizeof(pointer));
	return call->record.size;
}

int main(int argc, char **argv) {
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000000;
	struct job job = { .format = argc > 1 ? trace_format_find(argv[1]) : NULL,
			   .file = fopen("/dev/null", "w") };
	struct trace_order_options options = { .window = UINT64_C(10000000000),
					       .memory = (size_t)128 << 20,
					       .take = take,
					       .userdata = &job };
	struct trace_start start = { .record = { .size = sizeof(start), .type = TRACE_START },
				     .magic = TRACE_MAGIC,
				     .version = TRACE_VERSION };
	struct trace_stream *stream;
	_Alignas(8) static unsigned char bytes[1 << 20];
	struct timespec before, after;
	size_t n_bytes = 0;
	double seconds;
	int r;

	if (argc < 2 || (!job.format && strcmp(argv[1], "none") && strcmp(argv[1], "raw")))
		return 2;
	if (!strcmp(argv[1], "raw"))
		options.take = NULL;
	setvbuf(job.file, NULL, _IOFBF, 1 << 20);
	r = trace_stream_new(&stream, &options, begin)
		    ?: trace_stream_feed(stream, &start, sizeof(start));
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	for (uint64_t i = 0; !r && i < n; i++) {
		n_bytes += make_call(bytes + n_bytes, i);
		if (n_bytes > sizeof(bytes) - 1024 || i + 1 == n) {
			r = trace_stream_feed(stream, bytes, n_bytes);
			n_bytes = 0;
		}
	}
	r = r ?: trace_stream_finish(stream);
	if (!r && job.writer)
		r = job.format->close(job.writer, true);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	seconds = (double)(after.tv_sec - before.tv_sec) +
		  (double)(after.tv_nsec - before.tv_nsec) / 1e9;
	printf("%s: %d, %" PRIu64 " items, %.0f a second, %.0f ns each\n", argv[1], r, job.n,
	       (double)n / seconds, seconds * 1e9 / (double)n);
	trace_stream_free(stream);
	fclose(job.file);
	return r ? 1 : 0;
}
