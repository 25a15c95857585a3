/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The format of a trace: one record after another. `Trace` of the control interface streams it (in
 * base64), and `gpuprobectl trace --format raw` writes it to a file.
 *
 * Little-endian. Each record is a multiple of 8 bytes, begins with a struct trace_record and lies
 * at a multiple of 8 bytes. TRACE_START comes first, TRACE_STOP last; a file that was cut off has
 * no TRACE_STOP. A reader skips records of unknown types.
 *
 * Records come in the order in which their sources delivered them. A call comes when it has ended,
 * and calls of different threads are mixed within some hundred milliseconds. A NAME, PROCESS or
 * THREAD comes before the first record that needs it.
 *
 * Times are nanoseconds of the host's CLOCK_MONOTONIC, whichever clock took them.
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
	TRACE_SOURCE_SHIM = 1, /* the shim, in the process */
	TRACE_SOURCE_BPF = 2, /* a probe of Linux (eBPF), in user or kernel space */
	TRACE_SOURCE_GPU = 3, /* times taken by the GPU */
};

struct trace_record {
	uint32_t size; /* with this header */
	uint16_t type; /* enum trace_type */
	uint8_t source; /* enum trace_source */
	uint8_t flags; /* flags of this type of record */
};

struct trace_start {
	struct trace_record record;
	uint32_t magic; /* TRACE_MAGIC */
	uint32_t version; /* TRACE_VERSION */
	uint64_t monotonic; /* the beginning */
	uint64_t realtime; /* the same moment, nanoseconds since the epoch */
	char host[64]; /* NUL-padded, as all texts of fixed size */
	char driver[32]; /* version of NVIDIA's kernel driver, "580.159.04"; empty: none */
	char daemon[32]; /* version of gpuprobed */
};

enum trace_process_what {
	TRACE_PROCESS_SEEN = 0, /* the process was there before the trace */
	TRACE_PROCESS_FORK = 1,
	TRACE_PROCESS_EXEC = 2,
	TRACE_PROCESS_EXIT = 3,
};

struct trace_process {
	struct trace_record record;
	uint64_t time;
	uint32_t pid; /* as the daemon sees it; so are all pids of a trace */
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
	TRACE_NAME_FUNCTION = 1, /* id: the `function` of calls, >= TRACE_FUNCTION_DYNAMIC; pid 0 */
	TRACE_NAME_KERNEL = 2, /* id: a CUfunction or CUkernel handle of process pid; a later name
				  replaces an earlier one */
	TRACE_NAME_HOOK =
		3, /* id: the `hook` of events; pid 0. Text: set, name, arguments and result:
		      "memory nvidia:nv_dma_map_alloc(pages:u64,contig:bool)=s32" */
	TRACE_NAME_FILE = 5, /* id: the inode of a file whose code process pid executes; text: its
				path as that process sees it. Used to name functions in stacks */
	TRACE_NAME_LIBRARY =
		4, /* id: a libcuda.so.1 that was found; text: path and version; for information */
};

struct trace_name {
	struct trace_record record;
	uint32_t pid;
	uint32_t kind; /* enum trace_name_kind */
	uint64_t id;
	char name[]; /* NUL-padded to the record's end */
};

/*
 * Functions have the numbers of CUPTI's callback ids (cupti_driver_cbid.h), which never change.
 * Functions without one have a number from TRACE_FUNCTION_OWN up in the table of all functions
 * (functions.txt). A function in neither gets a number, and a NAME, during the trace.
 */
#define TRACE_FUNCTION_OWN 2048
#define TRACE_FUNCTION_DYNAMIC 3072
#define TRACE_FUNCTION_MAX 4096

enum trace_call_flags {
	TRACE_CALL_OPEN = 1 << 0, /* still running when tracing ended: no result */
	TRACE_CALL_NO_RESULT = 1 << 1,
	TRACE_CALL_CUT = 1 << 2, /* words or extras are missing: unreadable, or too many */
};

/*
 * A call of a cu* function, sent when it has ended. words[0 .. n_arguments): 8 bytes each, in the
 * order of the ABI: rdi, rsi, rdx, rcx, r8, r9, then stack slots, then xmm registers for floats.
 * functions.txt says which argument is where. Bits above an argument's type are undefined. Then
 * follow n_extras struct trace_extra.
 */
struct trace_call {
	struct trace_record record; /* flags: enum trace_call_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid;
	uint32_t tid;
	uint32_t sequence; /* counts the recorded calls of this thread from this source; a gap means
			      lost calls */
	int32_t result; /* CUresult */
	uint16_t function; /* 0: unknown */
	uint8_t n_arguments;
	uint8_t n_extras;
	uint32_t stack; /* id of a TRACE_STACK, or 0 */
	uint64_t words[];
};

/* When the bytes of a struct trace_extra were read. */
enum trace_extra_when {
	TRACE_EXTRA_ENTRY = 0,
	TRACE_EXTRA_RETURN = 1, /* for output parameters */
};

struct trace_extra {
	uint8_t argument; /* number of the argument */
	uint8_t when; /* enum trace_extra_when */
	uint16_t size; /* bytes that follow, without the padding to 8 bytes; for a string its
			  length, cut at 120 */
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
	TRACE_IOCTL_STATUS = 1 << 1, /* the member `status` is valid */
};

/*
 * An ioctl on a device of the driver, sent when it has ended. Three byte strings follow (before,
 * after, inner), each padded to 8 bytes.
 */
struct trace_ioctl {
	struct trace_record record; /* flags: enum trace_ioctl_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid;
	uint32_t tid;
	uint32_t command; /* the whole ioctl number */
	int32_t result; /* of ioctl(2): negative errno */
	uint8_t device; /* enum trace_device */
	uint8_t minor; /* N, if device is TRACE_DEVICE_GPU */
	uint16_t n_before; /* bytes of the argument at entry, at most 128 */
	uint16_t n_after; /* bytes of the argument at return */
	uint16_t n_inner; /* bytes, at entry, of what the argument's pointer points to (RM_CONTROL,
			     RM_ALLOC, XFER) */
	uint32_t stack;
	uint32_t status; /* at return, for ioctls whose status lies behind the recorded bytes (UVM's
			    33 and 68); else 0 */
	uint8_t bytes[];
};

enum trace_event_flags {
	TRACE_EVENT_INSTANT = 1 << 0, /* end == start: a point in time, not a span */
	TRACE_EVENT_OPEN = 1 << 1,
};

/*
 * An event at a hook of NVIDIA's kernel driver, at a tracepoint, or at a probe of the user. The
 * NAME of `hook` says what the words are.
 */
struct trace_event {
	struct trace_record record; /* flags: enum trace_event_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid; /* 0: an interrupt or the idle task */
	uint32_t tid;
	uint32_t cpu;
	uint32_t hook;
	int64_t result; /* the return value, if a function has returned */
	uint8_t n_words;
	/*
	 * bytes of text behind the words, NUL-padded to 8. It holds the text of each argument of
	 * type str, in turn, with its NUL; the argument's word is the pointer.
	 */
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
	uint32_t tid; /* tid and sequence name the call that launched it */
	uint32_t sequence;
	uint32_t device; /* ordinal in the process */
	uint64_t context;
	uint64_t stream;
	uint64_t function; /* handle; 0: a graph, see the call */
	uint32_t error; /* nanoseconds by which start and end may be off */
	uint32_t reserved; /* 0 */
};

enum trace_ctxsw_flags {
	TRACE_CTXSW_INSTANT =
		1 << 0, /* a point in time: another event of the engine, which `began` names */
	TRACE_CTXSW_OPEN = 1 << 1, /* the context was still there when tracing ended */
	TRACE_CTXSW_FOREIGN = 1 << 2, /* pid is of the initial pid namespace; the trace's other pids
					 are of another one */
};

/* A context ran on a GPU's engine for compute and graphics, from one context switch to the next. */
struct trace_ctxsw {
	struct trace_record record; /* flags: enum trace_ctxsw_flags */
	uint64_t start;
	uint64_t end;
	uint32_t pid; /* 0: a process of another user, which the driver does not name; UINT32_MAX:
			 the driver itself */
	uint32_t device; /* N of /dev/nvidiaN */
	uint32_t context; /* the driver's number of the context */
	uint32_t error; /* nanoseconds by which start and end may be off */
	uint8_t began; /* the event that began the span, NV_EVENT_BUFFER_FECS_CTXSWTAG_*; 0: not
			  seen, it began at `start` or before */
	uint8_t ended; /* the event that ended it; 0: not seen, it ended at `end` or before */
	uint8_t preemption; /* how the context was made to stop, a tag FE_ACK_*; 0: the driver did
			       not say */
	uint8_t vmid;
	uint8_t gpu_instance; /* MIG GPU instance; 0xff: none */
	uint8_t compute_instance;
	uint16_t sequence; /* sequence number of its last event */
	char comm[16]; /* name of process pid; empty: unknown */
};

/*
 * How a GPU's clock relates to the host's: host = host_time + (gpu - gpu_time) * (1 + drift *
 * 1e-9).
 */
struct trace_clock {
	struct trace_record record;
	uint32_t pid; /* the process whose ordinal `device` is; 0: the GPU's own timer
			 (%globaltimer), and device is N of /dev/nvidiaN */
	uint32_t device;
	uint64_t gpu_time; /* nanoseconds of the clock that stamped this process's kernels */
	uint64_t host_time;
	int64_t drift; /* parts per billion; 0: not known yet */
	uint64_t error; /* nanoseconds, estimated */
};

/*
 * Calls of a function that were counted in place (`aggregate` of Trace) and not sent one by one.
 * They are those of one process, source and function since the last such record of the three.
 * n_buckets of the buckets count at least one call; only these follow.
 */
struct trace_counts {
	struct trace_record record;
	uint64_t start; /* beginning of the time that is counted */
	uint64_t end; /* end of that time */
	uint32_t pid;
	uint16_t function;
	uint16_t n_buckets;
	uint64_t calls;
	uint64_t errors; /* calls with a result that is neither CUDA_SUCCESS nor
			    CUDA_ERROR_NOT_READY */
	uint64_t time; /* sum of durations, nanoseconds */
	uint64_t min, max; /* durations, since counting began */
	uint64_t bytes; /* bytes that the calls asked to allocate, free or copy */
	uint64_t bytes_done; /* the same, without calls that failed */
	struct trace_bucket {
		uint32_t bucket; /* trace_bucket_of(duration) */
		uint32_t calls;
	} buckets[];
};

/*
 * Eight buckets for each power of two, so a duration is known within a sixteenth. The last bucket
 * holds all that is longer (half an hour).
 */
#define TRACE_BUCKETS 312
#define TRACE_BUCKET_BITS 3

static inline uint32_t trace_bucket_of(uint64_t duration) {
	uint32_t power = 0, bucket;

	if (duration < 1 << TRACE_BUCKET_BITS)
		return (uint32_t)duration;
	for (uint32_t bits = 32; bits;
	     bits /= 2) /* not all compilers for BPF know __builtin_clzll() */
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
	TRACE_LOST_ENDS = 1 << 0, /* no record is lost, but for `count` launches in the trace it is
				     not known when their kernels ended */
};

struct trace_lost {
	struct trace_record record; /* of the source that lost; flags: enum trace_lost_flags */
	uint64_t time;
	uint32_t pid; /* 0: any process */
	uint32_t tid; /* 0: any thread */
	uint64_t count; /* lost since the last such record of the same pid and tid */
};

/* One line for readers of the trace of a process: what cannot be recorded, and why. */
struct trace_note {
	struct trace_record record;
	uint64_t time;
	uint32_t pid;
	uint32_t reserved; /* 0 */
	char text[]; /* NUL-padded to the record's end */
};

/*
 * Return addresses, innermost first. A text for each follows, NUL-terminated ("file+0x12
 * (symbol+0x4)"), padded at the end.
 */
struct trace_stack {
	struct trace_record record;
	uint32_t id; /* never 0 */
	uint32_t n;
	uint64_t addresses[];
};

struct trace_stop {
	struct trace_record record;
	uint64_t time;
	uint64_t records; /* number of records sent before this one */
	uint64_t lost; /* the sum of all TRACE_LOST */
};
