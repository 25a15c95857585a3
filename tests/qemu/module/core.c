// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0

/*
 * A part of the mock of nvidia.ko (driver.c) for test-hooks. What the real driver's core has:
 * functions that only kprobes reach.
 */

#include <linux/delay.h>
#include <linux/kernel.h>

int rm_ioctl(void *sp, void *nv, void *file, u32 command, void *data, u32 size);

static noinline __noclone int _issueRpcAndWait(void *gpu, void *rpc) {
	udelay(200);
	return 0;
}

noinline __noclone int rmapiLockAcquire(u32 flags, u32 module) {
	barrier();
	return 0;
}

noinline __noclone int rm_ioctl(void *sp, void *nv, void *file, u32 command, void *data, u32 size) {
	rmapiLockAcquire(3, 4);
	return _issueRpcAndWait(nv, data);
}
