/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Attributes of .nv.info and .nv.info.<kernel>: a byte of format, one of kind, two of size or
 * value, then a value in one format. A closed list says what is known of each kind; any other kind
 * is refused. Names are those that nvdisasm prints.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "refusal.h"

enum sass_attribute_format {
	SASS_FORMAT_NONE = 1,
	SASS_FORMAT_BYTE = 2,
	SASS_FORMAT_HALF = 3,
	SASS_FORMAT_SIZED = 4,
};

enum sass_attribute_kind {
	SASS_MAX_THREADS = 0x05, /* {u32 x, y, z} */
	SASS_PARAM_CBANK = 0x0a, /* {u32 symbol, u16 where they begin, u16 size} */
	SASS_FRAME_SIZE = 0x11, /* {u32 symbol, u32 bytes} */
	SASS_MIN_STACK_SIZE = 0x12, /* likewise */
	SASS_KPARAM_INFO = 0x17, /* {u32, u16 number, u16 offset, u32 size << 18 | flags} */
	SASS_CBANK_PARAM_SIZE = 0x19, /* u16 in place of a size */
	SASS_EXIT_INSTR_OFFSETS = 0x1c, /* u32 each */
	SASS_CRS_STACK_SIZE = 0x1e, /* u32 */
	SASS_COOP_GROUP_INSTR_OFFSETS = 0x28, /* u32 each: of instructions with a mask of threads */
	SASS_COOP_GROUP_MASK_REGIDS = 0x29, /* u32 each: where each has it: a register, or ~0 */
	SASS_REGCOUNT = 0x2f, /* {u32 symbol, u32 count} */
	SASS_INT_WARP_WIDE_INSTR_OFFSETS = 0x31, /* u32 each */
	SASS_INDIRECT_BRANCH_TARGETS = 0x34, /* {u32 where, u32, u32 n, u32 target[n]}... */
	SASS_KPARAM_INFO_V2 = 0x45, /* {u32, u16 number, u16 offset, u32 size} */
};

/* Lists of instructions that probes add to. */
enum sass_list {
	SASS_LIST_WARP_WIDE, /* offsets of VOTEU and the like, as ptxas lists them */
	SASS_LIST_GROUPS, /* offsets of what names a mask of threads, */
	SASS_LIST_MASKS, /* and where each has it */
	_SASS_LISTS,
};
#define SASS_MASK_REGISTER UINT32_C(0x05000000) /* in a list of masks: a register, by number */
#define SASS_MASK_ALL UINT32_MAX

/* The attribute with a list; and the list in one, or _SASS_LISTS. */
uint8_t sass_attribute_of(enum sass_list list);
enum sass_list sass_list_of(uint8_t kind);

struct sass_attribute {
	uint8_t format, kind;
	uint16_t size; /* of the value; for SASS_FORMAT_HALF the value itself */
	const uint8_t *value; /* NULL but for SASS_FORMAT_SIZED */
	size_t at, end; /* in the section */
};

/* 1: the next one from *at on, which is moved behind it; 0: there are no more; SASS_REFUSED + 1:
 * the section is malformed. */
int sass_attribute_next(const uint8_t *data, size_t size, size_t *at,
			struct sass_attribute *attribute);
#define SASS_ATTRIBUTE_MALFORMED 2

/* Whether a kernel with such an attribute may have code inserted, and whether a probe may have it.
 */
bool sass_attribute_is_known(uint8_t kind);
bool sass_attribute_is_probes(uint8_t kind);

uint32_t sass_u32(const uint8_t *data, size_t at);

/* Bytes that grow; for new sections of attributes and code. */
struct sass_buffer {
	uint8_t *data;
	size_t size, room;
	bool failed; /* no memory; what is appended then is lost */
};

void sass_buffer_append(struct sass_buffer *buffer, const void *data, size_t size);
void sass_buffer_u32(struct sass_buffer *buffer, uint32_t value);
void sass_buffer_deinit(struct sass_buffer *buffer);

/* Appends an attribute with a value. False: it is too long. */
bool sass_attribute_append(struct sass_buffer *buffer, uint8_t kind, const void *value,
			   size_t size);
