/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Attachments and their programs as the jobs `image` and `patch` describe them (worker/job.md), and
 * their filters. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

struct attachment;
struct filter;

/* The program, whose text is descriptor fd of the job; in its patch form or not. */
json_object *attachment_program_json(const struct attachment *attachment, int fd);
json_object *attachment_patch_json(const struct attachment *attachment, int fd);

/* Where it belongs. default_spaces: of memory points that say none. */
json_object *attachment_json(const struct attachment *attachment, uint32_t default_spaces);

/*
 * The filter; whole: as the state file has it, else as the control interface does. The reader
 * returns the key of what makes no sense, or NULL; `json` may be NULL: no condition.
 */
json_object *filter_json(const struct filter *filter, bool whole);
const char *filter_from_json(struct filter *filter, json_object *json, bool whole);
