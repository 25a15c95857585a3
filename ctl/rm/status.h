/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of the statuses that the driver's resource manager returns. */

#include <stdint.h>

/* "NV_ERR_NO_MEMORY"; NULL if the number is not known. */
const char *rm_status_name(uint32_t status);
