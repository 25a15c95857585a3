/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of reading and writing fatbins: against containers written byte by byte as CUDA.md
 * says, against each other, and with damaged bytes.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lz4.h>
#include <zstd.h>

#include "fatbin.h"

#define LIMIT (1 << 20)

static const char ptx[] =
	"//\n// a comment: .version\n.version 8.3\n.target sm_90\n.address_size 64\n"
	".visible .entry kernel()\n{\n\tret;\n}\n.visible .entry kernel2()\n{\n\tret;\n}\n";
static const char options[] = "-maxrregcount=40 ";

/* Bytes that a test puts together, field by field. */
struct bytes {
	uint8_t data[4096];
	size_t size;
};

static void put(struct bytes *bytes, uint64_t value, size_t size) {
	assert_true(bytes->size + size <= sizeof(bytes->data));
	memcpy(bytes->data + bytes->size, &value, size);
	bytes->size += size;
}

static void put_text(struct bytes *bytes, const void *text, size_t size, size_t room) {
	memset(bytes->data + bytes->size, 0, room);
	memcpy(bytes->data + bytes->size, text, size);
	bytes->size += room;
}

static void set(struct bytes *bytes, size_t offset, uint64_t value, size_t size) {
	memcpy(bytes->data + offset, &value, size);
}

static void put_container(struct bytes *bytes, uint64_t size) {
	put(bytes, 0xBA55ED50, 4);
	put(bytes, 1, 2);
	put(bytes, 16, 2);
	put(bytes, size, 8);
}

/* An entry's 64 bytes in the order of CUDA.md's table. */
static void put_entry(struct bytes *bytes, unsigned int kind, uint32_t header, uint64_t payload,
		      uint32_t compressed, uint32_t record, uint32_t name, uint32_t name_size,
		      uint64_t flags, uint64_t uncompressed) {
	put(bytes, kind, 2);
	put(bytes, 0x0101, 2);
	put(bytes, header, 4);
	put(bytes, payload, 8);
	put(bytes, compressed, 4);
	put(bytes, record, 4);
	put(bytes, 3, 2);
	put(bytes, 8, 2);
	put(bytes, 90, 4);
	put(bytes, name, 4);
	put(bytes, name_size, 4);
	put(bytes, flags, 8);
	put(bytes, 0, 8);
	put(bytes, uncompressed, 8);
}

static void sample(struct bytes *bytes) {
	const size_t room = (sizeof(ptx) + 7) & ~(size_t)7;

	*bytes = (struct bytes){};
	/* Name before options, as older releases have it. */
	put_container(bytes, 64 + 8 + 8 + 24 + room);
	put_entry(bytes, 1, 64 + 8 + 8 + 24, room, 0, 72, 64, 4, 0x11, 0);
	put_text(bytes, "a.cu", 4, 8);
	put(bytes, 80, 4);
	put(bytes, sizeof(options) - 1, 4);
	put_text(bytes, options, sizeof(options) - 1, 24);
	put_text(bytes, ptx, sizeof(ptx), room);
}

static void test_read(void **state) {
	struct fatbin_entry *entry;
	struct fatbin fatbin;
	struct bytes bytes;
	size_t length;
	char *text;

	sample(&bytes);
	assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
	assert_int_equal(fatbin.n_containers, 1);
	assert_int_equal(fatbin.n_entries, 1);
	assert_int_equal(fatbin.size, bytes.size);
	entry = &fatbin.entries[0];
	assert_int_equal(entry->kind, FATBIN_KIND_PTX);
	assert_int_equal(entry->version, FATBIN_ENTRY_VERSION);
	assert_int_equal(entry->isa_major, 8);
	assert_int_equal(entry->isa_minor, 3);
	assert_int_equal(entry->sm, 90);
	assert_int_equal(entry->flags, 0x11);
	assert_int_equal(entry->name_size, 4);
	assert_memory_equal(entry->name, "a.cu", 4);
	assert_int_equal(entry->options_size, sizeof(options) - 1);
	assert_memory_equal(entry->options, options, sizeof(options) - 1);
	assert_int_equal(fatbin_entry_compression(entry), FATBIN_RAW);
	assert_int_equal(fatbin_entry_ptx(entry, LIMIT, &text, &length), 0);
	assert_int_equal(length, sizeof(ptx) - 1);
	assert_string_equal(text, ptx);
	free(text);
	fatbin_deinit(&fatbin);
}

static void test_read_compressed(void **state) {
	for (int zstd = 0; zstd < 2; zstd++) {
		uint8_t compressed[1024];
		struct fatbin fatbin;
		struct bytes bytes = {};
		size_t n, room, length;
		uint8_t *payload;
		uint64_t size;
		char *text;

		if (zstd)
			n = ZSTD_compress(compressed, sizeof(compressed), ptx, sizeof(ptx), 19);
		else
			n = (size_t)LZ4_compress_default(ptx, (char *)compressed, sizeof(ptx),
							 sizeof(compressed));
		room = (n + 7) & ~(size_t)7;
		put_container(&bytes, 64 + room);
		put_entry(&bytes, 1, 64, room, (uint32_t)n, 0, 0, 0, zstd ? 0x8011 : 0x2011,
			  sizeof(ptx));
		put_text(&bytes, compressed, n, room);

		assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
		assert_int_equal(fatbin.entries[0].payload_size, n);
		assert_int_equal(fatbin_entry_decompress(&fatbin.entries[0], sizeof(ptx), &payload,
							 &size),
				 0);
		assert_int_equal(size, sizeof(ptx));
		assert_memory_equal(payload, ptx, sizeof(ptx));
		free(payload);
		assert_int_equal(fatbin_entry_ptx(&fatbin.entries[0], LIMIT, &text, &length), 0);
		assert_string_equal(text, ptx);
		free(text);
		assert_int_equal(fatbin_entry_decompress(&fatbin.entries[0], sizeof(ptx) - 1,
							 &payload, &size),
				 FATBIN_E_LIMIT);
		fatbin_deinit(&fatbin);

		/* A size that is not that of the data, by one byte either way; data that is cut or
		 * changed. */
		for (int wrong = -1; wrong <= 1; wrong += 2) {
			set(&bytes, 16 + 0x38, (uint64_t)((int)sizeof(ptx) + wrong), 8);
			assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
			assert_int_equal(fatbin_entry_decompress(&fatbin.entries[0], LIMIT,
								 &payload, &size),
					 FATBIN_E_COMPRESSION);
			fatbin_deinit(&fatbin);
		}
		set(&bytes, 16 + 0x38, UINT64_MAX, 8);
		assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
		assert_int_equal(fatbin_entry_decompress(&fatbin.entries[0], UINT64_MAX, &payload,
							 &size),
				 FATBIN_E_LIMIT);
		fatbin_deinit(&fatbin);
		set(&bytes, 16 + 0x38, sizeof(ptx), 8);
		set(&bytes, 16 + 0x10, n - 1, 4);
		assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
		assert_int_equal(fatbin_entry_decompress(&fatbin.entries[0], LIMIT, &payload,
							 &size),
				 FATBIN_E_COMPRESSION);
		fatbin_deinit(&fatbin);
	}
}

/* .version is restored from the header if it is not the first word, wherever else it stands. */
static void test_version(void **state) {
	static const struct {
		const char *text;
		const char *full;
	} cases[] = {
		{ ".target sm_90\n", ".version 8.3\n.target sm_90\n" },
		{ "// .version 1.0\n.target sm_90\n",
		  ".version 8.3\n// .version 1.0\n.target sm_90\n" },
		{ "/* .version 1.0 */ .target sm_90",
		  ".version 8.3\n/* .version 1.0 */ .target sm_90" },
		{ "", ".version 8.3\n" },
		{ "/* never closed", ".version 8.3\n/* never closed" },
		{ "\n\n\t .version 7.0\n", "\n\n\t .version 7.0\n" },
		{ "/* x */ // y\n.version 7.0\n", "/* x */ // y\n.version 7.0\n" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const size_t size = strlen(cases[i].text) + 1, room = (size + 7) & ~(size_t)7;
		struct bytes bytes = {};
		struct fatbin fatbin;
		size_t length;
		char *text;

		put_container(&bytes, 64 + room);
		put_entry(&bytes, 1, 64, room, 0, 0, 0, 0, 0x11, 0);
		put_text(&bytes, cases[i].text, size, room);
		assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
		assert_int_equal(fatbin_entry_ptx(&fatbin.entries[0], LIMIT, &text, &length), 0);
		assert_string_equal(text, cases[i].full);
		assert_int_equal(length, strlen(text));
		free(text);
		fatbin_deinit(&fatbin);
	}
}

static void test_several_containers(void **state) {
	static const char payload[] = "12345";
	struct bytes bytes = {};
	struct fatbin fatbin;

	/* The first has an entry whose payload is not padded: the next container is 8-aligned all
	 * the same. */
	put_container(&bytes, 64 + 5);
	put_entry(&bytes, 77, 64, 5, 0, 0, 0, 0, 0x11, 0);
	put_text(&bytes, payload, 5, 5);
	put_text(&bytes, "", 0, 3);
	put_container(&bytes, 0);
	put_container(&bytes, 2 * 72);
	for (int i = 0; i < 2; i++) {
		put_entry(&bytes, 2, 64, 8, 0, 0, 0, 0, 0x11, 0);
		put_text(&bytes, payload, 5, 8);
	}
	assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
	assert_int_equal(fatbin.n_containers, 3);
	assert_int_equal(fatbin.n_entries, 3);
	assert_int_equal(fatbin.entries[0].kind, 77);
	assert_int_equal(fatbin.entries[0].container, 0);
	assert_int_equal(fatbin.entries[1].container, 2);
	assert_int_equal(fatbin.size, bytes.size);
	fatbin_deinit(&fatbin);

	/* What follows and is no container is left alone. */
	put_text(&bytes, "garbage", 7, 64);
	assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
	assert_int_equal(fatbin.n_containers, 3);
	assert_int_equal(fatbin.size, bytes.size - 64);
	fatbin_deinit(&fatbin);
}

/* Each field that is a length or an offset, set so that it points outside. */
static void test_malformed(void **state) {
	static const struct {
		size_t offset, size;
		uint64_t value;
		int error;
	} cases[] = {
		{ 0, 4, 0x466243B1, FATBIN_E_MAGIC }, /* the wrapper's */
		{ 4, 2, 2, FATBIN_E_CONTAINER },
		{ 6, 2, 8, FATBIN_E_CONTAINER },
		{ 6, 2, 0xffff, FATBIN_E_CONTAINER },
		{ 8, 8, UINT64_MAX, FATBIN_E_CONTAINER },
		{ 8, 8, UINT64_MAX - 15, FATBIN_E_CONTAINER },
		{ 8, 8, 63, FATBIN_E_ENTRY },
		{ 16 + 4, 4, 63, FATBIN_E_ENTRY },
		{ 16 + 4, 4, UINT32_MAX, FATBIN_E_ENTRY },
		{ 16 + 8, 8, UINT64_MAX, FATBIN_E_ENTRY },
		{ 16 + 8, 8, UINT64_MAX - 100, FATBIN_E_ENTRY },
		{ 16 + 8, 8, 1 << 20, FATBIN_E_ENTRY },
		{ 16 + 0x10, 4, UINT32_MAX, FATBIN_E_ENTRY },
		{ 16 + 0x14, 4, 8, FATBIN_E_ENTRY }, /* record inside the fixed header */
		{ 16 + 0x14, 4, 100, FATBIN_E_ENTRY }, /* record half outside of the header */
		{ 16 + 0x14, 4, UINT32_MAX - 3, FATBIN_E_ENTRY },
		{ 16 + 72, 4, 8, FATBIN_E_ENTRY }, /* options inside the fixed header */
		{ 16 + 72, 4, UINT32_MAX, FATBIN_E_ENTRY },
		{ 16 + 76, 4, UINT32_MAX, FATBIN_E_ENTRY },
		{ 16 + 76, 4, 25, FATBIN_E_ENTRY },
		{ 16 + 0x20, 4, 63, FATBIN_E_ENTRY }, /* name */
		{ 16 + 0x20, 4, UINT32_MAX, FATBIN_E_ENTRY },
		{ 16 + 0x24, 4, UINT32_MAX, FATBIN_E_ENTRY },
		{ 16 + 0x28, 8, 0xa011, FATBIN_E_ENTRY }, /* both compressions */
		{ 16 + 0x28, 8, 0x2011, FATBIN_E_ENTRY }, /* compressed to nothing */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fatbin fatbin;
		struct bytes bytes;

		sample(&bytes);
		set(&bytes, cases[i].offset, cases[i].value, cases[i].size);
		assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), cases[i].error);
	}
}

/* Every prefix, in a buffer of exactly that size: none is a container. */
static void test_truncated(void **state) {
	struct fatbin fatbin;
	struct bytes bytes;

	sample(&bytes);
	for (size_t size = 0; size < bytes.size; size++) {
		uint8_t *copy = malloc(size + !size);

		memcpy(copy, bytes.data, size);
		assert_true(fatbin_parse(&fatbin, copy, size) > 0);
		free(copy);
	}
}

/* Every byte, changed in some ways: whatever is read must be readable, and be written again. */
static void test_damaged(void **state) {
	static const uint8_t changes[] = { 0x01, 0x80, 0xff };
	struct bytes bytes;

	sample(&bytes);
	for (size_t i = 0; i < bytes.size * sizeof(changes); i++) {
		uint8_t *copy = malloc(bytes.size), *payload;
		struct fatbin fatbin;
		uint64_t size;

		memcpy(copy, bytes.data, bytes.size);
		copy[i / sizeof(changes)] ^= changes[i % sizeof(changes)];
		if (!fatbin_parse(&fatbin, copy, bytes.size)) {
			for (size_t j = 0; j < fatbin.n_entries; j++)
				if (!fatbin_entry_decompress(&fatbin.entries[j], LIMIT, &payload,
							     &size))
					free(payload);
			fatbin_deinit(&fatbin);
		}
		free(copy);
	}
}

static void test_write_layout(void **state) {
	const struct fatbin_spec spec = {
		.isa_major = 8,
		.isa_minor = 3,
		.sm = 90,
		.flags = 0x11,
		.options = options,
		.options_size = sizeof(options) - 1,
	};
	const size_t room = (sizeof(ptx) + 7) & ~(size_t)7;
	struct bytes expected = {};
	struct fatbin_writer writer;
	uint8_t *data;
	size_t size;

	put_container(&expected, 64 + 8 + 24 + room);
	put_entry(&expected, 1, 64 + 8 + 24, room, 0, 64, 0, 0, 0x11, 0);
	put(&expected, 72, 4);
	put(&expected, sizeof(options) - 1, 4);
	put_text(&expected, options, sizeof(options) - 1, 24);
	put_text(&expected, ptx, sizeof(ptx), room);

	assert_int_equal(fatbin_writer_init(&writer), 0);
	assert_int_equal(fatbin_writer_add_ptx(&writer, &spec, ptx, sizeof(ptx) - 1), 0);
	assert_int_equal(fatbin_writer_finish(&writer, &data, &size), 0);
	assert_int_equal(size, expected.size);
	assert_memory_equal(data, expected.data, size);
	free(data);
	fatbin_writer_deinit(&writer);
}

/* All combinations of what an entry can have, all in one container, read back. */
static void test_round_trip(void **state) {
	static const char *const names[] = { NULL, "x", "1234567", "12345678" };
	static const char *const option_lines[] = { NULL, "", "-O2", "-O2 -g  " };
	static const uint16_t kinds[] = { 1, 2, 8, 64 };
	struct fatbin_writer writer;
	struct fatbin fatbin;
	uint8_t *data, *payload;
	size_t size, n = 0;
	uint64_t payload_size;

	assert_int_equal(fatbin_writer_init(&writer), 0);
	for (size_t i = 0; i < 4 * 4 * 4 * 3; i++) {
		const struct fatbin_spec spec = {
			.kind = kinds[i & 3],
			.isa_major = 9,
			.isa_minor = 1,
			.sm = 100 + (uint32_t)i,
			.flags = 0x100011 + ((uint64_t)i << 32),
			.compression = (enum fatbin_compression)(i / 64),
			.options = option_lines[i >> 2 & 3],
			.options_size = option_lines[i >> 2 & 3]
						? (uint32_t)strlen(option_lines[i >> 2 & 3])
						: 0,
			.name = names[i >> 4 & 3],
			.name_size = names[i >> 4 & 3] ? (uint32_t)strlen(names[i >> 4 & 3]) : 0,
			.payload = ptx,
			.payload_size = 8 * (i % 16),
		};

		assert_int_equal(fatbin_writer_add(&writer, &spec), 0);
	}
	assert_int_equal(fatbin_writer_finish(&writer, &data, &size), 0);
	fatbin_writer_deinit(&writer);
	assert_int_equal(fatbin_parse(&fatbin, data, size), 0);
	assert_int_equal(fatbin.size, size);
	for (size_t i = 0; i < fatbin.n_entries; i++, n++) {
		const struct fatbin_entry *entry = &fatbin.entries[i];
		const char *line = option_lines[i >> 2 & 3], *name = names[i >> 4 & 3];
		/* Nothing cannot be compressed. */
		enum fatbin_compression compression =
			i % 16 ? (enum fatbin_compression)(i / 64) : FATBIN_RAW;

		assert_int_equal((uintptr_t)(entry->raw - data) % 8, 0);
		assert_int_equal(entry->kind, kinds[i & 3]);
		assert_int_equal(entry->sm, 100 + i);
		assert_int_equal(entry->isa_major * 10 + entry->isa_minor, 91);
		assert_int_equal(entry->flags & ~(uint64_t)FATBIN_FLAGS_COMPRESSION,
				 0x100011 + ((uint64_t)i << 32));
		assert_int_equal(fatbin_entry_compression(entry), compression);
		assert_int_equal(!!entry->options, !!line);
		assert_int_equal(entry->options_size, line ? strlen(line) : 0);
		if (entry->options_size)
			assert_memory_equal(entry->options, line, entry->options_size);
		assert_int_equal(entry->name_size, name ? strlen(name) : 0);
		if (name)
			assert_memory_equal(entry->name, name, entry->name_size);
		assert_int_equal(fatbin_entry_decompress(entry, LIMIT, &payload, &payload_size), 0);
		assert_int_equal(payload_size, 8 * (i % 16));
		assert_memory_equal(payload, ptx, payload_size);
		free(payload);
	}
	assert_int_equal(n, 192);
	fatbin_deinit(&fatbin);
	free(data);
}

/* Scrambled entries, unknown kinds, headers with more than we know. */
static void test_unknown(void **state) {
	struct bytes bytes = {};
	struct fatbin fatbin;
	uint64_t payload_size;
	uint8_t *payload;

	put_container(&bytes, 64 + 16 + 16 + 64 + 8);
	put_entry(&bytes, 8, 64 + 16, 16, 13, 72, 0, 0, 0x12011, 100);
	set(&bytes, 16 + 0x30, 0xfd624e58, 8);
	put(&bytes, 0x1122334455667788, 8);
	put(&bytes, 0, 8);
	put_text(&bytes, "scrambled bits", 14, 16);
	put_entry(&bytes, 4711, 64, 8, 0, 0, 0, 0, 0xfff0000000000011, 0);
	put_text(&bytes, "?", 1, 8);
	assert_int_equal(fatbin_parse(&fatbin, bytes.data, bytes.size), 0);
	assert_int_equal(fatbin.n_entries, 2);
	assert_int_equal(fatbin.entries[0].key, 0xfd624e58);
	assert_null(fatbin.entries[0].options);
	assert_int_equal(fatbin_entry_decompress(&fatbin.entries[0], LIMIT, &payload,
						 &payload_size),
			 FATBIN_E_OPAQUE);
	assert_int_equal(fatbin.entries[1].kind, 4711);
	assert_int_equal(fatbin.entries[1].payload_size, 8);
	fatbin_deinit(&fatbin);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),       cmocka_unit_test(test_read_compressed),
		cmocka_unit_test(test_version),    cmocka_unit_test(test_several_containers),
		cmocka_unit_test(test_malformed),  cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_damaged),    cmocka_unit_test(test_write_layout),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
