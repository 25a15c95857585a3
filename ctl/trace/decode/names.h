/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a trace has told about its processes, threads, kernels, functions, hooks and stacks. Each
 * fact has the number of the record that told it, and holds from there on. A caller says as of
 * which record it asks. Texts are kept once, until the end. Beyond NAMES_BYTES_MAX they are
 * forgotten, because a trace is foreign data.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/trace/base/item.h"
#include "proto/trace.h"

#define NAMES_BYTES_MAX ((size_t)256 << 20)
#define HOOK_ARGUMENTS_MAX 32

/* A text that is kept, and what it is demangled (the same pointer if it is no mangled name). */
struct names_text {
	const char *text, *demangled;
};

enum names_type {
	NAMES_UNSIGNED,
	NAMES_SIGNED,
	NAMES_HEX,
	NAMES_BOOL,
	NAMES_TEXT,
	NAMES_POINTER,
	NAMES_NONE
};

struct names_argument {
	const char *name;
	enum names_type type;
	uint8_t size; /* bytes of an integer */
};

/* A hook, as its NAME says: "memory nvidia:nv_dma_map_alloc(pages:u64,contig:bool)=s32". */
struct names_hook {
	const char *set, *name;
	struct names_argument result; /* NAMES_NONE: it gives nothing */
	size_t n_arguments;
	struct names_argument arguments[HOOK_ARGUMENTS_MAX];
};

struct names_stack {
	bool named; /* names of functions were looked for */
	size_t n;
	const char *frames[];
};

struct names;

int names_new(struct names **namesp);
struct names *names_free(struct names *names);
void names_learn(struct names *names, const struct trace_record *record, uint64_t number);

/* Never NULL. */
const struct trace_process_info *names_process(const struct names *names, uint32_t pid,
					       uint64_t number);
const char *names_thread(const struct names *names, uint32_t pid, uint32_t tid, uint64_t number);
/* NULL: not told. */
const struct names_text *names_text(const struct names *names, enum trace_name_kind kind,
				    uint32_t pid, uint64_t id, uint64_t number);
const struct names_hook *names_hook(const struct names *names, uint32_t hook);
/* With names of functions, as far as the files are there; it is of process pid. */
const struct names_stack *names_stack(struct names *names, uint32_t stack, uint32_t pid,
				      uint64_t number);
