/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Collects edits of a PTX text and applies them at once (ptx-edit.h).
 *
 * Edits are a list of (offset, bytes removed, bytes put in), sorted when they are applied; those at
 * one offset keep the order in which they came, and insertions come before a replacement. .version
 * is kept apart until then, as only the highest demand counts.
 */

#include "ptx-edit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct change {
	uint32_t offset;
	uint32_t removed;
	uint32_t order;
	size_t length;
	char *bytes;
};

struct ptx_edit {
	const char *text;
	uint32_t length;
	struct change *changes;
	uint32_t count, capacity;
	uint32_t isa; /* 0: not raised */
	struct ptx_range isa_range;
	uint32_t target; /* 0: not raised */
	struct ptx_range target_range;
};

int ptx_edit_new(struct ptx_edit **out, const char *text, size_t length) {
	struct ptx_edit *edit;

	if (length > PTX_SOURCE_MAX)
		return -EFBIG;
	edit = calloc(1, sizeof(*edit));
	if (!edit)
		return -ENOMEM;
	edit->text = text;
	edit->length = length;
	*out = edit;
	return 0;
}

struct ptx_edit *ptx_edit_free(struct ptx_edit *edit) {
	if (!edit)
		return NULL;
	for (uint32_t i = 0; i < edit->count; i++)
		free(edit->changes[i].bytes);
	free(edit->changes);
	free(edit);
	return NULL;
}

/* bytes becomes the edit's, also on failure. */
static int add_consume(struct ptx_edit *edit, struct ptx_range range, char *bytes, size_t length) {
	struct change *changes;
	uint32_t capacity;

	if (range.offset > edit->length || range.length > edit->length - range.offset) {
		free(bytes);
		return -EINVAL;
	}
	if (edit->count == edit->capacity) {
		capacity = edit->capacity ? edit->capacity * 2 : 16;
		changes = capacity > edit->capacity
				  ? reallocarray(edit->changes, capacity, sizeof(*changes))
				  : NULL;
		if (!changes) {
			free(bytes);
			return -ENOMEM;
		}
		edit->changes = changes;
		edit->capacity = capacity;
	}
	edit->changes[edit->count] =
		(struct change){ range.offset, range.length, edit->count, length, bytes };
	edit->count++;
	return 0;
}

int ptx_edit_replace(struct ptx_edit *edit, struct ptx_range range, const char *bytes,
		     size_t length) {
	char *copy = NULL;

	if (length) {
		copy = malloc(length);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, bytes, length);
	}
	return add_consume(edit, range, copy, length);
}

int ptx_edit_insert(struct ptx_edit *edit, uint32_t offset, const char *bytes, size_t length) {
	return ptx_edit_replace(edit, (struct ptx_range){ offset, 0 }, bytes, length);
}

int ptx_edit_insertf(struct ptx_edit *edit, uint32_t offset, const char *format, ...) {
	va_list arguments;
	char *bytes;
	int length;

	va_start(arguments, format);
	length = vasprintf(&bytes, format, arguments);
	va_end(arguments);
	if (length < 0)
		return -ENOMEM;
	return add_consume(edit, (struct ptx_range){ offset, 0 }, bytes, length);
}

int ptx_edit_insert_after_header(struct ptx_edit *edit, const struct ptx_module *module,
				 const char *bytes, size_t length) {
	int r;

	r = ptx_edit_insert(edit, module->header_end, "\n", 1);
	return r ? r : ptx_edit_insert(edit, module->header_end, bytes, length);
}

int ptx_edit_raise_version(struct ptx_edit *edit, const struct ptx_module *module, uint32_t isa) {
	if (isa <= module->isa || isa <= edit->isa)
		return PTX_EDIT_E_KEPT;
	edit->isa = isa;
	edit->isa_range = module->isa_range;
	return 0;
}

int ptx_edit_raise_target(struct ptx_edit *edit, const struct ptx_module *module, uint32_t number) {
	if (number <= module->target.number || number <= edit->target)
		return PTX_EDIT_E_KEPT;
	edit->target = number;
	edit->target_range = module->target.range;
	return 0;
}

static int compare_changes(const void *a, const void *b) {
	const struct change *left = a, *right = b;

	if (left->offset != right->offset)
		return left->offset < right->offset ? -1 : 1;
	if (!left->removed != !right->removed)
		return left->removed ? 1 : -1;
	return left->order < right->order ? -1 : 1;
}

/* The length of the new text; checks that no two changes touch the same bytes. */
static int measure(const struct ptx_edit *edit, const struct change *changes, uint32_t count,
		   size_t *length) {
	uint32_t position = 0;

	*length = edit->length;
	for (uint32_t i = 0; i < count; i++) {
		if (changes[i].offset < position)
			return PTX_EDIT_E_OVERLAP;
		position = changes[i].offset + changes[i].removed;
		*length -= changes[i].removed;
		if (__builtin_add_overflow(*length, changes[i].length, length) ||
		    *length > UINT32_MAX)
			return -EFBIG;
	}
	return 0;
}

int ptx_edit_apply(const struct ptx_edit *edit, char **out, size_t *out_length) {
	struct change *changes;
	char version[32], target[32], *result, *to;
	uint32_t count = edit->count, position = 0;
	size_t length = 0;
	int r;

	changes = calloc(count + 2, sizeof(*changes));
	if (!changes)
		return -ENOMEM;
	if (count)
		memcpy(changes, edit->changes, count * sizeof(*changes));
	if (edit->isa) {
		snprintf(version, sizeof(version), "%u.%u", edit->isa / 10, edit->isa % 10);
		changes[count] = (struct change){ edit->isa_range.offset, edit->isa_range.length,
						  count, strlen(version), version };
		count++;
	}
	if (edit->target) {
		snprintf(target, sizeof(target), "sm_%u", edit->target);
		changes[count] =
			(struct change){ edit->target_range.offset, edit->target_range.length,
					 count, strlen(target), target };
		count++;
	}
	qsort(changes, count, sizeof(*changes), compare_changes);
	r = measure(edit, changes, count, &length);
	result = r ? NULL : malloc(length + 1);
	if (!result) {
		free(changes);
		return r ? r : -ENOMEM;
	}
	to = result;
	for (uint32_t i = 0; i < count; i++) {
		to = mempcpy(to, edit->text + position, changes[i].offset - position);
		if (changes[i].length)
			to = mempcpy(to, changes[i].bytes, changes[i].length);
		position = changes[i].offset + changes[i].removed;
	}
	to = mempcpy(to, edit->text + position, edit->length - position);
	*to = '\0';
	free(changes);
	*out = result;
	*out_length = length;
	return 0;
}
