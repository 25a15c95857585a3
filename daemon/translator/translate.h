/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * eBPF becomes PTX: all GPU programs of one object at a time, because how a map may be laid out
 * depends on every program that uses it.
 *
 * A program is an array of relocated instructions: its entry is instruction 0, the subprograms it
 * calls (BPF_PSEUDO_CALL, relative) follow in the same array. Maps are referred to by index
 * (BPF_PSEUDO_MAP_IDX, BPF_PSEUDO_MAP_IDX_VALUE) into `maps`. Index TRANSLATE_THREAD of the latter
 * means the variables of a thread.
 */

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/map-layout.h"
#include "proto/point.h"

enum {
	TRANSLATE_OK = 0,
	TRANSLATE_E_PROGRAM, /* a program does what a GPU cannot, or is malformed */
	TRANSLATE_E_MAP, /* a map that a program uses cannot be on a GPU */
	TRANSLATE_E_INTERNAL, /* LLVM refused what we made: a defect of ours */
};

#define TRANSLATE_PROGRAMS_MAX 64
#define TRANSLATE_MAPS_MAX 64
#define TRANSLATE_THREAD TRANSLATE_MAPS_MAX
#define TRANSLATE_INSNS_MAX 32768 /* of one program, after its subprograms are inlined */

#define TRANSLATE_LOCAL_MAX 8192 /* bytes of local memory a thread: two of the largest records */

#define TRANSLATE_CONTEXT_FIELDS 21 /* of 8 bytes: 168 in all, see gpuprobe.bpf.h */
/* These, POINT_UNIFORM and the words of a thread's variables. */
#define TRANSLATE_PARAMETERS_MAX (TRANSLATE_CONTEXT_FIELDS + 1 + POINT_THREAD_WORDS)

/* The least PTX ISA and target that a module needs to hold a translated program. */
#define TRANSLATE_ISA 63
#define TRANSLATE_TARGET 52
#define TRANSLATE_TARGET_SYSTEM 60 /* if it works atomically on maps in host memory */
#define TRANSLATE_TARGET_ORDERED 70 /* if it uses a ring or a hash */
#define TRANSLATE_TARGET_PATCH 70 /* of every patch form, at the least */
#define TRANSLATE_TARGET_CLUSTER 90 /* has clusters; PTX knows it from TRANSLATE_ISA_CLUSTER on */
#define TRANSLATE_ISA_CLUSTER 78

struct translate_map {
	const char *name; /* for messages */
	uint32_t type; /* enum bpf_map_type, or 15xx */
	uint32_t key_size;
	uint32_t value_size;
	uint32_t max_entries;
	const char *slot_symbol; /* of the variable that holds the data's address, or the data */
	uint32_t place; /* enum map_place */
	uint32_t threads; /* of per-thread arrays; 0: the default */
	uint64_t ring_bytes; /* of rings; 0: the default */
	bool log; /* what printk and puts write to: of type 1527 */
	/* value_size bytes: what it holds from the beginning and always will (.rodata); or NULL */
	const uint8_t *constant;
};

/* Where instructions come from, for messages: nothing needs to be true. */
struct translate_lines {
	const uint8_t *records; /* each begins with a struct bpf_line_info */
	size_t n, record_size;
	const char *strings; /* that records refer to; the last byte is 0 */
	size_t strings_size;
};

/* The variables of a thread: registers that all programs of the object share. */
struct translate_thread {
	uint32_t size; /* bytes of all, at most 8 * POINT_THREAD_WORDS; 0: there is none */
	const struct translate_variable {
		const char *name;
		uint32_t offset, size;
	} *variables; /* for messages */
	size_t n_variables;
};

struct translate_program {
	const char *name; /* for messages */
	const char *symbol; /* of the function to emit: a PTX identifier */
	const struct bpf_insn *insns;
	size_t n_insns;
	uint16_t index; /* of the program in its object, for the log's records */
	/*
	 * R1 and R2 at entry are an address in generic memory and a number, and parameters of the
	 * function (bpf-run). Otherwise R1 is a context and R2 is 0.
	 */
	bool takes_memory;
	bool patch; /* its patch form is wanted, too */
	struct translate_lines lines; /* n 0: not known */
	struct translate_thread thread;
};

struct translate_map_result {
	bool used; /* by any program */
	bool deletes; /* a program deletes elements */
	bool resident; /* slot_symbol is the data itself, in the module, not a pointer to it */
	struct map_layout layout; /* undefined but for `merge` and `shards`, if it is not used */
};

struct translate_program_result {
	char *ptx; /* owned by the result; NUL-terminated; laid out as job.md says */
	size_t size; /* strlen(ptx) */
	unsigned isa, target; /* 63: PTX 6.3; 52: sm_52 */
	/*
	 * The fields of the context that it reads, ascending, perhaps POINT_UNIFORM, and the words
	 * of the thread's variables that it uses (POINT_THREAD): its parameters. The words are part
	 * of its result, too.
	 */
	uint16_t context[TRANSLATE_PARAMETERS_MAX];
	uint32_t context_count;
	bool process; /* it refers to __gpuprobe_process */
	uint64_t maps; /* bit i: map i is used */
	uint64_t local_bytes; /* of local memory a thread: a stack that is not in registers */
	/* the patch form, if it is wanted: as `ptx`; NULL: it has none, for a reason of one line */
	char *patch;
	size_t patch_size;
	uint32_t patch_maps; /* slots: the process's, one for each map in `maps` */
	const char *patch_reason; /* static */
};

struct translate_result {
	struct translate_map_result *maps; /* one each, as in the input */
	size_t n_maps;
	struct translate_program_result *programs;
	size_t n_programs;
};

/*
 * Translates all programs or none. Returns TRANSLATE_OK and fills `result`
 * (translate_result_deinit() frees what it owns), or another value of the enum and fills `error`
 * with one line (the caller frees it), or -ENOMEM or -EINVAL (more programs or maps than the limits
 * above, a symbol that is no identifier, no place). `result` is untouched unless OK is returned.
 *
 * The *patch form* of a program is for the sanitizer engine (job.md): nothing of it is in a module,
 * its slots lie in memory that its first parameter points to.
 */
int translate_object(const struct translate_program *programs, size_t n_programs,
		     const struct translate_map *maps, size_t n_maps,
		     struct translate_result *result, char **error);
void translate_result_deinit(struct translate_result *result);
