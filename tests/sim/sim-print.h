/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim-thread.h"

/*
 * printf of device code, to stdout: the format's and the arguments' addresses, the latter a buffer
 * laid out as a C struct of the promoted arguments. Returns how many arguments were printed, or -1
 * if an address is nobody's.
 */
int sim_print(struct sim_thread *t, uint64_t format, uint64_t arguments);
