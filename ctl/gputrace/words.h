/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The words of the language: probes, what an event has (kernel, grid.x), and functions. One row for
 * each. What reads them: the checks, the code for the GPU, the evaluation on the host.
 */

#include "script.h"

enum word_id {
	WORD_KERNEL,
	WORD_GRID, /* blocks of the grid; then its sides */
	WORD_GRID_X,
	WORD_GRID_Y,
	WORD_GRID_Z,
	WORD_BLOCKDIM, /* threads of a block; then its sides */
	WORD_BLOCKDIM_X,
	WORD_BLOCKDIM_Y,
	WORD_BLOCKDIM_Z,
	WORD_BLOCKID, /* number in the grid; then by axis */
	WORD_BLOCKID_X,
	WORD_BLOCKID_Y,
	WORD_BLOCKID_Z,
	WORD_THREADID, /* number in the block; then by axis */
	WORD_THREADID_X,
	WORD_THREADID_Y,
	WORD_THREADID_Z,
	WORD_SMEM,
	WORD_STREAM,
	WORD_DEVICE,
	WORD_LAUNCH,
	WORD_NODE,
	WORD_SM,
	WORD_WARP,
	WORD_LANE,
	WORD_ADDR,
	WORD_VALUE,
	WORD_BYTES,
	WORD_LINE,
	WORD_DURATION,
	WORD_LATENCY,
	WORD_PID,
	WORD_TID,
	WORD_COMM,
	WORD_FUNC,
	WORD_RETVAL,
	WORD_NSECS,
	WORD_USTACK,
	WORD_ARGS, /* args.NAME: the name is the node's text */
	_WORD_N,
};

#define ON(kind) (1u << PROBE_##kind)
#define ON_CALLS (ON(DRIVER) | ON(COPY) | ON(SYNC) | ON(ALLOC) | ON(FREE) | ON(MODULE))
#define ON_KERNEL \
	(ON(THREAD) | ON(BLOCK_LEAD) | ON(WARP_LEAD) | ON(LINE) | ON(BLOCK) | ON(FUNCTION))
#define ON_GPU (ON_KERNEL | ON(MEMORY))

struct word {
	const char *name;
	enum word_id id;
	unsigned int probes; /* bits of enum probe_kind that have it */
	unsigned int ends; /* of these, those that have it with :end alone */
	enum type type; /* on the host; on the GPU TEXT is an id */
	const char *help; /* one line */
};

const struct word *word_find(const char *name); /* NULL: there is none */
const struct word *word_at(size_t i); /* NULL: no more */

enum builtin_id {
	BUILTIN_COUNT,
	BUILTIN_SUM,
	BUILTIN_AVG,
	BUILTIN_MIN,
	BUILTIN_MAX,
	BUILTIN_STATS,
	BUILTIN_HIST,
	BUILTIN_LHIST,
	BUILTIN_PRINT,
	BUILTIN_CLEAR,
	BUILTIN_ZERO,
	BUILTIN_DELETE,
	BUILTIN_PRINTF,
	BUILTIN_TIME,
	BUILTIN_EXIT,
	BUILTIN_PARAM,
};

struct builtin {
	const char *name;
	enum builtin_id id;
	size_t min, max; /* arguments */
	enum map_kind kind; /* of an aggregation; else UNKNOWN */
	bool on_host, on_gpu;
	const char *form; /* how it is written */
};

const struct builtin *builtin_find(const char *name);
const struct builtin *builtin_at(size_t i);

struct probe_row {
	const char *name;
	enum probe_kind kind;
	size_t min, max; /* parts with the name */
	bool end; /* may have :end */
	bool kernel; /* the second part is a kernel, for which -k can stand */
	const char *form; /* how it is written */
	const char *help;
};

const struct probe_row *probe_row_find(const char *name);
const struct probe_row *probe_row_at(size_t i);
