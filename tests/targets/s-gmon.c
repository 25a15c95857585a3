/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. For programs that have the function that crti.o calls themselves,
 * as those have that are profiled by gprof.
 */

void __gmon_start__(void);
void __gmon_start__(void) {
}
