/* SPDX-License-Identifier: Apache-2.0 */

/* Fuzz target. Any two lines as a kernel's name and a pattern, and as a ptxas command line. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kernel-name.h"
#include "daemon/worker/compiler/ptxas-options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct ptxas_options options;
	struct kernel_name name;
	char *text, *pattern, shortened[49];

	if (size > 512)
		return 0;
	ptxas_options_read(&options, (const char *)data, size);
	for (size_t i = 0; i < options.n; i++)
		if (options.options[i][0] != '-' || strlen(options.options[i]) >= PTXAS_OPTION_SIZE)
			abort();
	text = strndup((const char *)data, size);
	if (!text)
		return 0;
	pattern = strchr(text, '\n');
	if (pattern)
		*pattern++ = '\0';
	kernel_name_init(&name, text);
	if (kernel_name_short(text, shortened, sizeof(shortened)) &&
	    strlen(shortened) >= sizeof(shortened))
		abort();
	kernel_name_match(&name, pattern ? pattern : "?*");
	kernel_name_demangle(&name);
	if (name.demangled && kernel_name_match(&name, name.demangled) != 1)
		abort();
	kernel_name_deinit(&name);
	free(text);
	return 0;
}
