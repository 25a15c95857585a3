/* SPDX-License-Identifier: Apache-2.0 */

/* Reads and writes attributes of cubins (attribute.h). */

#include "attribute.h"

#include <stdlib.h>
#include <string.h>

/*
 * Instructions do not move, so lists of their offsets stay as they are, but for that of exits,
 * which the rewriter writes anew, and those that probes add to.
 */
static const struct {
	uint8_t kind;
	bool in_probe; /* without an effect on the kernel, or merged */
} known[] = {
	{ 0x04, false }, /* CTAIDZ_USED */
	{ SASS_MAX_THREADS, false },
	{ SASS_PARAM_CBANK, true },
	{ 0x0f, false }, /* EXTERNS */
	{ 0x10, false }, /* REQNTID */
	{ SASS_FRAME_SIZE, true },
	{ SASS_MIN_STACK_SIZE, true },
	{ SASS_KPARAM_INFO, true },
	{ SASS_CBANK_PARAM_SIZE, true },
	{ 0x1b, true }, /* MAXREG_COUNT */
	{ SASS_EXIT_INSTR_OFFSETS, true },
	{ 0x1d, false }, /* S2RCTAID_INSTR_OFFSETS */
	{ SASS_CRS_STACK_SIZE, true },
	{ 0x23, false }, /* MAX_STACK_SIZE */
	{ SASS_COOP_GROUP_INSTR_OFFSETS, true },
	{ SASS_COOP_GROUP_MASK_REGIDS, true },
	{ 0x2b, false }, /* WMMA_USED */
	{ 0x2e, false }, /* ATOM16_EMUL_INSTR_REG_MAP */
	{ SASS_REGCOUNT, true },
	{ SASS_INT_WARP_WIDE_INSTR_OFFSETS, true },
	{ SASS_INDIRECT_BRANCH_TARGETS, false },
	{ 0x36, true }, /* SW_WAR: of the compiler's release, the same for all kernels */
	{ 0x37, true }, /* CUDA_API_VERSION */
	{ 0x38, false }, /* NUM_MBARRIERS */
	{ 0x39, false }, /* MBARRIER_INSTR_OFFSETS */
	{ 0x3d, false }, /* CTA_PER_CLUSTER */
	{ 0x3e, false }, /* EXPLICIT_CLUSTER */
	{ 0x41, false }, /* RESERVED_SMEM_USED */
	{ 0x44, false }, /* UNUSED_LOAD_BYTE_OFFSET */
	{ SASS_KPARAM_INFO_V2, true },
	{ 0x46, false }, /* SYSCALL_OFFSETS */
	{ 0x4c, false }, /* NUM_BARRIERS */
	{ 0x50, true }, /* SPARSE_MMA_MASK */
	{ 0x54, false }, /* REG_RECONFIG */
	{ 0x55, false }, /* ANNOTATIONS */
	{ 0x5f, true }, /* of the compiler's release; nvdisasm has no name for it */
};

static const uint8_t lists[] = {
	[SASS_LIST_WARP_WIDE] = SASS_INT_WARP_WIDE_INSTR_OFFSETS,
	[SASS_LIST_GROUPS] = SASS_COOP_GROUP_INSTR_OFFSETS,
	[SASS_LIST_MASKS] = SASS_COOP_GROUP_MASK_REGIDS,
};

uint8_t sass_attribute_of(enum sass_list list) {
	return lists[list];
}

enum sass_list sass_list_of(uint8_t kind) {
	unsigned list = 0;

	while (list < _SASS_LISTS && lists[list] != kind)
		list++;
	return (enum sass_list)list;
}

bool sass_attribute_is_known(uint8_t kind) {
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].kind == kind)
			return true;
	return false;
}

bool sass_attribute_is_probes(uint8_t kind) {
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].kind == kind)
			return known[i].in_probe;
	return false;
}

int sass_attribute_next(const uint8_t *data, size_t size, size_t *at,
			struct sass_attribute *attribute) {
	if (*at == size)
		return 0;
	if (size - *at < 4)
		return SASS_ATTRIBUTE_MALFORMED;
	*attribute = (struct sass_attribute){
		.format = data[*at], .kind = data[*at + 1], .at = *at, .end = *at + 4
	};
	memcpy(&attribute->size, data + *at + 2, sizeof(attribute->size));
	if (attribute->format < SASS_FORMAT_NONE || attribute->format > SASS_FORMAT_SIZED)
		return SASS_ATTRIBUTE_MALFORMED;
	if (attribute->format == SASS_FORMAT_SIZED) {
		if (attribute->size > size - attribute->end)
			return SASS_ATTRIBUTE_MALFORMED;
		attribute->value = data + attribute->end;
		attribute->end += attribute->size;
	}
	*at = attribute->end;
	return 1;
}

uint32_t sass_u32(const uint8_t *data, size_t at) {
	uint32_t value;

	memcpy(&value, data + at, sizeof(value));
	return value;
}

void sass_buffer_append(struct sass_buffer *buffer, const void *data, size_t size) {
	if (buffer->failed || !size)
		return;
	if (size > buffer->room - buffer->size) {
		const size_t room = 2 * buffer->room + size;
		uint8_t *grown = realloc(buffer->data, room);

		if (!grown) {
			buffer->failed = true;
			return;
		}
		buffer->data = grown;
		buffer->room = room;
	}
	memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
}

void sass_buffer_u32(struct sass_buffer *buffer, uint32_t value) {
	sass_buffer_append(buffer, &value, sizeof(value));
}

void sass_buffer_deinit(struct sass_buffer *buffer) {
	free(buffer->data);
	*buffer = (struct sass_buffer){};
}

bool sass_attribute_append(struct sass_buffer *buffer, uint8_t kind, const void *value,
			   size_t size) {
	const uint8_t head[4] = { SASS_FORMAT_SIZED, kind, size & 0xff, size >> 8 & 0xff };

	if (size > UINT16_MAX)
		return false;
	sass_buffer_append(buffer, head, sizeof(head));
	sass_buffer_append(buffer, value, size);
	return true;
}
