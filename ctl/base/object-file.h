/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <json-c/json.h>
#include <stddef.h>

/* An object travels in one message of 16 MiB, in base64, so a quarter is lost. */
#define OBJECT_FILE_MAX ((size_t)8 << 20)

/* The bytes of an object (- is standard input), or in base64 as the member "object" of parameters,
 * with "folder", that of this process. Returns the exit status. */
int object_file_read(const char *path, unsigned char **datap, size_t *n_datap);
int object_file_put(const char *path, json_object *parameters);
