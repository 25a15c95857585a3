/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* From edited PTX to machine code. */

#include "daemon/worker/compiler/compiler.h"
#include "daemon/worker/fatbin/fatbin.h"
#include "lib/ptx/ptx-module.h"

enum image_build_error {
	_IMAGE_BUILD_E_SUCCESS,
	IMAGE_BUILD_E_COMPILE, /* see log */
};

/* What to build. All borrowed. */
struct image_source {
	const struct fatbin_entry *entry; /* of the fatbin that the PTX is from; NULL if it was PTX
					     text */
	const struct ptx_module *module; /* edited */
	const uint8_t *code; /* the machine code that would run without us, or NULL */
	size_t code_size;
	const struct ptx_module *unedited; /* as the driver would compile it: it may be compiled to
					      see how many registers it has; NULL: it is not */
	unsigned int capability;
	bool patch; /* for the sanitizer engine: the log then tells of the functions that were made
		     */
};

struct image_built {
	uint8_t *data; /* owned; a fatbin with a cubin for the device; NULL: no compiler makes one
			*/
	size_t size;
	int64_t compile_us;
	char *log; /* owned, may be NULL */
	char *text; /* owned: the PTX that was compiled, if it is not the edited one; else NULL */
	size_t text_length;
};

/* 0, enum image_build_error, or -ENOMEM and the like. *result needs image_built_deinit() in any
 * case. */
int image_build(struct image_built *result, const struct image_source *source,
		struct compiler *compiler);
void image_built_deinit(struct image_built *result);

/* Puts a cubin into a fatbin, and PTX if there is any (ptx NULL: none; its payload is the text). 0,
 * -ENOMEM and the like. */
int image_pack(struct image_built *result, unsigned int capability, const uint8_t *cubin,
	       size_t cubin_size, const struct fatbin_spec *ptx, const char *text, size_t length);
