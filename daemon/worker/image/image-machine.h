/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Twins from machine code: the image's own cubin, with probes at the entry and the ways out of the
 * kernels that attachments mean (daemon/worker/sass/rewrite.h). No PTX is needed.
 */

#include "image-build.h"
#include "image-probe.h"

#define IMAGE_MACHINE_REASON_MAX 400

enum image_machine_error {
	_IMAGE_MACHINE_E_SUCCESS,
	IMAGE_MACHINE_E_NONE, /* there is no such twin: see reason */
	IMAGE_MACHINE_E_TRANSFORM, /* a program cannot be put there: see reason */
	IMAGE_MACHINE_E_COMPILE, /* see result->log */
};

/* Are twins for this architecture made where nobody asks for machine code? */
bool image_machine_has_run(unsigned int capability);

/* What to make. All borrowed. */
struct image_machine_source {
	const struct image_request *request;
	const uint8_t *code; /* a cubin */
	size_t size;
	bool all; /* a target that cannot have a twin is a reason to make none */
};

/*
 * Makes a twin of a cubin. Targets that cannot have one are left out of `targets`, with a reason;
 * uses of the others say where they stand. On success *result is the image with its table
 * (proto/twin.h), a fatbin, and `text` the probes. 0, enum image_machine_error (targets are as they
 * were), or -ENOMEM. *result needs image_built_deinit() in any case.
 */
int image_machine_build(struct image_built *result, const struct image_machine_source *source,
			struct image_targets *targets, struct compiler *compiler,
			char reason[IMAGE_MACHINE_REASON_MAX]);
