// SPDX-License-Identifier: Apache-2.0

/*
 * eBPF programs that run in the Linux kernel when a process calls a function of libcuda (uprobe.h).
 * The daemon loads them for processes without the shim.
 *
 * The programs of struct trace_uprobe. A thread has one state: its outermost call that runs. What a
 * driver function calls itself, or an application's callback within one, is not recorded: a state
 * remembers the stack pointer of its call, and who is called further down is within it. A call that
 * a longjmp() left is found out when the next one comes: on x86 its return address is no longer the
 * kernel's trampoline (which lies at the beginning of a page); elsewhere when a call comes from
 * further up.
 *
 * A record is built in the state and copied into the ring once, at the return, without waking
 * anybody. No CO-RE.
 *
 * Of a function that is counted (UPROBE_ROW_COUNTED) there are no records: its calls add to
 * `counts`, which the daemon reads from time to time.
 */

#include "uprobe.h"

#include <asm/ptrace.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#ifdef __TARGET_ARCH_x86
#define RETURN_POPS 8
#define WORD(ctx, i)             \
	((i) == 0   ? (ctx)->rdi \
	 : (i) == 1 ? (ctx)->rsi \
	 : (i) == 2 ? (ctx)->rdx \
	 : (i) == 3 ? (ctx)->rcx \
	 : (i) == 4 ? (ctx)->r8  \
		    : (ctx)->r9)
#define STACK_WORDS(sp) ((sp) + 8)
#else
#define RETURN_POPS 0
#define WORD(ctx, i) (((struct user_pt_regs *)(ctx))->regs[i])
#define STACK_WORDS(sp) (sp)
#endif
/* The compiler is to leave the check that follows where it is: verifiers want to see it. */
#define FORGET_RANGE(variable) __asm__ volatile("" : "+r"(variable))
#define NOT_READY 600 /* CUDA_ERROR_NOT_READY: an answer, no error */
#define SECOND 1000000000ull
#define PAGE_MASK 0xfffull

char _license[] SEC("license") = "Dual BSD/GPL";

const volatile struct uprobe_config config;
static const struct uprobe_state no_state;
static const struct trace_tally no_calls;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UPROBE_ROWS_MAX);
	__type(key, __u32);
	__type(value, struct uprobe_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct uprobe_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, UPROBE_PROCESSES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct uprobe_state);
} storage SEC(".maps");

/* Where there is no storage of tasks: by thread; the one that ran longest ago goes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct uprobe_state);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct uprobe_bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, UPROBE_COUNTS_MAX);
	__type(key, struct uprobe_count_key);
	__type(value, struct trace_tally);
} counts SEC(".maps");

/* Process and thread as the daemon sees them; 0: not at all. */
static __always_inline __u64 current_ids(void) {
	struct bpf_pidns_info info = {};

	if (!config.namespace_inode)
		return bpf_get_current_pid_tgid();
	if (bpf_get_ns_current_pid_tgid(config.namespace_device, config.namespace_inode, &info,
					sizeof(info)))
		return 0;
	return (__u64)info.tgid << 32 | info.pid;
}

static __always_inline void count_lost(void) {
	__u64 *count = bpf_map_lookup_elem(&lost, &(__u32){ 0 });

	if (count)
		__sync_fetch_and_add(count, 1); /* another task's program may come in between */
}

static __always_inline bool process_refused(__u32 pid, __u64 now) {
	__u64 *until = bpf_map_lookup_elem(&processes, &pid);

	return until ? now < *until && *until != UPROBE_PROCESS_MEANT : config.closed;
}

static __always_inline struct uprobe_state *find_state(__u32 tid, bool create) {
	struct uprobe_state *state;

	if (config.storage)
		return bpf_task_storage_get(&storage, bpf_get_current_task_btf(), NULL,
					    create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	state = bpf_map_lookup_elem(&threads, &tid);
	if (state || !create)
		return state;
	bpf_map_update_elem(&threads, &tid, &no_state, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &tid);
}

/* Whether the call of the state is what a function with this stack pointer was called by. */
static __always_inline bool is_within(const struct uprobe_state *state, __u64 sp) {
#ifdef __TARGET_ARCH_x86
	__u64 address;

	if (sp > state->sp)
		return false;
	return !bpf_probe_read_user(&address, sizeof(address), (const void *)state->sp) &&
	       address && !(address & PAGE_MASK);
#else
	return sp < state->sp;
#endif
}

/* Finishes an extra that was read. */
static __always_inline void end_extra(struct uprobe_state *state, __u64 n,
				      const struct uprobe_extra *wanted, __u64 size) {
	struct trace_extra *extra = (void *)(state->bytes + n);

	*(__u64 *)((void *)(extra + 1) + size) = 0; /* padding */
	*extra = (struct trace_extra){ .argument = wanted->argument,
				       .when = wanted->when,
				       .size = size };
	state->record.call.n_extras++;
	state->n = n + sizeof(*extra) + ((size + 7) & ~7ull);
}

/* One more extra at the end of the record. False: it cannot be read. */
static __always_inline bool add_extra(struct uprobe_state *state, const struct uprobe_extra *wanted,
				      bool names) {
	__u64 n = state->n, size = wanted->size, word = wanted->word;
	const void *from;
	long length;

	if (word >= TRACE_WORDS_MAX)
		return true;
	from = (const void *)state->record.call.words[word];
	if (!from)
		return true;
	if (n >= (size ? UPROBE_READS_END : UPROBE_STRINGS_END) || size > UPROBE_READ_MAX) {
		state->record.call.record.flags |= TRACE_CALL_CUT;
		return true;
	}
	if (size) {
		if (bpf_probe_read_user(state->bytes + n + sizeof(struct trace_extra), size, from))
			return false;
	} else {
		n &= UPROBE_STRINGS_END - 1; /* older verifiers do not know that any more */
		length = bpf_probe_read_user_str(state->bytes + n + sizeof(struct trace_extra),
						 (names ? UPROBE_NAME_MAX : UPROBE_STRING_MAX) + 1,
						 from);
		if (length <= 0 || length > UPROBE_NAME_MAX + 1)
			return false;
		size = length - 1;
		if (!names && size > UPROBE_STRING_MAX)
			return false;
	}
	end_extra(state, n, wanted, size);
	return true;
}

/* The extras of the entry, or at the return, if the call succeeded, those of the return; there also
 * what could not be read before. */
static __always_inline void add_extras(struct uprobe_state *state, const struct uprobe_row *row,
				       bool returned) {
#pragma unroll
	for (__u32 i = 0; i < UPROBE_EXTRAS_MAX; i++) {
		if (i >= row->n_extras)
			break;
		if (returned ? !(state->late & 1u << i) &&
				       (row->extras[i].when != TRACE_EXTRA_RETURN ||
					state->record.call.result)
			     : row->extras[i].when != TRACE_EXTRA_ENTRY)
			continue;
		if (add_extra(state, &row->extras[i], row->flags & UPROBE_ROW_NAMES))
			continue;
		if (returned)
			state->record.call.record.flags |= TRACE_CALL_CUT;
		else
			state->late |=
				1u << i; /* a page that is not there yet: the driver will read it */
	}
}

/* Words of the call, as they are at the entry. */
static __always_inline void read_words(struct uprobe_state *state, const struct uprobe_row *row,
				       struct pt_regs *ctx, __u64 sp) {
	uint64_t *words = state->record.call.words;
	__u32 n = row->n_words;

	words[0] = WORD(ctx, 0);
	words[1] = WORD(ctx, 1);
	words[2] = WORD(ctx, 2);
	words[3] = WORD(ctx, 3);
	words[4] = WORD(ctx, 4);
	words[5] = WORD(ctx, 5);
	if (n > TRACE_WORDS_MAX)
		n = TRACE_WORDS_MAX;
	if (n > UPROBE_REGISTERS &&
	    bpf_probe_read_user(words + UPROBE_REGISTERS, 8 * (n - UPROBE_REGISTERS),
				(const void *)STACK_WORDS(sp))) {
		n = UPROBE_REGISTERS;
		state->record.call.record.flags |= TRACE_CALL_CUT;
	}
	state->record.call.n_arguments = n;
	state->n = sizeof(state->record) + 8 * n;
}

/* One of the words that were read; 1: there is none. */
static __always_inline __u64 size_of_word(const struct uprobe_state *state, __u64 word,
					  __u8 bytes) {
	__u64 value;

	if (word >= TRACE_WORDS_MAX)
		return 1;
	value = state->record.call.words[word];
	return bytes == 4 ? (__u32)value : value;
}

/* 0 if that is too much: then it is a lie. */
static __always_inline __u64 multiply(__u64 a, __u64 b) {
	__u64 most = b ? ~0ull / b : a;

	FORGET_RANGE(most); /* else compilers want a product of 128 bits */
	return a > most ? 0 : a * b;
}

/* What is needed of a call that is counted: how many bytes it is about, in words[0]. */
static __always_inline void read_size(struct uprobe_state *state, const struct uprobe_row *row,
				      struct pt_regs *ctx, __u64 sp) {
	__u64 size = 0;

	if (row->size_word != UPROBE_NO_WORD) {
		read_words(state, row, ctx, sp);
		size = multiply(size_of_word(state, row->size_word, row->size_bytes),
				row->size_unit);
		size = multiply(size, size_of_word(state, row->rows_word, row->rows_bytes));
	}
	state->record.call.words[0] = size;
	state->record.call.n_arguments = 0;
	state->n = sizeof(state->record);
}

/*
 * What is known of a thread whose process is to be traced; state: what find_state() has found of
 * it. NULL: it is not, or there is no room.
 */
static __always_inline struct uprobe_state *checked_state(struct uprobe_state *state, __u64 ids,
							  __u32 generation, __u64 now) {
	if (state && state->checked == generation)
		return state;
	if (process_refused(ids >> 32, now))
		return NULL;
	if (!state)
		state = find_state((__u32)ids, true);
	if (!state) {
		count_lost();
		return NULL;
	}
	state->checked = generation;
	return state;
}

/* A function is called. 1: its return does not matter. */
static __always_inline int enter(struct pt_regs *ctx) {
	struct uprobe_control *shared = bpf_map_lookup_elem(&control, &(__u32){ 0 });
	__u64 cookie = bpf_get_attach_cookie(ctx), sp = PT_REGS_SP(ctx), ids, now;
	__u32 key = (__u32)cookie;
	struct uprobe_state *state;
	struct uprobe_row *row;
	__u32 generation;

	if (!shared)
		return 1;
	if (!shared->enabled) {
		if (!shared->tried)
			shared->tried = 1;
		return 1;
	}
	if (!(ids = current_ids()))
		return 1;
	state = find_state((__u32)ids, false);
	if (state && state->cookie && is_within(state, sp))
		return 1;
	now = bpf_ktime_get_ns();
	generation = *(volatile __u32 *)&shared
			      ->generation; /* before `processes` is looked at: what changes there
					       meanwhile is seen by the next call */
	state = checked_state(state, ids, generation, now);
	if (!state)
		return 1;
	row = bpf_map_lookup_elem(&rows, &key);
	if (!row)
		return 1;
	state->cookie = 0;
	state->record.flags = row->flags & UPROBE_ROW_NAMES ? UPROBE_RECORD_NAMES : 0;
	if (row->flags & UPROBE_ROW_UNWANTED) {
		state->record.flags |= UPROBE_RECORD_UNWANTED;
	} else if (config.sample > 1 && bpf_get_prandom_u32() * config.sample >> 32) {
		if (!(row->flags & UPROBE_ROW_NAMES))
			return 1;
		state->record.flags |= UPROBE_RECORD_UNWANTED;
	}
	state->record.call.record.flags = row->flags & UPROBE_ROW_CUT ? TRACE_CALL_CUT : 0;
	state->record.call.pid = ids >> 32;
	state->record.call.tid = (__u32)ids;
	state->record.call.function = row->function;
	state->record.call.n_extras = 0;
	state->late = 0;
	state->sp = sp;
	if (row->flags & UPROBE_ROW_COUNTED)
		read_size(state, row, ctx, sp);
	else
		read_words(state, row, ctx, sp);
	if (row->n_extras)
		add_extras(state, row, false);
	state->cookie = cookie;
	state->record.call.start = row->n_extras ? bpf_ktime_get_ns() : now;
	return 0;
}

/* Takes a record's price out of the process's bucket. False: it is empty. */
static __always_inline bool rate_allows(__u32 pid, __u64 now) {
	struct uprobe_bucket *bucket, fresh = { .time = now, .tokens = SECOND };
	__u64 price = SECOND / config.rate, tokens;

	bucket = bpf_map_lookup_elem(&buckets, &pid);
	if (!bucket) {
		bpf_map_update_elem(&buckets, &pid, &fresh, BPF_NOEXIST);
		bucket = bpf_map_lookup_elem(&buckets, &pid);
		if (!bucket)
			return false;
	}
	/* Threads that race here may give a few records too many, or too few. */
	tokens = bucket->tokens;
	if (now > bucket->time) {
		tokens += now - bucket->time;
		bucket->time = now;
		if (tokens > SECOND)
			tokens = SECOND;
	}
	if (tokens < price) {
		bucket->tokens = tokens;
		return false;
	}
	bucket->tokens = tokens - price;
	return true;
}

/* Sends the record of a call that has ended. */
static __always_inline void send(struct uprobe_state *state, struct pt_regs *ctx) {
	struct uprobe_record *record = &state->record;
	__u64 n = state->n, at;
	long size;

	record->call.record.size = n - __builtin_offsetof(struct uprobe_record, call);
	record->n_frames = 0;
	if (config.stacks && !(record->flags & UPROBE_RECORD_UNWANTED)) {
		at = n < UPROBE_CALL_MAX ? n : UPROBE_CALL_MAX;
		size = bpf_get_stack(ctx, state->bytes + at, 8 * UPROBE_FRAMES_MAX,
				     BPF_F_USER_STACK);
		if (size > 0 && size <= 8 * UPROBE_FRAMES_MAX) {
			FORGET_RANGE(size);
			size &= 511; /* for verifiers: it is not negative */
			record->n_frames = size / 8;
			n = at + size;
		}
	}
	FORGET_RANGE(n);
	if (n > sizeof(state->bytes) ||
	    bpf_ringbuf_output(&ring, state->bytes, n, BPF_RB_NO_WAKEUP))
		count_lost();
}

/* Raises a maximum. Another thread may do so at the same time: one looks again, and the daemon
 * knows it by the buckets if a lower one was written last. */
static __always_inline void raise_to(volatile __u64 *most, __u64 value) {
#pragma unroll
	for (int i = 0; i < 3; i++) {
		if (*most >= value)
			return;
		*most = value;
	}
}

/* Counts a call that has ended. */
static __always_inline void count(const struct trace_call *call, __u64 duration, bool failed) {
	struct uprobe_count_key key = { .pid = call->pid, .function = call->function };
	struct trace_tally *tally = bpf_map_lookup_elem(&counts, &key);
	__u64 bytes = call->words[0];
	__u32 bucket;

	if (!tally) {
		bpf_map_update_elem(&counts, &key, &no_calls, BPF_NOEXIST);
		tally = bpf_map_lookup_elem(&counts, &key);
	}
	if (!tally) {
		count_lost();
		return;
	}
	__sync_fetch_and_add(&tally->time, duration);
	if (failed)
		__sync_fetch_and_add(&tally->errors, 1);
	if (bytes)
		__sync_fetch_and_add(&tally->bytes, bytes);
	if (bytes && !failed)
		__sync_fetch_and_add(&tally->bytes_done, bytes);
	raise_to(&tally->max, duration);
	raise_to(&tally->least, ~duration);
	bucket = trace_bucket_of(duration);
	if (bucket < TRACE_BUCKETS)
		__sync_fetch_and_add(&tally->buckets[bucket], 1);
}

/* A function returned. */
static __always_inline int leave(struct pt_regs *ctx) {
	__u64 now = bpf_ktime_get_ns(), ids = current_ids(), cookie = bpf_get_attach_cookie(ctx);
	struct uprobe_control *shared = bpf_map_lookup_elem(&control, &(__u32){ 0 });
	struct uprobe_state *state = find_state((__u32)ids, false);
	__u32 key = (__u32)cookie;
	struct uprobe_row *row;
	struct trace_call *call;
	bool failed;

	if (!shared || !shared->enabled || !state || state->cookie != cookie ||
	    PT_REGS_SP(ctx) != state->sp + RETURN_POPS)
		return 0;
	row = bpf_map_lookup_elem(&rows, &key);
	if (!row)
		return 0;
	state->cookie = 0;
	call = &state->record.call;
	call->end = now;
	call->result = (__s32)PT_REGS_RC(ctx);
	failed = call->result && call->result != NOT_READY;
	if ((config.errors && !failed) ||
	    (config.min_duration && now - call->start < config.min_duration)) {
		if (!(row->flags & UPROBE_ROW_NAMES))
			return 0;
		state->record.flags |= UPROBE_RECORD_UNWANTED;
	}
	if (row->flags & UPROBE_ROW_COUNTED) {
		count(call, now - call->start, failed);
		return 0;
	}
	if (!(state->record.flags & UPROBE_RECORD_UNWANTED)) {
		call->sequence = ++state->sequence;
		if (config.rate && !rate_allows(ids >> 32, now)) {
			count_lost();
			if (!(row->flags & UPROBE_ROW_NAMES))
				return 0;
			state->record.flags |= UPROBE_RECORD_UNWANTED;
		}
	}
	if (row->n_extras)
		add_extras(state, row, true);
	call->record.type = TRACE_CALL;
	call->record.source = TRACE_SOURCE_BPF;
	call->stack = 0;
	send(state, ctx);
	return 0;
}

/* The first rung: one program for both; the entry's answer says whether the return is wanted. */
SEC("uprobe")
int call_session(struct pt_regs *ctx) {
	if (bpf_get_func_ip(ctx) == PT_REGS_IP(ctx))
		return enter(ctx);
	return leave(ctx);
}

/* The other rungs. */
SEC("uprobe")
int call_enter(struct pt_regs *ctx) {
	enter(ctx);
	return 0;
}

SEC("uprobe")
int call_leave(struct pt_regs *ctx) {
	return leave(ctx);
}
