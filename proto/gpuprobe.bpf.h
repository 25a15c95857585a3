/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * For authors of eBPF programs that run inside CUDA kernels. This one header declares all that such
 * a program needs: map types, helpers, contexts. Compile with clang -O2 -g -target bpf; attach with
 * gpuprobectl. A program that uses vmlinux.h includes it before this header. A program that
 * includes <linux/bpf.h> or other headers of Linux itself includes them after this header.
 *
 * A program is a GPU program if its function name starts with `cuda__` or its section with `gpu`.
 *
 *     SEC("kprobe/vectorAdd")         entry of a kernel, once a thread
 *     SEC("kretprobe/vectorAdd")      every return from a kernel, once a thread; an exit inside a
 *                                     device function that the kernel calls does not count
 *     SEC("memcapture/vectorAdd")     every memory instruction of a kernel;
 *                                     SEC("kprobe/__memcapture"): of all kernels
 *     SEC("kprobe/dev:helper")        entry of a device function that was not inlined;
 *                                     kretprobe/dev: and memcapture/dev: work likewise
 *     SEC("kprobe/vectorAdd@x.cu:12") a source line; needs line information (nvcc -lineinfo)
 *     SEC("kprobe/vectorAdd@block:3") a basic block of the PTX, counted from 0
 *     SEC("kprobe/__directly_run")    a kernel of its own: gpuprobectl run
 *
 * A kernel is named by a glob, its mangled name or its demangled name; `gpuprobectl attach
 * --kernel` overrides the section. If the kernel calls __bpftime_cuda__kernel_trace() (or another
 * stub that the daemon is configured for), programs at its entry run at that call instead. Several
 * programs at one point run in the order in which they were attached.
 *
 * Standard helpers with their standard numbers and signatures, from <bpf/bpf_helpers.h>:
 *     1 bpf_map_lookup_elem        2 bpf_map_update_elem        3 bpf_map_delete_elem
 *     5 bpf_ktime_get_ns: %globaltimer
 *     6 bpf_trace_printk, 177 bpf_trace_vprintk (bpf_printk): read by `gpuprobectl log`
 *     7 bpf_get_prandom_u32: not for secrets
 *     8 bpf_get_smp_processor_id: the SM
 *    14 bpf_get_current_pid_tgid: the host process's id, also in place of the thread's id
 *    16 bpf_get_current_comm: of the host process
 *    25 bpf_perf_event_output    130 bpf_ringbuf_output       132 bpf_ringbuf_submit
 *   131 bpf_ringbuf_reserve: NULL if the program still holds a record from the same call site;
 *       it does not check for room, submit does
 *   133 bpf_ringbuf_discard      181 bpf_loop
 *
 * Loops whose number of rounds the verifier cannot know, each with the bound that Linux sets:
 *   bpf_loop(rounds, callback, context, flags)   at most 8388608 rounds (-E2BIG), flags 0
 *                                                (-EINVAL). The callback is a static function of
 *                                                the object, the same one in each run of this call;
 *                                                it returns 0 to go on, 1 to stop. Returns the
 *                                                number of rounds. Linux 5.17 or newer verifies it.
 *   bpf_iter_num_new, _next, _destroy            (bpf_for, bpf_repeat) at most 8388608 numbers
 *                                                (-E2BIG). Linux 6.4 or newer.
 *   may_goto                                     (can_loop, cond_break) 8388608 rounds in one run
 *                                                of the program, all its may_goto together; then it
 *                                                jumps. No limit of 250 ms as newer Linux has.
 *                                                Linux 6.9 or newer.
 * Bounds of nested loops multiply, as in Linux. A GPU thread that loops for long delays its kernel:
 * choose small bounds of your own.
 */

#ifdef __bpf__
#ifndef __VMLINUX_H__
#if defined(__has_include) && !__has_include(<asm/types.h>)
/*
 * Debian and Ubuntu keep <asm/types.h> in a folder that clang -target bpf does not search. So the
 * types of <linux/types.h> are defined here, and that header is not read.
 */
#ifndef _LINUX_TYPES_H
#define _LINUX_TYPES_H
#endif
typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __le16;
typedef __u16 __be16;
typedef __u32 __le32;
typedef __u32 __be32;
typedef __u64 __le64;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;
#ifndef __aligned_u64
#define __aligned_u64 __u64 __attribute__((aligned(8)))
#define __aligned_s64 __s64 __attribute__((aligned(8)))
#define __aligned_be64 __be64 __attribute__((aligned(8)))
#define __aligned_le64 __le64 __attribute__((aligned(8)))
#endif
#endif
#include <linux/bpf.h>
#endif
#include <bpf/bpf_helpers.h>
#endif

/*
 * Map types of this project, always for the GPU. The standard map types also work on the GPU when a
 * GPU program uses them.
 */
enum gpuprobe_map_type {
	BPF_MAP_TYPE_GPU_HASH_MAP = 1501, /* in device memory, lock-free; full: update is -E2BIG */
	BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP = 1502, /* an array with one value a thread: attach
						   --threads says for how many; beyond: NULL */
	BPF_MAP_TYPE_GPU_ARRAY_MAP = 1503, /* an array, one copy; max_entries values; key u32 */
	BPF_MAP_TYPE_GPU_KERNEL_SHARED_ARRAY_MAP =
		1504, /* shared with host eBPF programs of the object */
	BPF_MAP_TYPE_PERGPUTD_ARRAY_HOST_MAP = 1512, /* as 1502, in host memory */
	BPF_MAP_TYPE_GPU_ARRAY_HOST_MAP = 1513, /* as 1503, in host memory */
	BPF_MAP_TYPE_GPU_RINGBUF_MAP =
		1527, /* records of up to value_size bytes; written with bpf_perf_event_output */
};

#ifdef __bpf__

/*
 * Each process has its own copy of a map on each of its devices. With `attach --shared` there is
 * one copy for all processes of a user. A reader of a map sees the copies merged: integers are
 * added up, unless `map dump` is told otherwise. All that follows holds within one copy. Where a
 * process could not get memory for a map, lookups return NULL, updates return -ENODEV, and records
 * are lost.
 *
 * Arrays, ARRAY and 1503: a lookup of an index >= max_entries returns NULL, an update returns
 * -E2BIG. An update (BPF_ANY, BPF_EXIST; BPF_NOEXIST is -EEXIST) stores the value in pieces of its
 * alignment, up to 8 bytes: the last writer wins, 8-byte values are never torn. Elements cannot be
 * deleted (-EINVAL).
 *
 * Atomics work on 4 and 8 bytes of the values of any map: __sync_fetch_and_add, and with clang
 * -mcpu=v3 also its result, __sync_fetch_and_and, _or, _xor, __sync_lock_test_and_set (exchange)
 * and __sync_val_compare_and_swap. All threads of the device see them. In host memory they are not
 * atomic against the CPU or other devices. A __sync_fetch_and_add whose result is not used is exact
 * and cheap: one memory operation a warp. It is cheapest where the translator sees that all lanes
 * of a warp add the same: a constant, .rodata, the size, space, kind and id of a memory
 * instruction, the kernel's id, pid, grid and shared bytes of a context, what the helpers 14, 504,
 * 508 and 512 give, and what is computed of these alone, on all ways alike. If programs do nothing
 * else with a map, each SM adds to a copy of its own. A plain `value += 1` loses concurrent
 * additions.
 *
 * Per-thread arrays, 1502: a thread sees its own value for each index, so it needs no atomics.
 * Threads are numbered over the grid (block * threads of a block + thread, x fastest). Threads
 * numbered `attach --threads` (65536 by default) and up have no value: lookups return NULL, updates
 * -E2BIG. Launches that run at the same time share the values.
 *
 * Hashes: lookup, update (BPF_ANY, BPF_NOEXIST -EEXIST, BPF_EXIST -ENOENT; full: -E2BIG, nothing is
 * evicted) and delete (-ENOENT), from all threads at once. max_entries is exact. As on a CPU,
 * another element may take the slot of a deleted one while a program still holds a pointer to its
 * value. To count: look up; if there is no element, insert a zero with BPF_NOEXIST and look up
 * again; then add.
 *
 * LRU_HASH, LRU_PERCPU_HASH: hashes where an update of a full map deletes an element and succeeds.
 * The victim is the least recently used of 64 slots, of which about a third hold elements (in a map
 * of at most 16 entries: of all slots). Lookups that find an element and updates count as uses.
 * Time is measured in insertions, in steps of a 64th of max_entries. An update returns -E2BIG only
 * when more threads insert at the same moment than the map has room for. Evicted elements do not
 * count as lost. A dump that merges processes may show more than max_entries.
 *
 * PERCPU_ARRAY, PERCPU_HASH, LRU_PERCPU_HASH: "CPU" means SM. Several warps of an SM run at once,
 * so count with __sync_fetch_and_add.
 *
 * Rings: a record that finds no room is lost and counted; no thread waits. `attach --ring-size`
 * sets the size (8 MiB for each process and device); max_entries does not. The SMs divide it among
 * themselves. Records of one warp keep their order. bpf_perf_event_output and bpf_ringbuf_output
 * return 0; -ENOSPC (the second: -EAGAIN) if there is no room; -E2BIG for a record of more than
 * 4096 bytes or 1527's value_size. Flags and context are ignored.
 *
 * 1504, and ARRAY, 1503 and 1513 that a host program of the object uses too: an array of Linux in
 * host memory, one for all processes of a user. The GPU reads and writes it directly. Writing is
 * slow: let few threads do it.
 *
 * Global variables (.bss, .data) are arrays of one element, with the same rules. .rodata (const
 * volatile) is constant: a program is compiled for its values. A branch that these values rule out
 * may do what no GPU can.
 *
 * Variables of a thread: global variables in the section .thread.
 *
 *     __u64 begin SEC(".thread");
 *
 * Each is a register of the GPU's thread, from its entry into the kernel to its exit: 0 at first,
 * one for all programs of the object at that kernel, never seen by other threads or launches.
 * Nothing of it is in memory, so no map shows it: at the end a program stores what it has, once.
 * All of an object together have at most 64 bytes. Loads, stores and atomic instructions (which
 * are plain here) of 1, 2, 4 and 8 bytes; arrays and structs, too, also with an index that is not
 * known, which costs a few instructions a word. A helper cannot take the address of one: copy it
 * to a variable of the function. Such programs stand in kernels, not in device functions, and not
 * on the sanitizer engine. `attach` refuses all else, naming the variable. Two attachments of an
 * object have variables of their own.
 *
 * bpf_printk: the conversions of Linux, at most 12 arguments, a format of at most 255 bytes. %s
 * prints an address, because the string is in the GPU's memory. It writes to the object's log,
 * which is a ring; it returns 0, or -ENOSPC if the ring has no room.
 */

/* Writes a string of at most 255 bytes to the log. Returns 0, or -ENOSPC if the log has no room. */
static long (*const ebpf_puts)(const char *string) = (void *)501;

/* %globaltimer: nanoseconds, in steps of 32 ns on an H200. It is not the host's clock. */
static __u64 (*const bpf_get_globaltimer)(void) = (void *)502;

/*
 * blockIdx, blockDim, threadIdx, gridDim of the calling thread. All three pointers must be valid.
 * They return 0.
 */
static long (*const bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static long (*const bpf_get_block_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)504;
static long (*const bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;
static long (*const bpf_get_grid_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)508;

/* Which cluster of thread blocks the calling thread is in: %clusterid. Where the launch has no
 * cluster size, a block is a cluster. Needs a GPU of sm_90 or newer. Returns 0. */
static long (*const bpf_get_cluster_id)(__u64 *x, __u64 *y, __u64 *z) = (void *)513;

/* A system-wide memory fence (membar.sys). Returns 0. */
static long (*const bpf_gpu_membar)(void) = (void *)506;

/*
 * The calling thread leaves the kernel at once; return probes do not run. The daemon refuses such
 * programs unless it was started with --allow-exit.
 */
static long (*const bpf_cuda_exit)(void) = (void *)507;

static __u64 (*const bpf_get_sm_id)(void) = (void *)509; /* %smid */
static __u64 (*const bpf_get_warp_id)(void) =
	(void *)510; /* %warpid: of the SM's schedulers, may change */
static __u64 (*const bpf_get_lane_id)(void) = (void *)511; /* 0..31 */
static __u64 (*const bpf_get_device_ordinal)(void) =
	(void *)512; /* as the process numbers devices */

/*
 * Lanes of a warp. Each of these helpers speaks of the lanes that are together: those that execute
 * this very call at the same moment. Masks have bit i for lane i. No lane waits for one that is
 * elsewhere: where lanes parted before the call, each part gets results of its own, and a lane that
 * is alone is a part, too. At a kernel's entry all lanes of a warp are together; behind branches
 * that lanes took differently, and in loops, they may not be, though they run the same program, and
 * two calls one after the other need not see the same lanes. The lanes of two branches of the
 * source may meet in one call if the compiler made one of two.
 */
static __u64 (*const bpf_warp_active)(void) = (void *)514; /* which lanes are together */
static __u64 (*const bpf_warp_is_leader)(void) = (void *)515; /* 1 in the lowest of them, else 0 */
static __u64 (*const bpf_warp_ballot)(__u64 condition) = (void *)516; /* those where it is not 0 */
static __u64 (*const bpf_warp_any)(__u64 condition) = (void *)517; /* 1: it is not 0 in one */
static __u64 (*const bpf_warp_all)(__u64 condition) = (void *)518; /* 1: it is not 0 in each */
/* Those that have the same value as the calling lane. Needs a GPU of sm_70 or newer. */
static __u64 (*const bpf_warp_match)(__u64 value) = (void *)519;
/*
 * The value that another lane passes: the one of that number, the one that is so far below or
 * above, the one whose number differs in these bits. If there is no such lane, or it is not
 * together with the calling one: the own value.
 */
static __u64 (*const bpf_warp_shuffle)(__u64 value, __u64 lane) = (void *)520;
static __u64 (*const bpf_warp_shuffle_up)(__u64 value, __u64 distance) = (void *)521;
static __u64 (*const bpf_warp_shuffle_down)(__u64 value, __u64 distance) = (void *)522;
static __u64 (*const bpf_warp_shuffle_xor)(__u64 value, __u64 bits) = (void *)523;
static __u64 (*const bpf_warp_sum)(__u64 value) = (void *)524; /* of all values, in each lane */

/*
 * Atomic changes of 8 bytes of a map's value, whose address must be a multiple of 8: the smaller or
 * the larger of what is there and a number, or a sum of f64 (sums depend on their order in the last
 * bits; of one that is not a number the bits are not said; needs a GPU of sm_60 or newer). All
 * threads of the device see them, as other atomics; they return 0. A new value is 0: store what a
 * minimum begins with. A reader adds up the copies of several processes, minima as well:
 * `map dump --per-process` shows each. In PERCPU maps each SM has a minimum of its own.
 */
static long (*const bpf_atomic_min_u64)(__u64 *address, __u64 number) = (void *)525;
static long (*const bpf_atomic_max_u64)(__u64 *address, __u64 number) = (void *)526;
static long (*const bpf_atomic_min_s64)(__s64 *address, __s64 number) = (void *)527;
static long (*const bpf_atomic_max_s64)(__s64 *address, __s64 number) = (void *)528;
static long (*const bpf_atomic_add_f64)(void *address, __u64 number) = (void *)529;

/* The highest bit that is set, 0 to 63: which power of two is not above the value. Of 0: 0. */
static __u64 (*const bpf_log2)(__u64 value) = (void *)530;

/*
 * Floats. eBPF has none: a program holds their bits in an integer, as they are in registers,
 * parameters and memory; above the bits of a narrow format may be anything.
 */
enum gpuprobe_number {
	GPUPROBE_F64 = 0,
	GPUPROBE_F32 = 1,
	GPUPROBE_F16 = 2,
	GPUPROBE_BF16 = 3,
	GPUPROBE_S64 = 4, /* integers, for conversions */
	GPUPROBE_U64 = 5,
};

/*
 * A number of one format in another one: the nearest, of two that are as near the even one; to an
 * integer it is cut off, and is the nearest that there is where it has no room. An integer becomes
 * a float by way of f64. A NaN is 0 as an integer, and as a float the quiet one without a sign and
 * a payload. A format that there is not: 0.
 */
static __u64 (*const bpf_float_convert)(__u64 number, __u64 from, __u64 to) = (void *)531;

/* Of two floats of a format: -1 if a is less than b, 0 if they are equal (0 and -0 are), 1 if it is
 * more, 2 if one is a NaN. Not a format of floats: -EINVAL. */
static long (*const bpf_float_compare)(__u64 a, __u64 b, __u64 format) = (void *)532;

enum gpuprobe_float_class {
	GPUPROBE_FLOAT_ZERO = 0,
	GPUPROBE_FLOAT_SUBNORMAL = 1,
	GPUPROBE_FLOAT_NORMAL = 2,
	GPUPROBE_FLOAT_INFINITE = 3,
	GPUPROBE_FLOAT_NAN = 4,
};

/* An enum gpuprobe_float_class; not a format of floats: -EINVAL. */
static long (*const bpf_float_class)(__u64 number, __u64 format) = (void *)533;

/*
 * Ids. Give members of keys, values and records these types. Then `gpuprobectl map dump` and `ring
 * read` show the kernel's name and the source line instead of the number. In JSON they are strings
 * of 16 hexadecimal digits, as in `gpuprobectl --json kernel list`.
 */
typedef __u64 gpuprobe_kernel_id;
typedef __u64 gpuprobe_instruction_id;

/*
 * Contexts: what R1 points to. All are read-only and have at most 168 bytes, so Linux's verifier
 * checks reads of them like reads of a kprobe's pt_regs: aligned, 8 bytes wide. Only the fields
 * that a program reads cost time.
 */

/* At entry and return, at lines and blocks. */
struct gpuprobe_kernel_ctx {
	gpuprobe_kernel_id kernel_id; /* of the kernel or device function that the probe stands in;
					 `gpuprobectl kernel list` names it */
	__u64 device; /* ordinal in the process */
	__u64 pid; /* of the host process, as the daemon sees it */
	__u64 grid_dim; /* x | y << 32 */
	__u64 grid_dim_z;
	__u64 block_dim; /* x | y << 16 | z << 32 */
	__u64 shared_bytes; /* dynamic shared memory */
	__u64 param_count; /* parameters of the kernel or device function */
	__u64 params[13]; /* the first 13, zero-extended; larger than 8 bytes: their first 8 */
};

/*
 * A launch. All is 0 where it is not known: in device functions, on the sanitizer engine, and in
 * kernels whose parameters leave no room (they take more than 4064 bytes; 32728 with PTX 8.1 and
 * newer for sm_70 and newer).
 */
struct gpuprobe_launch {
	__u64 id; /* no other launch has it, in whatever process. Those of one host thread are
		     numbered one after the other */
	__u64 stream; /* its handle; of the default streams 1 (the process's) and 2 (the thread's
			 own): as in traces */
	__u64 thread; /* id of the host thread, as that thread knows it */
	__u64 node; /* of an executable graph: replays of it have the same id; 0: in no graph */
};

/*
 * The same as gpuprobe_kernel_ctx, but with the launch in place of the last four parameters. A
 * program may take either at entry and return, at lines and blocks. The type of its argument says
 * which: the argument must be a struct gpuprobe_launch_ctx *, not a void * that is cast to it.
 */
struct gpuprobe_launch_ctx {
	gpuprobe_kernel_id kernel_id;
	__u64 device;
	__u64 pid;
	__u64 grid_dim;
	__u64 grid_dim_z;
	__u64 block_dim;
	__u64 shared_bytes;
	__u64 param_count;
	__u64 params[9];
	struct gpuprobe_launch launch;
};

/*
 * The sanitizer engine patches machine code and needs no PTX. It has all of these fields but
 * param_count and params. The verifier cannot know which engine will be used, so a program that
 * reads these two is not attached there. At memory accesses instruction_id is the address of the
 * instruction, the address of shared and local memory is an offset in it, and kind is load, store
 * or atomic. The value of a store is there; that of an atomic is not.
 */

/* At a memory instruction. */
struct gpuprobe_memory_ctx {
	gpuprobe_instruction_id instruction_id; /* `gpuprobectl kernel show` resolves it to PTX text
						   and source line */
	__u64 address; /* generic; of a copy: its side in global memory; of a tensor copy: its
			  tensor map */
	__u64 size; /* bytes that a thread moves; 0: a tensor copy, whose size its tensor map says
		     */
	__u64 space; /* enum gpuprobe_space */
	__u64 kind; /* enum gpuprobe_access */
	__u64 value; /* stored, or an atomic's operand (the new value of a compare-and-swap): its
			first 8 bytes; else 0 */
	struct gpuprobe_launch launch;
};

/* At kprobe/K@call, @ret, @barrier, @syncwarp, @shfl, @malloc, @free; on the sanitizer engine only.
 */
struct gpuprobe_event_ctx {
	gpuprobe_kernel_id kernel_id;
	__u64 pc; /* address of the instruction */
	__u64 args[3]; /* call: address called; barrier: index, threads (0: all); syncwarp: mask;
			  malloc: address, size; free: address; else 0 */
};

enum gpuprobe_space {
	GPUPROBE_SPACE_GENERIC = 0,
	GPUPROBE_SPACE_GLOBAL = 1,
	GPUPROBE_SPACE_SHARED = 2,
	GPUPROBE_SPACE_LOCAL = 3,
	GPUPROBE_SPACE_CONST = 4,
	GPUPROBE_SPACE_PARAM = 5,
};

enum gpuprobe_access {
	GPUPROBE_ACCESS_LOAD = 1,
	GPUPROBE_ACCESS_STORE = 2,
	GPUPROBE_ACCESS_ATOMIC = 3,
	GPUPROBE_ACCESS_REDUCTION = 4,
	GPUPROBE_ACCESS_ASYNC_COPY = 5,
	GPUPROBE_ACCESS_MATRIX_LOAD = 6,
};

/* Parameter n (0 <= n < 13; of a gpuprobe_launch_ctx: < 9) of the kernel, as a __u64. */
#define GPU_PARAM(ctx, n) (((const struct gpuprobe_kernel_ctx *)(ctx))->params[n])

#endif
