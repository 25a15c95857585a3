/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Edits of a text, collected first and then applied in one pass. Offsets are those of the unchanged
 * source. Bytes that no edit names are copied exactly.
 */

#include "ptx-module.h"

enum {
	_PTX_EDIT_E_SUCCESS,
	PTX_EDIT_E_OVERLAP, /* two replacements share a byte, or an insertion lies inside one */
	PTX_EDIT_E_KEPT, /* raise_version: as high already */
};

struct ptx_edit; /* private */

/* text is borrowed until ptx_edit_free(). -ENOMEM, -EFBIG. */
int ptx_edit_new(struct ptx_edit **out, const char *text, size_t length);
struct ptx_edit *ptx_edit_free(struct ptx_edit *edit); /* NULL is fine; returns NULL */

/*
 * Inserts before the byte at offset (offset == length: at the end). The bytes are copied.
 * Insertions at one place keep their order.
 */
int ptx_edit_insert(struct ptx_edit *edit, uint32_t offset, const char *bytes, size_t length);
int ptx_edit_insertf(struct ptx_edit *edit, uint32_t offset, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Replaces (or, with length 0, removes) a range. Insertions at its first byte come before the
 * replacement.
 */
int ptx_edit_replace(struct ptx_edit *edit, struct ptx_range range, const char *bytes,
		     size_t length);

/* After .version/.target/.address_size, hence before every function and variable. */
int ptx_edit_insert_after_header(struct ptx_edit *edit, const struct ptx_module *module,
				 const char *bytes, size_t length);

/*
 * .version becomes isa (83 is 8.3) if it is lower; PTX_EDIT_E_KEPT otherwise. The highest of
 * several calls counts.
 */
int ptx_edit_raise_version(struct ptx_edit *edit, const struct ptx_module *module, uint32_t isa);

/*
 * .target sm_50 becomes sm_NUMBER if it is lower; PTX_EDIT_E_KEPT otherwise. The highest of several
 * calls counts. Options behind it stay.
 */
int ptx_edit_raise_target(struct ptx_edit *edit, const struct ptx_module *module, uint32_t number);

/*
 * Builds the new text. *out is the caller's to free(); it has a NUL after its last byte, not
 * counted in *length. Returns 0, PTX_EDIT_E_OVERLAP, -ENOMEM or -EFBIG. The edits stay: it may be
 * called again.
 */
int ptx_edit_apply(const struct ptx_edit *edit, char **out, size_t *length);
