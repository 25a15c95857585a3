/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * NVIDIA's fatbin container: what nvcc puts into a program, what the driver takes it apart to find
 * code for a device. Layout: CUDA.md section 3, checked against the containers of CUDA 11.8
 * to 13.0.
 *
 *   container  16 bytes: magic, version, header size, size of all entries; then the entries.
 *              Containers may follow one another.
 *   entry      64 bytes, extras (an attribute record, a name), payload; all padded to 8 bytes.
 *
 * Parsing borrows: every pointer in an entry points into the caller's buffer, which stays as long
 * as the entries are used. Nothing here trusts a length that the buffer holds.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Positive results; negative ones are -errno (-ENOMEM). */
enum fatbin_error {
	FATBIN_E_MAGIC = 1, /* no container where one was expected */
	FATBIN_E_CONTAINER, /* a container's header is not one, or it ends behind the buffer */
	FATBIN_E_ENTRY, /* an entry's header is not one, or it ends behind its container */
	FATBIN_E_OPAQUE, /* scrambled payload: can be carried, not read */
	FATBIN_E_COMPRESSION, /* corrupt compressed data, or not of the size that its entry says */
	FATBIN_E_LIMIT, /* more entries or bytes than the caller allows */
};

#define FATBIN_MAGIC UINT32_C(0xBA55ED50)
#define FATBIN_VERSION 1
#define FATBIN_HEADER_SIZE 16
#define FATBIN_ENTRY_HEADER_SIZE 64
#define FATBIN_ENTRY_VERSION 0x0101
#define FATBIN_WRAPPER_MAGIC UINT32_C(0x466243B1)
#define FATBIN_ENTRIES_MAX (UINT32_C(1) << 20)

enum fatbin_kind {
	FATBIN_KIND_PTX = 1,
	FATBIN_KIND_ELF = 2, /* a cubin: machine code for one sm */
	FATBIN_KIND_LTO_IR = 8,
};

enum fatbin_flags {
	FATBIN_FLAG_64BIT = 0x1,
	FATBIN_FLAG_DEBUG = 0x2,
	FATBIN_FLAG_LINUX = 0x10,
	FATBIN_FLAG_LZ4 = 0x2000, /* payload is one LZ4 block */
	FATBIN_FLAG_ZSTD = 0x8000, /* payload is one zstd frame */
	FATBIN_FLAG_SCRAMBLED = 0x10000, /* with a key in `key`; only LTO-IR is seen so */
	FATBIN_FLAG_ARCH_SPECIFIC = 0x100000, /* sm_90a */
	FATBIN_FLAG_FAMILY = 0x200000, /* sm_100f */
	FATBIN_FLAG_ATTRIBUTES = 0x1000000, /* a cubin's attribute record is binary, not options */
};
#define FATBIN_FLAGS_COMPRESSION (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD)

enum fatbin_compression {
	FATBIN_RAW,
	FATBIN_LZ4,
	FATBIN_ZSTD,
};

struct fatbin_entry {
	uint16_t kind; /* enum fatbin_kind, or one that we do not know */
	uint16_t version; /* of the entry's layout: FATBIN_ENTRY_VERSION */
	uint16_t isa_major; /* PTX: ISA version; else the producer's own */
	uint16_t isa_minor;
	uint32_t sm; /* 90 for sm_90 and compute_90 */
	uint64_t flags; /* enum fatbin_flags */
	uint64_t key; /* of a scrambled payload, else 0 */

	/* Both borrowed, not terminated, NULL if there is none. PTX: the ptxas command line. */
	const char *options;
	uint32_t options_size;
	const char *name;
	uint32_t name_size;

	/* As stored: compressed if flags say so. payload_size excludes padding when compressed. */
	const uint8_t *payload;
	uint64_t payload_size;
	uint64_t uncompressed_size; /* equals payload_size when raw */

	/* The whole entry as it lies in the buffer, header and padding included. */
	const uint8_t *raw;
	uint64_t raw_size;
	uint32_t header_size;
	uint32_t container; /* index of the container it lies in */
};

struct fatbin {
	struct fatbin_entry *entries; /* owned */
	size_t n_entries;
	size_t n_containers;
	uint64_t size; /* bytes of the buffer that the containers take */
};

/*
 * Read all containers that lie one behind the other at `data`. Stops without error at the first
 * bytes after a container that do not begin another one (size says where). On success the caller
 * owns *fatbin: fatbin_deinit(). On failure *fatbin is untouched.
 */
int fatbin_parse(struct fatbin *fatbin, const void *data, uint64_t size);
void fatbin_deinit(struct fatbin *fatbin);

/* Reads one container; calls back for each entry and stops at the first result other than 0. */
typedef int (*fatbin_entry_fn)(const struct fatbin_entry *entry, void *userdata);
int fatbin_container_each(const void *data, uint64_t size, uint64_t *container_size,
			  fatbin_entry_fn fn, void *userdata);

enum fatbin_compression fatbin_entry_compression(const struct fatbin_entry *entry);

/*
 * The payload as it was before compression, in memory that the caller frees; one NUL follows it, so
 * that text is a string. FATBIN_E_LIMIT if it is larger than `limit`, before anything is allocated.
 */
int fatbin_entry_decompress(const struct fatbin_entry *entry, uint64_t limit, uint8_t **out,
			    uint64_t *out_size);

/*
 * A PTX entry's text, decompressed, without the padding behind it, NUL-terminated, in memory that
 * the caller frees. One producer leaves `.version` out of the text: it is restored from the header.
 */
int fatbin_entry_ptx(const struct fatbin_entry *entry, uint64_t limit, char **text, size_t *length);

const char *fatbin_kind_name(uint16_t kind); /* "ptx", "elf", "lto-ir", "unknown" */
const char *fatbin_strerror(int r); /* of an enum fatbin_error or -errno; static */

/*
 * The writer builds one container in memory. After the first failure every call returns that
 * failure.
 */
struct fatbin_writer {
	uint8_t *data; /* owned */
	size_t size;
	size_t allocated;
	int error;
};

/* What an entry is to say. Lengths as in struct fatbin_entry; payload before compression. */
struct fatbin_spec {
	uint16_t kind;
	uint16_t isa_major;
	uint16_t isa_minor;
	uint32_t sm;
	uint64_t flags; /* without the compression flags */
	enum fatbin_compression compression;
	const char *options; /* NULL: no record; "" of size 0: an empty one, as nvcc writes it */
	uint32_t options_size;
	const char *name;
	uint32_t name_size;
	const void *payload;
	uint64_t payload_size;
};

int fatbin_writer_init(struct fatbin_writer *writer);
void fatbin_writer_deinit(struct fatbin_writer *writer);

/*
 * Add an entry that says what `spec` says. A raw payload is padded to 8 bytes, and the padding is
 * read back as part of it, as it is with containers of nvcc's.
 */
int fatbin_writer_add(struct fatbin_writer *writer, const struct fatbin_spec *spec);

/* Add PTX text as nvcc would: terminated, padded. `length` excludes the NUL. */
int fatbin_writer_add_ptx(struct fatbin_writer *writer, const struct fatbin_spec *spec,
			  const char *text, size_t length);

/* Closes the container and gives it to the caller, who frees *data. The writer is empty then. */
int fatbin_writer_finish(struct fatbin_writer *writer, uint8_t **data, size_t *size);
