/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the grammar (parse.y) and the scanner (scan.l) share: how the tree is put together. */

#include "script.h"

/* What the scanner knows besides the text. */
struct scan {
	struct script *script;
	int line, column; /* of the next character */
	int braces; /* that are open */
};

struct node *tree_node(struct script *script, enum node_kind kind, struct place place,
		       const char *text);
struct node *tree_number(struct script *script, struct place place, int64_t number);
/* An operation of up to three operands, which may be NULL. */
struct node *tree_operation(struct script *script, enum node_kind kind, enum op op,
			    struct place place, struct node *a, struct node *b, struct node *c);
/* Puts a node behind the last one of a list. Returns the list. */
struct node *tree_append(struct node *list, struct node *node);
/* One part of a probe; the first one makes it. */
struct probe *tree_probe(struct script *script, struct probe *probe, struct place place,
			 const char *part);
struct clause *tree_clause(struct script *script, struct probe *probes, struct node *predicate,
			   struct node *body);

/* parse.y. False: the script failed. */
bool script_parse(struct script *script, const char *text, size_t n_text);
