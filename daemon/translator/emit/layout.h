/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How the values of a map lie in memory, from what all programs of the object do with them. */

#include <stdint.h>

#include "daemon/translator/translate.h"

/*
 * `uses`: MAP_USE_ of analysis.h, of all programs. Returns 0 and the layout; or TRANSLATE_E_MAP and
 * a reason (a static string) if a used map cannot be on a GPU.
 */
int layout_map(const struct translate_map *map, uint8_t uses, struct translate_map_result *result,
	       const char **reason);
