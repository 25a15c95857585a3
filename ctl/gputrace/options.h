/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The command line of gputrace. */

#include <stdbool.h>
#include <stdint.h>

struct options {
	const char *program; /* -e, or NULL */
	const char *file; /* of the script, the name of a tool, or the probe of -l; NULL: none */
	char **command; /* CMD and its arguments, or NULL */
	char *shell[4]; /* -c: what command points to then */
	int64_t pid; /* -p; 0: none */
	const char *kernel; /* -k, or NULL */
	int64_t rate; /* --rate: lines of printf() on the GPU in a second */
	int64_t seconds; /* -d; 0: until the end */
	const char *output; /* -o, or NULL */
	const char *object; /* --emit, or NULL */
	bool json, strict, require_verify, verbose, list, dry_run, help;
};
