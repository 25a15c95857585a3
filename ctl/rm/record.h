/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The bytes of an event buffer. They belong to the driver, and may change or make no sense, so the
 * reader checks all bounds.
 */

#include <stdatomic.h>

#include "ctxsw.h"

#define RM_RECORD_SIZE 32

struct rm_record_header { /* NV_EVENT_BUFFER_HEADER */
	uint32_t get;
	_Atomic(uint32_t) put;
	uint64_t n_records, n_dropped, n_data_dropped;
};

/*
 * Reads on from *getp to put in a ring of n records, but no more than n_max, and sets *getp.
 * Records of kinds that are not of context switches are passed over. Returns how many there are in
 * records.
 */
size_t rm_records_read(const void *ring, uint32_t n, uint32_t *getp, uint32_t put,
		       struct rm_ctxsw_record *records, size_t n_max);
