/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the callback, a function of the program, of each call of bpf_loop. */

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

#define CALLBACK_NONE UINT32_MAX /* not known: none, or not always the same */

/*
 * For each call of bpf_loop in a validated program, the first instruction of its callback, or
 * CALLBACK_NONE. The array has an element for each instruction and is for the caller to free; NULL
 * where no call is. Returns 0 or -ENOMEM.
 */
int callback_find(const struct bpf_insn *insns, size_t n_insns, uint32_t **callbacks);
