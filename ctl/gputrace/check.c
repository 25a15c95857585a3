/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks a parsed script: resolves words, functions, maps and variables, and gives every expression
 * its type. A script that passes can be compiled and evaluated without further questions.
 */

#include <string.h>

#include "check.h"
#include "ctl/base/suggest.h"
#include "words.h"

static struct place *first(struct place *place, struct place here) {
	if (!place->line)
		*place = here;
	return place;
}

/* Of an expression that has been checked: twice would take 2 to the power of its depth. */
static bool is_number(struct script *script, const struct node *node, const char *what) {
	if (node->type == TYPE_FLOAT)
		return script_fail(
			script, node->place,
			"%s takes integers, this is a float: it can be compared, tested by "
			"isnan() and isinf(), and given to sum() avg() min() max() stats() and "
			"hist()",
			what);
	if (node->type >= TYPE_KERNEL)
		return script_fail(script, node->place,
				   "%s is a name here, not a number: it can be the key of a map",
				   node->text);
	return node->type == TYPE_NUMBER ||
	       script_fail(script, node->place, "%s takes numbers, this is a text", what);
}

bool check_number(struct script *script, struct clause *clause, struct node *node,
		  const char *what) {
	return check_expression(script, clause, node) && is_number(script, node, what);
}

/* Why a word cannot stand in a probe that lacks it. */
static bool word_missing(struct script *script, const struct node *node, const struct word *word,
			 const struct probe *probe) {
	const char *hint = "";

	if (word->probes & (1u << probe->kind))
		hint = "; with :end it is there";
	else if (word->id == WORD_TID && PROBE_ON_GPU(probe->kind))
		hint = "; the thread of the GPU is threadid";
	else if (word->id == WORD_NSECS && PROBE_ON_GPU(probe->kind))
		hint = "; with :end there is duration, and gputime is the GPU's clock";
	else if (word->probes & ON(LAUNCH))
		hint = "; launch:KERNEL has it";
	else if (word->probes & ON(THREAD))
		hint = "; thread:KERNEL has it";
	else if (word->probes & ON(MEMORY))
		hint = "; mem.thread:KERNEL has it";
	else if (word->probes & ON(WARP_MEMORY))
		hint = "; mem:KERNEL has it";
	else if (word->probes & ON(DRIVER))
		hint = "; driver:FUNCTION has it";
	return script_fail(script, node->place, "%s: has no %s%s", probe->parts[0], node->text,
			   hint);
}

/* What a name is on the GPU. Memory instructions are known by their own ids alone. */
static enum type id_type(enum word_id id, bool memory) {
	return id == WORD_LINE   ? TYPE_LINE
	       : id == WORD_INSN ? TYPE_LINE_INSN
	       : id == WORD_TYPE ? TYPE_LINE_TYPE
	       : memory          ? TYPE_LINE_KERNEL
				 : TYPE_KERNEL;
}

/* Probes of a body that would give a word two meanings. */
static bool check_mixed(struct script *script, const struct clause *clause,
			const struct node *node) {
	bool memory = PROBE_IS_MEMORY(clause->probes->kind);

	for (const struct probe *probe = clause->probes; probe; probe = probe->next)
		if (PROBE_IS_MEMORY(probe->kind) != memory)
			return script_fail(
				script, node->place,
				"at mem.thread: kernel is known in another way than at %s:; write "
				"the body twice",
				memory ? probe->parts[0] : clause->probes->parts[0]);
	return true;
}

/* Words of one lane, where an event is of all of them; and the other way. */
static bool check_lane_word(struct script *script, const struct clause *clause,
			    const struct node *node, enum word_id id) {
	const bool of_lane = id == WORD_ADDR || id == WORD_VALUE || id == WORD_LANE ||
			     (id >= WORD_THREADID && id <= WORD_THREADID_Z);

	if (clause->of_warp && of_lane && !clause->in_lane)
		return script_fail(
			script, node->place,
			"%s is of one lane: any all sum min max first say of which, as in "
			"first(%s)",
			node->text, node->text);
	if (clause->in_lane && (id == WORD_LANES || id == WORD_SECTORS))
		return script_fail(script, node->place, "%s is of the whole warp, not of one lane",
				   node->text);
	return true;
}

static bool check_word(struct script *script, const struct clause *clause, struct node *node) {
	struct suggestion suggestion = { .wanted = node->text };
	const struct word *word = word_find(node->text);

	for (size_t i = 0; !word && word_at(i); i++)
		suggest_add(&suggestion, word_at(i)->name);
	if (!word)
		return script_fail(script, node->place, "there is no %s%s", node->text,
				   suggestion.distance ? suggest_text(&suggestion)
						       : "; gputrace --help lists the words");
	for (const struct probe *probe = clause->probes; probe; probe = probe->next)
		if (!(word->probes & 1u << probe->kind) ||
		    ((word->ends & 1u << probe->kind) && !probe->end))
			return word_missing(script, node, word, probe);
	if (!check_lane_word(script, clause, node, word->id))
		return false;
	node->word = word;
	node->type = word->type;
	if (clause->on_gpu && word->type == TYPE_TEXT)
		node->type = id_type(word->id, PROBE_IS_MEMORY(clause->probes->kind));
	script->needs_stacks |= word->id == WORD_USTACK;
	if (word->id == WORD_KERNEL && clause->on_gpu && !check_mixed(script, clause, node))
		return false;
	return word->id != WORD_ARGS || check_argument(script, clause, node, &node->type);
}

/* The number of a variable. Adds it if it is assigned to. */
static bool check_local(struct script *script, struct clause *clause, struct node *node,
			bool assigned) {
	size_t i = 0;

	while (i < clause->n_locals && strcmp(clause->locals[i], node->text))
		i++;
	if (i == clause->n_locals && !assigned)
		return script_fail(script, node->place, "%s has no value yet: %s = ... comes first",
				   node->text, node->text);
	if (i == SCRIPT_LOCALS_MAX)
		return script_fail(script, node->place, "a body has at most %d variables",
				   SCRIPT_LOCALS_MAX);
	if (i == clause->n_locals) {
		clause->locals[i] = node->text;
		clause->local_types[i] = TYPE_NONE;
		clause->n_locals++;
	}
	node->local = (unsigned int)i;
	node->type = clause->local_types[i];
	return true;
}

static bool check_map_read(struct script *script, struct clause *clause, struct node *node) {
	node->map = check_map_find(script, node);
	if (!node->map || !check_map_keys(script, clause, node))
		return false;
	if (clause->on_gpu && !check_map_kind(script, node, MAP_SCALAR))
		return false;
	first(clause->on_gpu ? &node->map->gpu_reads : &node->map->host_reads, node->place);
	if (node->map->value == TYPE_NONE)
		node->map->value = TYPE_NUMBER;
	node->type = node->map->value;
	return true;
}

static bool is_kernel(enum type type) {
	return type == TYPE_KERNEL || type == TYPE_LINE_KERNEL;
}

/* A number as it is written becomes a float beside a float. */
static bool make_float(struct node *node) {
	const bool minus = node->kind == NODE_UNARY && node->op == OP_MINUS;
	const struct node *constant = minus ? node->a : node;
	double real;

	if (constant->kind == NODE_NUMBER)
		real = (double)constant->number;
	else if (constant->kind == NODE_FLOAT)
		memcpy(&real, &constant->number, sizeof(real));
	else
		return node->type == TYPE_FLOAT;
	real = minus ? -real : real;
	node->kind = NODE_FLOAT;
	node->type = TYPE_FLOAT;
	memcpy(&node->number, &real, sizeof(real));
	return true;
}

/* -0.5 is a float, too. */
bool check_operand(struct script *script, struct clause *clause, struct node *node) {
	if (node->kind == NODE_UNARY && node->op == OP_MINUS && node->a->kind == NODE_FLOAT)
		return make_float(node);
	return check_expression(script, clause, node);
}

static bool check_floats(struct script *script, struct node *node) {
	if (node->op < OP_EQ || node->op > OP_GE)
		return is_number(script, node->a->type == TYPE_FLOAT ? node->a : node->b,
				 "arithmetic");
	return (make_float(node->a) && make_float(node->b)) ||
	       script_fail(script, node->place,
			   "a float is compared with a float, or with a number as it is written");
}

static bool check_binary(struct script *script, struct clause *clause, struct node *node) {
	const bool equality = node->op == OP_EQ || node->op == OP_NE;

	if (!check_operand(script, clause, node->a) || !check_operand(script, clause, node->b))
		return false;
	node->type = TYPE_NUMBER;
	if (node->a->type == TYPE_FLOAT || node->b->type == TYPE_FLOAT)
		return check_floats(script, node);
	if (equality && node->a->type == TYPE_TEXT && node->b->type == TYPE_TEXT)
		return true;
	if (equality && (is_kernel(node->a->type) || is_kernel(node->b->type)))
		return script_fail(script, node->place,
				   "a kernel cannot be compared on the GPU: say which one in the "
				   "probe, as in thread:NAME");
	if (equality && (node->a->type == TYPE_TEXT || node->b->type == TYPE_TEXT))
		return script_fail(script, node->place, "a text and a number are never equal");
	if ((node->op == OP_DIV || node->op == OP_MOD) && node->b->kind == NODE_NUMBER &&
	    !node->b->number)
		return script_fail(script, node->b->place, "division by zero");
	return is_number(script, node->a, "arithmetic") && is_number(script, node->b, "arithmetic");
}

static bool check_choice(struct script *script, struct clause *clause, struct node *node) {
	if (!check_number(script, clause, node->a, "?:") ||
	    !check_expression(script, clause, node->b) ||
	    !check_expression(script, clause, node->c))
		return false;
	node->type = node->b->type;
	return node->b->type == node->c->type ||
	       script_fail(script, node->place, "both sides of : have the same type");
}

/* any(addr == 0): of all lanes. What is in it is evaluated before the body begins. */
static bool check_lanes(struct script *script, struct clause *clause, struct node *node) {
	bool fine;

	if (!clause->of_warp)
		return script_fail(script, node->place,
				   "%s() is of all lanes of a warp: mem:KERNEL has it", node->text);
	if (clause->in_lane)
		return script_fail(script, node->place, "%s() cannot stand in another one of lanes",
				   node->text);
	if (node->builtin->id != BUILTIN_FIRST && clause->n_lanes == SCRIPT_LANES_MAX)
		return script_fail(script, node->place,
				   "a body has at most %d of any() all() sum() min() max()",
				   SCRIPT_LANES_MAX);
	node->number = (int64_t)clause->n_lanes;
	clause->n_lanes += node->builtin->id != BUILTIN_FIRST;
	clause->in_lane = true;
	fine = node->builtin->id == BUILTIN_FIRST
		       ? check_expression(script, clause, node->a)
		       : check_number(script, clause, node->a, node->text);
	clause->in_lane = false;
	node->type = node->a->type;
	return fine;
}

static bool check_call(struct script *script, struct clause *clause, struct node *node) {
	if (!check_builtin(script, clause, node))
		return false;
	if (node->builtin->id == BUILTIN_ANY || node->builtin->id == BUILTIN_ALL ||
	    node->builtin->id == BUILTIN_FIRST ||
	    (clause->of_warp && builtin_is_of_lanes(node->builtin)))
		return check_lanes(script, clause, node);
	if (node->builtin->kind != MAP_UNKNOWN)
		return script_fail(script, node->place,
				   "%s() is no value: it stands behind a map and =, as in @x = %s",
				   node->text, node->builtin->form);
	node->type = node->builtin->id >= BUILTIN_ISNAN ? TYPE_NUMBER : TYPE_FLOAT;
	if (node->builtin->id >= BUILTIN_ISNAN)
		return check_operand(script, clause, node->a) &&
		       (node->a->type == TYPE_FLOAT ||
			script_fail(script, node->a->place,
				    "%s() takes a float, such as f32(value)", node->text));
	if (node->builtin->id >= BUILTIN_F16)
		return check_number(script, clause, node->a, node->text);
	if (node->builtin->id != BUILTIN_PARAM)
		return script_fail(script, node->place, "%s() gives no value", node->text);
	for (const struct probe *probe = clause->probes; probe; probe = probe->next)
		if (PROBE_IS_MEMORY(probe->kind))
			return script_fail(script, node->place, "%s: has no param()",
					   probe->parts[0]);
	if (node->a->kind != NODE_NUMBER || node->a->number > 8)
		return script_fail(script, node->place,
				   "param() takes the number of a parameter, from 0 to 8");
	node->type = TYPE_NUMBER;
	return true;
}

bool check_expression(struct script *script, struct clause *clause, struct node *node) {
	if (clause->in_lane && (node->kind == NODE_LOCAL || node->kind == NODE_MAP))
		return script_fail(script, node->place,
				   "%s is not known in each lane: words, numbers and operators are",
				   node->text);
	switch (node->kind) {
	case NODE_NUMBER:
		node->type = TYPE_NUMBER;
		return true;
	case NODE_FLOAT:
		node->type = TYPE_FLOAT;
		return true;
	case NODE_STRING:
		node->type = TYPE_TEXT;
		return !clause->on_gpu ||
		       script_fail(script, node->place, "there are no texts on the GPU");
	case NODE_LOCAL:
		return check_local(script, clause, node, false);
	case NODE_WORD:
		return check_word(script, clause, node);
	case NODE_MAP:
		return check_map_read(script, clause, node);
	case NODE_UNARY:
		node->type = TYPE_NUMBER;
		return check_number(script, clause, node->a, "arithmetic");
	case NODE_BINARY:
		return check_binary(script, clause, node);
	case NODE_CHOICE:
		return check_choice(script, clause, node);
	case NODE_CALL:
		return check_call(script, clause, node);
	default:
		return script_fail(script, node->place, "a statement is no value");
	}
}

/* $x = e, @x[k] = e. */
static bool check_assign_value(struct script *script, struct clause *clause, struct node *node) {
	struct node *target = node->a, *value = node->b;
	enum type *type;

	if (!check_operand(script, clause, value))
		return false;
	if (target->kind == NODE_MAP && value->type == TYPE_FLOAT)
		return script_fail(
			script, value->place,
			"a map keeps floats by sum() avg() min() max() stats() and hist(): "
			"%s = max(...)",
			target->text);
	if (target->kind == NODE_LOCAL && !check_local(script, clause, target, node->op == OP_NONE))
		return false;
	if (target->kind == NODE_MAP && !check_map_kind(script, target, MAP_SCALAR))
		return false;
	type = target->kind == NODE_LOCAL ? &clause->local_types[target->local]
					  : &target->map->value;
	if (*type == TYPE_NONE)
		*type = value->type;
	if (*type != value->type)
		return script_fail(script, value->place, "%s was given another type before",
				   target->text);
	if (value->type >= TYPE_KERNEL || (node->op != OP_NONE && value->type != TYPE_NUMBER))
		return is_number(script, value, "an assignment");
	if (target->kind == NODE_MAP && clause->on_gpu && node->op != OP_NONE &&
	    node->op != OP_ADD && node->op != OP_SUB)
		return script_fail(script, node->place,
				   "many threads change %s at once: = += -= ++ -- can do that",
				   target->text);
	if (target->kind == NODE_MAP && clause->on_gpu)
		target->map->stored |= node->op == OP_NONE;
	return true;
}

static bool check_assign(struct script *script, struct clause *clause, struct node *node) {
	struct node *target = node->a, *value = node->b;
	const struct builtin *builtin = value->kind == NODE_CALL ? builtin_find(value->text) : NULL;
	bool aggregates = builtin && builtin->kind != MAP_UNKNOWN;

	if (target->kind == NODE_MAP) {
		target->map = check_map_find(script, target);
		if (!target->map || !check_map_keys(script, clause, target))
			return false;
		first(clause->on_gpu ? &target->map->gpu_writes : &target->map->host_writes,
		      target->place);
	}
	if (aggregates && node->op != OP_NONE)
		return script_fail(script, node->place,
				   "an aggregation is assigned by =, as in @x = %s", builtin->form);
	return aggregates ? check_aggregate(script, clause, target, value)
			  : check_assign_value(script, clause, node);
}

static bool check_statements(struct script *script, struct clause *clause, struct node *list);

/* Rounds in rounds multiply. */
static bool check_unroll(struct script *script, struct clause *clause, struct node *node) {
	const int64_t outer = clause->rounds ? clause->rounds : 1;
	bool fine;

	if (outer * node->a->number > SCRIPT_ROUNDS_MAX)
		return script_fail(script, node->place,
				   "unroll in unroll: more than %d rounds in all",
				   SCRIPT_ROUNDS_MAX);
	clause->rounds = outer * node->a->number;
	fine = check_statements(script, clause, node->b);
	clause->rounds = outer;
	return fine;
}

static bool in_loop(struct script *script, struct clause *clause, struct node *list) {
	bool fine;

	clause->loops++;
	fine = check_statements(script, clause, list);
	clause->loops--;
	return fine;
}

static bool on_host(struct script *script, const struct clause *clause, const struct node *node,
		    const char *name) {
	return !clause->on_gpu ||
	       script_fail(script, node->place,
			   "%s is for probes on the host; unroll (N) { } repeats on the GPU", name);
}

/* for ($k, $v : @m): as many variables as keys, and one for the value. */
static bool check_for(struct script *script, struct clause *clause, struct node *node) {
	struct node *local = node->a;
	size_t n = 0;

	node->map = on_host(script, clause, node, "for") ? check_map_find(script, node) : NULL;
	if (!node->map)
		return false;
	if (!node->map->has_keys || node->map->kind == MAP_UNKNOWN)
		return script_fail(script, node->place,
				   "nothing was put into %s before this place: write the probe "
				   "that fills it first",
				   node->text);
	for (; local; local = local->next, n++) {
		const bool is_value = !local->next;
		enum type type = is_value ? check_map_value(script, node) : TYPE_NONE;

		if (script->failed || !check_local(script, clause, local, true))
			return false;
		if (!is_value && n < node->map->n_keys)
			type = check_map_key_type(node->map, n);
		if (clause->local_types[local->local] == TYPE_NONE)
			clause->local_types[local->local] = type;
		if (type != TYPE_NONE && clause->local_types[local->local] != type)
			return script_fail(script, local->place, "%s was given another type before",
					   local->text);
	}
	if (n != node->map->n_keys + 1)
		return script_fail(script, node->place,
				   "%s has %zu key%s and a value: for takes %zu variables, as in "
				   "for ($k, $v : %s)",
				   node->text, node->map->n_keys, node->map->n_keys == 1 ? "" : "s",
				   node->map->n_keys + 1, node->text);
	first(&node->map->host_reads, node->place);
	return in_loop(script, clause, node->b);
}

static bool check_statement(struct script *script, struct clause *clause, struct node *node) {
	switch (node->kind) {
	case NODE_WHILE:
		return on_host(script, clause, node, "while") &&
		       check_number(script, clause, node->a, "while") &&
		       in_loop(script, clause, node->b);
	case NODE_FOR:
		return check_for(script, clause, node);
	case NODE_BREAK:
	case NODE_CONTINUE:
		return clause->loops ||
		       script_fail(script, node->place, "%s stands in a while or for", node->text);
	case NODE_ASSIGN:
		return check_assign(script, clause, node);
	case NODE_IF:
		return check_number(script, clause, node->a, "if") &&
		       check_statements(script, clause, node->b) &&
		       check_statements(script, clause, node->c);
	case NODE_UNROLL:
		if (node->a->number < 1 || node->a->number > SCRIPT_UNROLL_MAX)
			return script_fail(script, node->place,
					   "unroll takes a number from 1 to %d", SCRIPT_UNROLL_MAX);
		return check_unroll(script, clause, node);
	default:
		return check_statement_call(script, clause, node->a);
	}
}

static bool check_statements(struct script *script, struct clause *clause, struct node *list) {
	for (; list; list = list->next)
		if (!check_statement(script, clause, list))
			return false;
	return true;
}

/* The host and the GPU cannot share a body: its words mean other things there. */
static bool check_probes(struct script *script, struct clause *clause) {
	for (struct probe *probe = clause->probes; probe; probe = probe->next) {
		if (!check_probe(script, probe))
			return false;
		if (++script->n_probes > SCRIPT_PROBES_MAX)
			return script_fail(script, probe->place, "a script has at most %d probes",
					   SCRIPT_PROBES_MAX);
		if (probe != clause->probes && clause->on_gpu != PROBE_ON_GPU(probe->kind))
			return script_fail(
				script, probe->place,
				"%s: and %s: cannot share a body, one is on the host and "
				"one on the GPU: write it twice",
				clause->probes->parts[0], probe->parts[0]);
		if (probe != clause->probes &&
		    clause->of_warp != (probe->kind == PROBE_WARP_MEMORY))
			return script_fail(script, probe->place,
					   "%s: and %s: cannot share a body: events of mem: are of "
					   "whole warps",
					   clause->probes->parts[0], probe->parts[0]);
		clause->of_warp = probe->kind == PROBE_WARP_MEMORY;
		clause->on_gpu = PROBE_ON_GPU(probe->kind);
		script->needs_gpu |= clause->on_gpu;
		script->needs_trace |= !clause->on_gpu && probe->kind >= PROBE_LAUNCH;
		script->needs_times |=
			probe->kind == PROBE_IDLE || (probe->kind == PROBE_LAUNCH && probe->end);
	}
	return true;
}

bool script_check(struct script *script) {
	for (struct clause *clause = script->clauses; clause; clause = clause->next)
		if (!check_probes(script, clause) ||
		    (clause->predicate &&
		     !check_number(script, clause, clause->predicate, "a predicate")) ||
		    !check_statements(script, clause, clause->body))
			return false;
	if (script->kernel && !script->kernel_used)
		return script_fail(script, (struct place){ 1, 1 },
				   "-k is for probes whose kernel is *, as in launch:*; there is "
				   "none");
	return check_map_sides(script);
}
