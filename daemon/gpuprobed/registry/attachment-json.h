/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Attachments and their programs as the jobs `image` and `patch` describe them (worker/job.md). */

#include <json-c/json.h>
#include <stdint.h>

struct attachment;

/* The program, whose text is descriptor fd of the job; in its patch form or not. */
json_object *attachment_program_json(const struct attachment *attachment, int fd);
json_object *attachment_patch_json(const struct attachment *attachment, int fd);

/* Where it belongs. default_spaces: of memory points that say none. */
json_object *attachment_json(const struct attachment *attachment, uint32_t default_spaces);
