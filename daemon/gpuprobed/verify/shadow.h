/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The shadow of a GPU program: a program and maps that the kernel's verifier knows, such that
 * whatever it proves about them holds for the GPU program.
 */

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/bpf/helper-name.h"
#include "lib/bpf/linked.h"

enum shadow_result {
	_SHADOW_SUCCESS,
	SHADOW_E_REFUSED, /* against a rule of ours; the error says which */
	SHADOW_E_INVALID, /* malformed */
};

#define SHADOW_ERROR_SIZE 256
#define SHADOW_KEY_SIZE_MAX 512
#define SHADOW_VALUE_SIZE_MAX ((uint32_t)1 << 20) /* of a declared map */
#define SHADOW_DATA_SIZE_MAX ((uint32_t)16 << 20) /* of a data section */

struct shadow {
	struct bpf_insn *insns;
	size_t n_insns;
	/* as BPF_PROG_LOAD takes them; n_func_info 0: leave both and the BTF out */
	void *func_info;
	uint32_t n_func_info, func_info_size;
	void *line_info;
	uint32_t n_line_info, line_info_size;
	uint64_t maps; /* bit i: map i is used */
	bool thread; /* variables of a thread are used: map LINKED_THREAD */
	uint32_t kfuncs; /* bit i: it calls function i of enum kfunc */
};

/* A map as BPF_MAP_CREATE takes it. */
struct shadow_map {
	char name[16];
	uint32_t type, key_size, value_size, max_entries, flags;
	bool freeze; /* after the initial bytes are in */
};

/*
 * Makes the shadow of program `index`. blob: linked->size bytes. 0 with *shadow filled in
 * (shadow_deinit()), a positive result with one line in error, or -ENOMEM.
 */
int shadow_make(const struct linked *linked, const void *blob, size_t index, bool allow_exit,
		struct shadow *shadow, char error[static SHADOW_ERROR_SIZE]);
void shadow_deinit(struct shadow *shadow);

/* Replaces the numbers of kfuncs by what this kernel calls them: ids of its BTF, by number. */
void shadow_bind(struct shadow *shadow, const int32_t ids[static _KFUNC_N]);

/*
 * Whether the verifier's conclusion is about a call that no GPU has, or about something that this
 * kernel is too old for: then text says which. blob and index: as the shadow was made of.
 */
bool shadow_explain(const struct linked *linked, const void *blob, size_t index,
		    const char *conclusion, char text[static SHADOW_ERROR_SIZE]);

/* What stands for the variables of a thread: data that nobody knows. */
struct shadow_map shadow_thread_make(const struct linked *linked);

/* The shadow of a map. page_size: of this machine. 0 or a positive result. */
int shadow_map_make(const struct linked_map *map, uint32_t page_size, struct shadow_map *shadow,
		    char error[static SHADOW_ERROR_SIZE]);
