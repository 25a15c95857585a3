/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A record of an object's log ring (its internal map ".log", a MAP_KIND_RING): what
 * bpf_trace_printk, bpf_trace_vprintk and ebpf_puts write. Followed by arg_count u64, then
 * format_length bytes of text without NUL, padded to 8 bytes. Whoever reads it believes none of it.
 */

#include <stdint.h>

#define LOG_MAP_NAME ".log"
#define LOG_ARGS_MAX 12 /* as bpf_trace_vprintk */
#define LOG_FORMAT_MAX 255 /* longer ones are cut */

enum log_kind {
	LOG_PRINTK = 1, /* text is a format with arg_count arguments */
	LOG_PUTS = 2, /* text is text */
};

struct log_record {
	uint64_t time; /* %globaltimer, nanoseconds: near CLOCK_REALTIME (0.5 ms off was seen) */
	uint16_t kind; /* enum log_kind */
	uint16_t format_length;
	uint16_t arg_count;
	uint16_t program; /* index of the program in its object */
};

_Static_assert(sizeof(struct log_record) == 16, "device code and daemon agree");
