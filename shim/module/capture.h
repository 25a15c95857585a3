/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Captures of streams that are going on. What patching needs to know of the GPU would end a
 * capture, so it is put off until there is none; they begin inside of the gate, so that none begins
 * meanwhile. Needs the sanitizer engine.
 */

#include <stdbool.h>

#include "shim/driver/driver.h"

/* Before a stream of the application begins to be captured, for capture_end() if it does not. */
void capture_begin(driver_handle stream);
/* One of its captures is over. */
void capture_end(driver_handle stream);
/* It is to be destroyed, and what it captures with it. */
void capture_abandon(driver_handle stream);
/* A context is gone, and all its streams are. now, until: arm_outlives(). */
void capture_forget(driver_handle context, uint64_t now, uint64_t until);

/* Is there one? */
bool capture_is_going_on(void);
