/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* A name that may be a function's of the driver: "cu" and a capital letter. */
static inline bool dlsym_is_of_interest(const char *name) {
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}
