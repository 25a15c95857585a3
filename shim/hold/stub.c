/* SPDX-License-Identifier: Apache-2.0 */

/* Has the SONAME of the driver, at build time. Nothing loads it. */
int hold_stub(void);
int hold_stub(void) {
	return 0;
}
