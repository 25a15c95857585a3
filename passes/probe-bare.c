/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A kernel is a text of its own: labels, registers, parameters, prototypes and tables of branches are known inside of it only,
 * so a second one may have the same. Where a debug section names labels of a body, assemblers take those of the first, the
 * probed one, because the original stands behind it: what a debugger then says of the probed kernel stays right.
 *
 * Not so are variables of a body that outlive it (.global, .const): there would be two. Those of .shared and .local space begin
 * with every block or thread.
 */

#include "probe-bare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

/* Does the body have a variable that keeps its value from one launch to the next? */
static bool has_memory(const struct ptx_body *body)
{
	for (uint32_t i = 0; i < body->variable_count; i++)
		if (body->variables[i].space == PTX_SPACE_GLOBAL || body->variables[i].space == PTX_SPACE_CONST)
			return true;
	return false;
}

/* Would the new name be the kernel's own, and its text what the old one is? */
static bool is_possible(const struct ptx_body *body)
{
	const struct ptx_range name = body->function->name;
	char *bare = NULL;
	bool taken = true;

	if (asprintf(&bare, "%.*s" PROBE_BARE_SUFFIX, (int)name.length, body->module->text + name.offset) >= 0) {
		taken = ptx_module_has_symbol(body->module, bare, strlen(bare));
		free(bare);
	}
	return !taken && !has_memory(body);
}

int probe_bare_add(struct ptx_edit *edit, const struct ptx_body *body)
{
	const struct ptx_function *function = body->function;
	const char *text = body->module->text;
	uint32_t end = function->text.offset + function->text.length, name_end = function->name.offset + function->name.length;
	int r;

	if (!is_possible(body))
		return 0;
	r = ptx_edit_insertf(edit, end, "\n%.*s" PROBE_BARE_SUFFIX, (int)(name_end - function->text.offset),
			     text + function->text.offset);
	return r ? r : ptx_edit_insert(edit, end, text + name_end, end - name_end);
}
