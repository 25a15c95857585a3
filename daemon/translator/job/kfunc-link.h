/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Lets objects call kfuncs that a GPU has, too (helper-name.h). libbpf links calls of kfuncs to ids
 * of the running kernel's BTF. It leaves them open if it loads nothing, and then the call would no
 * longer say what it calls.
 */

#include <linux/bpf.h>
#include <stddef.h>

/*
 * Before libbpf: writes the number of the kfunc into each such call, where libbpf does not change
 * it. It changes the object, which was checked (elf-check.h) and must be checked again: its
 * sections may overlap. 0 or -ENOMEM.
 */
int kfunc_mark(void *elf, size_t size);

/* After libbpf: calls of such functions have their number; those of others 0. */
void kfunc_finish(struct bpf_insn *insns, size_t n_insns);
