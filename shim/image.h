/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an application hands to the driver as a module, as far as the shim needs to know it: where it starts and ends. */
struct image {
	const void *data; /* behind the wrapper, if there was one */
	size_t size; /* bytes; PTX without its NUL */
	uint32_t kind; /* enum wire_image_kind */
	uint32_t flags; /* enum wire_image_flags */
};

/* Finds out; false if it is nothing that we know, or larger than WIRE_IMAGE_SIZE_MAX. Reads no more than the driver would. */
bool image_recognise(struct image *image, const void *code);

/* A sealed memfd with the image, or -1. */
int image_to_memfd(const struct image *image);
