/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. What the shim reads of patches: an input that begins with an ELF magic is a cubin
 * whose kernels are named, any other is a plan (proto/patch.h), with one slot at the offset that
 * its last four bytes say. What was accepted is read to its end.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/module/image.h"
#include "shim/patch/patch-names.h"
#include "shim/patch/patch-plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGE 4096

static void read_names(const uint8_t *data, size_t size) {
	struct patch_names names;

	if (!patch_names_read(&names, data, size))
		return;
	for (uint32_t i = 0; i < names.count; i++) {
		const char *name = names.text + names.offsets[i];
		uint32_t found = patch_names_find(&names, name);

		if (found == PATCH_NAME_NONE || strcmp(name, names.text + names.offsets[found]))
			abort();
	}
	patch_names_free(&names);
}

static void read_plan(const uint8_t *data, size_t size) {
	struct load_slot slot = { .kind = WIRE_SLOT_POINTER, .offset = sizeof(struct patch_data) };
	struct load load = { .length = size, .slots = &slot, .slot_count = 1 };
	struct patch_view view;
	volatile uint64_t sum = 0;

	if (size >= sizeof(slot.offset))
		memcpy(&slot.offset, data + size - sizeof(slot.offset), sizeof(slot.offset));
	load.size = (size + PAGE - 1) / PAGE * PAGE + PAGE;
	load.image =
		mmap(NULL, load.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (load.image == MAP_FAILED)
		return;
	memcpy(load.image, data, size);
	if (!patch_plan_read(&view, &load)) {
		const uint8_t *start = load.image, *image = view.image;

		for (uint32_t i = 0; i < view.point_count; i++)
			sum = sum + view.points[i].instruction + strlen(view.points[i].symbol);
		for (uint32_t i = 0; i < view.kernel_count; i++)
			sum = sum + view.kernels[i].attachments;
		if (slot.offset + sizeof(uint64_t) > view.data_size || image < start ||
		    image >= start + size ||
		    (const uint8_t *)(view.points + view.point_count) > start + size ||
		    (const uint8_t *)(view.kernels + view.kernel_count) > start + size)
			abort();
	}
	munmap(load.image, load.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size >= 4 && !memcmp(data, "\177ELF", 4))
		read_names(data, size);
	else
		read_plan(data, size);
	return 0;
}
