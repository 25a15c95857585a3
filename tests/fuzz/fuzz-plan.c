/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. A plan from a worker that has seen a hostile list of names: what is found good lies
 * inside of its bytes.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/patch.h"
#include "daemon/gpuprobed/image/plan-check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct patch_plan plan;
	uint64_t meant;
	uint8_t *bytes;

	if (!size)
		return 0;
	bytes = malloc(size); /* of this size to the byte: what reads beyond it is found */
	if (!bytes)
		return 0;
	memcpy(bytes, data, size);
	if (!plan_check(bytes, size, 1 + data[size - 1] % PATCH_ATTACHMENTS_MAX, 48, &meant)) {
		memcpy(&plan, bytes, sizeof(plan));
		if (plan.image + plan.image_size > size ||
		    plan.points + plan.point_count * sizeof(struct patch_point) > size ||
		    (plan.kernel_count &&
		     plan.kernels + plan.kernel_count * sizeof(struct patch_kernel) > size))
			abort();
	}
	free(bytes);
	return 0;
}
