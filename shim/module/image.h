/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * An image that an application gives to the driver as a module: its kind, where it begins and ends.
 */
struct image {
	const void *data; /* behind the wrapper, if there was one */
	size_t size; /* bytes; PTX without its NUL */
	uint32_t kind; /* enum wire_image_kind */
	uint32_t flags; /* enum wire_image_flags */
};

#define IMAGE_IN_MEMORY SIZE_MAX
#define IMAGE_TAIL 64

/*
 * Finds out; false if it is nothing that we know, or larger than WIRE_IMAGE_SIZE_MAX. Reads no more
 * than the driver would. available: how many bytes are there, zeros behind the image included, at
 * least IMAGE_TAIL; or IMAGE_IN_MEMORY, for what an application hands to the driver: only there can
 * be wrappers, whose pointers are followed.
 */
bool image_recognise(struct image *image, const void *code, size_t available);

/* Is it past the program's limit on the size of files? Then there can be no memfd with it. */
bool image_is_too_long(const struct image *image);

/* A sealed memfd with the image, or -1. */
int image_to_memfd(const struct image *image);

/*
 * Reads an image from a file, into memory with IMAGE_TAIL zeros behind it, because PTX ends with
 * one; for image_file_end(). False: it is none.
 */
bool image_file_begin(const char *path, struct image *image, size_t *size);
void image_file_end(const struct image *image, size_t size);
