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
#include "lib/ptx/ptx-edit.h"

#define ENOUGH 64 /* registers of a thread, for any block */

/* Does the kernel say itself how large its blocks are, or how many registers it may have? */
static bool is_bounded(const struct ptx_module *module, const struct ptx_function *kernel) {
	return ptx_function_directive(module, kernel, ".maxntid") ||
	       ptx_function_directive(module, kernel, ".reqntid") ||
	       ptx_function_directive(module, kernel, ".maxnreg");
}

static uint32_t read(const struct image_code *code, const char *name) {
	return code->data ? cubin_registers(code->data, code->size, name) : 0;
}

/* The registers of the kernel as it was; 0: unknown. */
static uint32_t read_before(const struct image_codes *codes, const char *name) {
	return read(&codes->original, name) ?: read(&codes->unedited, name);
}

/* Has a kernel got too many? Then *before is what it had, 0: unknown. */
static int look(bool *many, uint32_t *before, const struct ptx_module *module,
		const struct ptx_function *kernel, const struct image_codes *codes) {
	char *name;

	*many = false;
	if (!kernel->body.length || is_bounded(module, kernel))
		return 0;
	name = strndup(module->text + kernel->name.offset, kernel->name.length);
	if (!name)
		return -ENOMEM;
	*many = read(&codes->compiled, name) > ENOUGH;
	if (*many)
		*before = read_before(codes, name);
	free(name);
	return 0;
}

/* The edited text; *out stays NULL without an edit. */
static int apply(struct ptx_edit *edit, bool edited, int r, char **out, size_t *length) {
	if (!r && edited)
		r = ptx_edit_apply(edit, out, length);
	ptx_edit_free(edit);
	return r > 0 ? -EINVAL : r;
}

int image_registers_limit(char **out, size_t *length, const struct ptx_module *module,
			  const struct image_codes *codes) {
	const struct ptx_function *kernel = NULL;
	struct ptx_edit *edit;
	bool limited = false, many;
	uint32_t before;
	int r;

	*out = NULL;
	r = ptx_edit_new(&edit, module->text, module->length);
	if (r)
		return r;
	while (!r && (kernel = ptx_module_next_kernel(module, kernel))) {
		r = look(&many, &before, module, kernel, codes);
		if (r || !many || !before || before > ENOUGH)
			continue;
		limited = true;
		r = ptx_edit_insertf(edit, kernel->body.offset, "\n.maxnreg %d\n", ENOUGH);
	}
	return apply(edit, limited, r, out, length);
}

int image_registers_wanted(char **out, size_t *length, const struct ptx_module *module,
			   const struct ptx_module *unedited, const struct image_codes *codes) {
	const struct ptx_function *kernel = NULL, *edited;
	struct ptx_edit *edit;
	bool wanted = false, many;
	uint32_t before;
	int r;

	*out = NULL;
	r = ptx_edit_new(&edit, unedited->text, unedited->length);
	if (r)
		return r;
	while (!r && (kernel = ptx_module_next_kernel(unedited, kernel))) {
		edited = ptx_module_find_function(module, unedited->text + kernel->name.offset,
						  kernel->name.length);
		many = false;
		if (edited)
			r = look(&many, &before, module, edited, codes);
		if (!r && many && !before)
			wanted = true;
		else if (!r)
			r = ptx_edit_replace(edit, kernel->text, NULL, 0);
	}
	return apply(edit, wanted, r, out, length);
}
