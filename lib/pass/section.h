/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The section of a program, or --point, parsed: a kernel and a point in it (worker/job.md,
 * "Sections").
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/point.h"

enum section_result {
	_SECTION_SUCCESS,
	SECTION_E_INVALID, /* malformed: the error says what was expected */
};

#define SECTION_ERROR_SIZE 256
#define SECTION_KERNEL_SIZE 2048 /* names of C++ templates are long */
#define SECTION_FILE_SIZE 256
#define SECTION_DIRECTLY_RUN \
	"__gpuprobe_directly_run" /* the kernel that `gpuprobectl run` launches */

struct section {
	enum point_kind point;
	bool known; /* begins with kprobe, kretprobe or memcapture; else the point is the entry */
	bool device_function; /* kernel means functions that are no kernels */
	char kernel[SECTION_KERNEL_SIZE]; /* name or glob; empty: it says none */
	char file[SECTION_FILE_SIZE]; /* LINE: the end of a path */
	uint32_t line, block;
	uint32_t instruction; /* CLASS: enum patch_instruction */
};

/*
 * kernel (or NULL) stands for the name in the section; with dev: before it, for device functions. 0
 * or SECTION_E_INVALID with one line in error.
 */
int section_parse(struct section *section, const char *text, const char *kernel,
		  char error[static SECTION_ERROR_SIZE]);

/* The row of its point. */
const struct point *section_point(const struct section *section);

/*
 * Whether the section says the kernel's name with the prefix cuda_, a convention of other loaders
 * (kprobe/cuda__Z9vectorAddPKfS0_Pf). The name may be meant as it stands, or without the prefix.
 * text: the section that the name was read from; a name that --kernel gave, or a glob, has no such
 * prefix.
 */
#define SECTION_PREFIX "cuda_"
bool section_prefixed(const struct section *section, const char *text);

/* Why the sanitizer engine cannot have a program there: one line, constant; NULL: it can. And what
 * only it can have. */
const char *section_needs_ptx(const struct section *section);
bool section_needs_sass(const struct section *section);
