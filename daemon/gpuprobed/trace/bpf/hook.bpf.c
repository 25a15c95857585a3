// SPDX-License-Identifier: Apache-2.0

/*
 * eBPF programs that run in the Linux kernel at hooks of a trace (hook.h). The daemon loads them.
 *
 * The programs of hooks: one for each way to be called, and one interpreter. No CO-RE: what depends
 * on the kernel's layout is an offset in `config`, which the daemon reads from BTF where there is
 * one, so that all programs load everywhere and a template of fentry can be loaded for any
 * function.
 *
 * A span begins with an entry in `pending` and ends with a record in the ring. Of a function that
 * calls itself the innermost call is shown, and those around it are counted as lost.
 */

#include "hook.h"

#include <asm/ptrace.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "proto/trace.h"

#include "hook-words.h"
#include "hook-ioctl.h"

#define EINVAL 22

char _license[] SEC("license") = "Dual BSD/GPL";

/* ---- beginnings and ends ---- */

/* Both points in time and beginnings go through `pending`: an event is too large for the stack. */
static __always_inline void begin(__u32 index, const struct place *place) {
	const struct hook_row *row = bpf_map_lookup_elem(&rows, &index);
	__u8 device = 0, minor = 0;
	struct hook_event *event;
	__u64 key;

	if (!row || row->flags & HOOK_ROW_OFF ||
	    (!(row->flags & HOOK_ROW_ANY_PROCESS) && !is_meant()))
		return;
	if (row->flags & HOOK_ROW_IOCTL) {
		if (!place->arguments)
			return;
		if (!device_of_file(place->arguments[0], &device, &minor))
			device = row->device;
		ioctl_begin(index, device, minor, place->arguments[1], place->arguments[2]);
		return;
	}
	key = event_key(row, index);
	if (bpf_map_update_elem(&pending, &key, &no_event, BPF_NOEXIST)) {
		count(&lost, 0); /* this one, as there is no room; or the one that it is within, or
				    that its thread left by longjmp() */
		if (bpf_map_update_elem(&pending, &key, &no_event, BPF_EXIST))
			return;
	}
	event = bpf_map_lookup_elem(&pending, &key);
	if (!event)
		return;
	event_init(event, row, index);
	take_words(event, row, place);
	if (row->flags & HOOK_ROW_MATCH && !matches(event, row)) {
		bpf_map_delete_elem(&pending, &key);
		return;
	}
	if (row->flags & HOOK_ROW_SPAN)
		return;
	count(&hits, index);
	event->header.end = event->header.start;
	event_send(event);
	bpf_map_delete_elem(&pending, &key);
}

/* The first text, if it could not be read at the beginning, because nobody had touched its page
 * yet. */
static __always_inline void take_late_text(struct hook_event *event, const struct hook_row *row) {
	__u32 i = row->late_text;
	long n;

	if (event->n_text != 1 || i >= HOOK_WORDS_MAX)
		return;
	n = bpf_probe_read_user_str(event->text, HOOK_TEXT_SIZE, (const void *)event->words[i]);
	if (n > 0)
		event->n_text = n;
}

static __always_inline void end(__u32 index, const struct place *place) {
	const struct hook_row *row = bpf_map_lookup_elem(&rows, &index);
	__u64 now = bpf_ktime_get_ns(), key;
	struct hook_event *event;

	if (!row || row->flags & HOOK_ROW_OFF)
		return;
	if (row->flags & HOOK_ROW_IOCTL) {
		ioctl_end(index, place->result);
		return;
	}
	key = event_key(row, index);
	event = bpf_map_lookup_elem(&pending, &key);
	if (!event)
		return;
	event->header.end = now;
	if (row->flags & HOOK_ROW_RESULT_FIELD)
		event->header.result =
			extend(fetch(place->record + row->result_offset, row->result_size, 0),
			       row->result_size, !!(row->flags & HOOK_ROW_RESULT_SIGNED));
	else if (row->result_size)
		event->header.result = extend(place->result, row->result_size,
					      !!(row->flags & HOOK_ROW_RESULT_SIGNED));
	if (now - event->header.start >= config.min_duration) {
		count(&hits, index);
		take_late_text(event, row);
		event_send(event);
	}
	bpf_map_delete_elem(&pending, &key);
}

/* ---- functions: kprobes, uprobes, fentry ---- */

#if defined(__x86_64__) || defined(__TARGET_ARCH_x86)
#define REGISTERS 6
#define STACK_SKIP 8 /* the return address */
#else
#define REGISTERS 8
#define STACK_SKIP 0
#endif

static __always_inline void begin_function(void *context, struct pt_regs *registers) {
	__u64 arguments[HOOK_ARGUMENTS_MAX] = {
		PT_REGS_PARM1(registers),
		PT_REGS_PARM2(registers),
		PT_REGS_PARM3(registers),
		PT_REGS_PARM4(registers),
		PT_REGS_PARM5(registers),
#if REGISTERS == 6
		registers->r9,
#else
		((struct user_pt_regs *)registers)->regs[5],
		((struct user_pt_regs *)registers)->regs[6],
		((struct user_pt_regs *)registers)->regs[7],
#endif
	};
	const struct place place = { .arguments = arguments };
	__u64 stack = PT_REGS_SP(registers) + STACK_SKIP;
	__u32 index = bpf_get_attach_cookie(context);

	const struct hook_row *row = bpf_map_lookup_elem(&rows, &index);

	if (!row || row->flags & HOOK_ROW_OFF)
		return;
	/* the user's stack, or the kernel's own: a program may have any address in its stack
	 * pointer */
	if (row->flags & HOOK_ROW_USER)
		bpf_probe_read_user(arguments + REGISTERS, sizeof(arguments) - 8 * REGISTERS,
				    (const void *)stack);
	else
		bpf_probe_read_kernel(arguments + REGISTERS, sizeof(arguments) - 8 * REGISTERS,
				      (const void *)stack);
	begin(index, &place);
}

static __always_inline void end_function(void *context, struct pt_regs *registers) {
	const struct place place = { .result = PT_REGS_RC(registers) };

	end(bpf_get_attach_cookie(context), &place);
}

SEC("kprobe")
int hook_entry(struct pt_regs *registers) {
	begin_function(registers, registers);
	return 0;
}

SEC("kprobe")
int hook_return(struct pt_regs *registers) {
	end_function(registers, registers);
	return 0;
}

SEC("kprobe.multi")
int hook_multi_entry(struct pt_regs *registers) {
	begin_function(registers, registers);
	return 0;
}

SEC("kprobe.multi")
int hook_multi_return(struct pt_regs *registers) {
	end_function(registers, registers);
	return 0;
}

/* Of links of many functions of a file; who loads them says so. */
SEC("kprobe")
int hook_multi_user_entry(struct pt_regs *registers) {
	begin_function(registers, registers);
	return 0;
}

SEC("kprobe")
int hook_multi_user_return(struct pt_regs *registers) {
	end_function(registers, registers);
	return 0;
}

SEC("kprobe")
int hook_count(struct pt_regs *registers) {
	if (is_meant())
		count(&counts, bpf_get_attach_cookie(registers));
	return 0;
}

SEC("kprobe.multi")
int hook_multi_count(struct pt_regs *registers) {
	if (is_meant())
		count(&counts, bpf_get_attach_cookie(registers));
	return 0;
}

/* Loaded once for each function, from this template. */
SEC("fentry")
int hook_fentry(void *context) {
	__u64 arguments[HOOK_ARGUMENTS_MAX] = {};
	const struct place place = { .arguments = arguments };

	for (__u32 i = 0; i < HOOK_ARGUMENTS_MAX; i++)
		if (bpf_get_func_arg(context, i, &arguments[i]) == -EINVAL)
			break;
	begin(bpf_get_attach_cookie(context), &place);
	return 0;
}

SEC("fexit")
int hook_fexit(void *context) {
	struct place place = {};

	bpf_get_func_ret(context, (__u64 *)&place.result);
	end(bpf_get_attach_cookie(context), &place);
	return 0;
}

/* ---- tracepoints ---- */

SEC("tracepoint")
int hook_tracepoint(void *context) {
	const struct place place = { .record = (__u64)context };

	begin(bpf_get_attach_cookie(context), &place);
	return 0;
}

SEC("tracepoint")
int hook_tracepoint_end(void *context) {
	const struct place place = { .record = (__u64)context };

	end(bpf_get_attach_cookie(context), &place);
	return 0;
}

/* ---- system calls: where there are no kprobes ---- */

#if defined(__x86_64__) || defined(__TARGET_ARCH_x86)
#define NR_IOCTL 16
#define NR_OPENAT 257
#define NR_OPEN 2
#define NR_CLOSE 3
#define NR_MMAP 9
#define SYSCALL_ARGUMENT(registers, i) \
	read64(registers, __builtin_offsetof(struct pt_regs, SYSCALL_##i))
#define SYSCALL_0 rdi
#define SYSCALL_1 rsi
#define SYSCALL_2 rdx
#define SYSCALL_4 r8
#define SYSCALL_5 r9
#define SYSCALL_NUMBER(registers) read64(registers, __builtin_offsetof(struct pt_regs, orig_rax))
#else
#define NR_IOCTL 29
#define NR_OPENAT 56
#define NR_OPEN -1
#define NR_CLOSE 57
#define NR_MMAP 222
#define SYSCALL_ARGUMENT(registers, i) read64(registers, 8 * i)
#define SYSCALL_NUMBER(registers) \
	read64(registers, __builtin_offsetof(struct user_pt_regs, pstate) + 8 + 8)
#endif

static __always_inline void begin_words(__s32 index, const __u64 *arguments) {
	const struct place place = { .arguments = arguments };

	if (index >= 0)
		begin(index, &place);
}

/* Rows of the driver's devices, and of UVM's. */
static __always_inline __s32 syscall_row(__u32 number, __u8 device) {
	if (device == TRACE_DEVICE_UVM || device == TRACE_DEVICE_UVM_TOOLS)
		number += _HOOK_SYSCALL_N;
	return syscalls[number];
}

/* Until it returns nobody knows what is opened: it is under the row of either. */
static __always_inline __s32 open_row(void) {
	return syscalls[HOOK_SYSCALL_OPEN] >= 0 ? syscalls[HOOK_SYSCALL_OPEN]
						: syscalls[HOOK_SYSCALL_OPEN + _HOOK_SYSCALL_N];
}

/* Words of OPEN: path (text), flags. CLOSE: fd, device, minor. MMAP: fd, device, minor, length,
 * offset. */
SEC("raw_tp/sys_enter")
int hook_sys_enter(struct bpf_raw_tracepoint_args *context) {
	__u64 registers = context->args[0], arguments[HOOK_ARGUMENTS_MAX] = {};
	long number = context->args[1];
	__u8 device = 0, minor = 0;
	__u32 fd;

	if (number == NR_OPENAT || number == NR_OPEN) {
		if (open_row() < 0 || !is_meant())
			return 0;
		arguments[0] = number == NR_OPEN ? SYSCALL_ARGUMENT(registers, 0)
						 : SYSCALL_ARGUMENT(registers, 1);
		arguments[1] = number == NR_OPEN ? SYSCALL_ARGUMENT(registers, 1)
						 : SYSCALL_ARGUMENT(registers, 2);
		begin_words(open_row(), arguments);
		return 0;
	}
	if (number != NR_IOCTL && number != NR_CLOSE && number != NR_MMAP)
		return 0;
	fd = number == NR_MMAP ? SYSCALL_ARGUMENT(registers, 4) : SYSCALL_ARGUMENT(registers, 0);
	if (!is_meant() || !device_of_file(file_of(fd), &device, &minor))
		return 0;
	arguments[0] = fd;
	arguments[1] = device;
	arguments[2] = minor;
	if (number == NR_IOCTL) {
		if (syscall_row(HOOK_SYSCALL_IOCTL, device) >= 0)
			ioctl_begin(syscall_row(HOOK_SYSCALL_IOCTL, device), device, minor,
				    SYSCALL_ARGUMENT(registers, 1), SYSCALL_ARGUMENT(registers, 2));
	} else if (number == NR_CLOSE) {
		begin_words(syscall_row(HOOK_SYSCALL_CLOSE, device), arguments);
	} else {
		arguments[3] = SYSCALL_ARGUMENT(registers, 1);
		arguments[4] = SYSCALL_ARGUMENT(registers, 5);
		begin_words(syscall_row(HOOK_SYSCALL_MMAP, device), arguments);
	}
	return 0;
}

/* The row of a call that is under way in this thread, of the two that it can be; -1: it is not. */
static __always_inline __s32 running_row(void *map, __u32 number) {
	__u32 tid = bpf_get_current_pid_tgid();
	__s32 row = syscalls[number];
	__u64 key = HOOK_KEY(tid, row);

	if (row >= 0 && bpf_map_lookup_elem(map, &key))
		return row;
	row = syscalls[number + _HOOK_SYSCALL_N];
	key = HOOK_KEY(tid, row);
	return row >= 0 && bpf_map_lookup_elem(map, &key) ? row : -1;
}

/* What was opened tells whose record it is; -1: nobody's. */
static __always_inline __s32 opened_row(__s64 result) {
	__s32 index = open_row(), right = -1;
	__u8 device = 0, minor = 0;
	struct hook_event *event;
	__u64 key;

	if (index < 0)
		return -1;
	key = HOOK_KEY((__u32)bpf_get_current_pid_tgid(), index);
	event = bpf_map_lookup_elem(&pending, &key);
	if (!event)
		return -1;
	if (result >= 0 && device_of_file(file_of(result), &device, &minor))
		right = syscall_row(HOOK_SYSCALL_OPEN, device);
	event->header.row = right;
	if (right < 0)
		bpf_map_delete_elem(&pending, &key);
	return right < 0 ? -1 : index;
}

SEC("raw_tp/sys_exit")
int hook_sys_exit(struct bpf_raw_tracepoint_args *context) {
	const struct place place = { .result = context->args[1] };
	__s32 index;

	switch ((long)SYSCALL_NUMBER(context->args[0])) {
	case NR_IOCTL:
		index = running_row(&ioctls, HOOK_SYSCALL_IOCTL);
		if (index >= 0)
			ioctl_end(index, place.result);
		return 0;
	case NR_OPENAT:
#if NR_OPEN >= 0
	case NR_OPEN:
#endif
		index = opened_row(place.result);
		break;
	case NR_CLOSE:
		index = running_row(&pending, HOOK_SYSCALL_CLOSE);
		break;
	case NR_MMAP:
		index = running_row(&pending, HOOK_SYSCALL_MMAP);
		break;
	default:
		return 0;
	}
	if (index >= 0)
		end(index, &place);
	return 0;
}

/* ---- processes ---- */

static __always_inline void process_send(__u32 type, __u32 pid, __u32 tid, __s64 result) {
	struct hook_process process = {
		.header = { .type = type,
			    .pid = pid,
			    .tid = tid,
			    .start = bpf_ktime_get_ns(),
			    .result = result },
	};

	if (type == HOOK_RECORD_EXEC) {
		process.uid = bpf_get_current_uid_gid();
		bpf_get_current_comm(process.comm, sizeof(process.comm));
	}
	if (bpf_ringbuf_output(&ring, &process, sizeof(process), BPF_RB_NO_WAKEUP))
		count(&lost, 0);
}

SEC("raw_tp/sched_process_fork")
int hook_fork(struct bpf_raw_tracepoint_args *context) {
	__u64 child = context->args[1];
	__u32 pid = read32(child, config.task_tgid), yes = HOOK_VERDICT_YES,
	      parent = bpf_get_current_pid_tgid() >> 32;

	if (!(config.flags & HOOK_CONFIG_OFFSETS) || pid != read32(child, config.task_pid))
		return 0;
	bpf_map_delete_elem(&processes, &pid); /* of one that had this number before */
	if (!is_meant())
		return 0;
	if (config.flags & HOOK_CONFIG_KNOWN) {
		if (!(config.flags & HOOK_CONFIG_FOLLOW))
			return 0;
		bpf_map_update_elem(&processes, &pid, &yes, BPF_ANY);
	}
	process_send(HOOK_RECORD_FORK, parent, pid, 0);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int hook_exec(struct bpf_raw_tracepoint_args *context) {
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	/* it may be meant now, or no longer */
	if (!(config.flags & HOOK_CONFIG_KNOWN))
		bpf_map_delete_elem(&processes, &pid);
	if (is_meant())
		process_send(HOOK_RECORD_EXEC, pid, pid, 0);
	return 0;
}

/* Whether a process ends with this thread: it is the last one, or, where layouts are not known, the
 * first one. */
static __always_inline int is_last_thread(__u64 task, __u64 id) {
	if (!(config.flags & HOOK_CONFIG_OFFSETS))
		return id >> 32 == (__u32)id;
	return !read32(read64(task, config.task_signal), config.signal_live);
}

SEC("raw_tp/sched_process_exit")
int hook_exit(struct bpf_raw_tracepoint_args *context) {
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32;

	if (!is_last_thread(context->args[0], id))
		return 0;
	/* who is meant stays so until the daemon has read this: others look at the same tracepoint
	 */
	if (is_meant())
		process_send(HOOK_RECORD_EXIT, pid, pid,
			     config.flags & HOOK_CONFIG_OFFSETS
				     ? read32(context->args[0], config.task_exit_code)
				     : 0);
	else
		bpf_map_delete_elem(&processes, &pid);
	return 0;
}
