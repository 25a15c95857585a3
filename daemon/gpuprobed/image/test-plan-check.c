/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of plan-check.c: a correct plan, and each part of it broken alone. */

#include "plan-check.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "proto/patch.h"

/* Two points, an image of 40 bytes, two kernels; for three attachments. */
struct sample {
	struct patch_plan plan;
	struct patch_point points[2];
	char image[40];
	struct patch_kernel kernels[2];
};

static struct sample make(void) {
	return (struct sample){
		.plan = { .magic = PATCH_MAGIC,
			  .version = PATCH_VERSION,
			  .size = sizeof(struct sample),
			  .image = offsetof(struct sample, image),
			  .image_size = 40,
			  .image_id = 7,
			  .points = offsetof(struct sample, points),
			  .point_count = 2,
			  .kernels = offsetof(struct sample, kernels),
			  .kernel_count = 2,
			  .data_size = 80 },
		.points = { { PATCH_BLOCK_ENTER, 0, "enter" },
			    { PATCH_REMOTE_SHARED_MEMORY, 0, "remote" } },
		.kernels = { { 1, 2, 3, 1 }, { 4, 5, 6, 4 } },
	};
}

static const char *check(const struct sample *sample, uint64_t *meant) {
	return plan_check(sample, sizeof(*sample), 3, 80, meant);
}

static void test_good(void **state) {
	struct sample sample = make();
	uint64_t meant;

	assert_null(check(&sample, &meant));
	assert_int_equal(meant, 5);
	sample.plan.kernel_count = 0;
	sample.plan.kernels = 0;
	assert_null(check(&sample, &meant));
	assert_int_equal(meant, 0);
	sample.kernels[0].attachments = UINT64_C(1) << 57;
	sample.plan.kernel_count = 1;
	sample.plan.kernels = offsetof(struct sample, kernels);
	assert_null(plan_check(&sample, sizeof(sample), PATCH_ATTACHMENTS_MAX, 80, &meant));
	assert_true(meant == UINT64_C(1) << 57);
}

static void test_broken(void **state) {
	struct sample sample;
	uint64_t meant;

#define BAD(CHANGE)                                       \
	do {                                              \
		sample = make();                          \
		CHANGE;                                   \
		if (!check(&sample, &meant))              \
			fail_msg("%s is taken", #CHANGE); \
	} while (0)
	BAD(sample.plan.magic++);
	BAD(sample.plan.version++);
	BAD(sample.plan.reserved = 1);
	BAD(sample.plan.size++);
	BAD(sample.plan.size = 0);
	BAD(sample.plan.image = 0);
	BAD(sample.plan.image++);
	BAD(sample.plan.image = UINT64_MAX - 7);
	BAD(sample.plan.image = sizeof(sample));
	BAD(sample.plan.image_size = 0);
	BAD(sample.plan.image_size = sizeof(sample));
	BAD(sample.plan.image_size = UINT64_MAX);
	BAD(sample.plan.image_id = 0);
	BAD(sample.plan.points = 0);
	BAD(sample.plan.points = UINT32_MAX);
	BAD(sample.plan.point_count = 0);
	BAD(sample.plan.point_count = PLAN_POINTS_MAX + 1);
	BAD(sample.plan.point_count = UINT32_MAX);
	BAD(sample.plan.kernels = 8);
	BAD(sample.plan.kernels = UINT32_MAX - 7);
	BAD(sample.plan.kernel_count = 3);
	BAD(sample.plan.kernel_count = UINT32_MAX);
	BAD(sample.plan.data_size = 96);
	BAD(sample.plan.data_size = 0);
	BAD(sample.points[1].instruction = 0);
	BAD(sample.points[1].instruction = 13);
	BAD(sample.points[1].instruction = 18);
	BAD(sample.points[0].reserved = 1);
	BAD(sample.points[0].symbol[0] = '\0');
	BAD(memset(sample.points[1].symbol, 'x', sizeof(sample.points[1].symbol)));
	BAD(sample.kernels[0].attachments = 0);
	BAD(sample.kernels[1].attachments = 8);
	BAD(sample.kernels[1].attachments = UINT64_MAX);
#undef BAD
	sample = make();
	for (size_t size = 0; size < sizeof(sample); size++)
		assert_non_null(plan_check(&sample, size, 3, 80, &meant));
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_broken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
