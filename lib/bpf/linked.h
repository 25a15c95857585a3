/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A linked object: what the job `link` makes of an ELF file. Numbers and names are members here;
 * bytes (instructions, BTF, initial values) are ranges of one blob.
 *
 * The program worker fills it in and writes it as JSON (job.md). The daemon and the job `compile`
 * read it by linked_from_json(), which trusts nothing: every range lies inside the blob and is
 * aligned, and every count is bounded. The bytes in the ranges are not checked there.
 */

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

#define LINKED_PROGRAMS_MAX 64
#define LINKED_MAPS_MAX 64
#define LINKED_THREAD                                                               \
	LINKED_MAPS_MAX /* for a map's index in instructions: variables of a thread \
			 */
#define LINKED_INSNS_MAX 32768 /* of one program with its subprograms */
#define LINKED_NAME_SIZE 128 /* of a program, with its NUL */
#define LINKED_SECTION_SIZE                                                                        \
	2064 /* of a section: kretprobe/ and a kernel name of any length that is taken (section.h) \
	      */
#define LINKED_CONTEXT_SIZE 64
#define LINKED_MAP_NAME_SIZE 64
#define LINKED_BLOB_MAX (UINT64_C(64) << 20)
#define LINKED_LANES_MAX (LINKED_BLOB_MAX / 8) /* of one map: what fits */
#define LINKED_RECORD_MAX 64 /* bytes of one func_info or line_info record */

enum linked_result {
	_LINKED_SUCCESS,
	LINKED_E_INVALID, /* malformed or against the limits; the error says what */
};

enum linked_internal {
	LINKED_MAP_DECLARED, /* by the author */
	LINKED_MAP_RODATA, /* made from the section .rodata, and so on */
	LINKED_MAP_DATA,
	LINKED_MAP_BSS,
	LINKED_MAP_LOG, /* made for printk and puts: proto/log-record.h */
};

struct linked_table {
	uint64_t offset; /* into the blob, a multiple of 8 */
	uint32_t count; /* of records; 0: there is none */
	uint32_t record_size; /* bytes of one */
};

/* An integer of a map's value: a record of the table `lanes`. Char arrays and floats are none. */
struct linked_lane {
	uint32_t offset;
	uint32_t size; /* 1, 2, 4 or 8 */
};

struct linked_map {
	char name[LINKED_MAP_NAME_SIZE]; /* internal ones: ".rodata" and so on */
	uint32_t type; /* enum bpf_map_type, or 15xx */
	uint32_t key_size;
	uint32_t value_size;
	uint32_t max_entries;
	uint32_t flags; /* BPF_F_* */
	enum linked_internal internal;
	uint32_t btf_key_type; /* 0: none */
	uint32_t btf_value_type;
	struct linked_table initial; /* bytes, value_size of them, of a data section */
	bool has_lanes; /* BTF says where the integers are; perhaps nowhere */
	struct linked_table lanes; /* struct linked_lane, in order of offset, without overlap */
};

struct linked_program {
	char name[LINKED_NAME_SIZE]; /* the C function: an identifier */
	char section[LINKED_SECTION_SIZE];
	char context[LINKED_CONTEXT_SIZE]; /* the struct that its argument points to, by BTF; empty:
					      another type, or unknown */
	bool gpu; /* by its name, section, helpers or maps */
	struct linked_table insns; /* struct bpf_insn; none: it can only run on the host */
	struct linked_table func_info; /* as BPF_PROG_LOAD takes them */
	struct linked_table line_info;
	uint32_t n_subprograms; /* that follow its own instructions */
};

struct linked {
	char license[LINKED_NAME_SIZE]; /* empty: none */
	uint64_t size; /* of the blob */
	struct linked_table btf; /* bytes, in the kernel's form; none without -g */
	uint32_t helper_stub_type; /* id of `__u64 gpuprobe_helper_stub(void)`, 0 without BTF */
	uint32_t thread; /* bytes of the variables of a thread; 0: there is none */
	size_t n_maps;
	struct linked_map maps[LINKED_MAPS_MAX];
	size_t n_programs;
	struct linked_program programs[LINKED_PROGRAMS_MAX];
};

/* Adds the members of the reply of `link` (all but id and status). 0 or -ENOMEM. */
int linked_to_json(const struct linked *linked, struct json_object *reply);

/* Reads them back. 0 with *linkedp to free(), LINKED_E_INVALID with a line in error, or -ENOMEM. */
int linked_from_json(struct linked **linkedp, struct json_object *reply, char error[static 192]);

/*
 * One element of "maps" or "programs" of a reply or request. blob_size bounds its ranges. As above.
 */
int linked_map_from_json(struct linked_map *map, struct json_object *object, uint64_t blob_size,
			 char error[static 192]);
int linked_program_from_json(struct linked_program *program, struct json_object *object,
			     uint64_t blob_size, char error[static 192]);

/* The member "insns", "line_info", "thread" or "btf" alone. As above. */
int linked_insns_from_json(struct linked_table *insns, struct json_object *object,
			   uint64_t blob_size, char error[static 192]);
int linked_lines_from_json(struct linked_table *lines, struct json_object *object,
			   uint64_t blob_size, char error[static 192]);
int linked_thread_from_json(uint32_t *thread, struct json_object *object, char error[static 192]);
int linked_btf_from_json(struct linked_table *btf, struct json_object *object, uint64_t blob_size,
			 char error[static 192]);
