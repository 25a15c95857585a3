/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Probes for machine code (daemon/worker/sass/probe.h), made from the programs of a request: each
 * is a kernel in PTX that has all programs of one place, compiled by NVIDIA's compiler. All probes
 * of an image are one module, so they share maps as they do in a PTX twin.
 *
 * Kernels with the same programs share a probe. Ids of kernels are constants of the module, one for
 * each target, of which probes read the first: the rewriter moves that on. Where a program reads
 * parameters each kernel has a probe of its own, which declares the same ones as the kernel.
 */

#include "daemon/worker/compiler/compiler.h"
#include "daemon/worker/sass/kernel.h"
#include "daemon/worker/sass/probe.h"
#include "image-target.h"

enum image_probe_place {
	IMAGE_PROBE_ENTRY,
	IMAGE_PROBE_EXIT,
	_IMAGE_PROBE_PLACES,
};

enum image_probe_error {
	_IMAGE_PROBE_E_SUCCESS,
	IMAGE_PROBE_E_TRANSFORM, /* a program cannot be put there: see message */
	IMAGE_PROBE_E_COMPILE, /* see log */
	IMAGE_PROBE_E_NO_COMPILER, /* there is none for this device */
};

struct image_probe {
	enum image_probe_place place;
	const struct image_target *target; /* the first one that has it */
	const struct sass_kernel *kernel; /* it has the parameters of this one; NULL: of none */
	struct sass_probe probe; /* owned */
	struct sass_refusal refusal; /* why there is none; "" if there is */
};

struct image_probes {
	struct image_probe *probes; /* owned */
	size_t n;
	uint32_t *of[_IMAGE_PROBE_PLACES]; /* owned: by target, the index of its probe, plus 1 */
	char *text; /* owned: the module */
	size_t length;
	uint8_t *code; /* owned: what the compiler made of it; */
	size_t code_size;
	struct sass_cubin cubin; /* likewise, open */
	bool opened;
	bool ids; /* programs read the kernel's id */
	uint32_t ids_at; /* where those are in constant bank 3 */
	int64_t compile_us;
	char *log; /* owned, may be NULL */
	char message[400];
};

/* May a program stand at this point of a kernel's machine code? */
bool image_probe_can(const struct probe_use *use);

/*
 * Makes the probes of targets; kernels[i] is that of target i, or empty: it gets none. 0, enum
 * image_probe_error, or -ENOMEM. *probes needs image_probes_deinit() in any case.
 */
int image_probes_make(struct image_probes *probes, const struct image_request *request,
		      const struct image_targets *targets, const struct sass_kernel *kernels,
		      struct compiler *compiler);
void image_probes_deinit(struct image_probes *probes);

/* The probe of a target at a place. NULL: it has none there. */
static inline const struct image_probe *image_probe_of(const struct image_probes *probes,
						       size_t target,
						       enum image_probe_place place) {
	const uint32_t number = probes->of[place][target];

	return number ? &probes->probes[number - 1] : NULL;
}
