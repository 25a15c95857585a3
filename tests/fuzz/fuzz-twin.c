/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as the image of a twin, which a worker made: the shim writes addresses
 * into the image and nowhere else, reads names inside of the file, and believes no kernel with a
 * block that lies elsewhere than behind its arguments. The driver knows every variable.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/module/image.h"
#include "shim/module/twin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SIZE ((size_t)1 << 16)

static driver_result get_global(driver_pointer *where, size_t *size, driver_handle module,
				const char *name) {
	*where = strlen(name) + 1;
	*size = 8;
	return 0;
}

const struct driver *driver_own(void) {
	static const struct driver driver = { .module_get_global = get_global };

	return &driver;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct load load = { .size = SIZE, .length = size };
	struct launch_form form;
	const char *missing;

	if (size > SIZE - IMAGE_TAIL)
		return 0;
	load.image = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (load.image == MAP_FAILED)
		return 0;
	memcpy(load.image, data, size);
	if (twin_image_fill(&load, LOAD_MODULE, NULL, &missing)) {
		struct image image;

		if (!image_recognise(&image, load.image, load.size))
			abort(); /* it was one before */
	}
	form = twin_image_form(&load, "vectorAdd");
	if (form.has_block &&
	    (form.size > form.offset || form.offset % 8 ||
	     form.offset + sizeof(struct launch_block) > LAUNCH_PARAMETERS_MAX_LARGE))
		abort(); /* the block would lie on the program's arguments, or beyond */
	munmap(load.image, SIZE);
	return 0;
}
