/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where metrics go: a file that is written anew every --metrics-period-ms, or a socket that answers
 * HTTP. Both begin in the loop's next turn. */

#include <stddef.h>

struct metrics_context;
struct metrics_file;
struct metrics_socket;

/* 0, -ENOMEM; that a file cannot be written is found later. */
int metrics_file_new(struct metrics_file **filep, struct metrics_context *context,
		     const char *path);
struct metrics_file *metrics_file_free(struct metrics_file *file);
const char *metrics_file_trouble(const struct metrics_file *file); /* NULL: none */

/* 0, or negative errno with a line in error. */
int metrics_socket_new(struct metrics_socket **socketp, struct metrics_context *context,
		       const char *path, char *error, size_t n_error);
struct metrics_socket *metrics_socket_free(struct metrics_socket *socket);
