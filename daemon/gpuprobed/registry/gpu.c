/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the GPUs of the machine in /sys (gpu.h), and their chips by PCI device id: each chip has a
 * block of ids.
 */

#include "gpu.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "daemon/gpuprobed/base/memfd.h"

#define GPU_VENDOR 0x10de
#define GPU_CLASS_DISPLAY 0x03 /* display controllers, with or without a display */

static const struct {
	uint16_t first, last;
	uint32_t capability;
} gpu_chips[] = {
	{ 0x1db0, 0x1dbf, 70 }, /* GV100 */
	{ 0x1e00, 0x1fff, 75 }, /* TU10x */
	{ 0x2080, 0x20ff, 80 }, /* GA100 */
	{ 0x2180, 0x21ff, 75 }, /* TU116 */
	{ 0x2200, 0x22ff, 86 }, /* GA102 */
	{ 0x2300, 0x23ff, 90 }, /* GH100 */
	{ 0x2400, 0x25ff, 86 }, /* GA103 and on */
	{ 0x2600, 0x28ff, 89 }, /* AD10x */
	{ 0x2900, 0x29ff, 100 }, /* GB100 */
	{ 0x2b00, 0x2fff, 120 }, /* GB20x */
};

/* A number in a file of a device, or 0. */
static unsigned long gpu_number(const char *folder, const char *device, const char *name) {
	char path[PATH_MAX], text[32];

	if (snprintf(path, sizeof(path), "%s/%s/%s", folder, device, name) >= (int)sizeof(path))
		return 0;
	file_read_text(AT_FDCWD, path, text, sizeof(text));
	return strtoul(text, NULL, 16);
}

static uint32_t gpu_capability(const char *folder, const char *device) {
	unsigned long id;

	if (gpu_number(folder, device, "vendor") != GPU_VENDOR ||
	    gpu_number(folder, device, "class") >> 16 != GPU_CLASS_DISPLAY)
		return 0;
	id = gpu_number(folder, device, "device");
	for (size_t i = 0; i < sizeof(gpu_chips) / sizeof(gpu_chips[0]); i++)
		if (id >= gpu_chips[i].first && id <= gpu_chips[i].last)
			return gpu_chips[i].capability;
	return 0;
}

size_t gpu_capabilities(const char *folder, uint32_t *capabilities, size_t max) {
	const struct dirent *entry;
	DIR *directory = opendir(folder);
	size_t n = 0;

	if (!directory)
		return 0;
	while (n < max && (entry = readdir(directory))) {
		const uint32_t capability =
			entry->d_name[0] == '.' ? 0 : gpu_capability(folder, entry->d_name);
		bool known = !capability;

		for (size_t i = 0; i < n; i++)
			known = known || capabilities[i] == capability;
		if (!known)
			capabilities[n++] = capability;
	}
	closedir(directory);
	return n;
}
