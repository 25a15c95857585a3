/* SPDX-License-Identifier: Apache-2.0 */

/* The small headers of this folder: clocks, texts, UTF-8. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "lib/base/utf8.h"

/* What is a character of UTF-8, and what only looks like one. */
static void test_utf8(void **state) {
	static const struct {
		const char *text;
		size_t length;
	} cases[] = {
		{ "a", 1 },
		{ "\x7f", 1 },
		{ "\x80", 0 }, /* a second byte without a first */
		{ "\xbf", 0 },
		{ "\xc0\x80", 0 }, /* overlong */
		{ "\xc1\xbf", 0 },
		{ "\xc2\x80", 2 },
		{ "\xdf\xbf", 2 },
		{ "\xc3", 0 }, /* cut off */
		{ "\xe0\x9f\xbf", 0 },
		{ "\xe0\xa0\x80", 3 },
		{ "\xed\x9f\xbf", 3 },
		{ "\xed\xa0\x80", 0 }, /* surrogates */
		{ "\xed\xbf\xbf", 0 },
		{ "\xee\x80\x80", 3 },
		{ "\xef\xbf\xbf", 3 },
		{ "\xf0\x8f\xbf\xbf", 0 },
		{ "\xf0\x90\x80\x80", 4 },
		{ "\xf4\x8f\xbf\xbf", 4 }, /* U+10FFFF */
		{ "\xf4\x90\x80\x80", 0 }, /* and the one behind it */
		{ "\xf5\x80\x80\x80", 0 },
		{ "\xff", 0 },
		{ "\xe2\x82", 0 },
		{ "\xe2\x82\x41", 0 },
		{ "\xf0\x90\x41\x80", 0 },
		{ "\xf0\x90\x80\x41", 0 },
		{ "", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t n = strlen(cases[i].text);
		char copy[4]; /* without an end, so that a sanitizer sees a byte too many */

		if (utf8_length(memcpy(copy, cases[i].text, n), n) != cases[i].length)
			fail_msg("case %zu", i);
		for (size_t less = 0; less < n && cases[i].length == n; less++)
			assert_int_equal(utf8_length(copy, less), 0);
	}
}

/* The caller of a text that ends with NUL need not know its length, and nothing behind it is read.
 */
static void test_utf8_stops_at_nul(void **state) {
	char one[1] = "", cut[2] = "\xf0";

	assert_int_equal(utf8_length(one, 4), 1); /* NUL is a character */
	assert_int_equal(utf8_length(cut, 4), 0);
	assert_int_equal(utf8_length("\xe2\x82", 4), 0);
	assert_int_equal(utf8_length("\xe2\x82\xac", 4), 3);
}

static void test_text(void **state) {
	char text[] = "a\x1b[31m\tb\x7f \xc3\xa9~";

	text_make_printable(text);
	assert_string_equal(text, "a?[31m?b? ??~");
	assert_true(is_control('\n') && is_control('\0') && is_control('\x7f') &&
		    is_control('\x1f'));
	assert_false(is_control(' ') || is_control('~') || is_control('\x80'));
}

/* One clock in three units, which does not go back. */
static void test_clock(void **state) {
	uint64_t ns = clock_ns(CLOCK_MONOTONIC), later;
	int64_t us = clock_us(CLOCK_MONOTONIC), ms = clock_ms(CLOCK_MONOTONIC);

	later = monotonic_now();
	assert_in_range(us, ns / 1000, later / 1000);
	assert_in_range(ms, ns / 1000000, later / 1000000);
	assert_true(ns && later >= ns);
}

int main(void) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_utf8_stops_at_nul),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
