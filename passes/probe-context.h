/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the pass `probe`: computes the fields of a context, in the block where programs run.
 */

#include <stdio.h>

#include "proto/point.h"
#include "probe-access.h"

#define PROBE_NUMBER_FIELDS \
	0x1d /* bits of those that are numbers at a memory instruction: id, size, space, kind */
#define PROBE_FIELDS POINT_FIELDS /* of the longer list: proto/point.h */

/*
 * Fields that programs want, and with what to replace a parameter that stands for one: a number or
 * a register.
 */
struct probe_context {
	uint32_t wanted; /* a bit for each field */
	char arguments[PROBE_FIELDS][24];
};

/* Registers of ours are named after this. */
#define PROBE_REGISTER "%%gpuprobe_"

/* What a context is of. */
struct probe_place {
	const struct probe_names *names;
	uint32_t statement;
	const char *process_space; /* "const" or "global" */
	const struct probe_access *access; /* NULL: the context of a kernel's entry */
	uint64_t instruction; /* its id, with access */
	const char *kernel_variable; /* where the kernel's id is; NULL: it is the function */
	bool launch; /* the function has the block of its launch, proto/launch.h */
	bool inlined; /* the programs stand there themselves */
};

/* Declares registers, computes the wanted fields in them, and fills in arguments. */
void probe_context_write(FILE *stream, const struct probe_place *place,
			 struct probe_context *context);
bool probe_context_needs_process(uint32_t wanted);
/* Is a field of the launch among them? memory: they are of a gpuprobe_memory_ctx. */
bool probe_context_reads_launch(uint32_t wanted, bool memory);
