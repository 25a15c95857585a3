/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What uprobe.bpf.c and uprobe.c share. A probe's cookie names a library (upper half) and a row of
 * `rows` (lower half); a row says what to record of a function. What comes out of the ring is a
 * struct uprobe_record.
 */

#include <linux/types.h>

#include "tally.h"

#define UPROBE_ROWS_MAX TRACE_FUNCTION_MAX
#define UPROBE_REGISTERS 6
#define UPROBE_EXTRAS_MAX 4
#define UPROBE_STRING_MAX 120
#define UPROBE_READ_MAX 256 /* bytes of a struct */
#define UPROBE_NAME_MAX                                                                           \
	1536 /* of a kernel: bytes that are taken of it; the call shows UPROBE_STRING_MAX of them \
	      */
#define UPROBE_STRINGS_END 512 /* strings begin before that; a power of two */
#define UPROBE_READS_END 2048 /* structs */
#define UPROBE_FRAMES_MAX 48
#define UPROBE_CALL_MAX \
	(UPROBE_READS_END + UPROBE_READ_MAX + 16) /* bytes of a record without its stack */
#define UPROBE_PROCESSES_MAX 16384
#define UPROBE_COUNTS_MAX 8192 /* functions of processes that are counted */
#define UPROBE_NO_WORD 0xff
#define UPROBE_COOKIE(library, row) ((__u64)(library) << 32 | (row)) /* libraries count from 1 */

enum uprobe_row_flags {
	UPROBE_ROW_NAMES =
		1 << 0, /* gives kernels their names: recorded whatever the filters say */
	UPROBE_ROW_UNWANTED = 1 << 1, /* for its names only */
	UPROBE_ROW_CUT = 1 << 2, /* has words that no probe sees */
	UPROBE_ROW_COUNTED = 1 << 3, /* no records: see `counts` */
};

struct uprobe_extra {
	__u8 argument;
	__u8 word;
	__u8 when; /* enum trace_extra_when */
	__u8 reserved;
	__u16 size; /* 0: a string */
	__u16 reserved2;
};

struct uprobe_row {
	__u16 function; /* of struct trace_call */
	__u8 flags; /* enum uprobe_row_flags */
	__u8 n_words;
	__u8 n_extras;
	/* of one that is counted: the words that say how many bytes it is about (UPROBE_NO_WORD:
	 * none), with their sizes; bytes = size * unit * rows */
	__u8 size_word, size_bytes, size_unit;
	__u8 rows_word, rows_bytes;
	__u8 reserved[6];
	struct uprobe_extra extras[UPROBE_EXTRAS_MAX];
};

/* Keys of `counts`; its values are tallies. */
struct uprobe_count_key {
	__u32 pid;
	__u32 function;
};

/* Constant while the programs run. */
struct uprobe_config {
	__u64 min_duration; /* nanoseconds */
	__u64 sample; /* one of so many, by chance: as trace_is_sampled() of trace-ring.h */
	__u64 rate; /* a second and process; 0: any number */
	__u64 namespace_device,
		namespace_inode; /* of processes, if it is not the first one; else 0 */
	__u8 errors, stacks;
	__u8 closed; /* only processes that `processes` has */
	__u8 storage; /* states are of tasks, not in a hash */
};

/* What the daemon changes while the programs run. */
struct uprobe_control {
	__u32 enabled;
	__u32 generation; /* grows with each change of `processes`; never 0 */
	__u32 tried; /* a program ran while it was not enabled: the daemon tries whether it does */
	__u32 reserved;
};

/* Values of `processes`. Others: not meant until that time, then one asks anew. */
#define UPROBE_PROCESS_MEANT (~(__u64)0)
#define UPROBE_PROCESS_SHIM (UPROBE_PROCESS_MEANT - 1) /* has the shim: never */

struct uprobe_bucket {
	__u64 time; /* of the last filling */
	__u64 tokens; /* in nanoseconds: a record costs 1e9 / rate */
};

enum uprobe_record_flags {
	UPROBE_RECORD_UNWANTED = 1 << 0, /* for its names only */
	UPROBE_RECORD_NAMES = 1 << 1,
};

/* call.record.size bytes of call, then n_frames addresses. */
struct uprobe_record {
	__u32 flags; /* enum uprobe_record_flags */
	__u32 n_frames;
	struct trace_call call;
};

/* A thread. */
struct uprobe_state {
	__u64 sp; /* at the entry of the call that runs */
	__u64 cookie; /* of it; 0: none runs */
	__u32 checked; /* generation with which the process was not refused */
	__u32 sequence;
	__u32 n; /* bytes of the record so far */
	__u32 late; /* bit i: extra i could not be read at the entry */
	union {
		struct uprobe_record record;
		__u8 bytes[UPROBE_CALL_MAX + 8 * UPROBE_FRAMES_MAX];
	};
};
