/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the device library for rings; it runs on the GPU.
 *
 * Producers of rings, as proto/map-layout.h has them. Lanes that are together and have a record of
 * one size are a group: they write one batch. Its lowest lane reserves; all store; then the group
 * meets, so that all stores come before the leader's of the stamp, which is a release.
 *
 * What lanes have in registers is stored so that the group writes contiguous runs: lane r stores
 * the chunks r, n + r, 2n + r ... of the batch, which it gets from the lanes that have them. Single
 * stores of 16 bytes to host memory would cost five to nine times as much.
 *
 * Nobody waits: a loop ends because another producer got further, and what finds no room is
 * counted.
 */

#include "device-lib.h"
#include "proto/log-record.h"
#include "proto/map-layout.h"

#define NOWHERE (~0ull) /* no position: these are multiples of 32 */
#define TRANSPOSED_MAX 64 /* bytes of records that are in registers */
#define GATHERED_MAX 128 /* and in memory */
#define ENOSPC 28
#define EINVAL 22

typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef GLOBAL struct map_ring *ring_pointer;

static inline u64 load(GLOBAL const uint64_t *p) {
	u64 value;

	__asm__ volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
	return value;
}

/* Of the consumer, across the bus. */
static inline u64 load_tail(u64 address) {
	u64 value;

	__asm__ volatile("ld.acquire.sys.global.u64 %0, [%1];"
			 : "=l"(value)
			 : "l"(address)
			 : "memory");
	return value;
}

static inline u64 compare_and_swap(GLOBAL uint64_t *p, u64 expected, u64 value) {
	u64 old;

	__asm__ volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
			 : "=l"(old)
			 : "l"(p), "l"(expected), "l"(value)
			 : "memory");
	return old;
}

static inline void add(GLOBAL uint64_t *p, u64 value) {
	__asm__ volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(value)
			 : "memory");
}

static inline u32 group_of(u32 mask, u32 value) {
	u32 group;

	__asm__ volatile("match.any.sync.b32 %0, %1, %2;"
			 : "=r"(group)
			 : "r"(value), "r"(mask)
			 : "memory");
	return group;
}

static inline u32 shuffle(u32 mask, u32 value, u32 lane) {
	return (u32)__nvvm_shfl_sync_idx_i32(mask, (int)value, (int)lane, 31);
}

static inline u64 shuffle64(u32 mask, u64 value, u32 lane) {
	u32 low = shuffle(mask, (u32)value, lane), high = shuffle(mask, (u32)(value >> 32), lane);

	return (u64)high << 32 | low;
}

/* The number of lanes of the mask below this one. */
static inline u32 rank_in(u32 mask) {
	return (u32)__builtin_popcount(mask & __nvvm_read_ptx_sreg_lanemask_lt());
}

/* The lane that is number n of the mask, counted from 0. */
static inline u32 lane_of(u32 mask, u32 n) {
	u32 lane = 0;

	if (mask == WARP)
		return n;
#pragma unroll
	for (u32 width = 16; width; width >>= 1) {
		u32 low = (u32)__builtin_popcount(mask >> lane & ((1u << width) - 1));

		if (n >= low) {
			n -= low;
			lane += width;
		}
	}
	return lane;
}

/* The consumer's tail as far as it is known, asked for if it is time to. */
static inline u64 refresh(ring_pointer ring) {
	u64 now = (u64)__nvvm_read_ptx_sreg_globaltimer(), last = load(&ring->refreshed);

	/* others may have done it since `now` */
	if ((long long)(now - last) >= MAP_RING_REFRESH_NS &&
	    compare_and_swap(&ring->refreshed, last, now) == last)
		__asm__ volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(&ring->tail),
				 "l"(load_tail(ring->tail_address))
				 : "memory");
	return load(&ring->tail);
}

/*
 * The half of a batch's header with the stamp: what was stored before is there when it is seen. A
 * release, no fence: that would empty the L1 cache of the kernel with every batch.
 */
static inline void store_stamp(u64 to, u64 stamp, u32 size, u32 count) {
	__asm__ volatile("st.release.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(stamp),
			 "l"((u64)count << 32 | size)
			 : "memory");
}

/*
 * Is there no room behind a head for so many bytes? Others may have gone on from it meanwhile, and
 * the consumer past it: it is below the tail then, and the compare-and-swap will tell.
 */
static inline _Bool is_full(u64 head, u64 tail, u64 bytes, u64 ring_size) {
	return (long long)(head + bytes - tail) > (long long)ring_size;
}

/* What is read of a ring at first, at once: its memory is far away. */
struct view {
	u64 base, cookie, head, tail;
};

static inline struct view view_ring(ring_pointer ring) {
	struct view view = { .base = ring->base, .cookie = ring->cookie };

	view.head = load(&ring->head);
	view.tail = load(&ring->tail);
	return view;
}

/* Takes `need` bytes, in one piece. The position, or NOWHERE: `count` records are lost. */
static inline u64 reserve(ring_pointer ring, const struct view *view, u64 ring_size, u32 need,
			  u32 count) {
	u64 head = view->head, tail = view->tail, skip, seen;

	for (;; head = seen) {
		u64 left = ring_size - (head & (ring_size - 1));

		skip = left < need ? left : 0;
		if (is_full(head, tail, skip + need, ring_size)) {
			tail = refresh(ring);
			if (is_full(head, tail, skip + need, ring_size)) {
				add(&ring->lost, count);
				return NOWHERE;
			}
		}
		seen = compare_and_swap(&ring->head, head, head + skip + need);
		if (seen == head)
			break;
	}
	if (skip)
		store_stamp(view->base + (head & (ring_size - 1)),
			    map_ring_stamp(head, view->cookie), 0, 0);
	add(&ring->written, count);
	return head + skip;
}

/* Chunks of 4, 8 or 16 bytes of records that are in registers. `size` is a constant. */
static inline void store_transposed(u32 mask, u32 count, u64 to, const u32 *record, u32 size) {
	const u32 words = size % 16 == 0 ? 4 : size % 8 == 0 ? 2 : 1, parts = size / 4 / words;
	u32 rank = rank_in(mask);

#pragma nounroll
	for (u32 i = 0; i < parts; i++) {
		u32 chunk = i * count + rank, lane = lane_of(mask, chunk / parts),
		    part = chunk % parts;
		u64 at = to + (u64)chunk * words * 4;
		u32x4 value = 0;

#pragma unroll
		for (u32 j = 0; j < TRANSPOSED_MAX / 4; j++) {
			if (j < parts * words) {
				u32 word = shuffle(mask, record[j], lane);

				if (part == j / words)
					value[j % words] = word;
			}
		}
		if (words == 4)
			*(GLOBAL u32x4 *)at = value;
		else if (words == 2)
			*(GLOBAL u32x2 *)at = value.xy;
		else
			*(GLOBAL u32 *)at = value.x;
	}
}

/* The same of records in memory, of a size that is a multiple of 8 and the same in all lanes. */
static inline void store_gathered(u32 mask, u32 count, u64 to, const u64 *record, u32 parts) {
	u32 rank = rank_in(mask);

#pragma nounroll
	for (u32 i = 0; i < parts; i++) {
		u32 chunk = i * count + rank, lane = lane_of(mask, chunk / parts),
		    part = chunk % parts;
		u64 value = 0;

#pragma nounroll
		for (u32 j = 0; j < parts; j++) {
			u64 word = shuffle64(mask, record[j], lane);

			if (part == j)
				value = word;
		}
		*(GLOBAL u64 *)(to + (u64)chunk * 8) = value;
	}
}

/* A record that is in memory, by its own lane. `aligned`: to 8 bytes. */
static inline void store_own(u64 to, const char *record, u32 size, _Bool aligned) {
	if (aligned && size % 16 == 0) {
		for (u32 i = 0; i < size; i += 16) {
			u32x4 value;

			__builtin_memcpy(&value, __builtin_assume_aligned(record + i, 8), 16);
			*(GLOBAL u32x4 *)(to + i) = value;
		}
	} else if (aligned && size % 4 == 0) {
		for (u32 i = 0; i < size; i += 4)
			*(GLOBAL u32 *)(to + i) = *(const u32 *)(record + i);
	} else {
		for (u32 i = 0; i < size; i++)
			*(GLOBAL char *)(to + i) = record[i];
	}
}

/* One batch, of the lanes of the mask, which are together. */
static inline _Bool write_batch(u32 mask, ring_pointer ring, const struct view *view, u64 ring_size,
				const void *record, u32 size, _Bool constant, _Bool aligned) {
	u32 count = (u32)__builtin_popcount(mask), rank = rank_in(mask);
	u32 need = (32 + count * size + MAP_BATCH_ALIGN - 1) & ~(MAP_BATCH_ALIGN - 1u);
	u64 position = NOWHERE, to, stamp;

	if (rank == 0)
		position = reserve(ring, view, ring_size, need, count);
	position = shuffle64(mask, position, (u32)__builtin_ctz(mask));
	if (position == NOWHERE)
		return 0;
	to = view->base + (position & (ring_size - 1));
	stamp = map_ring_stamp(position, view->cookie);
	if (constant && size % 4 == 0 && size <= TRANSPOSED_MAX)
		store_transposed(mask, count, to + 32, record, size);
	else if (aligned && size % 8 == 0 && size <= GATHERED_MAX)
		store_gathered(mask, count, to + 32, record, size / 8);
	else
		store_own(to + 32 + (u64)rank * size, record, size, aligned);
	if (rank == 0)
		__asm__ volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"(to + 16), "l"((u64)mask),
				 "l"((u64)(u32)__nvvm_read_ptx_sreg_warpid() << 32 |
				     (u32)__nvvm_read_ptx_sreg_smid())
				 : "memory");
	__nvvm_bar_warp_sync(mask);
	if (rank == 0)
		store_stamp(to, stamp, size, count);
	return 1;
}

/*
 * Writes a record of 1 to 4096 bytes. `base`: of the rings, 0 if they are not there. `constant`:
 * the size is, and so the same in all lanes. Whether it was written: it was lost and counted
 * otherwise, or there is no ring.
 */
_Bool gpuprobe_ring_write(u64 base, u32 ring_mask, u64 ring_size, const void *record, u32 size,
			  _Bool constant, _Bool aligned);
_Bool gpuprobe_ring_write(u64 base, u32 ring_mask, u64 ring_size, const void *record, u32 size,
			  _Bool constant, _Bool aligned) {
	ring_pointer ring = (ring_pointer)base + ((u32)__nvvm_read_ptx_sreg_smid() & ring_mask);
	u32 mask, most = (u32)(ring_size / 2 - 32) / size; /* records of a batch */

	struct view view;

	if (!base)
		return 0;
	view = view_ring(ring);
	if (!view.base)
		return 0;
	mask = lane_mask();
	if (mask == WARP && constant && most >= 32)
		return write_batch(WARP, ring, &view, ring_size, record, size, constant, aligned);
	mask = part_mask(mask);
	if (!constant)
		mask = group_of(mask, size);
	if (most < 32)
		mask = group_of(mask, rank_in(mask) / most);
	return write_batch(mask, ring, &view, ring_size, record, size, constant, aligned);
}

/* A record of the log under construction. */
struct text {
	struct log_record record;
	uint64_t words[LOG_ARGS_MAX + (LOG_FORMAT_MAX + 8) / 8];
};

/*
 * A byte of a program's text. It may be one that the program never wrote, of which LLVM may assume
 * whatever it likes, and something else each time: not once it went through this.
 */
static inline u32 text_byte(const char *text, u32 n) {
	u32 byte = (unsigned char)text[n];

	__asm__("" : "+r"(byte));
	return byte;
}

/* The length of a text of at most `max` bytes, and how many arguments it has as a format. */
static inline u32 text_scan(const char *text, u32 max, u32 *conversions) {
	u32 n = 0, byte;

	*conversions = 0;
	for (; n < max; n++) {
		byte = text_byte(text, n);
		if (!byte)
			break;
		if (byte != '%')
			continue;
		if (n + 1 < max && text_byte(text, n + 1) == '%')
			n++;
		else
			++*conversions;
	}
	return n;
}

/* Adds the text behind `arguments` words, and writes the record. */
static inline u64 text_write(u64 base, u32 ring_mask, u64 ring_size, struct text *log, u32 what,
			     const char *text, u32 length, u32 arguments) {
	char *to = (char *)(log->words + arguments);
	u32 padded = (length + 7) & ~7u;

	for (u32 i = 0; i < padded; i++)
		to[i] = i < length ? text[i] : 0;
	log->record.time = (u64)__nvvm_read_ptx_sreg_globaltimer();
	log->record.kind = (uint16_t)what;
	log->record.format_length = (uint16_t)length;
	log->record.arg_count = (uint16_t)arguments;
	log->record.program = (uint16_t)(what >> 16);
	return gpuprobe_ring_write(base, ring_mask, ring_size, log,
				   (u32)sizeof(log->record) + 8 * arguments + padded, 0, 1)
		       ? 0
		       : (u64)-ENOSPC;
}

/*
 * Text with at most three arguments, as many as it has conversions. `what`: enum log_kind, the
 * program's index in the upper half.
 */
u64 gpuprobe_printk(u64 base, u32 ring_mask, u64 ring_size, u32 what, const char *text, u32 max,
		    u64 a, u64 b, u64 c);
u64 gpuprobe_printk(u64 base, u32 ring_mask, u64 ring_size, u32 what, const char *text, u32 max,
		    u64 a, u64 b, u64 c) {
	struct text log;
	u32 arguments, length = text_scan(text, max, &arguments);

	if ((what & 0xffff) == LOG_PUTS)
		arguments = 0;
	if (arguments > 3)
		arguments = 3;
	log.words[0] = a;
	log.words[1] = b;
	log.words[2] = c;
	return text_write(base, ring_mask, ring_size, &log, what, text, length, arguments);
}

/* Text with `size` bytes of arguments, of 8 bytes each. */
u64 gpuprobe_vprintk(u64 base, u32 ring_mask, u64 ring_size, u32 what, const char *text, u32 max,
		     const char *data, u64 size);
u64 gpuprobe_vprintk(u64 base, u32 ring_mask, u64 ring_size, u32 what, const char *text, u32 max,
		     const char *data, u64 size) {
	struct text log;
	u32 arguments = (u32)size / 8, conversions;

	if (size % 8 || arguments > LOG_ARGS_MAX)
		return (u64)-EINVAL;
	for (u32 i = 0; i < arguments; i++)
		__builtin_memcpy(log.words + i, data + 8 * i, 8);
	return text_write(base, ring_mask, ring_size, &log, what, text,
			  text_scan(text, max, &conversions), arguments);
}
