/* SPDX-License-Identifier: Apache-2.0 */
/* A target for tests of the shim. A library that does nothing: what preloading costs by itself. */

int s_empty(void);
int s_empty(void) {
	return 0;
}
