/* SPDX-License-Identifier: Apache-2.0 */
/* The library of s-library.c. */

void s_constructed(void);

static __attribute__((constructor)) void construct(void) {
	s_constructed();
}
