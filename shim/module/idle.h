/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether kernels of a context run. */

#include <stdint.h>

#include "shim/driver/driver.h"

enum idle {
	IDLE_NO, /* some run, or it cannot be known now */
	IDLE_YES,
	IDLE_UNKNOWN, /* the driver is too old to say */
};

/*
 * Waits till no kernel of a context runs. It may be any context, but no stream of it may be
 * captured: asking would end the capture.
 */
enum idle wait_idle(driver_handle context, uint64_t until_ms);
