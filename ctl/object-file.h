/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* An object travels in one message of 16 MiB, in base64, so a quarter is lost. */
#define OBJECT_FILE_MAX ((size_t)12 * 1024 * 1024 - 4096)

int object_file_read(const char *path, unsigned char **datap, size_t *n_datap);
