/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For hook.bpf.c: maps, whom it means, and the words of an event. */

const volatile struct hook_config config SEC(".rodata.config");
/* Row of each, of the driver's devices, then of UVM's; -1: not wanted. */
volatile __s32 syscalls[2 * _HOOK_SYSCALL_N] SEC(".data.syscalls") = { -1, -1, -1, -1,
								       -1, -1, -1, -1 };
static const struct hook_event no_event;
static const struct hook_ioctl no_ioctl;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOOK_ROWS_MAX);
	__type(key, __u32);
	__type(value, struct hook_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HOOK_PENDING_MAX);
	__type(key, __u64);
	__type(value, struct hook_event);
} pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct hook_ioctl);
} ioctls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOOK_ROWS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOOK_COUNTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(void *map, __u32 index) {
	__u64 *counter = bpf_map_lookup_elem(map, &index);

	if (counter)
		(*counter)++;
}

static __always_inline __u32 read32(__u64 address, __u32 offset) {
	__u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (const void *)(address + offset));
	return value;
}

static __always_inline __u64 read64(__u64 address, __u32 offset) {
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (const void *)(address + offset));
	return value;
}

/* ---- whom it means ---- */

/* What the daemon does not know yet passes, and is judged there. */
static __always_inline int is_meant(void) {
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u32 *verdict;

	if (pid == config.self)
		return 0;
	verdict = bpf_map_lookup_elem(&processes, &pid);
	if (verdict)
		return *verdict == HOOK_VERDICT_YES;
	if (config.flags & HOOK_CONFIG_KNOWN)
		return 0;
	if (config.flags & HOOK_CONFIG_UID && (__u32)bpf_get_current_uid_gid() != config.uid)
		return 0;
	if (config.flags & HOOK_CONFIG_CGROUP &&
	    bpf_get_current_ancestor_cgroup_id(config.cgroup_level) != config.cgroup)
		return 0;
	return 1;
}

/* ---- words ---- */

struct place {
	const __u64 *arguments; /* of a function */
	__u64 record; /* of a tracepoint */
	__s64 result;
};

static __always_inline __u64 extend(__u64 value, __u8 size, int is_signed) {
	if (size >= 8 || !size)
		return value;
	value <<= 64 - 8 * size;
	return is_signed ? (__u64)((__s64)value >> (64 - 8 * size)) : value >> (64 - 8 * size);
}

/* A number from memory, of 1, 2, 4 or 8 bytes; constant sizes, for the verifier. */
static __always_inline __u64 fetch(__u64 address, __u8 size, int user) {
	const void *from = (const void *)address;
	__u64 value = 0;

#define FETCH(n)                                                \
	do {                                                    \
		if (user)                                       \
			bpf_probe_read_user(&value, n, from);   \
		else                                            \
			bpf_probe_read_kernel(&value, n, from); \
	} while (0)
	switch (size) {
	case 1:
		FETCH(1);
		break;
	case 2:
		FETCH(2);
		break;
	case 4:
		FETCH(4);
		break;
	default:
		FETCH(8);
		break;
	}
#undef FETCH
	return value;
}

static __always_inline void take_text(struct hook_event *event, __u64 address, int user) {
	__u32 at = event->n_text;
	long n;

	if (at > (HOOK_TEXTS_MAX - 1) * HOOK_TEXT_SIZE)
		return;
	n = user ? bpf_probe_read_user_str(event->text + at, HOOK_TEXT_SIZE, (const void *)address)
		 : bpf_probe_read_kernel_str(event->text + at, HOOK_TEXT_SIZE,
					     (const void *)address);
	if (n <= 0 &&
	    !user) /* not the other way round: a program may call its function with any address */
		n = bpf_probe_read_user_str(event->text + at, HOOK_TEXT_SIZE,
					    (const void *)address);
	if (n <= 0) {
		event->text[at] = '\0';
		n = 1;
	}
	event->n_text = at + n;
}

/* Where the value is: its address, if it lies in memory. */
static __always_inline void take_word(struct hook_event *event, const struct hook_word *word,
				      __u32 i, const struct place *place, int user) {
	__u64 value = 0, text;
	__u32 location;

	switch (word->from) {
	case HOOK_FROM_ARGUMENT:
		if (place->arguments && word->index < HOOK_ARGUMENTS_MAX)
			value = place->arguments[word->index];
		break;
	case HOOK_FROM_FIELD:
		value = place->record ? fetch(place->record + word->offset, word->size, 0) : 0;
		break;
	case HOOK_FROM_TEXT_FIELD:
	case HOOK_FROM_TEXT_RELATIVE:
	case HOOK_FROM_TEXT_ARRAY:
		if (!place->record)
			return;
		text = place->record + word->offset;
		if (word->from != HOOK_FROM_TEXT_ARRAY) {
			location = read32(text, 0) & 0xffff;
			text = (word->from == HOOK_FROM_TEXT_FIELD ? place->record : text + 4) +
			       location;
		}
		event->words[i] = 0;
		take_text(event, text, 0);
		return;
	}
	if (word->flags & HOOK_WORD_FOLLOW)
		value = fetch(value + word->offset, word->flags & HOOK_WORD_TEXT ? 8 : word->size,
			      user);
	if (word->flags & HOOK_WORD_TEXT)
		take_text(event, value, user);
	else
		value = extend(value, word->size, word->flags & HOOK_WORD_SIGNED);
	event->words[i] = value;
}

static __always_inline void take_words(struct hook_event *event, const struct hook_row *row,
				       const struct place *place) {
	for (__u32 i = 0; i < HOOK_WORDS_MAX; i++) {
		const struct hook_word *word = &row->words[i];

		if (i >= row->n_words)
			break;
		take_word(event, word, i, place, !!(row->flags & HOOK_ROW_USER));
	}
}

static __always_inline int matches(const struct hook_event *event, const struct hook_row *row) {
	for (__u32 i = 0; i < HOOK_MATCH_SIZE; i++) {
		if (event->text[i] != row->match[i])
			return 0;
		if (!row->match[i])
			break;
	}
	return 1;
}

/* ---- events ---- */

static __always_inline __u64 event_key(const struct hook_row *row, __u32 index) {
	return HOOK_KEY(row->flags & HOOK_ROW_BY_CPU ? bpf_get_smp_processor_id()
						     : (__u32)bpf_get_current_pid_tgid(),
			index);
}

static __always_inline void event_init(struct hook_event *event, const struct hook_row *row,
				       __u32 index) {
	__u64 id = bpf_get_current_pid_tgid();

	event->header.type = HOOK_RECORD_EVENT;
	event->header.row = index;
	event->header.pid = row->flags & HOOK_ROW_NO_PROCESS ? 0 : id >> 32;
	event->header.tid = row->flags & HOOK_ROW_NO_PROCESS ? 0 : (__u32)id;
	event->header.end = 0;
	event->header.result = 0;
	event->cpu = bpf_get_smp_processor_id();
	event->n_words = row->n_words;
	event->n_text = 0;
	event->reserved = 0;
	event->header.start = bpf_ktime_get_ns();
}

static __always_inline void event_send(struct hook_event *event) {
	long r = event->n_text
			 ? bpf_ringbuf_output(&ring, event, sizeof(*event), BPF_RB_NO_WAKEUP)
			 : bpf_ringbuf_output(&ring, event, sizeof(*event) - sizeof(event->text),
					      BPF_RB_NO_WAKEUP);

	if (r)
		count(&lost, 0);
}
