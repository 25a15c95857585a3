/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes fatbin containers (fatbin.h).
 *
 * Headers are laid out as CUDA 13's fatbinary does it: 64 bytes, the attribute record with its
 * bytes behind it, the name; each padded to 8 with at least one NUL. A raw payload is padded, and
 * its padded size is what the header says, so that padding becomes part of it (the producers' own
 * convention: text ends at its NUL, ELF knows its size).
 */

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "fatbin-format.h"
#include "fatbin.h"

#define ZSTD_LEVEL 3

static size_t align8(size_t size) {
	return (size + 7) & ~(size_t)7;
}

static int fail(struct fatbin_writer *writer, int r) {
	writer->error = r;
	return r;
}

/* Makes room for `size` more bytes and returns where they go, zeroed; NULL: no memory. */
static uint8_t *extend(struct fatbin_writer *writer, size_t size) {
	uint8_t *place;

	if (size > SIZE_MAX / 4 - writer->size)
		return NULL;
	if (writer->size + size > writer->allocated) {
		size_t allocated = writer->size + size + writer->size / 2;
		uint8_t *data = realloc(writer->data, allocated);

		if (!data)
			return NULL;
		writer->data = data;
		writer->allocated = allocated;
	}
	place = writer->data + writer->size;
	memset(place, 0, size);
	writer->size += size;
	return place;
}

int fatbin_writer_init(struct fatbin_writer *writer) {
	*writer = (struct fatbin_writer){};
	if (!extend(writer, sizeof(struct fatbin_format_container)))
		return -ENOMEM;
	return 0;
}

void fatbin_writer_deinit(struct fatbin_writer *writer) {
	if (!writer)
		return;
	free(writer->data);
	*writer = (struct fatbin_writer){};
}

/*
 * Compresses into memory that the caller frees. *out stays NULL for what cannot be stored
 * compressed (nothing; LZ4 stops at 2 GB). What does not shrink is stored compressed all the same:
 * raw it would get padding. 0 or -ENOMEM.
 */
static int compress_payload(enum fatbin_compression compression, const void *payload, uint64_t size,
			    uint8_t **out, size_t *out_size) {
	uint8_t *buffer;
	size_t bound, n;

	if (compression == FATBIN_RAW || !size ||
	    (compression == FATBIN_LZ4 && size > LZ4_MAX_INPUT_SIZE))
		return 0;
	bound = compression == FATBIN_LZ4 ? (size_t)LZ4_compressBound((int)size)
					  : ZSTD_compressBound(size);
	buffer = malloc(bound);
	if (!buffer)
		return -ENOMEM;
	if (compression == FATBIN_LZ4) {
		n = (size_t)LZ4_compress_default(payload, (char *)buffer, (int)size, (int)bound);
	} else {
		n = ZSTD_compress(buffer, bound, payload, size, ZSTD_LEVEL);
		if (ZSTD_isError(n))
			n = 0;
	}
	if (!n || n > UINT32_MAX) {
		free(buffer);
		return 0;
	}
	*out = buffer;
	*out_size = n;
	return 0;
}

/* Appends a header, whose sizes and compression are filled in here, its extras, and the payload. */
static int append(struct fatbin_writer *writer, struct fatbin_format_entry *header,
		  const void *extras, size_t extras_size, enum fatbin_compression compression,
		  const void *payload, uint64_t payload_size) {
	uint8_t *compressed = NULL, *place;
	size_t stored = payload_size;
	int r;

	if (payload_size > SIZE_MAX / 8)
		return -EFBIG;
	r = compress_payload(compression, payload, payload_size, &compressed, &stored);
	if (r)
		return r;
	header->header_size = (uint32_t)(sizeof(*header) + extras_size);
	header->payload_size = align8(stored);
	if (compressed) {
		header->compressed_size = (uint32_t)stored;
		header->uncompressed_size = payload_size;
		header->flags |= compression == FATBIN_LZ4 ? FATBIN_FLAG_LZ4 : FATBIN_FLAG_ZSTD;
	}
	place = extend(writer, header->header_size + header->payload_size);
	if (!place) {
		free(compressed);
		return -ENOMEM;
	}
	memcpy(place, header, sizeof(*header));
	if (extras_size)
		memcpy(place + sizeof(*header), extras, extras_size);
	if (stored)
		memcpy(place + header->header_size, compressed ? compressed : payload, stored);
	free(compressed);
	return 0;
}

int fatbin_writer_add(struct fatbin_writer *writer, const struct fatbin_spec *spec) {
	struct fatbin_format_entry header = {
		.kind = spec->kind,
		.version = FATBIN_ENTRY_VERSION,
		.isa_major = spec->isa_major,
		.isa_minor = spec->isa_minor,
		.sm = spec->sm,
		.flags = spec->flags & ~(uint64_t)FATBIN_FLAGS_COMPRESSION,
	};
	size_t options_room = 0, name_room = 0;
	uint8_t *extras = NULL;
	int r;

	if (writer->error)
		return writer->error;
	if (spec->options_size > UINT32_MAX / 4 || spec->name_size > UINT32_MAX / 4)
		return fail(writer, FATBIN_E_LIMIT);
	if (spec->options)
		options_room = align8(sizeof(struct fatbin_format_record) + spec->options_size + 1);
	if (spec->name_size)
		name_room = align8((size_t)spec->name_size + 1);
	if (options_room + name_room) {
		extras = calloc(1, options_room + name_room);
		if (!extras)
			return fail(writer, -ENOMEM);
	}
	if (spec->options) {
		struct fatbin_format_record record = {
			.offset = sizeof(header) + sizeof(record),
			.size = spec->options_size,
		};

		header.record_offset = sizeof(header);
		memcpy(extras, &record, sizeof(record));
		memcpy(extras + sizeof(record), spec->options, spec->options_size);
	}
	if (spec->name_size) {
		header.name_offset = (uint32_t)(sizeof(header) + options_room);
		header.name_size = spec->name_size;
		memcpy(extras + options_room, spec->name, spec->name_size);
	}
	r = append(writer, &header, extras, options_room + name_room, spec->compression,
		   spec->payload, spec->payload_size);
	free(extras);
	return r ? fail(writer, r) : 0;
}

int fatbin_writer_add_ptx(struct fatbin_writer *writer, const struct fatbin_spec *spec,
			  const char *text, size_t length) {
	struct fatbin_spec terminated = *spec;
	size_t size;
	char *copy;
	int r;

	if (writer->error)
		return writer->error;
	/* A raw text is padded by the entry; compressed it is followed by its NUL alone. */
	size = length + 1;
	copy = malloc(size);
	if (!copy)
		return fail(writer, -ENOMEM);
	memcpy(copy, text, length);
	copy[length] = '\0';
	terminated.kind = FATBIN_KIND_PTX;
	terminated.payload = copy;
	terminated.payload_size = size;
	r = fatbin_writer_add(writer, &terminated);
	free(copy);
	return r;
}

int fatbin_writer_finish(struct fatbin_writer *writer, uint8_t **data, size_t *size) {
	struct fatbin_format_container header = {
		.magic = FATBIN_MAGIC,
		.version = FATBIN_VERSION,
		.header_size = FATBIN_HEADER_SIZE,
		.size = writer->size - sizeof(header),
	};

	if (writer->error)
		return writer->error;
	memcpy(writer->data, &header, sizeof(header));
	*data = writer->data;
	*size = writer->size;
	*writer = (struct fatbin_writer){};
	return 0;
}
