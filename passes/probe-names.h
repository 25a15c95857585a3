/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the pass `probe`: what a name means at a statement of a body. Scopes may declare a
 * name again, and nvcc makes thousands of scopes (one for each inline assembly), so declarations
 * are sorted.
 */

#include "lib/ptx/ptx-module.h"

struct probe_names {
	const struct ptx_body *body; /* borrowed */
	uint32_t *scopes; /* by statement: the SCOPE_OPEN around it; PTX_NONE */
	uint32_t *registers; /* indexes, by name, then statement */
	uint32_t *variables;
};

/* 0 or -ENOMEM. */
int probe_names_init(struct probe_names *names, const struct ptx_body *body);
void probe_names_deinit(struct probe_names *names);

/* A register as an instruction names it: %r12, or %v.x of a vector. */
struct probe_register {
	uint8_t type; /* enum ptx_type */
	uint8_t vector; /* 1 if the token names one element */
};

/* What the token means at the statement (body->statement_count: the end). False: no register. */
bool probe_names_register(const struct probe_names *names, uint32_t statement, uint32_t token,
			  struct probe_register *out);

/* The variable of the body that the token means; NULL. */
const struct ptx_variable *probe_names_variable(const struct probe_names *names, uint32_t statement,
						uint32_t token);

/* The token of the name in an address, [name...] or, of an array, name[index]; PTX_NONE: it is
 * none. */
uint32_t probe_names_addressed(const struct ptx_body *body, const struct ptx_operand *operand);

/* Does the body declare something of that name, so that no parameter is meant by it at the
 * statement? */
bool probe_names_hide(const struct probe_names *names, uint32_t statement, struct ptx_range name);
