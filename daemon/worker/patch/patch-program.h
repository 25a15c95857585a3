/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The patch form of a program (job.md), parsed and checked to be fit for a patch. */

#include <stdio.h>

#include "passes/probe.h"

enum patch_program_error {
	_PATCH_PROGRAM_E_SUCCESS,
	PATCH_PROGRAM_E_UNFIT, /* error->message says why */
};

struct patch_program {
	const struct probe_program *program; /* borrowed */
	char *text; /* owned, with a header; NULL: not parsed */
	struct ptx_module module;
	const struct ptx_function *function;
	bool called; /* its function itself is needed */
};

/* 0, enum patch_program_error or -ENOMEM. patch_program_deinit() is due in any case. */
int patch_program_parse(struct patch_program *parsed, const struct probe_program *program,
			struct ptx_error *error);
void patch_program_deinit(struct patch_program *parsed);

/* Names that stand in the module that is made, and the statements that brought variables there. */
struct patch_symbols {
	struct patch_symbol {
		char *name, *text; /* owned; text NULL: a function */
	} *symbols; /* owned */
	size_t n, n_allocated;
};

/*
 * Writes the program's text: without variables that are there already, and without its function
 * unless that is called. Returns as patch_program_parse().
 */
int patch_program_write(FILE *stream, const struct patch_program *parsed,
			struct patch_symbols *symbols, struct ptx_error *error);
void patch_symbols_deinit(struct patch_symbols *symbols);
