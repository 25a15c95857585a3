/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the programs of hook.bpf.c and hook-*.c share. A hook is a row of a table: which words to
 * take of a function's registers or of a tracepoint's fields. The programs are the same for all
 * hooks and interpret the row that the cookie of their link names, so a hook of the user's needs no
 * compiler.
 */

#include <linux/types.h>

#define HOOK_ROWS_MAX 512
#define HOOK_WORDS_MAX 10
#define HOOK_TEXTS_MAX 3
#define HOOK_TEXT_SIZE 64 /* with its NUL */
#define HOOK_ARGUMENTS_MAX 12
#define HOOK_MATCH_SIZE 16
#define HOOK_DEVICES_MAX 16
#define HOOK_COUNTS_MAX 8192
#define HOOK_PENDING_MAX 8192
#define HOOK_IOCTL_BYTES 128
#define HOOK_COMM_SIZE 16

enum hook_from {
	HOOK_FROM_ARGUMENT, /* index */
	HOOK_FROM_FIELD, /* of the tracepoint's record, at offset */
	HOOK_FROM_TEXT_FIELD, /* __data_loc at offset */
	HOOK_FROM_TEXT_RELATIVE, /* __rel_loc at offset */
	HOOK_FROM_TEXT_ARRAY, /* char[] in the record, at offset */
};

enum hook_word_flags {
	HOOK_WORD_SIGNED = 1 << 0,
	HOOK_WORD_TEXT = 1 << 1,
	HOOK_WORD_FOLLOW = 1 << 2, /* what the value + offset points to */
};

struct hook_word {
	__u8 from; /* enum hook_from */
	__u8 index;
	__u8 size; /* bytes: 1, 2, 4, 8 */
	__u8 flags; /* enum hook_word_flags */
	__u32 offset;
};

enum hook_row_flags {
	HOOK_ROW_SPAN = 1 << 0, /* its record comes at the end */
	HOOK_ROW_BY_CPU =
		1 << 1, /* begins and ends on the same CPU rather than in the same thread */
	HOOK_ROW_NO_PROCESS = 1 << 2, /* whatever it interrupts has nothing to do with it */
	HOOK_ROW_ANY_PROCESS = 1 << 3, /* not filtered */
	HOOK_ROW_USER = 1 << 4, /* pointers are into user space */
	HOOK_ROW_MATCH = 1 << 5, /* only where the first text is `match` */
	HOOK_ROW_IOCTL = 1 << 6, /* (file, command, argument): an ioctl record */
	HOOK_ROW_RESULT_SIGNED = 1 << 7,
	HOOK_ROW_RESULT_FIELD = 1 << 8, /* of the tracepoint that ends the span, at result_offset */
	HOOK_ROW_OFF = 1 << 9, /* the trace has ended: it only has to be detached */
};

struct hook_row {
	__u32 flags; /* enum hook_row_flags */
	__u8 n_words;
	__u8 result_size; /* bytes; 0: void */
	__u8 device; /* enum trace_device, of HOOK_ROW_IOCTL where the file does not tell */
	__u8 late_text; /* word of the only text, which is of user space: read again at the end;
			   else HOOK_WORDS_MAX */
	__u32 result_offset;
	char match[HOOK_MATCH_SIZE];
	struct hook_word words[HOOK_WORDS_MAX];
};

/* Device numbers of a driver's character device. */
struct hook_device {
	__u32 major;
	__u32 first, last; /* minors */
	__u32 device; /* enum trace_device */
};

enum hook_syscall {
	HOOK_SYSCALL_IOCTL,
	HOOK_SYSCALL_OPEN,
	HOOK_SYSCALL_CLOSE,
	HOOK_SYSCALL_MMAP,
	_HOOK_SYSCALL_N,
};

enum hook_config_flags {
	HOOK_CONFIG_KNOWN = 1 << 0, /* only processes that the map has */
	HOOK_CONFIG_FOLLOW = 1 << 1, /* their children, too */
	HOOK_CONFIG_UID = 1 << 2,
	HOOK_CONFIG_CGROUP = 1 << 3,
	HOOK_CONFIG_OFFSETS = 1 << 4, /* the kernel's BTF has told them */
};

/* Constant while the programs run. */
struct hook_config {
	__u32 flags; /* enum hook_config_flags */
	__u32 self; /* the daemon */
	__u32 uid;
	__u32 cgroup_level;
	__u64 cgroup;
	__u64 min_duration;
	/* offsets of members, from BTF */
	__u32 file_inode, inode_rdev, task_files, files_fdt, fdt_fd, fdt_max, task_pid, task_tgid,
		task_exit_code, task_signal, signal_live;
	__u32 n_devices;
	struct hook_device devices[HOOK_DEVICES_MAX];
};

enum hook_verdict {
	HOOK_VERDICT_YES = 1,
	HOOK_VERDICT_NO = 2,
};

/* Records in the ring. */
enum hook_record {
	HOOK_RECORD_EVENT = 1,
	HOOK_RECORD_IOCTL = 2,
	HOOK_RECORD_FORK = 3,
	HOOK_RECORD_EXEC = 4,
	HOOK_RECORD_EXIT = 5,
};

struct hook_header {
	__u32 type; /* enum hook_record */
	__u32 row;
	__u32 pid, tid; /* in the first namespace */
	__u64 start, end;
	__s64 result;
};

struct hook_event {
	struct hook_header header;
	__u32 cpu;
	__u8 n_words;
	__u8 n_text;
	__u16 reserved;
	__u64 words[HOOK_WORDS_MAX];
	char text[HOOK_TEXTS_MAX * HOOK_TEXT_SIZE];
};

struct hook_ioctl {
	struct hook_header header;
	__u64 argument;
	__u32 command;
	__u8 device; /* enum trace_device */
	__u8 minor;
	__u16 has_status; /* of those that have it beyond the bytes */
	__u16 n_before, n_after, n_inner;
	__u16 reserved;
	__u32 status;
	__u32 reserved2;
	__u8 before[HOOK_IOCTL_BYTES];
	__u8 inner[HOOK_IOCTL_BYTES];
	__u8 after[HOOK_IOCTL_BYTES];
};

/* FORK: pid is the parent, tid the child. EXIT: result is the status. EXEC has the rest, too. */
struct hook_process {
	struct hook_header header;
	__u32 uid;
	char comm[HOOK_COMM_SIZE];
	__u32 reserved;
};

/* What runs: of a span until it ends. tid | row << 32; by CPU: cpu. */
#define HOOK_KEY(id, row) ((__u64)(id) | (__u64)(row) << 32)
