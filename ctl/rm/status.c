/* SPDX-License-Identifier: Apache-2.0 */

#include "status.h"

#include <stddef.h>

const char *rm_status_name(uint32_t status) {
	static const struct {
		uint32_t number;
		const char *name;
	} rows[] = {
#include "statuses.h"
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].number == status)
			return rows[i].name;
	return NULL;
}
