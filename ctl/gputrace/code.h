/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Makes an eBPF object of the probes of a script that are on the GPU. The instructions are made
 * here and verified by Linux when the object is attached; BTF is written by libbpf.
 */

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "script.h"

#define CODE_INSNS_MAX 16384 /* of one program */
#define CODE_STACK_MAX 512 /* bytes that eBPF has */
#define CODE_MAPS_MAX (SCRIPT_MAPS_MAX + 2 * SCRIPT_PROBES_MAX + 2) /* the daemon takes 64 */
#define CODE_PROGRAMS_MAX (2 * SCRIPT_PROBES_MAX)
#define CODE_KEYS_GPU 16384 /* elements that a map with keys has room for on a GPU */
#define CODE_LOST_MAP "lost"
#define CODE_PRINT_MAP "printf" /* a ring of records: number of the printf(), time, values */
#define CODE_PRINT_WORDS (2 + SCRIPT_VALUES_MAX)

/* A map as the GPU has it. Keys and values are 8 bytes each, but for an array's key. */
struct code_map {
	char name[16];
	uint32_t type; /* enum bpf_map_type */
	uint32_t key_words, value_words;
	uint32_t max_entries; /* 0: the GPU does not have it */
};

/* A place in a program where the address of a map belongs. */
struct code_reference {
	uint32_t insn;
	uint32_t map; /* index */
};

struct code_program {
	char name[24];
	char *section; /* kprobe/KERNEL */
	bool memory; /* its context is that of a memory instruction */
	struct bpf_insn *insns;
	size_t n_insns;
	struct code_reference *references;
	size_t n_references;
};

struct code {
	const struct script *script;
	size_t n_maps;
	struct code_map maps[CODE_MAPS_MAX]; /* first those of the script, in its order */
	uint32_t print; /* index of the ring of what is printed */
	uint32_t lost; /* index of the map that counts what found no room */
	size_t n_programs;
	struct code_program programs[CODE_PROGRAMS_MAX];
	bool failed;
	char error[SCRIPT_ERROR_SIZE]; /* as that of a script */
};

#define CODE_HOST_ARRAY 1513 /* BPF_MAP_TYPE_GPU_ARRAY_HOST_MAP: of what the host sets */

/* How a map of the script lies on the GPU. */
bool code_map_is_array(const struct map *map);
bool code_map_has_device(const struct map *map); /* the last key is the device */
bool code_map_has_bucket(const struct map *map); /* the last key, or the index, is the bucket */

/* Returns false with code->error, or without memory. code_deinit() in any case. */
bool code_make(struct code *code, const struct script *script);
void code_deinit(struct code *code);

/* disassemble.c: the programs, for people, and what an event costs. */
void code_print(const struct code *code, FILE *out);

/* object.c: the ELF file of it. NULL: no memory. free() it. */
void *object_make(const struct code *code, size_t *sizep);
