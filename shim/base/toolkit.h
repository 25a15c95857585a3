/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds NVIDIA's libraries for tools: the patching library for the sanitizer engine, and CUPTI. */

#include <stddef.h>

/* Lists end with NULL. */
struct toolkit_library {
	const char *what; /* "NVIDIA's patching library" */
	const char *missing; /* what to say where there is none */
	const char *const *names; /* of the file, the best first */
	const char *const *beside; /* folders, as seen from that of a library of a toolkit */
	const char *const *below; /* folders, as seen from a toolkit's own */
};

/*
 * Loads the library at `path`, or (NULL or empty) the first one of the places where it may be; what
 * is loaded stays. NULL: line says why not.
 */
void *toolkit_open(const struct toolkit_library *library, const char *path, char *line,
		   size_t size);
