/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the pass `probe`: puts the bare functions beside the probed ones (probe_options.bare).
 */

#include "lib/ptx/ptx-edit.h"

struct probe_bare_call {
	uint32_t caller, callee; /* indexes in module->functions */
	uint32_t end; /* offset in the text, behind the callee's name */
};

struct probe_bare {
	const struct ptx_module *module; /* borrowed */
	struct probe_bare_call *calls; /* of device functions, by name, in the order of the text */
	uint32_t call_count, call_capacity;
	/* By function: */
	bool *held; /* it can have no original, or is called by what can have none, or by its
		       address */
	bool *probed; /* it got a program */
};

/* 0 or -ENOMEM. */
int probe_bare_init(struct probe_bare *bare, const struct ptx_module *module);
void probe_bare_deinit(struct probe_bare *bare);

/* Reads one body, of a kernel that gets a program. */
void probe_bare_read_kernel(struct probe_bare *bare, const struct ptx_body *body);

/*
 * Reads all bodies, to know the callers of each device function before one gets a program.
 * Functions that are held then must not get one. 0, PROBE_E_FUNCTION (*error is filled in) or
 * -ENOMEM.
 */
int probe_bare_read(struct probe_bare *bare, struct ptx_error *error);

/*
 * Puts the originals into the module: of probed kernels, and of what calls probed device functions,
 * at however many removes. Each stands behind its function under that one's name with
 * PROBE_BARE_SUFFIX (probe.h), and calls originals. Returns 0, or as ptx_edit_insert().
 */
int probe_bare_write(const struct probe_bare *bare, struct ptx_edit *edit);
