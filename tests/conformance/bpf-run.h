/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What bpf-run's parts share: what is asked; a map's memory, made as daemon and shim make it and
 * read as readers do. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/translator/translate.h"

struct bytes {
	uint8_t *data;
	size_t size;
};

#define MAPS_MAX 8

struct test_case {
	struct bytes program, memory, context;
	bool has_context;
	struct translate_map maps[MAPS_MAX];
	uint64_t heads[MAPS_MAX]; /* of rings: bytes that were written and read before */
	uint64_t tails[MAPS_MAX]; /* and what producers have heard of that, if not 0 */
	bool records[MAPS_MAX]; /* of rings: which of them are one batch does not matter */
	size_t n_maps;
	unsigned grid[3], block[3];
	uint32_t thread; /* bytes of the thread's variables, of 8 bytes each: v0, v1 ... */
	unsigned runs; /* how often each thread runs the program; 0: once */
	bool want_memory;
	bool unarmed;
	uint32_t mask; /* of the lanes that are together; 0: the driver knows */
	bool uniform; /* what the place fixes is the same in all lanes, as a pass says */
	bool patch, print_ptx;
};

/* Returns -1 with a message that the caller frees. */
int fail(char **error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * bpf-run-input.c: each adds to what is asked, and returns 0, or -1 and a message. A word is one of
 * a batch; a shape X, XxY or XxYxZ; of hex the caller frees the bytes, as test_case_deinit() does.
 */
int parse_word(struct test_case *test, const char *word, char **error);
int parse_map(struct test_case *test, const char *text, char **error);
int parse_context(struct test_case *test, const char *text, char **error);
int parse_shape(const char *text, unsigned shape[3], char **error);
int parse_hex(const char *text, struct bytes *bytes, char **error);
void test_case_deinit(struct test_case *test);

/* Bytes of an instance: data, and the host area of rings behind it. */
size_t instance_size(const struct map_layout *layout);

/*
 * An instance as it is at first, in `memory` of zeros, which the device has at `address`. Rings are
 * as if `head` bytes had been written and read; producers have heard that `tail` were, or if that
 * is 0, not of the last.
 */
void instance_init(const struct map_layout *layout, uint8_t *memory, uint64_t address,
		   uint64_t head, uint64_t tail);

/*
 * What a reader sees of an instance; NULL: of none.
 *
 *     array            values, one after the other
 *     per-thread array the values of index 0, one a thread, then those of index 1 ...
 *     hash             elements in order of keys: key, value (of a percpu hash: the sum of its
 *                      copies)
 *     ring             u32 lost, u32 written, then each batch: u32 size, u32 count, its records
 *                      (of a log, with time 0); `records`: as if each were a batch of its own
 *
 * Returns 0, -ENOMEM, or -EINVAL: it breaks the rules of map-layout.h.
 */
int instance_read(const struct translate_map *map, const struct translate_map_result *result,
		  const uint8_t *memory, uint64_t head, bool records, struct bytes *bytes);
