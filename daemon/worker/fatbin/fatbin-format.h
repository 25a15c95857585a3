/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The container's bytes as structures: for the reader and the writer alone. All little-endian. */

#include <assert.h>
#include <stdint.h>

struct fatbin_format_container {
	uint32_t magic;
	uint16_t version;
	uint16_t header_size;
	uint64_t size; /* of all entries */
};

struct fatbin_format_entry {
	uint16_t kind;
	uint16_t version;
	uint32_t header_size; /* with extras */
	uint64_t payload_size; /* padded */
	uint32_t compressed_size; /* 0 if raw */
	uint32_t record_offset; /* from the entry's start; 0: no record */
	uint16_t isa_minor;
	uint16_t isa_major;
	uint32_t sm;
	uint32_t name_offset; /* from the entry's start */
	uint32_t name_size;
	uint64_t flags;
	uint64_t key;
	uint64_t uncompressed_size; /* 0 if raw */
};

struct fatbin_format_record {
	uint32_t offset; /* from the entry's start; {0, 0}: nothing */
	uint32_t size;
};

static_assert(sizeof(struct fatbin_format_container) == 16, "layout");
static_assert(sizeof(struct fatbin_format_entry) == 64, "layout");
static_assert(sizeof(struct fatbin_format_record) == 8, "layout");
