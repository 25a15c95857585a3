/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A record of an object's log. The log is a ring, the object's internal map ".log" (MAP_KIND_RING).
 * bpf_trace_printk, bpf_trace_vprintk and ebpf_puts write to it; the daemon reads it.
 *
 * After this header come arg_count u64, then format_length bytes of text without a NUL, padded to 8
 * bytes. GPU programs write the record, so a reader must check every field.
 */

#include <stdint.h>

#define LOG_MAP_NAME ".log"
#define LOG_ARGS_MAX 12 /* as bpf_trace_vprintk */
#define LOG_FORMAT_MAX 255 /* bytes; longer texts are cut */

enum log_kind {
	LOG_PRINTK = 1, /* the text is a format with arg_count arguments */
	LOG_PUTS = 2, /* the text is printed as it is */
};

struct log_record {
	uint64_t time; /* %globaltimer, nanoseconds: near CLOCK_REALTIME (0.5 ms off was seen) */
	uint16_t kind; /* enum log_kind */
	uint16_t format_length;
	uint16_t arg_count;
	uint16_t program; /* index of the program in its object */
};

_Static_assert(sizeof(struct log_record) == 16, "device code and daemon agree");
