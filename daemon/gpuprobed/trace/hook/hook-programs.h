/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The eBPF programs of hooks: loading, and each way to attach them. What is attached stays so until
 * hook_programs_detach(). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/gpuprobed/trace/bpf/hook.h"
#include "hook-user.h"

struct hook_kernel;
struct hook_programs;
struct ring_buffer;

enum hook_map {
	HOOK_MAP_ROWS,
	HOOK_MAP_PROCESSES,
	HOOK_MAP_PENDING,
	HOOK_MAP_IOCTLS,
	HOOK_MAP_RING,
	HOOK_MAP_HITS,
	HOOK_MAP_LOST,
	HOOK_MAP_COUNTS,
	_HOOK_MAP_N,
};

enum hook_need {
	HOOK_NEED_FUNCTIONS = 1 << 0, /* probes of the kernel's functions */
	HOOK_NEED_USER = 1 << 1,
	HOOK_NEED_TRACEPOINTS = 1 << 2,
	HOOK_NEED_SYSCALLS = 1 << 3,
	HOOK_NEED_COUNTS = 1 << 4,
};

/* Loads the programs that are needed (enum hook_need), and those of processes; config is a constant
 * of them. Some tens of milliseconds. 0 or negative errno. */
int hook_programs_new(struct hook_programs **programsp, const struct hook_config *config,
		      unsigned needs);
struct hook_programs *hook_programs_free(struct hook_programs *programs);

/* Detaches everything; maps stay. */
void hook_programs_detach(struct hook_programs *programs);

int hook_programs_map(const struct hook_programs *programs, enum hook_map map);

/* Programs for probes of functions of files (hook-user.h), which stay the object's. */
struct hook_user_programs hook_programs_user(const struct hook_programs *programs);

/* Each attaches the beginning and, if span, the end, or nothing at all. 0 or negative errno. */
int hook_programs_fentry(struct hook_programs *programs, int btf_fd, int btf_id, uint32_t row,
			 bool span);
int hook_programs_kprobe(struct hook_programs *programs, const struct hook_kernel *kernel,
			 uint64_t address, uint32_t row, bool span);
int hook_programs_tracepoint(struct hook_programs *programs, int id, int end_id, uint32_t row);
int hook_programs_syscalls(
	struct hook_programs *programs,
	const int32_t rows[static 2 * _HOOK_SYSCALL_N]); /* row of each; -1: not wanted */
int hook_programs_processes(struct hook_programs *programs);

/* Many functions in one link; spans[i]: whether function i has an end. */
int hook_programs_multi(struct hook_programs *programs, const uint64_t *addresses,
			const uint64_t *rows, const bool *spans, size_t n);

/*
 * Counts calls of functions: the first n_multi in one link if the kernel can, the others each by
 * itself, as long as the kernel lets. How many are counted; counted[i] says which.
 */
size_t hook_programs_count(struct hook_programs *programs, const struct hook_kernel *kernel,
			   const uint64_t *addresses, bool *counted, size_t n_multi, size_t n);
