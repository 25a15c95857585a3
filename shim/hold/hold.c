/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libgpuprobe-hold.so: needs libcuda.so.1, and that is all. While it is loaded the driver stays,
 * whoever closes it how often: dlclose() answers as if nobody held it, "not open" when it is closed
 * once too often. A reference of our own could be dropped by that, and with RTLD_NODELETE dlclose()
 * never fails, for which some programs wait.
 */
__attribute__((visibility("default"))) extern const int gpuprobe_hold;
const int gpuprobe_hold;
