/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files that check a script share. All return false if the script failed. */

#include "script.h"

/* check-probe.c: the parts of a probe. */
bool check_probe(struct script *script, struct probe *probe);
/* The type of args.NAME. */
bool check_argument(struct script *script, const struct clause *clause, const struct node *node,
		    enum type *typep);

/* check-map.c: what a map is, from what is done with it. */
struct map *check_map_find(struct script *script, const struct node *node);
bool check_map_keys(struct script *script, const struct clause *clause, struct node *node);
bool check_map_kind(struct script *script, struct node *node, enum map_kind kind);
bool check_map_sides(struct script *script);
/* The type of a key, and of the value, as the host reads them; the value of some maps cannot be. */
enum type check_map_key_type(const struct map *map, size_t i);
enum type check_map_value(struct script *script, const struct node *node);

/* check-call.c: functions that are statements. */
bool check_statement_call(struct script *script, struct clause *clause, struct node *call);
/* An aggregation: target = call. */
bool check_aggregate(struct script *script, struct clause *clause, struct node *target,
		     struct node *call);
/* Number of arguments, and the side. */
bool check_builtin(struct script *script, const struct clause *clause, struct node *call);

/* check.c */
/* The same, where -0.5 may stand. */
bool check_operand(struct script *script, struct clause *clause, struct node *node);
bool check_expression(struct script *script, struct clause *clause, struct node *node);
bool check_number(struct script *script, struct clause *clause, struct node *node,
		  const char *what);
