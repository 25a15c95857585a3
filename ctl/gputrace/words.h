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
	WORD_LANES, /* of a warp; then two that are of it as well */
	WORD_SECTORS,
	WORD_BYTES,
	WORD_LINE,
	WORD_INSN,
	WORD_TYPE, /* that an instruction moves */
	WORD_GPUTIME,
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
#define ON_KERNEL                                                                            \
	(ON(THREAD) | ON(BLOCK_LEAD) | ON(WARP_LEAD) | ON(LINE) | ON(BLOCK) | ON(FUNCTION) | \
	 ON_WHOLE)
#define ON_WHOLE (ON(WHOLE_GRID) | ON(WHOLE_BLOCK) | ON(WHOLE_WARP))
#define ON_ENDS (ON(THREAD) | ON(BLOCK_LEAD) | ON(WARP_LEAD) | ON_WHOLE)
#define ON_MEMORY (ON(MEMORY) | ON(WARP_MEMORY))
#define ON_GPU (ON_KERNEL | ON_MEMORY)
#define ON_BLOCKS (ON_GPU & ~ON(WHOLE_GRID)) /* an event in one block, */
#define ON_WARPS (ON_BLOCKS & ~ON(WHOLE_BLOCK)) /* in one warp, */
#define ON_THREADS (ON_WARPS & ~ON(WHOLE_WARP)) /* of one thread */

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
	BUILTIN_ANY,
	BUILTIN_ALL,
	BUILTIN_FIRST,
	BUILTIN_PARAM,
	BUILTIN_F16,
	BUILTIN_BF16,
	BUILTIN_F32,
	BUILTIN_F64,
	BUILTIN_ISNAN,
	BUILTIN_ISINF,
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
/* any() all() sum() min() max() first(), which in an expression of mem: are of all lanes. */
bool builtin_is_of_lanes(const struct builtin *builtin);

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
