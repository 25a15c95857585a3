/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ioctls of the kernel's driver. */

#include <stdbool.h>

#include "decode.h"

/*
 * Fills in name (NV_ESC_RM_CONTROL, UVM_FREE), base, class ("ioctl", "uvm"), size and the values;
 * and result_name and failed, by the status that the driver wrote into the argument if ioctl(2)
 * itself succeeded. Times, process, thread, result and failed (of ioctl(2)) are there already. The
 * record is whole (trace_record_is_whole()), its byte strings may have any length. driver: version
 * of the kernel's driver, or "".
 */
void trace_decode_ioctl(struct trace_decoder *decoder, const struct trace_ioctl *ioctl,
			const char *driver, struct trace_item *item);
