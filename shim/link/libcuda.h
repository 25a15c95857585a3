/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Looks for a driver that did not announce itself (arrival.c). For programs' calls of dlsym() while
 * no driver is kept; waits for a dlopen() that brings one.
 */
void libcuda_look(void);
