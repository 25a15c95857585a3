/* SPDX-License-Identifier: Apache-2.0 */

/* The tables of words.h. */

#include <string.h>

#include "words.h"

static const struct word words[] = {
	{ "kernel", WORD_KERNEL, ON(LAUNCH) | ON_GPU, 0, TYPE_TEXT, "the kernel's name" },
	{ "grid", WORD_GRID, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, "blocks of the grid" },
	{ "grid.x", WORD_GRID_X, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, NULL },
	{ "grid.y", WORD_GRID_Y, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, NULL },
	{ "grid.z", WORD_GRID_Z, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, NULL },
	{ "blockdim", WORD_BLOCKDIM, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, "threads of a block" },
	{ "blockdim.x", WORD_BLOCKDIM_X, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, NULL },
	{ "blockdim.y", WORD_BLOCKDIM_Y, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, NULL },
	{ "blockdim.z", WORD_BLOCKDIM_Z, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER, NULL },
	{ "blockid", WORD_BLOCKID, ON_BLOCKS & ~ON_MEMORY, 0, TYPE_NUMBER,
	  "the block's number in the grid" },
	{ "blockid.x", WORD_BLOCKID_X, ON_BLOCKS, 0, TYPE_NUMBER, NULL },
	{ "blockid.y", WORD_BLOCKID_Y, ON_BLOCKS, 0, TYPE_NUMBER, NULL },
	{ "blockid.z", WORD_BLOCKID_Z, ON_BLOCKS, 0, TYPE_NUMBER, NULL },
	{ "threadid", WORD_THREADID, ON_THREADS & ~ON_MEMORY, 0, TYPE_NUMBER,
	  "the thread's number in its block" },
	{ "threadid.x", WORD_THREADID_X, ON_THREADS, 0, TYPE_NUMBER, NULL },
	{ "threadid.y", WORD_THREADID_Y, ON_THREADS, 0, TYPE_NUMBER, NULL },
	{ "threadid.z", WORD_THREADID_Z, ON_THREADS, 0, TYPE_NUMBER, NULL },
	{ "smem", WORD_SMEM, ON(LAUNCH) | ON_KERNEL, 0, TYPE_NUMBER,
	  "bytes of dynamic shared memory" },
	{ "stream", WORD_STREAM, ON(LAUNCH) | ON_CALLS | ON_GPU, 0, TYPE_NUMBER, "its handle" },
	{ "device", WORD_DEVICE, ON_KERNEL | ON(LAUNCH) | ON(IDLE), ON(LAUNCH), TYPE_NUMBER,
	  "the GPU's number in the process" },
	{ "launch", WORD_LAUNCH, ON_GPU, 0, TYPE_NUMBER,
	  "a number that no other launch has; 0 where it is not known" },
	{ "node", WORD_NODE, ON_GPU, 0, TYPE_NUMBER, "the node of a CUDA graph; 0: in none" },
	{ "sm", WORD_SM, ON_GPU, 0, TYPE_NUMBER, "the multiprocessor" },
	{ "warp", WORD_WARP, ON_WARPS & ~ON_MEMORY, 0, TYPE_NUMBER,
	  "the warp's number in its block" },
	{ "lane", WORD_LANE, ON_THREADS, 0, TYPE_NUMBER, "the thread's number in its warp" },
	{ "addr", WORD_ADDR, ON_MEMORY, 0, TYPE_NUMBER, "the address" },
	{ "lanes", WORD_LANES, ON(WARP_MEMORY), 0, TYPE_NUMBER,
	  "threads of the warp that take part" },
	{ "sectors", WORD_SECTORS, ON(WARP_MEMORY), 0, TYPE_NUMBER,
	  "pieces of 32 bytes that the warp touches" },
	{ "value", WORD_VALUE, ON_MEMORY, 0, TYPE_NUMBER, "what is stored; 0 at loads" },
	{ "bytes", WORD_BYTES, ON_MEMORY | ON(COPY) | ON(ALLOC), 0, TYPE_NUMBER,
	  "of the instruction or call" },
	{ "line", WORD_LINE, ON_MEMORY, 0, TYPE_TEXT,
	  "file:line, or the instruction where lines are not known" },
	{ "insn", WORD_INSN, ON_MEMORY, 0, TYPE_TEXT, "the text of the instruction" },
	{ "type", WORD_TYPE, ON_MEMORY, 0, TYPE_TEXT,
	  "what the instruction moves, such as f32; ? where that is not known" },
	{ "gputime", WORD_GPUTIME, ON_GPU, 0, TYPE_NUMBER,
	  "nanoseconds of the GPU's clock, which is not the host's" },
	{ "duration", WORD_DURATION, ON_CALLS | ON(LAUNCH) | ON(IDLE) | ON_ENDS,
	  ON(DRIVER) | ON(LAUNCH) | ON_ENDS, TYPE_NUMBER, "nanoseconds" },
	{ "latency", WORD_LATENCY, ON(LAUNCH), ON(LAUNCH), TYPE_NUMBER,
	  "nanoseconds from the launch until the GPU began" },
	{ "pid", WORD_PID, ON(LAUNCH) | ON_CALLS | ON(PROCESS) | ON(IDLE) | ON_KERNEL, 0,
	  TYPE_NUMBER, NULL },
	{ "tid", WORD_TID, ON(LAUNCH) | ON_CALLS, 0, TYPE_NUMBER, "of the thread that calls" },
	{ "comm", WORD_COMM, ON(LAUNCH) | ON_CALLS | ON(PROCESS) | ON(IDLE), 0, TYPE_TEXT,
	  "the process's name" },
	{ "func", WORD_FUNC, ON(LAUNCH) | ON_CALLS, 0, TYPE_TEXT, "the driver's function" },
	{ "retval", WORD_RETVAL, ON_CALLS, ON(DRIVER), TYPE_NUMBER, "what the call returned" },
	{ "nsecs", WORD_NSECS,
	  ON(LAUNCH) | ON_CALLS | ON(PROCESS) | ON(IDLE) | ON(BEGIN) | ON(END) | ON(INTERVAL), 0,
	  TYPE_NUMBER, "the host's monotonic clock" },
	{ "ustack", WORD_USTACK, ON(LAUNCH) | ON_CALLS, 0, TYPE_TEXT, "the caller's stack" },
};

static const struct builtin builtins[] = {
	{ "count", BUILTIN_COUNT, 0, 0, MAP_COUNT, true, true, "count()" },
	{ "sum", BUILTIN_SUM, 1, 1, MAP_SUM, true, true, "sum(number)" },
	{ "avg", BUILTIN_AVG, 1, 1, MAP_AVG, true, true, "avg(number)" },
	{ "min", BUILTIN_MIN, 1, 1, MAP_MIN, true, true, "min(number)" },
	{ "max", BUILTIN_MAX, 1, 1, MAP_MAX, true, true, "max(number)" },
	{ "stats", BUILTIN_STATS, 1, 1, MAP_STATS, true, true, "stats(number)" },
	{ "hist", BUILTIN_HIST, 1, 1, MAP_HIST, true, true, "hist(number)" },
	{ "lhist", BUILTIN_LHIST, 4, 4, MAP_LHIST, true, true, "lhist(number, min, max, step)" },
	{ "print", BUILTIN_PRINT, 1, 3, MAP_UNKNOWN, true, false,
	  "print(@map), print(@map, top), print(@map, top, div)" },
	{ "clear", BUILTIN_CLEAR, 1, 1, MAP_UNKNOWN, true, false, "clear(@map)" },
	{ "zero", BUILTIN_ZERO, 1, 1, MAP_UNKNOWN, true, false, "zero(@map)" },
	{ "delete", BUILTIN_DELETE, 1, 1, MAP_UNKNOWN, true, true, "delete(@map[key])" },
	{ "printf", BUILTIN_PRINTF, 1, 1 + SCRIPT_VALUES_MAX, MAP_UNKNOWN, true, true,
	  "printf(\"format\", ...)" },
	{ "time", BUILTIN_TIME, 0, 1, MAP_UNKNOWN, true, false, "time(\"%H:%M:%S\\n\")" },
	{ "exit", BUILTIN_EXIT, 0, 1, MAP_UNKNOWN, true, false, "exit(), exit(number)" },
	{ "any", BUILTIN_ANY, 1, 1, MAP_UNKNOWN, false, true, "any(number)" },
	{ "all", BUILTIN_ALL, 1, 1, MAP_UNKNOWN, false, true, "all(number)" },
	{ "first", BUILTIN_FIRST, 1, 1, MAP_UNKNOWN, false, true, "first(number)" },
	{ "param", BUILTIN_PARAM, 1, 1, MAP_UNKNOWN, false, true, "param(number)" },
	{ "f16", BUILTIN_F16, 1, 1, MAP_UNKNOWN, true, true, "f16(bits)" },
	{ "bf16", BUILTIN_BF16, 1, 1, MAP_UNKNOWN, true, true, "bf16(bits)" },
	{ "f32", BUILTIN_F32, 1, 1, MAP_UNKNOWN, true, true, "f32(bits)" },
	{ "f64", BUILTIN_F64, 1, 1, MAP_UNKNOWN, true, true, "f64(bits)" },
	{ "isnan", BUILTIN_ISNAN, 1, 1, MAP_UNKNOWN, true, true, "isnan(float)" },
	{ "isinf", BUILTIN_ISINF, 1, 1, MAP_UNKNOWN, true, true, "isinf(float)" },
};

static const struct probe_row probes[] = {
	{ "BEGIN", PROBE_BEGIN, 1, 1, false, false, "BEGIN", "before anything is probed" },
	{ "END", PROBE_END, 1, 1, false, false, "END", "when all is over" },
	{ "interval", PROBE_INTERVAL, 3, 3, false, false, "interval:s:N", "every N s; also ms" },
	{ "launch", PROBE_LAUNCH, 2, 3, true, true, "launch:KERNEL[:end]",
	  "a thread of the host launches a kernel; :end: it has run on the GPU" },
	{ "driver", PROBE_DRIVER, 2, 3, true, false, "driver:FUNCTION[:end]",
	  "a call of a function of libcuda" },
	{ "copy", PROBE_COPY, 1, 2, false, false, "copy:[FUNCTION]",
	  "a call that copies or sets memory" },
	{ "sync", PROBE_SYNC, 1, 2, false, false, "sync:[FUNCTION]",
	  "a call that waits for the GPU" },
	{ "alloc", PROBE_ALLOC, 1, 2, false, false, "alloc:[FUNCTION]",
	  "a call that allocates memory" },
	{ "free", PROBE_FREE, 1, 2, false, false, "free:[FUNCTION]", "a call that frees memory" },
	{ "module", PROBE_MODULE, 2, 2, false, false, "module:load",
	  "a call that loads a module or library; also module:unload" },
	{ "process", PROBE_PROCESS, 1, 2, false, false, "process:[seen|fork|exec|exit]",
	  "a process begins, executes a program or ends" },
	{ "idle", PROBE_IDLE, 1, 2, false, false,
	  "idle:", "a kernel begins on a GPU that had none of the process before" },
	{ "thread", PROBE_THREAD, 2, 3, true, true, "thread:KERNEL[:end]", "a thread of a kernel" },
	{ "block.lead", PROBE_BLOCK_LEAD, 2, 3, true, true, "block.lead:KERNEL[:end]",
	  "the first thread of a block" },
	{ "warp.lead", PROBE_WARP_LEAD, 2, 3, true, true, "warp.lead:KERNEL[:end]",
	  "the first thread of a warp" },
	{ "grid", PROBE_WHOLE_GRID, 2, 3, true, true, "grid:KERNEL[:end]",
	  "a launch on the GPU: its first block, its last thread" },
	{ "block", PROBE_WHOLE_BLOCK, 2, 3, true, true, "block:KERNEL[:end]",
	  "a block: the first of its threads, the last one" },
	{ "warp", PROBE_WHOLE_WARP, 2, 3, true, true, "warp:KERNEL[:end]",
	  "a warp: the first of its threads, the last one" },
	{ "line", PROBE_LINE, 3, 3, false, false, "line:FILE:N",
	  "a thread at a line of the source" },
	{ "bb", PROBE_BLOCK, 3, 3, false, true, "bb:KERNEL:N",
	  "a thread in a basic block of the PTX" },
	{ "func", PROBE_FUNCTION, 2, 2, false, false, "func:NAME",
	  "a thread in a device function" },
	{ "mem.thread", PROBE_MEMORY, 2, 4, false, true,
	  "mem.thread:KERNEL[:global|shared|local][:load|store|atomic]",
	  "a thread at a memory instruction" },
	{ "mem", PROBE_WARP_MEMORY, 2, 4, false, true,
	  "mem:KERNEL[:global|shared|local][:load|store|atomic]",
	  "a warp at a memory instruction" },
};

#define FIND(table, wanted)                                                 \
	do {                                                                \
		for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) \
			if (!strcmp(table[i].name, wanted))                 \
				return &table[i];                           \
		return NULL;                                                \
	} while (0)
#define AT(table, i) ((i) < sizeof(table) / sizeof(*table) ? &table[i] : NULL)

static const struct word args = { "args", WORD_ARGS,   ON_CALLS | ON(PROCESS),
				  0,      TYPE_NUMBER, "args.NAME: an argument of the call" };

const struct word *word_find(const char *name) {
	if (!strncmp(name, "args.", strlen("args.")) || !strcmp(name, "args"))
		return &args;
	FIND(words, name);
}

const struct word *word_at(size_t i) {
	return i == sizeof(words) / sizeof(*words) ? &args : AT(words, i);
}

const struct builtin *builtin_find(const char *name) {
	FIND(builtins, name);
}

const struct builtin *builtin_at(size_t i) {
	return AT(builtins, i);
}

bool builtin_is_of_lanes(const struct builtin *builtin) {
	switch (builtin->id) {
	case BUILTIN_ANY:
	case BUILTIN_ALL:
	case BUILTIN_FIRST:
	case BUILTIN_SUM:
	case BUILTIN_MIN:
	case BUILTIN_MAX:
		return true;
	default:
		return false;
	}
}

const struct probe_row *probe_row_find(const char *name) {
	FIND(probes, name);
}

const struct probe_row *probe_row_at(size_t i) {
	return AT(probes, i);
}
