/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What printf() on the GPU has said (gpu.h): records of a ring, read from time to time, sorted by
 * the GPU's clock, and printed when no older one is expected any more.
 */

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"
#include "gpu.h"
#include "lib/base/clock.h"
#include "lib/json.h"
#include "proto/ring-reply.h"

#define WINDOW UINT64_C(200000000) /* nanoseconds that a line waits for older ones */
#define PERIOD UINT64_C(30000000) /* between two readings */
#define SECOND UINT64_C(1000000000)
#define LINES_MAX 65536 /* that wait */

struct line {
	uint64_t seen; /* when it was read */
	uint64_t words[CODE_PRINT_WORDS]; /* number of the printf(), time, values */
};

struct gpu_print {
	size_t n;
	struct line *lines; /* LINES_MAX */
	uint64_t read_at, second; /* of the last reading; the beginning of the second */
	int64_t printed; /* in that second */
	uint64_t over, lost, left_out;
};

static struct gpu_print *get(struct gpu *gpu) {
	if (!gpu->print)
		gpu->print = calloc(1, sizeof(*gpu->print));
	if (gpu->print && !gpu->print->lines)
		gpu->print->lines = calloc(LINES_MAX, sizeof(*gpu->print->lines));
	if (gpu->print && gpu->print->lines)
		return gpu->print;
	gpu->evaluator->failed = true;
	return NULL;
}

/* ---- reading ---- */

static bool take_record(struct gpu *gpu, const unsigned char *data, size_t n, uint64_t now) {
	struct line line = { .seen = now };
	uint64_t word;

	if (n < 16 || n % 8 || n > sizeof(line.words))
		return false;
	for (size_t i = 0; i < n / 8; i++) {
		memcpy(&word, data + 8 * i, sizeof(word));
		line.words[i] = le64toh(word);
	}
	if (line.words[0] >= gpu->script->n_prints)
		return false;
	if (gpu->print->n < LINES_MAX)
		gpu->print->lines[gpu->print->n++] = line;
	else
		gpu->print->left_out++;
	return true;
}

static bool take_batches(struct gpu *gpu, const unsigned char *data, size_t n, uint64_t now) {
	struct ring_reply_batch batch;

	while (n >= sizeof(batch)) {
		memcpy(&batch, data, sizeof(batch));
		data += sizeof(batch);
		n -= sizeof(batch);
		if (!batch.size || (uint64_t)batch.size * batch.count > n)
			return false;
		for (; batch.count; batch.count--) {
			if (!take_record(gpu, data, batch.size, now))
				return false;
			data += batch.size;
			n -= batch.size;
		}
	}
	return !n;
}

static void read_ring(struct gpu *gpu) {
	json_object *parameters = json_object_new_object();
	struct varlink_reply reply;
	const uint64_t now = monotonic_now();
	bool more = true;
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, gpu->print_id);
	json_add_string(parameters, "map", text);
	json_add_bool(parameters, "raw", true);
	gpu->failed |= ctl_call_more(gpu->ctl, "ReadRing", parameters) != CTL_OK;
	while (more && !gpu->failed) {
		unsigned char *data;
		size_t n = 0;

		if (ctl_next(gpu->ctl, "ReadRing", "printf()", &reply)) {
			gpu->failed = true;
			return;
		}
		more = reply.continues;
		data = json_member(reply.parameters, "batches")
			       ? ctl_decode(json_member(reply.parameters, "batches"), &n)
			       : NULL;
		gpu->failed |= data && !take_batches(gpu, data, n, now);
		gpu->print->lost = (uint64_t)json_int_of(reply.parameters, "lost");
		free(data);
		varlink_reply_deinit(&reply);
	}
}

/* ---- printing ---- */

static void print_line(struct gpu *gpu, const struct line *line) {
	const struct node *call = gpu->script->prints[line->words[0]];
	struct value values[SCRIPT_VALUES_MAX] = {};
	size_t n = 0;

	for (const struct node *node = call->a->next; node; node = node->next, n++) {
		const uint64_t word = line->words[2 + n];

		values[n] = (struct value){ .type = TYPE_NUMBER, .number = (int64_t)word };
		if (node->type >= TYPE_KERNEL)
			values[n] = (struct value){ .type = TYPE_TEXT,
						    .text = gpu_id_name(gpu, node->type, word) };
		if (node->type >= TYPE_KERNEL) /* the next name may take its place */
			values[n].text = evaluator_keep(gpu->evaluator, values[n].text);
	}
	evaluate_format(gpu->evaluator, call, values);
	evaluator_forget(gpu->evaluator);
}

static int compare(const void *a, const void *b) {
	const struct line *one = a, *other = b;

	return (one->words[1] > other->words[1]) - (one->words[1] < other->words[1]);
}

void gpu_print(struct gpu *gpu, int64_t rate, bool all) {
	struct gpu_print *print = gpu->print_id ? get(gpu) : NULL;
	const uint64_t now = monotonic_now();
	size_t n = 0;

	if (!print || (!all && now < print->read_at + PERIOD))
		return;
	print->read_at = now;
	read_ring(gpu);
	qsort(print->lines, print->n, sizeof(*print->lines), compare);
	if (now >= print->second + SECOND) {
		print->second = now;
		print->printed = 0;
	}
	for (; n < print->n && (all || print->lines[n].seen + WINDOW <= now); n++) {
		if (print->printed < rate) {
			print_line(gpu, &print->lines[n]);
			print->printed++;
		} else {
			print->over++;
		}
	}
	if (n)
		fflush(gpu->evaluator->show.out); /* somebody may watch */
	memmove(print->lines, print->lines + n, (print->n - n) * sizeof(*print->lines));
	print->n -= n;
}

void gpu_print_lost(const struct gpu *gpu, uint64_t *over, uint64_t *lost) {
	*over = gpu->print ? gpu->print->over + gpu->print->left_out : 0;
	*lost = gpu->print ? gpu->print->lost : 0;
}

void gpu_print_deinit(struct gpu *gpu) {
	if (gpu->print)
		free(gpu->print->lines);
	free(gpu->print);
	gpu->print = NULL;
}
