/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Evaluates bodies (evaluate.h). Numbers are 64 bits and wrap; divisions by zero and shifts are as
 * in eBPF, so that a script means the same on both sides.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "evaluate-item.h"
#include "format.h"
#include "lib/function.h"
#include "operate.h"
#include "words.h"

enum leaving {
	LEAVING_NOT,
	LEAVING_LOOP, /* break */
	LEAVING_ROUND, /* continue */
};

struct frame {
	struct evaluator *evaluator;
	const struct event *event;
	struct value locals[SCRIPT_LOCALS_MAX];
	enum leaving leaving;
	int rounds; /* of all while */
};

void evaluator_init(struct evaluator *evaluator, const struct script *script) {
	*evaluator = (struct evaluator){ .script = script };
	for (size_t i = 0; i < script->n_maps; i++) {
		store_init(&evaluator->host[i], &script->maps[i]);
		store_init(&evaluator->gpu[i], &script->maps[i]);
		store_init(&evaluator->base[i], &script->maps[i]);
	}
}

struct kept_text {
	struct kept_text *next;
	char text[];
};

const char *evaluator_keep(struct evaluator *evaluator, const char *text) {
	const size_t n = strlen(text) + 1;
	struct kept_text *kept = malloc(sizeof(*kept) + n);

	if (!kept) {
		evaluator->failed = true;
		return "";
	}
	kept->next = evaluator->texts;
	evaluator->texts = kept;
	return memcpy(kept->text, text, n);
}

void evaluator_forget(struct evaluator *evaluator) {
	struct kept_text *next;

	for (; evaluator->texts; evaluator->texts = next) {
		next = evaluator->texts->next;
		free(evaluator->texts);
	}
}

void evaluator_deinit(struct evaluator *evaluator) {
	for (size_t i = 0; evaluator->script && i < evaluator->script->n_maps; i++) {
		store_deinit(&evaluator->host[i]);
		store_deinit(&evaluator->gpu[i]);
		store_deinit(&evaluator->base[i]);
	}
	trace_demangler_deinit(&evaluator->demangler);
	free(evaluator->launched);
	free(evaluator->busy);
	store_key_deinit(&evaluator->key);
	evaluator_forget(evaluator);
}

static struct value number(int64_t value) {
	return (struct value){ .type = TYPE_NUMBER, .number = value };
}

static struct value evaluate(struct frame *frame, const struct node *node);

static size_t map_index(const struct frame *frame, const struct node *node) {
	return (size_t)(node->map - frame->evaluator->script->maps);
}

static struct store *host_store(struct frame *frame, const struct node *node) {
	return &frame->evaluator->host[map_index(frame, node)];
}

/* The keys of a map's element. Keys that are evaluated may not read maps by the same buffer, so
 * they are evaluated first. */
static const struct store_key *keys(struct frame *frame, const struct node *node) {
	struct value values[SCRIPT_KEYS_MAX];
	size_t n = 0;

	for (const struct node *key = node->a; key; key = key->next)
		values[n++] = evaluate(frame, key);
	store_key_clear(&frame->evaluator->key);
	for (size_t i = 0; i < n; i++)
		store_key_add(&frame->evaluator->key, values[i]);
	return &frame->evaluator->key;
}

/* What is on the GPU, once a body: all that it reads and prints is of one moment. */
static void refresh(struct evaluator *evaluator) {
	if (evaluator->refresh && !evaluator->refreshed)
		evaluator->refresh(evaluator->userdata);
	evaluator->refreshed = true;
}

/* Of both sides, less what was there when the map was cleared: what a print() shows. */
static struct value read_both(struct frame *frame, const struct node *node) {
	struct evaluator *evaluator = frame->evaluator;
	const struct store_key *key;
	const size_t i = map_index(frame, node);
	struct store_entry *entry;
	struct store both;
	int64_t value = 0;

	refresh(evaluator);
	store_init(&both, node->map);
	key = keys(frame, node);
	if (!store_merge_key(&both, &evaluator->host[i], key, false) ||
	    !store_merge_key(&both, &evaluator->gpu[i], key, false) ||
	    !store_merge_key(&both, &evaluator->base[i], key, true))
		evaluator->failed = true;
	entry = store_find(&both, key);
	if (entry)
		value = store_value(&both, entry);
	store_deinit(&both);
	return number(value);
}

static struct value read_map(struct frame *frame, const struct node *node) {
	const struct store_entry *entry;

	if (node->map->kind != MAP_SCALAR || node->map->gpu_writes.line)
		return read_both(frame, node);
	entry = store_find(host_store(frame, node), keys(frame, node));
	if (node->type == TYPE_TEXT)
		return (struct value){ .type = TYPE_TEXT,
				       .text = evaluator_keep(frame->evaluator,
							      entry && entry->text ? entry->text
										   : "") };
	return number(entry ? entry->sum : 0);
}

static struct value evaluate_binary(struct frame *frame, const struct node *node) {
	struct value a = evaluate(frame, node->a), b;

	if (node->op == OP_BOTH && !a.number)
		return number(0);
	if (node->op == OP_EITHER && a.number)
		return number(1);
	b = evaluate(frame, node->b);
	if (node->a->type == TYPE_FLOAT)
		return number(operate_float(node->op, a.number, b.number));
	if (a.type == TYPE_TEXT)
		return number(!strcmp(a.text, b.text) == (node->op == OP_EQ));
	return number(operate(node->op, a.number, b.number));
}

/* f32() and its like, isnan() and isinf(). */
static struct value evaluate_float(struct frame *frame, const struct node *node) {
	const int64_t bits = evaluate(frame, node->a).number;

	switch (node->builtin->id) {
	case BUILTIN_ISNAN:
		return number(float_is_nan(bits));
	case BUILTIN_ISINF:
		return number(isinf(float_real(bits)) != 0);
	default:
		return number(float_of(node->builtin->id, bits));
	}
}

static struct value evaluate(struct frame *frame, const struct node *node) {
	switch (node->kind) {
	case NODE_CALL:
		return evaluate_float(frame, node);
	case NODE_NUMBER:
	case NODE_FLOAT:
		return number(node->number);
	case NODE_STRING:
		return (struct value){ .type = TYPE_TEXT, .text = node->text };
	case NODE_LOCAL:
		if (node->type == TYPE_TEXT && !frame->locals[node->local].text)
			return (struct value){ .type = TYPE_TEXT, .text = "" };
		return frame->locals[node->local];
	case NODE_WORD:
		return item_word(frame->evaluator, frame->event, node);
	case NODE_MAP:
		return read_map(frame, node);
	case NODE_UNARY:
		return number(operate_unary(node->op, evaluate(frame, node->a).number));
	case NODE_BINARY:
		return evaluate_binary(frame, node);
	case NODE_CHOICE:
		return evaluate(frame, evaluate(frame, node->a).number ? node->b : node->c);
	default:
		return number(0);
	}
}

/* ---- statements ---- */

static void assign_map(struct frame *frame, const struct node *node) {
	struct store *store = host_store(frame, node->a);
	struct store_entry *entry;
	struct value value = {};

	if (store->map->kind == MAP_SCALAR)
		value = evaluate(frame, node->b);
	else if (node->b->a)
		value = evaluate(frame, node->b->a);
	entry = store_add(store, keys(frame, node->a));
	if (!entry)
		return;
	if (store->map->kind != MAP_SCALAR)
		frame->evaluator->failed |= !store_take(store, entry, value.number);
	else if (value.type == TYPE_TEXT)
		frame->evaluator->failed |= !store_set_text(entry, value.text);
	else
		entry->sum = node->op ? operate(node->op, entry->sum, value.number) : value.number;
	frame->evaluator->changed[map_index(frame, node->a)] = true;
}

static void assign(struct frame *frame, const struct node *node) {
	struct value value, *local;

	if (node->a->kind == NODE_MAP) {
		assign_map(frame, node);
		return;
	}
	value = evaluate(frame, node->b);
	local = &frame->locals[node->a->local];
	*local = node->op ? number(operate(node->op, local->number, value.number)) : value;
}

/* Both sides, less what was there when the map was cleared. */
static void merge_sides(struct evaluator *evaluator, size_t i, struct store *both) {
	store_init(both, &evaluator->script->maps[i]);
	if (!store_merge(both, &evaluator->host[i], false) ||
	    !store_merge(both, &evaluator->gpu[i], false) ||
	    !store_merge(both, &evaluator->base[i], true))
		evaluator->failed = true;
}

static void print_map(struct evaluator *evaluator, size_t i, size_t top, int64_t div) {
	struct store both;

	merge_sides(evaluator, i, &both);
	show_map(&evaluator->show, &both, top, div);
	store_deinit(&both);
}

/* A clear() makes what is there the new zero; a zero() keeps the keys. */
static void clear_map(struct evaluator *evaluator, size_t i, bool keep) {
	struct store *host = &evaluator->host[i], *base = &evaluator->base[i];

	if (!evaluator->refresh) { /* there is nothing to come: all of it is the host's */
		evaluator->failed |= !store_merge(host, &evaluator->gpu[i], false) ||
				     !store_merge(host, base, true);
		store_clear(&evaluator->gpu[i]);
	}
	evaluator->changed[i] = true;
	store_clear(base);
	evaluator->failed |= !store_merge(base, &evaluator->gpu[i], false);
	for (size_t j = 0; j < base->entries.n; j++)
		((struct store_entry *)hash_table_at(&base->entries, j))->kept = keep;
	if (!keep) {
		store_clear(host);
		return;
	}
	for (size_t j = 0; j < host->entries.n; j++) {
		struct store_entry *entry = hash_table_at(&host->entries, j);

		free(entry->buckets);
		free(entry->text);
		*entry = (struct store_entry){
			.key = entry->key, .min = INT64_MAX, .max = INT64_MIN, .kept = 1
		};
	}
}

void evaluate_format(struct evaluator *evaluator, const struct node *call,
		     const struct value *values) {
	const char *at = call->a->text;
	struct format_piece piece;
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out) {
		evaluator->failed = true;
		return;
	}
	while (format_next(&at, &piece)) {
		if (piece.kind == FORMAT_TEXT)
			fwrite(piece.text, 1, piece.n, out);
		else if (piece.kind == FORMAT_STRING)
			fprintf(out, "%*s", piece.width, (values++)->text);
		else
			format_number(out, &piece, (values++)->number);
	}
	fclose(out);
	show_output(&evaluator->show, "printf", text ? text : "", n);
	free(text);
}

static void print_format(struct frame *frame, const struct node *call) {
	struct value values[SCRIPT_VALUES_MAX];
	size_t n = 0;

	for (const struct node *value = call->a->next; value; value = value->next)
		values[n++] = evaluate(frame, value);
	evaluate_format(frame->evaluator, call, values);
}

static void print_time(struct evaluator *evaluator, const struct node *call) {
	const char *format = call->a ? call->a->text : "%H:%M:%S\n";
	time_t now = time(NULL);
	char text[256];
	struct tm tm;
	size_t n;

	localtime_r(&now, &tm);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	n = strftime(text, sizeof(text), format, &tm);
#pragma GCC diagnostic pop
	show_output(&evaluator->show, "time", text, n);
}

static void call(struct frame *frame, const struct node *node) {
	struct evaluator *evaluator = frame->evaluator;
	const struct node *first = node->a, *second = first ? first->next : NULL;
	struct store_entry *entry;

	switch (node->builtin->id) {
	case BUILTIN_PRINT:
		refresh(evaluator);
		print_map(evaluator, map_index(frame, first), second ? (size_t)second->number : 0,
			  second && second->next ? second->next->number : 1);
		break;
	case BUILTIN_CLEAR:
	case BUILTIN_ZERO:
		refresh(evaluator);
		clear_map(evaluator, map_index(frame, first), node->builtin->id == BUILTIN_ZERO);
		break;
	case BUILTIN_DELETE:
		entry = store_find(host_store(frame, first), keys(frame, first));
		if (entry)
			store_remove(host_store(frame, first), entry);
		break;
	case BUILTIN_PRINTF:
		print_format(frame, node);
		break;
	case BUILTIN_TIME:
		print_time(evaluator, node);
		break;
	default:
		evaluator->exited = true;
		evaluator->status = first ? (int)(evaluate(frame, first).number & 0xff) : 0;
	}
}

static void run(struct frame *frame, const struct node *list);

/* One round of a loop. Returns whether there may be another one. */
static bool run_round(struct frame *frame, const struct node *list) {
	bool goes_on;

	run(frame, list);
	goes_on = frame->leaving != LEAVING_LOOP && !frame->evaluator->exited &&
		  !frame->evaluator->endless;
	frame->leaving = LEAVING_NOT;
	return goes_on;
}

static void run_while(struct frame *frame, const struct node *node) {
	while (evaluate(frame, node->a).number) {
		if (++frame->rounds > SCRIPT_WHILE_MAX) {
			frame->evaluator->endless = node;
			return;
		}
		if (!run_round(frame, node->b))
			return;
	}
}

/* The variables of a for: keys, and the value. Texts outlive the map that they are of. */
static void set_variables(struct frame *frame, const struct node *local, const struct store *store,
			  const struct store_entry *entry) {
	struct value value;
	size_t at = 0;

	for (; local->next; local = local->next) {
		if (!store_key_next(&entry->key, &at, &value))
			value = number(0);
		if (value.type == TYPE_TEXT)
			value.text = evaluator_keep(frame->evaluator, value.text);
		frame->locals[local->local] = value;
	}
	value = number(store_value(store, entry));
	if (store->map->value == TYPE_TEXT && store->map->kind == MAP_SCALAR)
		value = (struct value){ .type = TYPE_TEXT,
					.text = evaluator_keep(frame->evaluator,
							       entry->text ? entry->text : "") };
	frame->locals[local->local] = value;
}

/* Over what a print() would show, in its order. What the body does to the map is not seen. */
static void run_for(struct frame *frame, const struct node *node) {
	struct evaluator *evaluator = frame->evaluator;
	struct ranked *sorted;
	struct store both;
	size_t n;

	refresh(evaluator);
	merge_sides(evaluator, map_index(frame, node), &both);
	sorted = show_sorted(&both, &n);
	evaluator->failed |= !sorted;
	for (size_t i = 0; sorted && i < n; i++) {
		set_variables(frame, node->a, &both, sorted[i].row);
		if (!run_round(frame, node->b))
			break;
	}
	free(sorted);
	store_deinit(&both);
}

static void run(struct frame *frame, const struct node *list) {
	const struct evaluator *evaluator = frame->evaluator;

	for (; list && !evaluator->exited && !evaluator->endless && !frame->leaving;
	     list = list->next) {
		switch (list->kind) {
		case NODE_WHILE:
			run_while(frame, list);
			break;
		case NODE_FOR:
			run_for(frame, list);
			break;
		case NODE_BREAK:
		case NODE_CONTINUE:
			frame->leaving = list->kind == NODE_BREAK ? LEAVING_LOOP : LEAVING_ROUND;
			break;
		case NODE_ASSIGN:
			assign(frame, list);
			break;
		case NODE_IF:
			run(frame, evaluate(frame, list->a).number ? list->b : list->c);
			break;
		case NODE_UNROLL:
			for (int64_t i = 0; i < list->a->number && !frame->leaving; i++)
				run(frame, list->b);
			break;
		default:
			call(frame, list->a);
		}
	}
}

void evaluate_share(struct evaluator *evaluator) {
	const struct store_key none = {};

	for (size_t i = 0; evaluator->share && i < evaluator->script->n_maps; i++) {
		const struct store_entry *entry = store_find(&evaluator->host[i], &none);

		if (!evaluator->changed[i] || !map_is_shared(&evaluator->script->maps[i]))
			continue;
		evaluator->changed[i] = false;
		evaluator->share(evaluator->userdata, i, entry ? entry->sum : 0);
	}
}

void evaluate_probe(struct evaluator *evaluator, const struct clause *clause,
		    const struct event *event) {
	struct frame frame = { .evaluator = evaluator, .event = event };

	evaluator->refreshed = false;
	if (!clause->predicate || evaluate(&frame, clause->predicate).number)
		run(&frame, clause->body);
	evaluate_share(evaluator);
	evaluator_forget(evaluator);
}

void evaluate_kind(struct evaluator *evaluator, enum probe_kind kind, uint64_t nsecs) {
	for (const struct clause *clause = evaluator->script->clauses; clause;
	     clause = clause->next)
		for (const struct probe *probe = clause->probes; probe; probe = probe->next) {
			const struct event event = { .probe = probe, .nsecs = nsecs };

			if (probe->kind == kind)
				evaluate_probe(evaluator, clause, &event);
		}
}

void evaluate_item(struct evaluator *evaluator, const struct trace_item *item, uint64_t nsecs) {
	item_note(evaluator, item);
	for (const struct clause *clause = evaluator->script->clauses; clause;
	     clause = clause->next)
		for (const struct probe *probe = clause->probes; probe; probe = probe->next) {
			const bool ended = probe->kind == PROBE_LAUNCH && probe->end;
			const struct event event = {
				.probe = probe,
				.item = item,
				.nsecs = nsecs + (ended ? item->end - item->start : 0)
			};

			if (evaluator->exited || evaluator->endless)
				return;
			if (PROBE_ON_GPU(probe->kind) || probe->kind < PROBE_LAUNCH ||
			    !item_fits(evaluator, probe, item))
				continue;
			evaluate_probe(evaluator, clause, &event);
		}
}

void evaluate_print_all(struct evaluator *evaluator) {
	evaluator->show.blank = true;
	for (size_t i = 0; i < evaluator->script->n_maps; i++)
		if (evaluator->host[i].entries.n || evaluator->gpu[i].entries.n)
			print_map(evaluator, i, 0, 1);
}

uint64_t evaluate_lost(const struct evaluator *evaluator, size_t map) {
	return evaluator->host[map].lost + evaluator->gpu[map].lost;
}
