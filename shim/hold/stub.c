/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A stub with the SONAME of the driver, to link libgpuprobe-hold.so at build time. Nothing loads
 * it.
 */

/* Has the SONAME of the driver, at build time. Nothing loads it. */
int hold_stub(void);
int hold_stub(void) {
	return 0;
}
