/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a fatbin: whatever is read is decompressed and written again, and what
 * was written must read as the same. Copies of entries must make the same container.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/fatbin/fatbin.h"

#define LIMIT (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good) {
	if (!good)
		abort();
}

static void rewrite(const struct fatbin_entry *entry, const uint8_t *payload, uint64_t size) {
	const struct fatbin_spec spec = {
		.kind = entry->kind,
		.isa_major = entry->isa_major,
		.isa_minor = entry->isa_minor,
		.sm = entry->sm,
		.flags = entry->flags,
		.compression = fatbin_entry_compression(entry),
		.options = entry->options,
		.options_size = entry->options_size,
		.name = entry->name,
		.name_size = entry->name_size,
		.payload = payload,
		.payload_size = size,
	};
	struct fatbin_writer writer;
	struct fatbin again;
	uint8_t *container, *payload_again;
	size_t container_size;
	uint64_t size_again;

	check(!fatbin_writer_init(&writer) && !fatbin_writer_add(&writer, &spec) &&
	      !fatbin_writer_finish(&writer, &container, &container_size));
	check(!fatbin_parse(&again, container, container_size) && again.n_entries == 1);
	check(again.entries[0].sm == entry->sm &&
	      again.entries[0].options_size == entry->options_size &&
	      again.entries[0].name_size == entry->name_size);
	check(!fatbin_entry_decompress(&again.entries[0], LIMIT + 8, &payload_again, &size_again));
	/* Raw payloads are padded. */
	check(size_again >= size && size_again < size + 8 && !memcmp(payload, payload_again, size));
	free(payload_again);
	fatbin_deinit(&again);
	free(container);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct fatbin fatbin;
	uint64_t payload_size;
	uint8_t *payload;
	size_t length;
	char *text;

	if (fatbin_parse(&fatbin, data, size))
		return 0;
	for (size_t i = 0; i < fatbin.n_entries; i++) {
		if (i < 16 && !fatbin_entry_ptx(&fatbin.entries[i], LIMIT, &text, &length)) {
			check(strlen(text) == length);
			free(text);
		}
		if (i < 16 &&
		    !fatbin_entry_decompress(&fatbin.entries[i], LIMIT, &payload, &payload_size)) {
			rewrite(&fatbin.entries[i], payload, payload_size);
			free(payload);
		}
	}
	fatbin_deinit(&fatbin);
	return 0;
}
