/* SPDX-License-Identifier: Apache-2.0 */
/* A library that does nothing: what preloading costs by itself. */

int s_empty(void);
int s_empty(void) {
	return 0;
}
