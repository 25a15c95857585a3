/* SPDX-License-Identifier: Apache-2.0 */

/* Puts the syntax tree together, and refuses what is nested too deeply. */

#include <string.h>

#include "parse-tree.h"

struct node *tree_node(struct script *script, enum node_kind kind, struct place place,
		       const char *text) {
	struct node *node = script_alloc(script, sizeof(*node));

	if (!node)
		return NULL;
	node->kind = kind;
	node->place = place;
	node->text = text;
	node->depth = 1;
	return node;
}

struct node *tree_number(struct script *script, struct place place, int64_t number) {
	struct node *node = tree_node(script, NODE_NUMBER, place, NULL);

	if (node)
		node->number = number;
	return node;
}

/* The depth of a list: that of its deepest node. */
static unsigned int depth_of(const struct node *list) {
	unsigned int depth = 0;

	for (; list; list = list->next)
		depth = list->depth > depth ? list->depth : depth;
	return depth;
}

struct node *tree_operation(struct script *script, enum node_kind kind, enum op op,
			    struct place place, struct node *a, struct node *b, struct node *c) {
	struct node *node = tree_node(script, kind, place, NULL);
	unsigned int depth = depth_of(a), other = depth_of(b);

	if (!node)
		return NULL;
	depth = other > depth ? other : depth;
	other = depth_of(c);
	node->depth = 1 + (other > depth ? other : depth);
	if (node->depth > SCRIPT_DEPTH_MAX)
		script_fail(script, place,
			    "nested too deeply: at most %d levels; put a part into a variable, $x "
			    "= ...",
			    SCRIPT_DEPTH_MAX);
	node->op = op;
	node->a = a;
	node->b = b;
	node->c = c;
	return node;
}

struct node *tree_append(struct node *list, struct node *node) {
	if (!list || !node)
		return list ? list : node;
	(list->last ? list->last : list)->next = node;
	list->last = node;
	return list;
}

struct probe *tree_probe(struct script *script, struct probe *probe, struct place place,
			 const char *part) {
	if (!probe) {
		probe = script_alloc(script, sizeof(*probe));
		if (!probe)
			return NULL;
		probe->place = place;
	}
	if (probe->n_parts == SCRIPT_PARTS_MAX)
		script_fail(script, place, "a probe has at most %d parts", SCRIPT_PARTS_MAX);
	else
		probe->parts[probe->n_parts++] = part;
	return probe;
}

struct clause *tree_clause(struct script *script, struct probe *probes, struct node *predicate,
			   struct node *body) {
	struct clause *clause = script_alloc(script, sizeof(*clause)), **end = &script->clauses;

	if (!clause)
		return NULL;
	clause->probes = probes;
	clause->predicate = predicate;
	clause->body = body;
	while (*end)
		end = &(*end)->next;
	*end = clause;
	return clause;
}
