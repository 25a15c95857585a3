/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A primary context that is there again at once (s-retain.c), with
 * the same handle: what was in the one before is gone.
 */

#include "s.h"

int main(void) {
	struct s_loaded loaded;
	CUcontext context;
	CUdevice device;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	for (int i = 0; i < 3; i++) {
		loaded = s_load(S_MODULE);
		printf("launched: %d\n", s_launch(&loaded));
		printf("released: %d\n", driver.primary_release(device));
		CHECK(driver.primary_retain(&context, device));
		CHECK(driver.primary_release(device));
		CHECK(driver.ctx_set_current(context));
	}
	return 0;
}
