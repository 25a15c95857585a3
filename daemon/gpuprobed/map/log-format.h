/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Records of a log ring (log-record.h) as lines of text. What is in them is believed by nobody. */

#include <stddef.h>
#include <stdint.h>

enum {
	_LOG_E_SUCCESS,
	LOG_E_INVALID, /* not a record: it says that it has more than it has, or is of no kind */
};

#define LOG_TEXT_SIZE 2048 /* with NUL; what is longer is cut */

struct log_line {
	uint64_t time;
	uint16_t program; /* index in the object; perhaps of none */
	char text[LOG_TEXT_SIZE]; /* valid UTF-8 without control characters */
};

/* 0, or LOG_E_INVALID; *line is then undefined. */
int log_line_read(struct log_line *line, const void *record, size_t size);

/*
 * Formats as bpf_trace_printk does, with width, precision and flags of printf:
 *
 *     %d %i %u %x %X %o %c %%, with hh h l ll z: the argument is cut to their size; without one, 32
 * bits %p and %pK %px %ps %pS %pB: 16 hexadecimal digits %s %pks %pus %pi4 %pI4 %pi6 %pI6:
 * <0x1234>, the address: it is one of the GPU
 *
 * Anything else, and what has no argument, stands there as it is. Line ends at the end are left
 * out, tabs become spaces, other control characters and what is no UTF-8 become \n or \x1b.
 */
void log_format(char text[static LOG_TEXT_SIZE], const char *format, size_t n_format,
		const uint64_t *arguments, size_t n_arguments);
