/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of outcome.c: what `gpuprobectl why` knows, in which order, and how much of it is
 * kept.
 */

#include "outcome.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void test_order_and_bounds(void **state) {
	struct outcome_log log;
	struct outcome *outcome;
	static const struct outcome_subject kernel = { .kernel = "k", .demangled = "k()" },
					    image = {};
	unsigned int of_1000 = 0, of_7 = 0;
	char reason[32];

	outcome_log_init(&log);
	assert_int_equal(outcome_log_add(&log, 7, 70, "seven", OUTCOME_PROBED, &kernel, ""), 0);
	for (int i = 0; i < 3 * OUTCOME_UID_MAX; i++) {
		snprintf(reason, sizeof(reason), "%d", i);
		assert_int_equal(
			outcome_log_add(&log, 1000, 1, "x", OUTCOME_FAILED, &image, reason), 0);
	}
	TAILQ_FOREACH(outcome, &log.list, link) {
		of_1000 += outcome->uid == 1000;
		of_7 += outcome->uid == 7;
	}
	assert_int_equal(of_1000, OUTCOME_UID_MAX);
	assert_int_equal(of_7, 1); /* one user does not make another's be forgotten */
	snprintf(reason, sizeof(reason), "%d", 3 * OUTCOME_UID_MAX - 1);
	assert_string_equal(TAILQ_FIRST(&log.list)->reason, reason); /* newest first */
	for (uid_t uid = 0; uid < 3 * OUTCOME_MAX; uid++)
		assert_int_equal(outcome_log_add(&log, uid, 1, "x", OUTCOME_FAILED, &image, ""), 0);
	assert_int_equal(log.n, OUTCOME_MAX);
	outcome_log_deinit(&log);
	assert_int_equal(log.n, 0);
}

/* What is said again is known, and what is forgotten is not; it is looked for among few. */
static void test_known(void **state) {
	static const uint64_t ids[] = { 1, 2 };
	struct outcome_subject subject = { .attachments = ids, .n_attachments = 2 };
	const struct outcome *outcome;
	struct outcome_log log;
	unsigned int n, most = 0;
	char kernel[32];

	outcome_log_init(&log);
	subject.kernel = kernel;
	for (int i = 0; i < OUTCOME_UID_MAX + 10; i++) {
		snprintf(kernel, sizeof(kernel), "k%d", i);
		assert_false(outcome_log_has(&log, 5, &subject, "why"));
		assert_int_equal(
			outcome_log_add(&log, 1000, 5, "x", OUTCOME_FAILED, &subject, "why"), 0);
		assert_true(outcome_log_has(&log, 5, &subject, "why"));
		assert_false(outcome_log_has(&log, 6, &subject, "why"));
		assert_false(outcome_log_has(&log, 5, &subject, "why not"));
	}
	strcpy(kernel, "k9");
	assert_false(outcome_log_has(&log, 5, &subject, "why"));
	strcpy(kernel, "k10");
	assert_true(outcome_log_has(&log, 5, &subject, "why"));
	subject.n_attachments = 1;
	assert_false(outcome_log_has(&log, 5, &subject, "why"));
	for (size_t i = 0; i < OUTCOME_BUCKETS; i++) {
		n = 0;
		LIST_FOREACH(outcome, &log.same[i], same)
			n++;
		most = n > most ? n : most;
	}
	assert_in_range(most, 1, 16);
	outcome_log_deinit(&log);
	for (size_t i = 0; i < OUTCOME_BUCKETS; i++)
		assert_true(LIST_EMPTY(&log.same[i]) && LIST_EMPTY(&log.users[i]));
}

static void test_clean(void **state) {
	struct outcome_log log;
	uint64_t ids[100] = { 5, 6 };
	const struct outcome_subject subject = { .kernel = "k\n",
						 .demangled = "\xff",
						 .device_function = true,
						 .attachments = ids,
						 .n_attachments = 100 };

	outcome_log_init(&log);
	outcome_log_add(&log, 1, 1, "e\x1b[31m", OUTCOME_NOT_PROBED, &subject, "a\tb");
	assert_true(TAILQ_FIRST(&log.list)->device_function);
	assert_string_equal(TAILQ_FIRST(&log.list)->comm, "e?[31m");
	assert_string_equal(TAILQ_FIRST(&log.list)->kernel, "k?");
	assert_string_equal(TAILQ_FIRST(&log.list)->demangled, "?");
	assert_string_equal(TAILQ_FIRST(&log.list)->reason, "a?b");
	assert_int_equal(TAILQ_FIRST(&log.list)->n_attachments, OUTCOME_ATTACHMENTS_MAX);
	assert_int_equal(TAILQ_FIRST(&log.list)->attachments[1], 6);
	outcome_log_deinit(&log);
}

static void test_means(void **state) {
	static const struct {
		const char *demangled, *pattern;
		bool means;
	} cases[] = {
		{ "vectorAdd(float const*, int)", "vectorAdd", true },
		{ "vectorAdd(float const*, int)", "vectorAdd(float const*, int)", true },
		{ "vectorAdd(float const*, int)", "vector*", true },
		{ "vectorAdd(float const*, int)", "_Zmangled", true },
		{ "vectorAdd(float const*, int)", "vectorSub", false },
		{ "vectorAdd(float const*, int)", "Add", false },
		{ "void ns::kernel<float, (int)3>(float*)", "ns::kernel<float, (int)3>", true },
		{ "void ns::kernel<float, (int)3>(float*)", "ns::kernel", true },
		{ "void ns::kernel<float, (int)3>(float*)", "kernel", false },
		{ "void ns::kernel<float, (int)3>(float*)", "*kernel*", true },
		{ "(anonymous namespace)::hidden(int)", "(anonymous namespace)::hidden", true },
		{ "", "x", false },
	};
	struct outcome outcome = { .kernel = (char *)"_Zmangled" };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		outcome.demangled = (char *)cases[i].demangled;
		if (outcome_means(&outcome, cases[i].pattern) != cases[i].means)
			fail_msg("%s, %s", cases[i].demangled, cases[i].pattern);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_and_bounds),
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_means),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
