/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides how many registers the kernels of an edited module may have (image-registers.h), so that
 * a probed kernel can be launched with blocks as large as before.
 */

#include "image-registers.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/compiler/cubin.h"
#include "passes/probe.h"
#include "lib/ptx/ptx-edit.h"

#define ENOUGH 64 /* registers of a thread, for any block */

/* Machine code of the module, edited and as it was. */
struct code {
	const void *compiled, *original;
	size_t compiled_size, original_size;
};

/* Does the kernel say itself how large its blocks are, or how many registers it may have? */
static bool is_bounded(const struct ptx_module *module, const struct ptx_function *kernel) {
	return ptx_function_directive(module, kernel, ".maxntid") ||
	       ptx_function_directive(module, kernel, ".reqntid") ||
	       ptx_function_directive(module, kernel, ".maxnreg");
}

/* The registers of the kernel as it was: of the original code, else of its bare form; 0: unknown.
 */
static int read_before(uint32_t *registers, const struct code *code, const char *name) {
	size_t length = strlen(name), suffix = strlen(PROBE_BARE_SUFFIX);
	char *other;

	if (length > suffix && !strcmp(name + length - suffix, PROBE_BARE_SUFFIX))
		other = strndup(name, length - suffix);
	else
		other = strdup(name);
	if (!other)
		return -ENOMEM;
	*registers =
		code->original ? cubin_registers(code->original, code->original_size, other) : 0;
	free(other);
	if (*registers)
		return 0;
	if (asprintf(&other, "%s" PROBE_BARE_SUFFIX, name) < 0)
		return -ENOMEM;
	*registers = cubin_registers(code->compiled, code->compiled_size, other);
	free(other);
	return 0;
}

/* *limited: has the kernel got a limit? */
static int limit_kernel(struct ptx_edit *edit, bool *limited, const struct ptx_module *module,
			const struct ptx_function *kernel, const struct code *code) {
	uint32_t before = 0;
	char *name;
	int r = 0;

	name = strndup(module->text + kernel->name.offset, kernel->name.length);
	if (!name)
		return -ENOMEM;
	if (cubin_registers(code->compiled, code->compiled_size, name) > ENOUGH)
		r = read_before(&before, code, name);
	if (!r && before && before <= ENOUGH) {
		*limited = true;
		r = ptx_edit_insertf(edit, kernel->body.offset, "\n.maxnreg %d\n", ENOUGH);
	}
	free(name);
	return r;
}

int image_registers_limit(char **out, size_t *length, const struct ptx_module *module,
			  const void *compiled, size_t compiled_size, const void *original,
			  size_t original_size) {
	const struct code code = { compiled, original, compiled_size, original_size };
	const struct ptx_function *kernel = NULL;
	struct ptx_edit *edit;
	bool limited = false;
	int r;

	*out = NULL;
	r = ptx_edit_new(&edit, module->text, module->length);
	if (r)
		return r;
	while (!r && (kernel = ptx_module_next_kernel(module, kernel)))
		if (kernel->body.length && !is_bounded(module, kernel))
			r = limit_kernel(edit, &limited, module, kernel, &code);
	if (!r && limited)
		r = ptx_edit_apply(edit, out, length);
	ptx_edit_free(edit);
	return r > 0 ? -EINVAL : r;
}
