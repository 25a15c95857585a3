/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernels of libraries (CUkernel) that were not launched yet. The first launch of one may bring its
 * module into the context, from within the driver, where memory of the host cannot be registered
 * for rings and shared maps. Needs the sanitizer engine.
 */

#include <stdbool.h>

#include "shim/driver/driver.h"

/* The driver gave it out. */
void patch_kernel_got(driver_handle library, driver_handle kernel);

/* The library is about to be unloaded: its kernels' handles may become others'. */
void patch_kernel_forget(driver_handle library);

/* Is this one of them? It is none from then on. Takes no lock. */
bool patch_kernel_take(driver_handle kernel);
