/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of kernels for people. Each is demangled once; names are known by their address, which is the same as long as the trace is open. */

#include "map.h"

struct trace_demangler {
	struct trace_map names;
};

/* The name itself if it is not mangled. Valid until _deinit(). */
const char *trace_demangle(struct trace_demangler *demangler, const char *mangled);
void trace_demangler_deinit(struct trace_demangler *demangler);
