/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A pass as a program: one JSON request on standard input, one JSON object on standard output, the
 * attach point in the environment. docs/gpuprobed.8.scd, "PASSES AS PROGRAMS", is the contract.
 */

#include <json-c/json.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/pass/pass-definition.h"
#include "daemon/translator/translate.h"

/* sysexits.h, as far as the contract has them. */
enum ptxpass_exit {
	PTXPASS_OK = 0,
	PTXPASS_CONFIGURATION = 64,
	PTXPASS_INPUT = 65,
	PTXPASS_TRANSFORM = 66,
	PTXPASS_INTERNAL = 70,
};

#define PTXPASS_ATTACH_POINT "PTX_ATTACH_POINT"

/* The one line that says what is wrong. Functions below return 0, or the exit status with this
 * filled in. */
struct ptxpass_error {
	char message[600];
};

int ptxpass_fail(struct ptxpass_error *error, enum ptxpass_exit status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

struct ptxpass_request {
	json_object *json; /* owned: strings below are its */
	bool nested; /* {"input": ..., "ebpf_instructions": ...}: the reply says "modified" */
	const char *ptx;
	size_t ptx_length;
	const char *kernel; /* NULL: PTX_ATTACH_POINT says which */
	const char *map_symbol;
	struct bpf_insn *insns; /* owned */
	size_t n_insns;
	struct translate_map maps[TRANSLATE_MAPS_MAX];
	int fds[TRANSLATE_MAPS_MAX]; /* by which instructions may refer to them; -1: none */
	char *slots[TRANSLATE_MAPS_MAX]; /* owned: of maps without a slot_symbol */
	size_t n_maps;
};

/* Reads a request from its text. *request needs ptxpass_request_deinit() in any case. */
int ptxpass_request_read(struct ptxpass_request *request, const char *text, size_t length,
			 struct ptxpass_error *error);
void ptxpass_request_deinit(struct ptxpass_request *request);

/* The instructions as PTX, in a form that probe.h takes. Without any, a function that does nothing.
 */
struct ptxpass_program {
	char symbol[64];
	char *text; /* owned */
	uint32_t isa, target;
	uint16_t context[TRANSLATE_PARAMETERS_MAX];
	uint32_t context_count;
};

/* program->symbol says what it is to be called. */
int ptxpass_program_make(struct ptxpass_program *program, struct ptxpass_request *request,
			 struct ptxpass_error *error);
void ptxpass_program_deinit(struct ptxpass_program *program);

/*
 * Puts the program at the attach point (NULL: that of the definition in the kernel that the request
 * names). *output is the caller's; NULL: nothing was changed.
 */
int ptxpass_apply(const struct pass_definition *definition, struct ptxpass_request *request,
		  const char *attach_point, char **output, size_t *length,
		  struct ptxpass_error *error);
