/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The data of probes: their variables, and the constant banks in which their code finds maps (bank
 * 3) and addresses of variables (bank 4). It is put behind that of the module that they are
 * inserted into, with its symbols, so that the driver finds a probe's variables there by name, as
 * in any module. Nothing that was there moves.
 */

#include "cubin-edit.h"
#include "refusal.h"

#define SASS_BANKS 5 /* 0: parameters; 2: tables of a kernel; 3: constants; 4: addresses */
#define SASS_BANK_CONSTANTS 3
#define SASS_BANK_ADDRESSES 4

/* Where the probes' banks begin in those of the module, in bytes. */
struct sass_bases {
	uint32_t bank[SASS_BANKS];
};

/* Puts the data of a cubin of probes into another one. 0; SASS_REFUSED; -ENOMEM. */
int sass_data_add(struct sass_cubin *cubin, const struct sass_cubin *probes,
		  struct sass_bases *bases, struct sass_refusal *refusal);
