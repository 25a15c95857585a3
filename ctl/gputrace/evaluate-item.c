/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Items of a trace as events (evaluate-item.h). A launch is a call of the class launch that names a
 * kernel; a call is there when it has ended.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evaluate-item.h"
#include "lib/function.h"
#include "lib/kernel-name.h"
#include "words.h"

/* Whether a call puts one kernel on the GPU. */
static bool is_launch(const struct function *function) {
	return function && function->class == FUNCTION_LAUNCH && function->kernel_argument >= 0;
}

static bool is_graph(const struct trace_item *item) {
	return !strcmp(item->base, "cuGraphLaunch");
}

/* ---- what is kept of items ---- */

#define LAUNCHED 65536 /* launches whose kernels have not ended: newer ones take their places */

/* A launch, for when its kernel has ended. */
struct launched {
	uint64_t id, start; /* of the item; id 0: none */
	int64_t grid[3], block[3], smem;
	uint32_t tid;
	bool graph;
	const char *name;
	size_t n_frames;
	const char *const *frames;
};

/* A GPU of a process. */
struct busy {
	uint32_t pid, device;
	uint64_t end; /* of all kernels so far */
};

static const struct launched *find_launched(const struct evaluator *evaluator,
					    const struct trace_item *item) {
	const struct launched *found =
		evaluator->launched ? &evaluator->launched[item->flow % LAUNCHED] : NULL;

	return found && item->flow && found->id == item->flow ? found : NULL;
}

static int64_t side(const struct trace_item *item, const char *name);

static void sides(const struct trace_item *item, const char *prefix, int64_t values[3]) {
	char name[16];

	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%sDim%c", prefix, "XYZ"[i]);
		values[i] = side(item, name);
	}
}

static void note_launch(struct evaluator *evaluator, const struct trace_item *item) {
	struct launched *launched;

	if (!evaluator->launched)
		evaluator->launched = calloc(LAUNCHED, sizeof(*evaluator->launched));
	if (!evaluator->launched) {
		evaluator->failed = true;
		return;
	}
	launched = &evaluator->launched[item->flow % LAUNCHED];
	*launched = (struct launched){ .id = item->flow,
				       .start = item->start,
				       .smem = side(item, "sharedMemBytes"),
				       .tid = item->tid,
				       .graph = is_graph(item),
				       .name = item->name,
				       .n_frames = item->n_frames,
				       .frames = item->frames };
	sides(item, "grid", launched->grid);
	sides(item, "block", launched->block);
}

static void note_kernel(struct evaluator *evaluator, const struct trace_item *item) {
	struct busy *busy = evaluator->busy, *more;
	size_t i = 0;

	while (i < evaluator->n_busy &&
	       (busy[i].pid != item->pid || busy[i].device != item->device))
		i++;
	evaluator->idle =
		i < evaluator->n_busy && item->start > busy[i].end ? item->start - busy[i].end : 0;
	if (i == evaluator->n_busy) {
		more = reallocarray(busy, i + 1, sizeof(*busy));
		evaluator->failed |= !more;
		if (!more)
			return;
		evaluator->busy = busy = more;
		evaluator->n_busy++;
		busy[i] = (struct busy){ item->pid, item->device, 0 };
	}
	busy[i].end = item->end > busy[i].end ? item->end : busy[i].end;
}

void item_note(struct evaluator *evaluator, const struct trace_item *item) {
	evaluator->idle = 0;
	if (!evaluator->script->needs_times)
		return;
	if (item->kind == EVENT_CALL && item->flow &&
	    (is_launch(function_by_name(item->name)) || is_graph(item)))
		note_launch(evaluator, item);
	else if (item->kind == EVENT_KERNEL)
		note_kernel(evaluator, item);
}

/* ---- which probes an item is an event of ---- */

static bool kernel_fits(struct evaluator *evaluator, const struct probe *probe,
			const struct trace_item *item) {
	struct kernel_name name;
	int match;

	if (!strcmp(probe->name, "*"))
		return true;
	if (!item->kernel) {
		evaluator->unnamed++;
		return false;
	}
	kernel_name_init(&name, item->kernel);
	match = kernel_name_match(&name, probe->name);
	kernel_name_deinit(&name);
	evaluator->failed |= match < 0;
	return match == 1;
}

/* launch:KERNEL:end. Copies are told as kernels, too, but have none and were not launched. A graph
 * as a whole has no kernel that a name could mean. */
static bool ended_fits(struct evaluator *evaluator, const struct probe *probe,
		       const struct trace_item *item) {
	const struct launched *launched = find_launched(evaluator, item);

	if (!item->kernel && (!launched || (launched->graph && strcmp(probe->name, "*"))))
		return false;
	return kernel_fits(evaluator, probe, item);
}

static bool call_fits(struct evaluator *evaluator, const struct probe *probe,
		      const struct trace_item *item) {
	const struct function *function = function_by_name(item->name);

	if (probe->kind != PROBE_LAUNCH)
		return function && probe_has_function(probe, function);
	evaluator->graphs += is_graph(item) && !item->failed;
	return is_launch(function) && !(item->failed && item->has_result) &&
	       kernel_fits(evaluator, probe, item);
}

bool item_fits(struct evaluator *evaluator, const struct probe *probe,
	       const struct trace_item *item) {
	switch (probe->kind) {
	case PROBE_PROCESS:
		return item->kind == EVENT_PROCESS &&
		       (!probe->name || !strcmp(probe->name, item->name));
	case PROBE_IDLE:
		return item->kind == EVENT_KERNEL && evaluator->idle;
	case PROBE_LAUNCH:
		if (probe->end)
			return item->kind == EVENT_KERNEL && ended_fits(evaluator, probe, item);
		return item->kind == EVENT_CALL && call_fits(evaluator, probe, item);
	default:
		return item->kind == EVENT_CALL && call_fits(evaluator, probe, item);
	}
}

/* ---- words ---- */

static struct value number(int64_t value) {
	return (struct value){ .type = TYPE_NUMBER, .number = value };
}

static struct value text(const char *value) {
	return (struct value){ .type = TYPE_TEXT, .text = value ? value : "" };
}

/* An argument, or a member of a struct that one points to; what was there at the return, if it is
 * known. */
static const struct trace_value *find_value(const struct trace_item *item, const char *name) {
	const struct trace_value *found = NULL;

	for (size_t i = 0; i < item->n_values; i++)
		if (!strcmp(item->values[i].name, name) && (!found || item->values[i].out))
			found = &item->values[i];
	return found;
}

static int64_t side(const struct trace_item *item, const char *name) {
	const struct trace_value *value = find_value(item, name);

	return value ? value->number : 0;
}

static struct value size(const int64_t sides[3], int axis) {
	return number(axis >= 0 ? sides[axis] : sides[0] * sides[1] * sides[2]);
}

static struct value argument(const struct node *node, const struct trace_item *item) {
	const struct trace_value *value = find_value(item, node->text + strlen("args."));

	if (node->type == TYPE_TEXT)
		return text(value ? value->text : "");
	return number(!value                       ? 0
		      : value->kind == VALUE_FLOAT ? (int64_t)value->real
						   : value->number);
}

/* One line a frame, as bpftrace prints a stack. */
static struct value stack(struct evaluator *evaluator, const char *const *frames, size_t n_frames) {
	const char *kept;
	size_t n = 2;
	char *lines, *at;

	for (size_t i = 0; i < n_frames; i++)
		n += strlen(frames[i]) + sizeof("\n    ");
	lines = at = malloc(n);
	if (!lines) {
		evaluator->failed = true;
		return text("");
	}
	for (size_t i = 0; i < n_frames; i++)
		at += sprintf(at, "\n    %s", frames[i]);
	strcpy(at, "\n");
	kept = evaluator_keep(evaluator, lines);
	free(lines);
	return text(kept);
}

/* Of a launch as it was made: from its own item, or from what is kept of it. */
static struct launched launch_of(const struct evaluator *evaluator, const struct trace_item *item) {
	const struct launched *kept =
		item->kind == EVENT_KERNEL ? find_launched(evaluator, item) : NULL;
	struct launched launched = { .start = item->start,
				     .tid = item->tid,
				     .smem = side(item, "sharedMemBytes"),
				     .name = item->name,
				     .n_frames = item->n_frames,
				     .frames = item->frames };

	if (kept)
		return *kept;
	sides(item, "grid", launched.grid);
	sides(item, "block", launched.block);
	return launched;
}

static struct value kernel_word(struct evaluator *evaluator, const struct trace_item *item,
				bool graph) {
	if (graph)
		return text("(graph)");
	return text(item->kernel ? trace_demangle(&evaluator->demangler, item->kernel)
				 : "(unknown)");
}

/* Words of what a launch has. */
static struct value launch_word(struct evaluator *evaluator, const struct trace_item *item,
				enum word_id id) {
	const struct launched launched = launch_of(evaluator, item);

	switch (id) {
	case WORD_KERNEL:
		return kernel_word(evaluator, item, launched.graph);
	case WORD_SMEM:
		return number(launched.smem);
	case WORD_TID:
		return number(launched.tid);
	case WORD_FUNC:
		return text(launched.name);
	case WORD_USTACK:
		return stack(evaluator, launched.frames, launched.n_frames);
	case WORD_LATENCY:
		return number((int64_t)(item->start - launched.start));
	default:
		return id <= WORD_GRID_Z ? size(launched.grid, (int)id - WORD_GRID_X)
					 : size(launched.block, (int)id - WORD_BLOCKDIM_X);
	}
}

struct value item_word(struct evaluator *evaluator, const struct event *event,
		       const struct node *node) {
	const struct trace_item *item = event->item;
	const enum word_id id = node->word->id;

	switch (id) {
	case WORD_NSECS:
		return number((int64_t)event->nsecs);
	case WORD_STREAM:
		return number((int64_t)item->stream);
	case WORD_DEVICE:
		return number(item->device);
	case WORD_BYTES:
		return number((int64_t)item->size);
	case WORD_DURATION:
		return number((int64_t)(event->probe->kind == PROBE_IDLE
						? evaluator->idle
						: item->end - item->start));
	case WORD_PID:
		return number(item->pid);
	case WORD_COMM:
		return text(item->process->comm);
	case WORD_RETVAL:
		return number(item->has_result ? item->result : 0);
	case WORD_ARGS:
		return argument(node, item);
	case WORD_KERNEL:
	case WORD_GRID:
	case WORD_GRID_X:
	case WORD_GRID_Y:
	case WORD_GRID_Z:
	case WORD_BLOCKDIM:
	case WORD_BLOCKDIM_X:
	case WORD_BLOCKDIM_Y:
	case WORD_BLOCKDIM_Z:
	case WORD_SMEM:
	case WORD_TID:
	case WORD_FUNC:
	case WORD_USTACK:
	case WORD_LATENCY:
		return launch_word(evaluator, item, id);
	default:
		return number(0);
	}
}
