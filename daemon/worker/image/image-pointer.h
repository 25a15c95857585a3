/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which kernels of a module can run in its twin, as far as addresses of code go.
 *
 * The address of a function holds in one module alone, and a twin works with the variables of the
 * original: a pointer that it reads there is one to the original's code, and one that it stored
 * there would be one to its own. So a kernel that calls by a pointer, or takes the address of a
 * function, cannot run in a twin, nor can one that calls such a function. The same is true of calls
 * of functions that are not in the module. All other kernels can.
 *
 * Addresses of functions in variables do no harm: code in a twin uses the original's variables.
 */

#include "lib/ptx/ptx-module.h"

enum image_pointer_fault {
	IMAGE_POINTER_NONE,
	IMAGE_POINTER_CALL, /* it calls by a pointer */
	IMAGE_POINTER_ADDRESS, /* it takes the address of a function or kernel */
	IMAGE_POINTER_OUTSIDE, /* it calls a function that is not in the module */
	IMAGE_POINTER_TEXT, /* it cannot be parsed */
};

/* A function with a body that can be reached from a root. */
struct image_pointer_function {
	enum image_pointer_fault fault; /* its own, or of what it calls */
	uint32_t where; /* the function that has the fault */
	struct ptx_range name; /* what is called there, or what address is taken */
	bool reached; /* from a root */
	bool kept; /* from a root without a fault: so it has none */
};

struct image_pointer_call; /* private */
struct image_pointer {
	const struct ptx_module *module; /* borrowed */
	struct image_pointer_function *functions; /* owned: one for each of the module's */
	uint32_t *definitions; /* owned: by the same index, that of the body; PTX_NONE: none */
	struct image_pointer_call *calls; /* owned */
	uint32_t call_count, call_capacity;
};

/*
 * Looks at all that can be reached from some kernels, each function once. roots: a kernel with a
 * body or not, for each of the module's functions. 0 or -ENOMEM. *pointer needs
 * image_pointer_deinit() in any case.
 */
int image_pointer_init(struct image_pointer *pointer, const struct ptx_module *module,
		       const bool *roots);
void image_pointer_deinit(struct image_pointer *pointer);

/* The function that a name stands for, behind prototypes and aliases; PTX_NONE: it is not here. */
uint32_t image_pointer_definition(const struct image_pointer *pointer, const char *name,
				  size_t length);

/* Does a token name a function, a kernel or an alias, defined or not? */
bool image_pointer_is_function(const struct ptx_module *module, const struct ptx_token *token);

/* Why a function is not kept, as a part of a line: "it calls functions by pointers". */
void image_pointer_reason(const struct image_pointer *pointer, uint32_t function, char *reason,
			  size_t size);
