/* SPDX-License-Identifier: Apache-2.0 */

/* Checks calls: aggregations, functions that are statements, and formats of printf(). */

#include <string.h>

#include "check.h"
#include "ctl/base/suggest.h"
#include "format.h"
#include "words.h"

static size_t length_of(const struct node *list) {
	size_t n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

bool check_builtin(struct script *script, const struct clause *clause, struct node *call) {
	struct suggestion suggestion = { .wanted = call->text };
	const struct builtin *builtin = builtin_find(call->text);
	size_t n = length_of(call->a);

	for (size_t i = 0; !builtin && builtin_at(i); i++)
		suggest_add(&suggestion, builtin_at(i)->name);
	if (!builtin)
		return script_fail(script, call->place, "there is no function %s()%s", call->text,
				   suggest_text(&suggestion));
	if (n < builtin->min || n > builtin->max)
		return script_fail(script, call->place, "%s is written %s", builtin->name,
				   builtin->form);
	if (clause->on_gpu && !builtin->on_gpu)
		return script_fail(
			script, call->place,
			"%s() is for probes on the host, such as interval:s:1 and END; a "
			"probe on the GPU puts what it has seen into a map",
			builtin->name);
	if (!clause->on_gpu && !builtin->on_host)
		return script_fail(script, call->place,
				   "%s() is for probes on the GPU, such as thread:KERNEL",
				   builtin->name);
	call->builtin = builtin;
	return true;
}

static bool linear(struct script *script, struct map *map, struct node *call) {
	int64_t values[3], buckets = 0;
	struct node *node = call->a->next;

	for (int i = 0; i < 3; i++, node = node->next) {
		const bool minus = node->kind == NODE_UNARY && node->op == OP_MINUS;
		const struct node *constant = minus ? node->a : node;

		if (constant->kind != NODE_NUMBER)
			return script_fail(script, node->place,
					   "min, max and step of lhist() are numbers as they are, "
					   "such as lhist(x, 0, 100, 10)");
		values[i] = minus ? -constant->number : constant->number;
	}
	if (values[2] > 0 && values[1] > values[0] &&
	    !__builtin_sub_overflow(values[1], values[0], &buckets))
		buckets = buckets % values[2] ? -1 : buckets / values[2];
	if (buckets < 1 || buckets > SCRIPT_LINEAR_MAX)
		return script_fail(script, call->place,
				   "lhist() takes min below max, and a step that divides what lies "
				   "between them into 1 to %d parts",
				   SCRIPT_LINEAR_MAX);
	if (map->step && (map->min != values[0] || map->max != values[1] || map->step != values[2]))
		return script_fail(script, call->place,
				   "%s has another min, max or step at line %d, column %d",
				   map->name, map->kind_place.line, map->kind_place.column);
	map->min = values[0];
	map->max = values[1];
	map->step = values[2];
	return true;
}

/* All but lhist() take floats, too; of one map all are, or none is. */
static bool check_aggregated(struct script *script, struct clause *clause, struct map *map,
			     struct node *call) {
	const enum builtin_id id = call->builtin->id;
	const bool floats = id != BUILTIN_LHIST;

	if (!check_operand(script, clause, call->a))
		return false;
	if (call->a->type != TYPE_FLOAT || !floats) {
		if (!check_number(script, clause, call->a, call->builtin->name))
			return false;
	}
	if (floats && map->value != TYPE_NONE && map->value != call->a->type)
		return script_fail(script, call->a->place, "%s was given %s at line %d, column %d",
				   map->name, map->value == TYPE_FLOAT ? "floats" : "integers",
				   map->kind_place.line, map->kind_place.column);
	if (floats)
		map->value = call->a->type;
	return true;
}

bool check_aggregate(struct script *script, struct clause *clause, struct node *target,
		     struct node *call) {
	if (!check_builtin(script, clause, call))
		return false;
	if (target->kind != NODE_MAP)
		return script_fail(script, call->place,
				   "%s is an aggregation: put it into a map, as in @x = %s",
				   call->builtin->name, call->builtin->form);
	if (!check_map_kind(script, target, call->builtin->kind))
		return false;
	if (call->a && !check_aggregated(script, clause, target->map, call))
		return false;
	return call->builtin->id != BUILTIN_LHIST || linear(script, target->map, call);
}

/* Nothing is added on the GPU any more: then all maps can be cleared. */
static bool is_at_end(const struct clause *clause) {
	for (const struct probe *probe = clause->probes; probe; probe = probe->next)
		if (probe->kind != PROBE_END)
			return false;
	return true;
}

/* print(), clear(), zero(): a whole map. */
static bool whole_map(struct script *script, struct clause *clause, struct node *call) {
	struct node *map = call->a;

	if (map->kind != NODE_MAP)
		return script_fail(script, map->place, "%s() takes a map: %s", call->text,
				   call->builtin->form);
	if (map->a)
		return script_fail(script, map->place,
				   "%s() takes the whole map: %s without its keys", call->text,
				   map->text);
	map->map = check_map_find(script, map);
	if (!map->map)
		return false;
	if (!map->map->kind_place.line)
		map->map->kind_place = map->place; /* where it is named, until its kind is known */
	if (call->builtin->id != BUILTIN_PRINT && !is_at_end(clause) && !map->map->cleared.line)
		map->map->cleared = map->place;
	for (struct node *number = map->next; number; number = number->next)
		if (number->kind != NODE_NUMBER || number->number < 1)
			return script_fail(script, number->place,
					   "print() takes numbers from 1 up behind the map: %s",
					   call->builtin->form);
	return true;
}

/* What a conversion takes, and what it was given. On the GPU names are texts as soon as they are
 * printed. */
static bool check_conversion(struct script *script, const struct format_piece *piece,
			     const struct node *argument) {
	static const char *const takes[] = {
		[FORMAT_NUMBER] = "a number", [FORMAT_STRING] = "a text", [FORMAT_FLOAT] = "a float"
	};
	const enum format_kind given =
		argument->type == TYPE_FLOAT                                   ? FORMAT_FLOAT
		: argument->type == TYPE_TEXT || argument->type >= TYPE_KERNEL ? FORMAT_STRING
									       : FORMAT_NUMBER;

	return piece->kind == given ||
	       script_fail(script, argument->place, "%.*s is for %s, this is %s: %s", (int)piece->n,
			   piece->text, takes[piece->kind], takes[given],
			   given == FORMAT_FLOAT    ? "%f, %e or %g"
			   : given == FORMAT_STRING ? "%s"
						    : "%d");
}

static bool format(struct script *script, struct clause *clause, struct node *call) {
	struct node *argument = call->a->next;
	struct format_piece piece;
	const char *at = call->a->text;

	if (call->a->kind != NODE_STRING)
		return script_fail(script, call->a->place,
				   "printf() begins with a string: printf(\"format\", ...)");
	while (format_next(&at, &piece)) {
		if (piece.kind == FORMAT_TEXT)
			continue;
		if (piece.kind == FORMAT_WRONG)
			return script_fail(script, call->a->place,
					   "%.*s: printf() has %%d %%u %%x %%s %%f %%e %%g %%%%, "
					   "with a width",
					   (int)piece.n, piece.text);
		if (!argument)
			return script_fail(script, call->a->place,
					   "the format has more conversions than there are values");
		if (!check_operand(script, clause, argument) ||
		    !check_conversion(script, &piece, argument))
			return false;
		argument = argument->next;
	}
	return !argument || script_fail(script, argument->place,
					"the format has fewer conversions than there are values");
}

/* On the GPU: what is printed is a record, which names the place. */
static bool gpu_format(struct script *script, struct clause *clause, struct node *call) {
	if (script->n_prints == SCRIPT_PRINTS_MAX)
		return script_fail(script, call->place,
				   "a script has at most %d printf() on the GPU",
				   SCRIPT_PRINTS_MAX);
	call->number = (int64_t)script->n_prints;
	script->prints[script->n_prints++] = call;
	return format(script, clause, call);
}

static bool delete_key(struct script *script, struct clause *clause, struct node *call) {
	struct node *map = call->a;

	if (map->kind != NODE_MAP)
		return script_fail(script, map->place, "delete() takes an element: %s",
				   call->builtin->form);
	map->map = check_map_find(script, map);
	if (!map->map || !check_map_keys(script, clause, map))
		return false;
	if (clause->on_gpu)
		return script_fail(script, call->place,
				   "delete() on the GPU is not in this version");
	if (!map->a)
		return script_fail(script, map->place, "%s has no keys: clear(%s)", map->text,
				   map->text);
	if (!map->map->deleted.line)
		map->map->deleted = map->place;
	return true;
}

bool check_statement_call(struct script *script, struct clause *clause, struct node *call) {
	if (!check_builtin(script, clause, call))
		return false;
	switch (call->builtin->id) {
	case BUILTIN_PRINT:
	case BUILTIN_CLEAR:
	case BUILTIN_ZERO:
		return whole_map(script, clause, call);
	case BUILTIN_DELETE:
		return delete_key(script, clause, call);
	case BUILTIN_PRINTF:
		return clause->on_gpu ? gpu_format(script, clause, call)
				      : format(script, clause, call);
	case BUILTIN_TIME:
		return !call->a || call->a->kind == NODE_STRING ||
		       script_fail(script, call->a->place, "time() takes a string: %s",
				   call->builtin->form);
	case BUILTIN_EXIT:
		return !call->a || check_number(script, clause, call->a, "exit");
	case BUILTIN_ANY:
	case BUILTIN_ALL:
	case BUILTIN_FIRST:
		return script_fail(script, call->place, "%s() is a value: @x = sum(%s(addr))",
				   call->text, call->text);
	case BUILTIN_PARAM:
		return script_fail(script, call->place, "param() is a value: @ = sum(param(0))");
	case BUILTIN_F16:
	case BUILTIN_BF16:
	case BUILTIN_F32:
	case BUILTIN_F64:
	case BUILTIN_ISNAN:
	case BUILTIN_ISINF:
		return script_fail(script, call->place, "%s() is a value: if (isnan(f32(value)))",
				   call->text);
	default:
		return script_fail(script, call->place,
				   "%s is an aggregation: put it into a map, as in @x = %s",
				   call->text, call->builtin->form);
	}
}
