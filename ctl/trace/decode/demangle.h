/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of kernels for people. */

#include "ctl/trace/base/map.h"

#define DEMANGLED_MAX 16384 /* bytes of a name; longer ones stay mangled */

/* The result is malloc()ed; NULL: it is no mangled name, or takes too much. *failures, 0 at first,
 * is for all names of a source. */
char *demangle(const char *mangled, unsigned int *failures);

/* Each is demangled once; names are known by their address, which is the same as long as the trace
 * is open. */
struct trace_demangler {
	struct trace_map names;
	unsigned int failures;
};

/* The name itself if it is not mangled. Valid until _deinit(). */
const char *trace_demangle(struct trace_demangler *demangler, const char *mangled);
void trace_demangler_deinit(struct trace_demangler *demangler);
