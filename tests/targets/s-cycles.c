/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. The primary context ends and begins many times, and nothing of it
 * stays: the process may have some 65000 mappings in all.
 */

#include <string.h>

#include "s.h"

#define CYCLES 200

/* How many the process has, and pages of them. */
static long mappings(long *pages) {
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned long first, last;
	char line[4096];
	long count = 0;

	*pages = 0;
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx", &first, &last) == 2) {
			*pages += (long)((last - first) >> 12);
			count++;
		}
	if (file)
		fclose(file);
	return count;
}

int main(void) {
	long pages_before = 0, pages = 0;
	long before = 0, sum = 0;
	CUcontext context;
	CUdevice device;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	for (int i = 0; i < 2 * CYCLES; i++) {
		if (i == CYCLES)
			before = mappings(&pages_before);
		sum += s_once(S_MODULE);
		CHECK(driver.primary_release(device));
		CHECK(driver.primary_retain(&context, device));
		CHECK(driver.ctx_set_current(context));
	}
	printf("%ld %d %d\n", sum, mappings(&pages) - before >= CYCLES,
	       pages - pages_before >= 2 * CYCLES);
	return 0;
}
