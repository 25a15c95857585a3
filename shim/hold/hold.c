/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libgpuprobe-hold.so keeps the driver loaded: it needs libcuda.so.1 and does nothing else.
 *
 * While it is loaded the driver stays, however often others close it. dlclose() still answers as if
 * nobody held the driver: "not open" when it is closed once too often. A reference of the shim's
 * own could be dropped by such a close. With RTLD_NODELETE dlclose() never fails, and some programs
 * wait for the failure.
 */

/*
 * libgpuprobe-hold.so: needs libcuda.so.1, and that is all. While it is loaded the driver stays,
 * whoever closes it how often: dlclose() answers as if nobody held it, "not open" when it is closed
 * once too often. A reference of our own could be dropped by that, and with RTLD_NODELETE dlclose()
 * never fails, for which some programs wait.
 */
__attribute__((visibility("default"))) extern const int gpuprobe_hold;
const int gpuprobe_hold;
