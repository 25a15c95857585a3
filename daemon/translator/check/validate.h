/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What every later step may take for granted about a program's instructions: each opcode is one of
 * RFC 9669, registers exist and r10 is not written, jumps and calls land on an instruction (not
 * inside a 64-bit load) and jumps stay in their function, no function can be fallen out of, and map
 * indexes exist.
 */

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include "fault.h"

/* Returns 0, TRANSLATE_E_PROGRAM with `fault` filled in, or -ENOMEM. */
/* thread: it may refer to the variables of a thread. */
int validate_program(const struct bpf_insn *insns, size_t n_insns, size_t n_maps, bool thread,
		     struct fault *fault);
