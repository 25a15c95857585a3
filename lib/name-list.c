/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the list of names that a shim sent for patching (name-list.h), and checks it.
 *
 * A module's record is checked as a whole before its first name is given out: there are as many
 * names as it says, each ends inside it, and nothing but padding follows. So a list is either good
 * up to a module, or refused there.
 */

#include "name-list.h"

#include <string.h>

static int malformed(struct name_list *names, const char *what) {
	names->what = what;
	return NAME_LIST_E_MALFORMED;
}

void name_list_init(struct name_list *names, const void *data, size_t size) {
	*names = (struct name_list){ .position = data };
	names->end = size ? names->position + size : names->position;
}

/* Do the names fill the record? */
static int check_names(struct name_list *names) {
	const char *position = names->names;

	for (uint32_t i = 0; i < names->module.name_count; i++) {
		position = memchr(position, '\0', (size_t)(names->names_end - position));
		if (!position)
			return malformed(names, "a module has fewer names than it says");
		position++;
	}
	if (names->names_end - position >= 8)
		return malformed(names, "a module has more names than it says");
	for (; position < names->names_end; position++)
		if (*position)
			return malformed(names, "a module's padding is not empty");
	return 0;
}

int name_list_next_module(struct name_list *names) {
	size_t left = (size_t)(names->end - names->position);
	int r;

	if (!left)
		return NAME_LIST_E_END;
	if (left < sizeof(names->module))
		return malformed(names, "it ends in a module's header");
	memcpy(&names->module, names->position, sizeof(names->module));
	if (names->module.size < sizeof(names->module) || names->module.size % 8 ||
	    names->module.size > left)
		return malformed(names, "a module's size is none, or beyond the end");
	if (names->module.reserved)
		return malformed(names, "a module's header is not of this version");
	names->names = (const char *)names->position + sizeof(names->module);
	names->names_end = (const char *)names->position + names->module.size;
	names->next = 0;
	r = check_names(names);
	if (r)
		return r;
	names->position += names->module.size;
	names->modules++;
	return 0;
}

int name_list_next(struct name_list *names, const char **name, uint32_t *index) {
	if (names->next == names->module.name_count)
		return NAME_LIST_E_END;
	*name = names->names;
	*index = names->next++;
	names->names += strlen(names->names) + 1;
	return 0;
}
