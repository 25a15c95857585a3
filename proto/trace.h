/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A trace: one record after another. What `Trace` of the control interface streams (in base64), and
 * what `gpuprobectl trace --format raw` writes to a file. Little-endian; each record is a multiple
 * of 8 bytes, begins with a struct trace_record and lies at a multiple of 8 bytes. TRACE_START
 * comes first, TRACE_STOP last; a file that was cut off lacks the latter. A reader skips records of
 * types that it does not know. Records come in the order in which their sources gave them away:
 * calls at their end, and those of different threads mixed within some hundred milliseconds.
 *
 * Times are nanoseconds of the host's CLOCK_MONOTONIC, whatever stamped them.
 * A NAME, PROCESS or THREAD comes before the first record that needs it.
 */

#include <stdint.h>

#define TRACE_MAGIC UINT32_C(0x43525447) /* "GTRC" */
#define TRACE_VERSION 1
#define TRACE_RECORD_MAX 4096 /* bytes */
#define TRACE_WORDS_MAX 32 /* of a call or an event */

enum trace_type {
	TRACE_START = 1,
	TRACE_PROCESS = 2,
	TRACE_THREAD = 3,
	TRACE_NAME = 4,
	TRACE_CALL = 5,
	TRACE_IOCTL = 6,
	TRACE_EVENT = 7,
	TRACE_KERNEL = 8,
	TRACE_CLOCK = 9,
	TRACE_LOST = 10,
	TRACE_STACK = 11,
	TRACE_STOP = 12,
	TRACE_CTXSW = 13,
	TRACE_NOTE = 14,
	TRACE_COUNTS = 16,
};

enum trace_source {
	TRACE_SOURCE_DAEMON = 0,
	TRACE_SOURCE_SHIM = 1, /* A: in the process */
	TRACE_SOURCE_BPF = 2, /* B: a probe of the kernel, in user or kernel space */
	TRACE_SOURCE_GPU = 3, /* C: stamped by the GPU */
};

struct trace_record {
	uint32_t size; /* with this header */
	uint16_t type; /* enum trace_type */
	uint8_t source; /* enum trace_source */
	uint8_t flags; /* of the type */
};

struct trace_start {
	struct trace_record record;
	uint32_t magic; /* TRACE_MAGIC */
	uint32_t version; /* TRACE_VERSION */
	uint64_t monotonic; /* the beginning */
	uint64_t realtime; /* the same moment, nanoseconds since the epoch */
	char host[64]; /* NUL-padded, as all texts of fixed size */
	char driver[32]; /* version of the kernel's driver, "580.159.04"; empty: none */
	char daemon[32]; /* version of gpuprobed */
};

enum trace_process_what {
	TRACE_PROCESS_SEEN = 0, /* it was there already */
	TRACE_PROCESS_FORK = 1,
	TRACE_PROCESS_EXEC = 2,
	TRACE_PROCESS_EXIT = 3,
};

struct trace_process {
	struct trace_record record;
	uint64_t time;
	uint32_t pid; /* as the daemon sees it, here and elsewhere */
	uint32_t parent; /* 0: unknown */
	uint32_t uid;
	uint32_t what; /* enum trace_process_what */
	int32_t status; /* of EXIT, as of waitpid() */
	uint32_t reserved; /* 0 */
	char comm[16];
	char exe[]; /* path, NUL-padded to the record's end */
};

struct trace_thread {
	struct trace_record record;
	uint32_t pid;
	uint32_t tid;
	char comm[16];
};

enum trace_name_kind {
	TRACE_NAME_FUNCTION = 1, /* id: `function` of calls, >= TRACE_FUNCTION_DYNAMIC; pid 0 */
	TRACE_NAME_KERNEL =
		2, /* id: CUfunction or CUkernel handle, of process pid; a later one replaces it */
	TRACE_NAME_HOOK = 3, /* id: `hook` of events; pid 0. Its set, and what it is: "memory
				nvidia:nv_dma_map_alloc(pages:u64,contig:bool)=s32" */
	TRACE_NAME_FILE = 5, /* id: the inode of a file that process pid executes code of; text: its
				path, as that process sees it. For names of functions in stacks */
	TRACE_NAME_LIBRARY = 4, /* id: of a libcuda.so.1 that was found; text: path and version; for
				   information */
};

struct trace_name {
	struct trace_record record;
	uint32_t pid;
	uint32_t kind; /* enum trace_name_kind */
	uint64_t id;
	char name[]; /* NUL-padded to the record's end */
};

/*
 * Functions have the numbers of CUPTI's callback ids (cupti_driver_cbid.h), which never change;
 * those without one have a number from TRACE_FUNCTION_OWN of the table of all functions
 * (functions.txt); what neither knows gets one, and a NAME, while it runs.
 */
#define TRACE_FUNCTION_OWN 2048
#define TRACE_FUNCTION_DYNAMIC 3072
#define TRACE_FUNCTION_MAX 4096

enum trace_call_flags {
	TRACE_CALL_OPEN = 1 << 0, /* still running when tracing ended: no result */
	TRACE_CALL_NO_RESULT = 1 << 1,
	TRACE_CALL_CUT = 1 << 2, /* words or extras are missing: could not be read, or too many */
};

/*
 * A call of a cu* function, sent at its end. words[0 .. n_arguments): 8 bytes each, in the order of
 * the ABI: rdi, rsi, rdx, rcx, r8, r9, then slots of the stack, then xmm registers of floats; which
 * argument is where, functions.txt knows. Bits above an argument's type may be anything. Then
 * n_extras times a struct trace_extra.
 */
struct trace_call {
	struct trace_record record; /* flags: enum trace_call_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid;
	uint32_t tid;
	uint32_t sequence; /* of the recorded calls of this thread from this source: gaps are losses
			    */
	int32_t result; /* CUresult */
	uint16_t function; /* 0: unknown */
	uint8_t n_arguments;
	uint8_t n_extras;
	uint32_t stack; /* a TRACE_STACK, or 0 */
	uint64_t words[];
};

/* What a pointer argument pointed to. Padded to 8 bytes. */
enum trace_extra_when {
	TRACE_EXTRA_ENTRY = 0,
	TRACE_EXTRA_RETURN = 1, /* of an out parameter */
};

struct trace_extra {
	uint8_t argument; /* its number */
	uint8_t when; /* enum trace_extra_when */
	uint16_t size; /* bytes that follow, without padding; of a string its length, cut at 120 */
	uint32_t reserved; /* 0 */
	/* size bytes follow */
};

enum trace_device {
	TRACE_DEVICE_OTHER = 0,
	TRACE_DEVICE_CTL = 1, /* /dev/nvidiactl */
	TRACE_DEVICE_GPU = 2, /* /dev/nvidiaN */
	TRACE_DEVICE_UVM = 3,
	TRACE_DEVICE_UVM_TOOLS = 4,
	TRACE_DEVICE_MODESET = 5,
	TRACE_DEVICE_CAPS = 6,
};

enum trace_ioctl_flags {
	TRACE_IOCTL_OPEN = 1 << 0, /* still running when tracing ended */
	TRACE_IOCTL_STATUS = 1 << 1, /* `status` is there */
};

/* An ioctl of a device of the driver, at its end. Three byte strings follow, each padded to 8
 * bytes. */
struct trace_ioctl {
	struct trace_record record; /* flags: enum trace_ioctl_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid;
	uint32_t tid;
	uint32_t command; /* the whole number */
	int32_t result; /* of ioctl(2): negative errno */
	uint8_t device; /* enum trace_device */
	uint8_t minor; /* of GPU */
	uint16_t n_before; /* bytes of the argument at entry, at most 128 */
	uint16_t n_after; /* bytes of the argument at return */
	uint16_t n_inner; /* bytes at entry of what the argument's pointer (RM_CONTROL, RM_ALLOC,
			     XFER) points to */
	uint32_t stack;
	uint32_t status; /* at return, of those whose status lies behind the bytes (UVM's 33 and
			    68); else 0 */
	uint8_t bytes[];
};

enum trace_event_flags {
	TRACE_EVENT_INSTANT = 1 << 0, /* end == start: a point in time, not a span */
	TRACE_EVENT_OPEN = 1 << 1,
};

/* A hook of the kernel's driver, a tracepoint, or a probe of the user: see the NAME of `hook` for
 * what words are. */
struct trace_event {
	struct trace_record record; /* flags: enum trace_event_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid; /* 0: an interrupt or the idle task */
	uint32_t tid;
	uint32_t cpu;
	uint32_t hook;
	int64_t result; /* of a function that returned */
	uint8_t n_words;
	/* bytes of text behind the words, NUL-padded to 8: of each argument of type str in turn,
	 * with its NUL (the argument's word is the pointer) */
	uint8_t n_text;
	uint16_t reserved; /* 0 */
	uint32_t stack;
	uint64_t words[];
};

/* A kernel, a copy, or a graph ran on the GPU. */
struct trace_kernel {
	struct trace_record record;
	uint64_t start;
	uint64_t end;
	uint32_t pid;
	uint32_t tid; /* with sequence: the call that launched it */
	uint32_t sequence;
	uint32_t device; /* ordinal in the process */
	uint64_t context;
	uint64_t stream;
	uint64_t function; /* handle; 0: a graph, see the call */
	uint32_t error; /* nanoseconds by which start and end may be off */
	uint32_t reserved; /* 0 */
};

enum trace_ctxsw_flags {
	TRACE_CTXSW_INSTANT = 1 << 0, /* a point in time: another event of the engine, `began` */
	TRACE_CTXSW_OPEN = 1 << 1, /* the context was still there when tracing ended */
	TRACE_CTXSW_FOREIGN = 1 << 2, /* pid is of the initial namespace, which is not the one of
					 the trace's other pids */
};

/* A context was on a GPU's engine for compute and graphics, from one context switch to the next. */
struct trace_ctxsw {
	struct trace_record record; /* flags: enum trace_ctxsw_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid; /* 0: of another user, which the driver does not tell; UINT32_MAX: the
			 driver's own */
	uint32_t device; /* N of /dev/nvidiaN */
	uint32_t context; /* the driver's number of it */
	uint32_t error; /* nanoseconds by which start and end may be off */
	uint8_t began; /* the event by which it began, NV_EVENT_BUFFER_FECS_CTXSWTAG_*; 0: not seen,
			  it began at `start` or before */
	uint8_t ended; /* ... and ended; 0: not seen, it ended at `end` or before */
	uint8_t preemption; /* how it was made to stop, a tag FE_ACK_*; 0: the driver did not tell
			     */
	uint8_t vmid;
	uint8_t gpu_instance; /* of MIG; 0xff: none */
	uint8_t compute_instance;
	uint16_t sequence; /* of the last event of it */
	char comm[16]; /* of pid; empty: unknown */
};

/* How the clock of a GPU relates to the host's: host = host_time + (gpu - gpu_time) * (1 + drift *
 * 1e-9). */
struct trace_clock {
	struct trace_record record;
	uint32_t pid; /* whose device it is: ordinals are of processes; 0: the GPU's own timer
			 (%globaltimer), and device is N of /dev/nvidiaN */
	uint32_t device;
	uint64_t gpu_time; /* nanoseconds of the clock that stamped this process's kernels */
	uint64_t host_time;
	int64_t drift; /* parts per billion; 0: not known yet */
	uint64_t error; /* nanoseconds, estimated */
};

/*
 * Calls of a function that were counted where they happened (`aggregate` of Trace), and not sent:
 * those of one process and source since the last such record of the three. Of these n_buckets have
 * another number of calls than 0.
 */
struct trace_counts {
	struct trace_record record;
	uint64_t start; /* the beginning of the time that they are of, */
	uint64_t end; /* and its end */
	uint32_t pid;
	uint16_t function;
	uint16_t n_buckets;
	uint64_t calls;
	uint64_t errors; /* calls with a result that is neither CUDA_SUCCESS nor
			    CUDA_ERROR_NOT_READY */
	uint64_t time; /* sum of durations, nanoseconds */
	uint64_t min, max; /* durations, since counting began */
	uint64_t bytes; /* that were to be allocated, freed or copied */
	uint64_t bytes_done; /* the same, without the calls that failed */
	struct trace_bucket {
		uint32_t bucket; /* trace_bucket_of() a duration */
		uint32_t calls;
	} buckets[];
};

/* Eight buckets for each power of two: a duration is known within a sixteenth. The last one has all
 * that is longer (half an hour). */
#define TRACE_BUCKETS 312
#define TRACE_BUCKET_BITS 3

static inline uint32_t trace_bucket_of(uint64_t duration) {
	uint32_t power = 0, bucket;

	if (duration < 1 << TRACE_BUCKET_BITS)
		return (uint32_t)duration;
	for (uint32_t bits = 32; bits;
	     bits /= 2) /* as not all compilers of BPF know __builtin_clzll() */
		power += duration >> power >> bits ? bits : 0;
	bucket = (power - TRACE_BUCKET_BITS + 1) << TRACE_BUCKET_BITS |
		 (uint32_t)(duration >> (power - TRACE_BUCKET_BITS) &
			    ((1 << TRACE_BUCKET_BITS) - 1));
	return bucket < TRACE_BUCKETS ? bucket : TRACE_BUCKETS - 1;
}

/* The shortest duration of a bucket. */
static inline uint64_t trace_bucket_start(uint32_t bucket) {
	const uint32_t octave = bucket >> TRACE_BUCKET_BITS,
		       step = bucket & ((1 << TRACE_BUCKET_BITS) - 1);

	return octave ? (uint64_t)((1 << TRACE_BUCKET_BITS) + step) << (octave - 1) : step;
}

enum trace_lost_flags {
	TRACE_LOST_ENDS = 1 << 0, /* nothing is lost: of so many launches, whose calls are in the
				     trace, it is not known when their kernels ended */
};

struct trace_lost {
	struct trace_record record; /* source: whose; flags: enum trace_lost_flags */
	uint64_t time;
	uint32_t pid; /* 0: of all */
	uint32_t tid; /* 0: of all its threads */
	uint64_t count; /* since the last such record of the same pid and tid */
};

/* One line about the trace of a process, for who reads it: what of it cannot be had, and why. */
struct trace_note {
	struct trace_record record;
	uint64_t time;
	uint32_t pid;
	uint32_t reserved; /* 0 */
	char text[]; /* NUL-padded to the record's end */
};

/* Return addresses, innermost first; a text for each follows, NUL-terminated ("file+0x12
 * (symbol+0x4)"), padded at the end. */
struct trace_stack {
	struct trace_record record;
	uint32_t id; /* never 0 */
	uint32_t n;
	uint64_t addresses[];
};

struct trace_stop {
	struct trace_record record;
	uint64_t time;
	uint64_t records; /* all that were sent before */
	uint64_t lost; /* the sum of all TRACE_LOST */
};
