/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs a pass: any executable that reads a JSON request and writes a JSON object. Used by the pass
 * worker and gpuprobectl. */

#include "pass-definition.h"

struct pass_run {
	const char *executable;
	const char *attach_point;
	const char *ptx;
	size_t ptx_length;
	const char *kernel; /* to_patch_kernel; NULL: none */
	json_object *parameters; /* members that are added to the request; NULL: none */
	const struct pass_strings *required_symbols; /* of the output; NULL: none */
	uint64_t max_output_bytes;
	unsigned int timeout_ms, memory_mib;
	int (*prepare)(void); /* called in the new process before it becomes the executable; 0 or
				 -errno; NULL: nothing */
};

struct pass_output {
	char *ptx; /* owned, NUL-terminated; NULL: the pass changed nothing */
	size_t length;
	int status; /* its exit status, or 128 + the signal that ended it; -1: it did not end by
		       itself, or did not start */
};

enum pass_run_error {
	_PASS_RUN_SUCCESS,
	PASS_RUN_E_FAILED, /* the pass is at fault: error says how */
};

/*
 * Runs it, with all that it starts gone when this returns. *output is the caller's:
 * free(output->ptx). 0, PASS_RUN_E_FAILED with one line in error (output->status is filled in), or
 * -errno.
 */
int pass_run(const struct pass_run *run, struct pass_output *output,
	     char error[static PASS_ERROR_SIZE]);
