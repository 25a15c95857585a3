/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON as varlink needs it: what json-c lets pass silently is refused. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

enum {
	_VARLINK_JSON_E_SUCCESS,
	VARLINK_JSON_E_INVALID, /* not one JSON value in UTF-8, or one with a trap in it */
};

/* nesting of arrays and objects */
#define VARLINK_JSON_DEPTH 32

int varlink_json_parse(json_object **valuep, const char *text, size_t n_text);
int varlink_json_parse_bounded(json_object **valuep, const char *text, size_t n_text,
			       size_t values_max);
int varlink_json_print(json_object *value, const char **textp, size_t *n_textp);

/*
 * An array that grows as text, which is a fifteenth of a tree. Begin with {}. _add() takes the item
 * in any case; NULL stands for one that there was no memory for. _steal() empties the list.
 * Validation sees an empty array.
 */
struct varlink_json_list {
	char *text; /* without the closing bracket, for which there is room */
	size_t n, n_max;
};

int varlink_json_list_add(struct varlink_json_list *list, json_object *consume_item);
json_object *varlink_json_list_steal(struct varlink_json_list *list);
void varlink_json_list_deinit(struct varlink_json_list *list);

json_object *varlink_json_pack(const char *first_key, ...) __attribute__((sentinel));
