/* SPDX-License-Identifier: Apache-2.0 */

/*
 * test-writers FORMAT SCENE FILE: writes items that are made by hand in a format. test-chrome.py,
 * test-perfetto.py and test-folded.py then check the file. "lanes" alone tests lanes.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "in-use.h"
#include "ctl/trace/base/item.h"
#include "ctl/trace/read/stream.h"
#include "proto/trace.h"
#include "ctl/trace/base/track.h"

static const struct trace_process_info unknown,
	python = { 1000, 1, 0, "py\"thon", "/usr/bin/py\xffthon" };
static const char *const frames[] = { "libfoo.so+0x10 (inner;frame+0x4)",
				      "python (deleted)+0x20 (main+0x3)" };

struct scene {
	const struct trace_format *format;
	struct trace_writer *writer;
	uint64_t id;
};

/* Gives an item to the writer, with an id; returns that. */
static uint64_t put(struct scene *scene, struct trace_item item) {
	item.id = ++scene->id;
	item.process = item.process ? item.process : &python;
	item.thread = item.thread ? item.thread : "main";
	item.base = item.base ? item.base : item.name;
	item.class = item.class ? item.class : "other";
	if (scene->format->item(scene->writer, &item) < 0)
		exit(1);
	return item.id;
}

static void add(struct trace_item *item, struct trace_value value) {
	item->values[item->n_values++] = value;
}

static struct trace_item call(const char *name, uint64_t start, uint64_t end) {
	return (struct trace_item){ .kind = EVENT_CALL,
				    .pid = 1000,
				    .tid = 1001,
				    .name = name,
				    .start = start,
				    .end = end,
				    .has_result = true,
				    .result_name = "CUDA_SUCCESS" };
}

static struct trace_item kernel(const char *name, uint64_t start, uint64_t end, uint64_t stream) {
	return (struct trace_item){ .kind = EVENT_KERNEL,
				    .source = TRACE_SOURCE_GPU,
				    .pid = 1000,
				    .tid = 1001,
				    .name = name,
				    .class = "kernel",
				    .start = start,
				    .end = end,
				    .stream = stream,
				    .context = 0xabc,
				    .error = 40 };
}

/* What two processes had of a GPU, one of which is not known, and the clock of that GPU. */
static void put_contexts(struct scene *scene) {
	struct trace_item item = { .kind = EVENT_CTXSW,
				   .source = TRACE_SOURCE_GPU,
				   .pid = 1000,
				   .thread = "",
				   .name = "py\"thon[1000]",
				   .class = "ctxsw",
				   .device = 3,
				   .start = 700000,
				   .end = 702000,
				   .context = 0x35,
				   .error = 500 };

	add(&item,
	    (struct trace_value){
		    .name = "began", .kind = VALUE_NAME, .number = 6, .text = "SIMPLE_START" });
	put(scene, item);
	item.process = &unknown;
	item.pid = 0;
	item.name = "another user";
	item.start = 702085;
	item.end = 704000;
	put(scene, item);
	item = (struct trace_item){ .kind = EVENT_CLOCK,
				    .process = &unknown,
				    .thread = "",
				    .name = "clock",
				    .class = "clock",
				    .start = 705000,
				    .end = 705000,
				    .instant = true,
				    .device = 3,
				    .error = 500 };
	add(&item, (struct trace_value){ .name = "gpu_time",
					 .kind = VALUE_UINT,
					 .number = INT64_C(1795323403571122560) });
	/* as of before the trace */
	add(&item, (struct trace_value){ .name = "host_time",
					 .kind = VALUE_UINT,
					 .number = INT64_C(4999999999000) });
	put(scene, item);
}

/* Every kind of value, and groups. */
static void put_values(struct scene *scene) {
	struct trace_item item = call("values", 100000, 101001);

	add(&item, (struct trace_value){ .name = "int", .kind = VALUE_INT, .number = -5 });
	add(&item, (struct trace_value){ .name = "uint", .kind = VALUE_UINT, .number = -1 });
	add(&item,
	    (struct trace_value){ .name = "hex", .kind = VALUE_HEX, .number = 0x7f0000001000 });
	add(&item, (struct trace_value){ .name = "float", .kind = VALUE_FLOAT, .real = 0.1 });
	add(&item, (struct trace_value){ .name = "nan", .kind = VALUE_FLOAT, .real = NAN });
	add(&item, (struct trace_value){ .name = "bool", .kind = VALUE_BOOL, .number = 2 });
	add(&item, (struct trace_value){ .name = "size", .kind = VALUE_SIZE, .number = 4096 });
	add(&item, (struct trace_value){
			   .name = "enum", .kind = VALUE_NAME, .number = 3, .text = "CU_THREE" });
	add(&item,
	    (struct trace_value){ .name = "enum_unknown", .kind = VALUE_NAME, .number = 99 });
	add(&item, (struct trace_value){ .name = "string",
					 .kind = VALUE_STRING,
					 .text = "a \"b\" \\ \n\x01 \xc3\xa4 \xff \xe2\x82" });
	add(&item, (struct trace_value){ .name = "null", .kind = VALUE_STRING });
	add(&item, (struct trace_value){ .name = "group", .kind = VALUE_GROUP, .number = 2 });
	add(&item, (struct trace_value){ .name = "x", .kind = VALUE_INT, .number = 1 });
	add(&item, (struct trace_value){ .name = "inner", .kind = VALUE_GROUP, .number = 1 });
	add(&item, (struct trace_value){ .name = "y", .kind = VALUE_BYTES, .text = "00ff" });
	add(&item, (struct trace_value){ .name = "same", .kind = VALUE_INT, .number = 1 });
	add(&item,
	    (struct trace_value){ .name = "same", .kind = VALUE_INT, .number = 2, .out = true });
	/* more members than there are values */
	add(&item, (struct trace_value){ .name = "liar", .kind = VALUE_GROUP, .number = 1000 });
	add(&item, (struct trace_value){ .name = "z", .kind = VALUE_INT, .number = 7 });
	put(scene, item);
}

/* A launch with an ioctl in it, its kernel, one that overlaps it, and one before its launch. */
static void put_launches(struct scene *scene) {
	struct trace_item item = call("cuLaunchKernel", 200000, 210500);
	uint64_t launch, graph;

	item.class = "launch";
	item.flow = 77;
	item.kernel = "_Z3addv";
	item.frames = frames;
	item.n_frames = 2;
	launch = put(scene, item);
	item = (struct trace_item){ .kind = EVENT_IOCTL,
				    .pid = 1000,
				    .tid = 1001,
				    .name = "NV_ESC_RM_CONTROL",
				    .class = "ioctl",
				    .start = 201000,
				    .end = 204000,
				    .parent = launch,
				    .has_result = true,
				    .result = 86,
				    .result_name = "NV_ERR_NOT_SUPPORTED",
				    .failed = true };
	put(scene, item);
	item = call("cuGraphLaunch", 220000, 230000);
	item.flow = UINT64_C(0xfedcba9876543210);
	graph = put(scene, item);
	item = kernel("add(int, <char>)", 215000, 235000, 0);
	item.flow = 77;
	item.parent = launch;
	item.kernel = "_Z3addv";
	put(scene, item);
	item = kernel("", 219000, 240000, 0);
	item.flow = UINT64_C(0xfedcba9876543210);
	item.parent = graph;
	item.violation = "starts 1.0us before its launch";
	item.launched = 220000;
	put(scene, item);
	put(scene, kernel("on another stream", 220000, 221000, 0xdeadbeef00));
}

static void put_memory(struct scene *scene) {
	struct trace_item item = call("cuMemAlloc_v2", 300000, 301000);

	item.base = "cuMemAlloc";
	item.class = "memory";
	item.size = 1 << 20;
	add(&item, (struct trace_value){
			   .name = "dptr", .kind = VALUE_HEX, .number = 0x7000, .out = true });
	put(scene, item);
	item.start = 302000, item.end = 303000;
	item.base = "cuMemAllocAsync";
	item.size = 1 << 10;
	item.values[0].number = 0x8000;
	put(scene, item);
	item.failed = true; /* no memory of that */
	item.values[0].number = 0x9000;
	item.start = 303000, item.end = 303500;
	put(scene, item);
	item = call("cuMemFree_v2", 304000, 305000);
	item.base = "cuMemFree";
	add(&item, (struct trace_value){ .name = "dptr", .kind = VALUE_HEX, .number = 0x7000 });
	put(scene, item);
	item.start = 305500, item.end = 305600;
	put(scene, item); /* twice */
}

/* What is no span, and what is of nobody. */
static void put_others(struct scene *scene) {
	struct trace_item item = { .kind = EVENT_PROCESS,
				   .pid = 1000,
				   .tid = 1000,
				   .name = "exec",
				   .class = "process",
				   .start = 50,
				   .end = 50,
				   .instant = true };

	put(scene, item);
	for (int i = 0; i < 3; i++) {
		item = (struct trace_item){ .kind = EVENT_CLOCK,
					    .pid = 1000,
					    .name = "clock",
					    .class = "clock",
					    .start = 60,
					    .end = 60,
					    .instant = true,
					    .device = 1,
					    .error = 300 };
		/* the last one goes back */
		item.start = item.end = 60 + 1000 * (uint64_t)i;
		add(&item, (struct trace_value){ .name = "gpu_time",
						 .kind = VALUE_UINT,
						 .number = INT64_C(1700000000000000000) +
							   (i == 2 ? 0 : 1000 * i) });
		put(scene, item);
	}
	item = (struct trace_item){ .kind = EVENT_LOST,
				    .name = "lost",
				    .class = "lost",
				    .process = &unknown,
				    .thread = "",
				    .start = 3000,
				    .end = 3000,
				    .instant = true,
				    .count = UINT64_MAX };
	put(scene, item);
	item.pid = 4444;
	item.tid = 4445;
	item.count = 12;
	put(scene, item);
	item = (struct trace_item){ .kind = EVENT_HOOK,
				    .name = "irq:irq_handler_entry",
				    .class = "irq",
				    .process = &unknown,
				    .thread = "",
				    .cpu = 3,
				    .start = 4000,
				    .end = 4500 };
	put(scene, item);
	item = call("in a process that nobody knows", 5000, 6000);
	item.pid = item.tid = 4194303;
	item.process = &unknown;
	item.thread = "";
	put(scene, item);
	item = call("cuCtxSynchronize", 400000, 500000);
	item.open = true;
	item.has_result = false;
	put(scene, item);
	put(scene, call("of a process with the same pid", 600000, 600400));
	/* later in the file than what is within it, and one that crosses an end */
	item = call("cuModuleLoad", 10000, 11000);
	item.tid = 1002;
	item.thread = "\xfe\"worker";
	put(scene, item);
	item.name = "cuInit";
	item.start = 9000, item.end = 12000;
	put(scene, item);
	item.name = "crosses";
	item.start = 11500, item.end = 13000;
	put(scene, item);
}

/* As long a trace as one likes, in which nothing is named twice. */
static void put_many(struct scene *scene) {
	for (unsigned i = 0; i < 30000; i++) {
		char name[64], text[64];
		struct trace_process_info process = { .pid = 1 + i % 50000 };
		struct trace_item item = call(name, 10 * i, 10 * i + 5);

		snprintf(name, sizeof(name), "function %u", i);
		snprintf(text, sizeof(text), "enumerator %u", i);
		item.pid = process.pid;
		item.process = &process;
		item.tid = 1 + i % 50000;
		item.base = "cuMemAlloc";
		item.size = 1;
		add(&item,
		    (struct trace_value){ .name = "dptr", .kind = VALUE_HEX, .number = i + 1 });
		add(&item,
		    (struct trace_value){ .name = "enum", .kind = VALUE_NAME, .text = text });
		put(scene, item);
	}
}

/* Many threads at once, each with a call around another one. */
static void put_threads(struct scene *scene) {
	for (int inner = 0; inner < 2; inner++)
		for (unsigned i = 0; i < 1000; i++) {
			struct trace_item item = inner ? call("inner", 4000000, 9000000)
						       : call("outer", 0, 10000000);

			item.tid = 2000 + i;
			put(scene, item);
		}
}

/* One call around more of different names than are remembered, which overlap nothing. */
static void put_names(struct scene *scene) {
	char name[64];

	put(scene, call("outer", 0, 40000000));
	for (unsigned i = 0; i < 30000; i++) {
		snprintf(name, sizeof(name), "inner %u", i);
		put(scene, call(name, 1000 * i, 1000 * i + 1000));
	}
}

/* Calls of the longest stacks that one meets. */
static void put_stacks(struct scene *scene) {
	static char texts[30][400];
	const char *stack[30];
	struct trace_item item = call("cuLaunchKernel", 0, 10000);

	for (int i = 0; i < 30; i++) {
		snprintf(texts[i], sizeof(texts[i]), "lib.so+0x%x (function_%0300d+0x1)", i, i);
		stack[i] = texts[i];
	}
	item.frames = stack;
	item.n_frames = 30;
	put(scene, item);
	put(scene, call("ioctl", 1000, 4000));
	item.name = item.base = "cuMemcpy";
	item.start = 20000, item.end = 40000;
	put(scene, item);
	item = kernel("vectorAdd", 50000, 550000, 0);
	item.parent = 1;
	put(scene, item);
}

/* A launch of more than one kernel. */
static void put_graph(struct scene *scene) {
	struct trace_item item = call("cuGraphLaunch", 1000, 2000);

	item.flow = 1;
	put(scene, item);
	for (uint64_t i = 0; i < 3; i++) {
		item = kernel("kernel", 3000 + 1000 * i, 3500 + 1000 * i, 0);
		item.flow = item.parent = 1;
		put(scene, item);
	}
}

static unsigned random_below(unsigned n) {
	static uint64_t state = 1;

	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned)(state >> 33) % n;
}

/* Spans of one lane never cross, whatever is given in the order of their starts; what comes late
 * goes where it belongs. */
static int test_lanes(void) {
	static struct trace_track track;
	static struct {
		uint64_t start, end;
		unsigned lane;
	} spans[3000];
	uint64_t start = 0;

	for (unsigned i = 0; i < 3000; i++) {
		start += random_below(20);
		spans[i].start = start;
		spans[i].end = start + random_below(i % 3 ? 30 : 200);
		spans[i].lane = trace_track_lane(&track, spans[i].start, spans[i].end);
		for (unsigned k = 0; k < i; k++)
			if (spans[k].lane == spans[i].lane && spans[i].lane + 1 < TRACK_LANES &&
			    spans[k].end > spans[i].start && spans[k].end < spans[i].end) {
				fprintf(stderr, "%u and %u cross\n", k, i);
				return 1;
			}
	}
	memset(&track, 0, sizeof(track));
	for (unsigned i = 0; i < 100; i++)
		trace_track_lane(&track, 1000 + 10 * i, 1005 + 10 * i);
	if (trace_track_lane(&track, 900, 3000) != 0 || trace_track_lane(&track, 1900, 1950) != 0 ||
	    trace_track_lane(&track, 2900, 3100) != 1) {
		fprintf(stderr, "a late span, or one after it, is not where it belongs\n");
		return 1;
	}
	memset(&track, 0, sizeof(track));
	track.key.kind = TRACK_STREAM;
	if (trace_track_lane(&track, 100, 200) != 0 || trace_track_lane(&track, 120, 150) != 1 ||
	    trace_track_lane(&track, 90, 110) != 1 || trace_track_lane(&track, 150, 160) != 1 ||
	    trace_track_lane(&track, 200, 210) != 0 || trace_track_lane(&track, 50, 90) != 0) {
		fprintf(stderr, "kernels that overlap share a lane\n");
		return 1;
	}
	return 0;
}

/* The sum over many allocations that come and go is what it would be by hand. */
static int test_in_use(void) {
	static uint64_t sizes[5000], sum;
	struct trace_in_use *in_use;
	struct trace_item item = call("cuMemAlloc_v2", 0, 1),
			  exited = { .kind = EVENT_PROCESS, .name = "exit", .pid = 1000 };
	uint64_t bytes;

	if (trace_in_use_new(&in_use) < 0)
		return 1;
	item.process = &python;
	add(&item, (struct trace_value){ .name = "dptr", .kind = VALUE_HEX });
	for (unsigned i = 0; i < 200000; i++) {
		unsigned k = random_below(5000);

		item.base = sizes[k] ? "cuMemFree" : "cuMemAlloc";
		item.values[0].number = k + 1;
		item.size = sizes[k] ? 0 : random_below(1000) + 1;
		sum = sum - sizes[k] + item.size;
		sizes[k] = item.size;
		if (!trace_in_use_item(in_use, &item, &bytes) || bytes != sum) {
			fprintf(stderr, "%u: %llu bytes in use\n", i, (unsigned long long)bytes);
			return 1;
		}
	}
	if (!trace_in_use_item(in_use, &exited, &bytes) || bytes ||
	    trace_in_use_item(in_use, &exited, &bytes)) {
		fprintf(stderr, "a process that is gone has memory\n");
		return 1;
	}
	trace_in_use_free(in_use);
	return 0;
}

/* The end of a trace, and a note of a program whose text looks like one. */
static int test_ends(void) {
	struct {
		struct trace_note note;
		struct trace_stop text, stop;
	} bytes = { .note.record = { .size = sizeof(bytes.note) + sizeof(bytes.text),
				     .type = TRACE_NOTE },
		    .text.record = { .size = sizeof(bytes.text), .type = TRACE_STOP },
		    .stop.record = { .size = sizeof(bytes.stop), .type = TRACE_STOP } };
	const size_t n = sizeof(bytes.note) + sizeof(bytes.text);

	_Static_assert(sizeof(bytes) == sizeof(bytes.note) + 2 * sizeof(bytes.stop),
		       "one after the other");
	if (!trace_stream_ends(&bytes, n) && trace_stream_ends(&bytes, n + sizeof(bytes.stop)) &&
	    !trace_stream_ends(&bytes, n - 8) && !trace_stream_ends(&bytes, 4) &&
	    !trace_stream_ends(NULL, 0))
		return 0;
	fprintf(stderr, "the end of a trace\n");
	return 1;
}

int main(int argc, char **argv) {
	static const struct trace_format *const formats[] = { &trace_format_chrome,
							      &trace_format_perfetto,
							      &trace_format_folded };
	const struct trace_about about = { UINT64_C(5000000000000), UINT64_C(1800000000000000000),
					   "ho\"st\xff", "580.159.04", "0.1.0" };
	struct scene scene = { 0 };
	struct rusage before, after;
	FILE *file;

	if (argc == 2 && strcmp(argv[1], "lanes") == 0)
		return test_lanes() || test_in_use() || test_ends();
	if (argc != 4)
		return 2;
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (strcmp(argv[1], formats[i]->name) == 0)
			scene.format = formats[i];
	file = fopen(argv[3], "w");
	if (!scene.format || !file || scene.format->open(&scene.writer, file, &about) < 0)
		return 2;
	if (strcmp(argv[2], "sample") == 0) {
		put_others(&scene);
		put_values(&scene);
		put_launches(&scene);
		put_memory(&scene);
		put_contexts(&scene);
	} else if (strcmp(argv[2], "threads") == 0) {
		put_threads(&scene);
	} else if (strcmp(argv[2], "names") == 0) {
		put_names(&scene);
	} else if (strcmp(argv[2], "stacks") == 0) {
		put_stacks(&scene);
	} else if (strcmp(argv[2], "graph") == 0) {
		put_graph(&scene);
	} else if (strcmp(argv[2], "many") == 0) {
		put_many(&scene);
		getrusage(RUSAGE_SELF, &before);
		put_many(&scene);
		getrusage(RUSAGE_SELF, &after);
		printf("%ld\n", after.ru_maxrss - before.ru_maxrss);
	}
	return scene.format->close(scene.writer, true) < 0 || fclose(file) != 0;
}
