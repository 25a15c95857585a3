/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Elements of a map by size, and as histograms: for `map dump --top` and `--hist`. */

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#define LOOK_ERROR_SIZE 192

struct look {
	const char *member; /* of the key, that is the bucket; NULL: its last number */
	json_object *histograms; /* text of the key: {"key", "counts", "unit"}; NULL: none so far */
};

/*
 * An element, as value_json() makes key and values; several values are added up. It is a bucket of
 * a histogram if the value is a number: the key, or a member of it, is the bucket, which counts
 * what lies in [2^n, 2^(n + 1)). Or it is a histogram, if the value is an array of numbers or a
 * struct with one. 0; -ENOMEM; or -EINVAL with one line in error.
 */
int look_add(struct look *look, json_object *key, json_object *values,
	     char error[static LOOK_ERROR_SIZE]);
/* All histograms, those that count most last. */
void look_print(const struct look *look);
/* [{"key":...,"buckets":[{"min":2,"count":3}]}] */
json_object *look_json(const struct look *look);
void look_deinit(struct look *look);

/* What an element is sorted by: the sum of the first number of each value. */
int64_t look_number(json_object *values);
