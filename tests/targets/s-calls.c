/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Calls the function S_CALLED of the library that it is linked
 * with.
 */

int S_CALLED(void);

int main(void) {
	return S_CALLED();
}
