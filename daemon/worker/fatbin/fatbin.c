/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads fatbin containers from foreign bytes (fatbin.h).
 *
 * Reading fatbin containers.
 *
 * One walk (fatbin_container_each) knows the layout and checks every length against what lies
 * around it: an attribute record and a name against the entry's header, the entry against its
 * container, the container against the buffer. All else is built on that walk. Fields are copied
 * out with memcpy, because containers are found at odd addresses (in archives); the host is
 * little-endian, as every host of CUDA is.
 *
 * The record behind an entry's header is text for PTX (the ptxas command line) and LTO-IR (the
 * compiler's), and binary for a cubin with FATBIN_FLAG_ATTRIBUTES; it is carried the same way.
 */

#include "fatbin.h"

#include <errno.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "fatbin-format.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "fatbins are little-endian, and so must be the host"
#endif

/* PTX that has no `.version` has to be told from PTX that has it in front of its first 64 KiB. */
#define PTX_HEADER_SEARCH (64 * 1024)

/* Fills in options and name from the extras; both must lie between the fixed header and the
 * payload. */
static int read_extras(struct fatbin_entry *entry, const struct fatbin_format_entry *header) {
	uint64_t limit = header->header_size;

	if (header->record_offset) {
		struct fatbin_format_record record;
		uint64_t offset = header->record_offset;

		if (offset < FATBIN_ENTRY_HEADER_SIZE || offset + sizeof(record) > limit)
			return FATBIN_E_ENTRY;
		memcpy(&record, entry->raw + offset, sizeof(record));
		/* {0, 0} stands for a record that is empty: CUDA 12 writes it. */
		if (record.offset || record.size) {
			if (record.offset < FATBIN_ENTRY_HEADER_SIZE ||
			    (uint64_t)record.offset + record.size > limit)
				return FATBIN_E_ENTRY;
			entry->options = (const char *)entry->raw + record.offset;
			entry->options_size = record.size;
		}
	}
	if (header->name_size) {
		if (header->name_offset < FATBIN_ENTRY_HEADER_SIZE ||
		    (uint64_t)header->name_offset + header->name_size > limit)
			return FATBIN_E_ENTRY;
		entry->name = (const char *)entry->raw + header->name_offset;
		entry->name_size = header->name_size;
	}
	return 0;
}

/* Reads the entry at `data`, which has `size` bytes until its container ends. */
static int read_entry(struct fatbin_entry *entry, const uint8_t *data, uint64_t size) {
	struct fatbin_format_entry header;
	struct fatbin_entry found = {};
	int r;

	if (size < sizeof(header))
		return FATBIN_E_ENTRY;
	memcpy(&header, data, sizeof(header));
	if (header.header_size < FATBIN_ENTRY_HEADER_SIZE || header.header_size > size ||
	    header.payload_size > size - header.header_size)
		return FATBIN_E_ENTRY;
	if (header.compressed_size > header.payload_size)
		return FATBIN_E_ENTRY;

	found.kind = header.kind;
	found.version = header.version;
	found.isa_major = header.isa_major;
	found.isa_minor = header.isa_minor;
	found.sm = header.sm;
	found.flags = header.flags;
	found.key = header.key;
	found.raw = data;
	found.raw_size = header.header_size + header.payload_size;
	found.header_size = header.header_size;
	found.payload = data + header.header_size;
	found.payload_size = header.payload_size;
	found.uncompressed_size = header.payload_size;
	if (header.flags & FATBIN_FLAGS_COMPRESSION) {
		if ((header.flags & FATBIN_FLAGS_COMPRESSION) == FATBIN_FLAGS_COMPRESSION ||
		    !header.compressed_size)
			return FATBIN_E_ENTRY;
		found.payload_size = header.compressed_size;
		found.uncompressed_size = header.uncompressed_size;
	}
	r = read_extras(&found, &header);
	if (r)
		return r;
	*entry = found;
	return 0;
}

int fatbin_container_each(const void *data, uint64_t size, uint64_t *container_size,
			  fatbin_entry_fn fn, void *userdata) {
	struct fatbin_format_container header;
	const uint8_t *bytes = data;
	uint64_t position, end;
	int r;

	if (size < sizeof(header))
		return FATBIN_E_MAGIC;
	memcpy(&header, data, sizeof(header));
	if (header.magic != FATBIN_MAGIC)
		return FATBIN_E_MAGIC;
	if (header.version != FATBIN_VERSION || header.header_size < FATBIN_HEADER_SIZE ||
	    header.header_size > size || header.size > size - header.header_size)
		return FATBIN_E_CONTAINER;

	position = header.header_size;
	end = position + header.size;
	while (position < end) {
		struct fatbin_entry entry;

		r = read_entry(&entry, bytes + position, end - position);
		if (r)
			return r;
		position += entry.raw_size;
		r = fn(&entry, userdata);
		if (r)
			return r;
	}
	*container_size = end;
	return 0;
}

struct collect {
	struct fatbin fatbin;
	size_t allocated;
};

static int collect_entry(const struct fatbin_entry *entry, void *userdata) {
	struct collect *collect = userdata;
	struct fatbin *fatbin = &collect->fatbin;

	if (fatbin->n_entries == FATBIN_ENTRIES_MAX)
		return FATBIN_E_LIMIT;
	if (fatbin->n_entries == collect->allocated) {
		size_t n = collect->allocated ? 2 * collect->allocated : 8;
		struct fatbin_entry *entries = reallocarray(fatbin->entries, n, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		fatbin->entries = entries;
		collect->allocated = n;
	}
	fatbin->entries[fatbin->n_entries] = *entry;
	fatbin->entries[fatbin->n_entries++].container = (uint32_t)fatbin->n_containers;
	return 0;
}

int fatbin_parse(struct fatbin *fatbin, const void *data, uint64_t size) {
	struct collect collect = {};
	const uint8_t *bytes = data;
	uint64_t position = 0;
	int r;

	for (;;) {
		uint64_t taken, padding;

		r = fatbin_container_each(bytes + position, size - position, &taken, collect_entry,
					  &collect);
		if (r == FATBIN_E_MAGIC && position > 0)
			break;
		if (r) {
			fatbin_deinit(&collect.fatbin);
			return r;
		}
		collect.fatbin.n_containers++;
		position += taken;
		collect.fatbin.size = position;
		padding = -position & 7;
		if (padding > size - position)
			break;
		position += padding;
	}
	*fatbin = collect.fatbin;
	return 0;
}

void fatbin_deinit(struct fatbin *fatbin) {
	if (!fatbin)
		return;
	free(fatbin->entries);
	*fatbin = (struct fatbin){};
}

enum fatbin_compression fatbin_entry_compression(const struct fatbin_entry *entry) {
	if (entry->flags & FATBIN_FLAG_LZ4)
		return FATBIN_LZ4;
	return entry->flags & FATBIN_FLAG_ZSTD ? FATBIN_ZSTD : FATBIN_RAW;
}

/* Fills `out`, which has room for exactly the size that the entry says. */
static int decompress_into(const struct fatbin_entry *entry, uint8_t *out) {
	switch (fatbin_entry_compression(entry)) {
	case FATBIN_RAW:
		memcpy(out, entry->payload, entry->payload_size);
		return 0;
	case FATBIN_LZ4: {
		int n;

		if (entry->payload_size > LZ4_MAX_INPUT_SIZE ||
		    entry->uncompressed_size > LZ4_MAX_INPUT_SIZE)
			return FATBIN_E_LIMIT;
		n = LZ4_decompress_safe((const char *)entry->payload, (char *)out,
					(int)entry->payload_size, (int)entry->uncompressed_size);
		return n >= 0 && (uint64_t)n == entry->uncompressed_size ? 0 : FATBIN_E_COMPRESSION;
	}
	case FATBIN_ZSTD: {
		size_t n = ZSTD_decompress(out, entry->uncompressed_size, entry->payload,
					   entry->payload_size);

		return !ZSTD_isError(n) && n == entry->uncompressed_size ? 0 : FATBIN_E_COMPRESSION;
	}
	}
	return FATBIN_E_COMPRESSION;
}

int fatbin_entry_decompress(const struct fatbin_entry *entry, uint64_t limit, uint8_t **out,
			    uint64_t *out_size) {
	uint8_t *buffer;
	int r;

	if (entry->flags & FATBIN_FLAG_SCRAMBLED)
		return FATBIN_E_OPAQUE;
	if (entry->uncompressed_size > limit || entry->uncompressed_size >= SIZE_MAX)
		return FATBIN_E_LIMIT;
	buffer = malloc(entry->uncompressed_size + 1);
	if (!buffer)
		return -ENOMEM;
	r = decompress_into(entry, buffer);
	if (r) {
		free(buffer);
		return r;
	}
	buffer[entry->uncompressed_size] = 0;
	*out = buffer;
	*out_size = entry->uncompressed_size;
	return 0;
}

/* Does the text say its version, before its first function? Comments are skipped, as they may hold
 * anything. */
static bool ptx_has_version(const char *text, size_t length) {
	size_t i = 0;

	if (length > PTX_HEADER_SEARCH)
		length = PTX_HEADER_SEARCH;
	while (i < length) {
		if (text[i] == '/' && i + 1 < length && text[i + 1] == '/') {
			while (i < length && text[i] != '\n')
				i++;
		} else if (text[i] == '/' && i + 1 < length && text[i + 1] == '*') {
			i += 2;
			while (i + 1 < length && !(text[i] == '*' && text[i + 1] == '/'))
				i++;
			i += 2;
		} else if (strchr(" \t\r\n\f\v", text[i])) {
			i++;
		} else {
			/* `.version` is the first word of PTX, or it is missing. */
			return length - i > 8 && !memcmp(text + i, ".version", 8);
		}
	}
	return false;
}

int fatbin_entry_ptx(const struct fatbin_entry *entry, uint64_t limit, char **text,
		     size_t *length) {
	uint8_t *bytes;
	uint64_t size;
	char version[48];
	int r, n;

	r = fatbin_entry_decompress(entry, limit, &bytes, &size);
	if (r)
		return r;
	/* The text ends at its NUL; behind it is padding. */
	size = strnlen((const char *)bytes, size);
	if (!ptx_has_version((const char *)bytes, size)) {
		char *longer;

		n = snprintf(version, sizeof(version), ".version %u.%u\n", entry->isa_major,
			     entry->isa_minor);
		longer = malloc(size + (size_t)n + 1);
		if (!longer) {
			free(bytes);
			return -ENOMEM;
		}
		memcpy(longer, version, (size_t)n);
		memcpy(longer + n, bytes, size);
		free(bytes);
		bytes = (uint8_t *)longer;
		size += (size_t)n;
	}
	bytes[size] = 0;
	*text = (char *)bytes;
	*length = size;
	return 0;
}

const char *fatbin_kind_name(uint16_t kind) {
	switch (kind) {
	case FATBIN_KIND_PTX:
		return "ptx";
	case FATBIN_KIND_ELF:
		return "elf";
	case FATBIN_KIND_LTO_IR:
		return "lto-ir";
	}
	return "unknown";
}

const char *fatbin_strerror(int r) {
	switch (r) {
	case 0:
		return "no error";
	case FATBIN_E_MAGIC:
		return "not a fatbin container";
	case FATBIN_E_CONTAINER:
		return "a container's header is malformed or the container is cut short";
	case FATBIN_E_ENTRY:
		return "an entry's header is malformed or the entry is cut short";
	case FATBIN_E_OPAQUE:
		return "the entry is scrambled";
	case FATBIN_E_COMPRESSION:
		return "an entry's compressed data is corrupt";
	case FATBIN_E_LIMIT:
		return "larger than the limit";
	}
	return r < 0 ? strerror(-r) : "unknown error";
}
