/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The section of a program, or --point, parsed: a kernel and a point in it (worker/job.md,
 * "Sections").
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum section_point {
	SECTION_ENTRY,
	SECTION_RETURN,
	SECTION_MEMORY,
	SECTION_LINE,
	SECTION_BLOCK,
	SECTION_CLASS, /* instructions of a class: machine code alone has these */
};

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
	enum section_point point;
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

/* "entry", "return", "memory", "line", "block", or the name of the class. */
const char *section_point_name(const struct section *section);

/* The struct of proto/gpuprobe.bpf.h that a program there gets. */
const char *section_context(const struct section *section);

/*
 * Whether the section says the kernel's name with the prefix cuda_, a convention of other loaders
 * (kprobe/cuda__Z9vectorAddPKfS0_Pf). The name may be meant as it stands, or without the prefix.
 * text: the section that the name was read from; a name that --kernel gave, or a glob, has no such
 * prefix.
 */
#define SECTION_PREFIX "cuda_"
bool section_prefixed(const struct section *section, const char *text);

/* Why the SASS engine cannot have a program there: one line, constant; NULL: it can. And what only
 * it can have. */
const char *section_needs_ptx(const struct section *section);
bool section_needs_sass(const struct section *section);

/* Names of state spaces. The bit of one, 1 << its number in proto/gpuprobe.bpf.h; 0: there is none
 * of this name. */
#define SECTION_SPACES_DEFAULT UINT32_C(0x1f) /* all but param */
#define SECTION_SPACES_SASS                                                                      \
	UINT32_C(0xf) /* that accesses of machine code can be to: generic, global, shared, local \
		       */
uint32_t section_space(const char *name);
const char *section_space_name(unsigned int number); /* NULL: no more */
