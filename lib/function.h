/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Every function of libcuda: number, name, class, arguments with their types, enums and structs.
 * Made at build time (function-table.py) from proto/functions.txt, which is made of the toolkit's
 * own metadata (make-functions.py) and lies there because builds need no toolkit. The shim has a
 * smaller table of the same file.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/trace.h"

enum function_class {
	FUNCTION_OTHER,
	FUNCTION_LAUNCH,
	FUNCTION_MEMORY, /* allocation, free, mapping, registration */
	FUNCTION_TRANSFER, /* copies, memset, prefetch */
	FUNCTION_SYNC,
	FUNCTION_MODULE,
	FUNCTION_GRAPH,
	FUNCTION_STREAM,
	FUNCTION_EVENT,
	FUNCTION_CONTEXT,
	FUNCTION_DEVICE,
	FUNCTION_IPC,
	FUNCTION_QUERY, /* cheap getters that are called all the time */
	_FUNCTION_CLASS_N,
};

enum function_kind {
	FUNCTION_INT, /* signed, of `size` bytes */
	FUNCTION_UINT,
	FUNCTION_FLOAT,
	FUNCTION_BOOL,
	FUNCTION_ENUM,
	FUNCTION_HANDLE, /* opaque: CUstream, CUdeviceptr, ...: shown in hexadecimal */
	FUNCTION_POINTER, /* to anything */
	FUNCTION_STRING, /* const char * */
	FUNCTION_STRUCT, /* by value */
	FUNCTION_BYTES,
};

struct function_enum {
	const char *name; /* CUmemorytype */
	size_t n;
	const struct function_enumerator {
		int64_t value;
		const char *name;
	} *values; /* sorted by value */
};

struct function_struct;

struct function_type {
	const char *name; /* as in the header: "CUdeviceptr *" */
	enum function_kind kind;
	uint16_t size; /* bytes of a value of it */
	const struct function_enum *enumeration; /* ENUM */
	const struct function_struct *structure; /* STRUCT, or NULL if it is opaque */
	const struct function_type *target; /* POINTER: what it points to, or NULL (void) */
};

struct function_struct {
	const char *name;
	uint16_t size;
	size_t n;
	const struct function_field {
		const char *name;
		uint16_t offset;
		const struct function_type *type;
	} *fields;
};

struct function_argument {
	const char *name;
	const struct function_type *type;
	uint8_t word; /* of struct trace_call, the first one (see below) */
	uint8_t words;
	bool out; /* a pointer through which the function gives a value of at most 8 bytes back */
};

/* What a record has of an argument that is a pointer: see struct trace_extra. */
struct function_extra {
	uint8_t argument;
	uint8_t word; /* that holds the pointer; nothing is read if it is NULL */
	uint8_t when; /* enum trace_extra_when; at the return only if the function succeeded */
	uint16_t size; /* bytes; 0: a string */
};

/*
 * Words of a record are in the order of the ABI: 0 to 5 are rdi, rsi, rdx, rcx, r8, r9; 6 and on
 * are stack slots, from 8(%rsp) at the entry; the last `floats` words are of xmm0, xmm1. A function
 * with a struct on the stack may have words of registers that mean nothing.
 */
struct function {
	uint16_t number;
	enum function_class class;
	const char *name; /* as exported: cuMemAlloc_v2 */
	const char *base; /* without version and stream suffixes: cuMemAlloc */
	uint8_t words, floats;
	uint8_t n_arguments, n_extras;
	const struct function_argument *arguments;
	const struct function_extra *extras;
	int8_t size_argument; /* the one that says how many bytes a MEMORY or TRANSFER function is
				 about; -1: none */
	uint8_t size_unit; /* bytes that it counts in */
	int8_t rows_argument; /* the one that it is to be multiplied by; -1: none */
	int8_t stream_argument, context_argument,
		device_argument; /* the first ones of these, by value; -1: none */
	int8_t kernel_argument; /* the one that a LAUNCH puts on the GPU; -1: none */
};

extern const struct function *const function_all[]; /* sorted by name */
extern const size_t function_count;

const struct function *function_by_number(uint16_t number); /* NULL: unknown */
const struct function *function_by_name(const char *name);
/* Whether a struct that an argument points to says how many bytes a call is about: it takes the
 * record of a call to know that. */
bool function_describes_size(const struct function *function);
/* The words that say it: of the size, and of what it is to be multiplied by; false: there is none.
 */
struct function_size_words {
	const struct function_argument *size, *rows; /* rows: or NULL */
};
bool function_size_words(const struct function *function, struct function_size_words *words);
const char *function_class_name(enum function_class class);
const struct function_enum *function_results(void); /* CUresult */
const char *function_enumerator(const struct function_enum *enumeration,
				int64_t value); /* NULL: none of that value */

/*
 * Selects functions by patterns, in order: names and globs (with and without version), classes,
 * "all"; `!` before one takes away, and if the first one does, from all. No patterns: all but
 * QUERY. Functions that the table does not know are of the class OTHER, and of "*". Sets bits of
 * functions. Returns the number of the first pattern that matches nothing, counted from 1 (what
 * `functions` has is undefined then), or 0.
 */
size_t function_select(const char *const *patterns, size_t n,
		       uint64_t functions[TRACE_FUNCTION_MAX / 64]);
