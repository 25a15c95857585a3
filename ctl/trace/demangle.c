/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "demangle.h"

/* of libstdc++; C has no header for it */
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

const char *trace_demangle(struct trace_demangler *demangler, const char *mangled) {
	char *name = trace_map_get(&demangler->names, (uintptr_t)mangled, 0);
	int status;

	if (name)
		return name;
	if (mangled[0] != '_' || mangled[1] != 'Z')
		return mangled;
	name = __cxa_demangle(mangled, NULL, NULL, &status);
	if (name && trace_map_set(&demangler->names, (uintptr_t)mangled, 0, name)) {
		free(name);
		name = NULL;
	}
	return name ?: mangled;
}

void trace_demangler_deinit(struct trace_demangler *demangler) {
	trace_map_deinit(&demangler->names, free);
}
