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

bool item_fits(struct evaluator *evaluator, const struct probe *probe,
	       const struct trace_item *item) {
	const struct function *function;
	struct kernel_name name;
	int match;

	if (item->kind != EVENT_CALL)
		return false;
	function = function_by_name(item->name);
	if (probe->kind != PROBE_LAUNCH)
		return function && probe_has_function(probe, function);
	evaluator->graphs += function && !strcmp(function->base, "cuGraphLaunch") && !item->failed;
	if (!is_launch(function) || (item->failed && item->has_result))
		return false;
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

static struct value size(const struct trace_item *item, const char *prefix, int axis) {
	int64_t sides[3];
	char name[16];

	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%sDim%c", prefix, "XYZ"[i]);
		sides[i] = side(item, name);
	}
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
static struct value stack(struct evaluator *evaluator, const struct trace_item *item) {
	const char *kept;
	size_t n = 2;
	char *lines, *at;

	for (size_t i = 0; i < item->n_frames; i++)
		n += strlen(item->frames[i]) + sizeof("\n    ");
	lines = at = malloc(n);
	if (!lines) {
		evaluator->failed = true;
		return text("");
	}
	for (size_t i = 0; i < item->n_frames; i++)
		at += sprintf(at, "\n    %s", item->frames[i]);
	strcpy(at, "\n");
	kept = evaluator_keep(evaluator, lines);
	free(lines);
	return text(kept);
}

struct value item_word(struct evaluator *evaluator, const struct event *event,
		       const struct node *node) {
	const struct trace_item *item = event->item;
	const enum word_id id = node->word->id;

	switch (id) {
	case WORD_NSECS:
		return number((int64_t)event->nsecs);
	case WORD_KERNEL:
		return text(item->kernel ? trace_demangle(&evaluator->demangler, item->kernel)
					 : "(unknown)");
	case WORD_GRID:
	case WORD_GRID_X:
	case WORD_GRID_Y:
	case WORD_GRID_Z:
		return size(item, "grid", (int)id - WORD_GRID_X);
	case WORD_BLOCKDIM:
	case WORD_BLOCKDIM_X:
	case WORD_BLOCKDIM_Y:
	case WORD_BLOCKDIM_Z:
		return size(item, "block", (int)id - WORD_BLOCKDIM_X);
	case WORD_SMEM:
		return number(side(item, "sharedMemBytes"));
	case WORD_STREAM:
		return number((int64_t)item->stream);
	case WORD_BYTES:
		return number((int64_t)item->size);
	case WORD_DURATION:
		return number((int64_t)(item->end - item->start));
	case WORD_PID:
		return number(item->pid);
	case WORD_TID:
		return number(item->tid);
	case WORD_COMM:
		return text(item->process->comm);
	case WORD_FUNC:
		return text(item->name);
	case WORD_RETVAL:
		return number(item->has_result ? item->result : 0);
	case WORD_USTACK:
		return stack(evaluator, item);
	case WORD_ARGS:
		return argument(node, item);
	default:
		return number(0);
	}
}
