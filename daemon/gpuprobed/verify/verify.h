/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Verification of GPU programs by the Linux kernel's own verifier (DESIGN section 4).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/bpf/linked.h"

enum verify_result {
	_VERIFY_SUCCESS,
	VERIFY_E_REFUSED, /* by the verifier or by a rule of ours; report: program, reason, log */
	VERIFY_E_NOT_PERMITTED, /* this process may not load programs: reason says what to do */
	VERIFY_E_INVALID, /* the linked object is malformed or holds what no shadow can stand for:
			     reason */
};

struct verify_options {
	bool allow_exit; /* programs may call bpf_cuda_exit */
};

/*
 * Zeroed by the caller, who frees reason and log (verify_report_deinit()). Filled in for positive
 * results.
 */
struct verify_report {
	size_t program; /* index of the program concerned; SIZE_MAX: the object as a whole */
	char *reason; /* one line */
	char *log; /* the verifier's words, with source lines; NULL if it was not asked */
};

/*
 * Verifies the programs of a linked object whose bits are set in `programs` (bit i: program i).
 * blob holds linked->size bytes. Needs CAP_BPF and CAP_PERFMON; leaves nothing behind. Blocks while
 * the verifier works, up to seconds: may run in a thread of its own. 0, a positive result, or
 * negative errno.
 */
int verify_object(const struct linked *linked, const void *blob, uint64_t programs,
		  const struct verify_options *options, struct verify_report *report);
void verify_report_deinit(struct verify_report *report);

/* Fills in what is not the log. Returns `result`, or -ENOMEM. */
int verify_report_set(struct verify_report *report, int result, size_t program, const char *format,
		      ...) __attribute__((format(printf, 4, 5)));

/*
 * Fills in a report from the words of the kernel's verifier: the reason is its conclusion, with the
 * source line, or what `error` means. Returns `result`, or -ENOMEM.
 */
int verify_report_log(struct verify_report *report, int result, size_t program, const char *log,
		      int error);

/* Whether this process may have programs verified: 0, VERIFY_E_NOT_PERMITTED, or negative errno. */
int verify_available(void);
