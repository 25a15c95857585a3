/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Functions of the kernel that a GPU has, too (helper-name.h), in an object. libbpf links calls of
 * them to ids of the running kernel's BTF, which it leaves open where it does not load anything; so
 * the call would no longer say what it calls.
 */

#include <linux/bpf.h>
#include <stddef.h>

/*
 * Before libbpf: notes the number of the function in each such call, where libbpf leaves it alone.
 * Writes to the object, which has been checked (elf-check.h) and is to be checked once more: its
 * sections may overlap. 0 or -ENOMEM.
 */
int kfunc_mark(void *elf, size_t size);

/* After libbpf: calls of such functions have their number; those of others 0. */
void kfunc_finish(struct bpf_insn *insns, size_t n_insns);
