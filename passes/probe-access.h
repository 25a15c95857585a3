/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the pass `probe`: what a memory instruction does. */

#include "probe-names.h"

/*
 * enum gpuprobe_space and enum gpuprobe_access of proto/gpuprobe.bpf.h, which only BPF programs can
 * include.
 */
enum probe_space {
	PROBE_SPACE_GENERIC,
	PROBE_SPACE_GLOBAL,
	PROBE_SPACE_SHARED,
	PROBE_SPACE_LOCAL,
	PROBE_SPACE_CONST,
	PROBE_SPACE_PARAM,
};

enum probe_access_kind {
	PROBE_ACCESS_LOAD = 1,
	PROBE_ACCESS_STORE,
	PROBE_ACCESS_ATOMIC,
	PROBE_ACCESS_REDUCTION,
	PROBE_ACCESS_ASYNC_COPY,
	PROBE_ACCESS_MATRIX_LOAD,
};

struct probe_access {
	enum probe_access_kind kind;
	enum probe_space space; /* of the address */
	bool cluster; /* shared::cluster */
	uint32_t address; /* operand [...] or name[...]; PTX_NONE: none is found */
	uint32_t value; /* operand that is stored; PTX_NONE: none */
	uint32_t element; /* bytes of one element of the value */
	enum ptx_type type; /* of one element */
	uint32_t size; /* bytes a thread moves */
	uint32_t size_operand; /* which says how many; PTX_NONE: size does */
};

/*
 * Is it a memory instruction, and which? Of a copy, the address is the one in global memory, else
 * the destination; a tensor's is its map, and its size is 0. What passes arguments in a call
 * (st.param, ld.param of results) is no memory instruction.
 */
bool probe_access_read(const struct probe_names *names, uint32_t statement,
		       struct probe_access *out);
