/* SPDX-License-Identifier: Apache-2.0 */
/* A target for tests of the shim. The library of s-library.c. */

void s_constructed(void);

static __attribute__((constructor)) void construct(void) {
	s_constructed();
}
