/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of gpu.c: finds GPUs among other devices, one of each kind, and finds none in folders
 * that are not what they should be.
 */

#include "gpu.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/test-gpu-XXXXXX";

static void put(const char *device, const char *name, const char *text) {
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s/%s", folder, device, name);
	if (!text) {
		unlink(path);
		return;
	}
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* A device as sysfs shows one; NULL: it is not there any more. */
static void device(const char *name, const char *vendor, const char *class, const char *id) {
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (vendor)
		assert_int_equal(mkdir(path, 0755), 0);
	put(name, "vendor", vendor);
	put(name, "class", class);
	put(name, "device", id);
	if (!vendor)
		assert_int_equal(rmdir(path), 0);
}

static void test_capabilities(void **state) {
	static const struct {
		const char *vendor, *class, *id;
	} devices[] = {
		{ "0x10de\n", "0x030200\n", "0x2335\n" }, /* H200 */
		{ "0x10de\n", "0x030200\n", "0x2335\n" },
		{ "0x10de\n", "0x030000\n", "0x2684\n" }, /* RTX 4090 */
		{ "0x10de\n", "0x040300\n", "0x22ba\n" }, /* its sound */
		{ "0x10de\n", "0x068000\n", "0x22a3\n" }, /* NVSwitch */
		{ "0x8086\n", "0x030000\n", "0x2335\n" },
		{ "0x10de\n", "0x030200\n", "0x0fff\n" }, /* too old */
		{ "0x10de\n", "0x030200\n", "" },
		{ "", "", "" },
	};
	const size_t n_devices = sizeof(devices) / sizeof(devices[0]);
	uint32_t found[8];
	char name[16];
	size_t n;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(gpu_capabilities(folder, found, 8), 0);
	for (size_t i = 0; i < n_devices; i++) {
		snprintf(name, sizeof(name), "0000:%02zx:00.0", i);
		device(name, devices[i].vendor, devices[i].class, devices[i].id);
	}
	n = gpu_capabilities(folder, found, 8);
	assert_int_equal(n, 2);
	assert_int_equal(found[0] + found[1], 90 + 89);
	assert_true(found[0] == 90 || found[0] == 89);
	assert_int_equal(gpu_capabilities(folder, found, 1), 1);
	for (size_t i = 0; i < n_devices; i++) {
		snprintf(name, sizeof(name), "0000:%02zx:00.0", i);
		device(name, NULL, NULL, NULL);
	}
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(gpu_capabilities(folder, found, 8), 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capabilities),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
