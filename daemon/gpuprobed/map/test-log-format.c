/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of log-format.c: each conversion compared with printf(), and records that lie. */

#include "log-format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/log-record.h"

static void check(const char *expected, const char *format, const uint64_t *arguments, size_t n) {
	char *copy = malloc(strlen(format) + 1), text[LOG_TEXT_SIZE];

	assert_non_null(copy);
	memcpy(copy, format, strlen(format)); /* no NUL behind it */
	log_format(text, copy, strlen(format), arguments, n);
	free(copy);
	if (strcmp(text, expected))
		fail_msg("%s: got \"%s\", not \"%s\"", format, text, expected);
}

static void test_conversions(void **state) {
	static const struct {
		const char *format, *expected;
		uint64_t argument;
	} cases[] = {
		{ "%d", "-1", UINT32_MAX },
		{ "%i!", "-2147483648!", 0x80000000 },
		{ "%u", "4294967295", UINT64_MAX },
		{ "%ld", "-1", UINT64_MAX },
		{ "%lld", "-9223372036854775808", 1ull << 63 },
		{ "%lu", "18446744073709551615", UINT64_MAX },
		{ "%llu", "18446744073709551615", UINT64_MAX },
		{ "%zu", "4294967296", 1ull << 32 },
		{ "%hd", "-1", 0xffff },
		{ "%hhx", "ff", 0x1ff },
		{ "%x", "89abcdef", 0x123456789abcdef },
		{ "%lx", "123456789abcdef", 0x123456789abcdef },
		{ "%llX", "123456789ABCDEF", 0x123456789abcdef },
		{ "%#x %% %d", "0x7 % %d", 7 },
		{ "%#o", "017", 15 },
		{ "%p", "00000000deadbeef", 0xdeadbeef },
		{ "%px]", "00000000deadbeef]", 0xdeadbeef },
		{ "%pS, %d", "00000000deadbeef, %d", 0xdeadbeef },
		{ "%20p|", "    00000000deadbeef|", 0xdeadbeef },
		{ "%pks", "<0xdeadbeef>", 0xdeadbeef },
		{ "%pI4", "<0xdeadbeef>", 0xdeadbeef },
		{ "%pz", "%pz", 1 },
		{ "%s", "<0x7f0000001000>", 0x7f0000001000 },
		{ "%s", "<0x0>", 0 },
		{ "%-8s|", "<0x1>   |", 1 },
		{ "%c%c", "A%c", 0x141 },
		{ "%3c|", "  A|", 'A' },
		{ "%c", "\\x1b", 0x1b },
		{ "%c", "\\x00", 0 },
		/* not conversions */
		{ "100%", "100%", 1 },
		{ "%", "%", 1 },
		{ "%5", "%5", 1 },
		{ "%.", "%.", 1 },
		{ "%l", "%l", 1 },
		{ "%n", "%n", 1 },
		{ "%f", "%f", 1 },
		{ "%5%", "%5%", 1 },
		{ "%*d", "%*d", 1 },
		{ "%n%d", "%n1", 1 },
		{ "%%d%d", "%d1", 1 },
		/* text */
		{ "line\n", "line", 0 },
		{ "a\nb\n\n", "a\\nb", 0 },
		{ "\n", "", 0 },
		{ "a\tb\tc", "a       b       c", 0 },
		{ "\x1b[31mred\r", "\\x1b[31mred\\x0d", 0 },
		{ "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		  "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", 0 },
		{ "\xc3", "\\xc3", 0 },
		{ "\xc3(", "\\xc3(", 0 },
		{ "\xc2\x9b", "\\xc2\\x9b", 0 }, /* CSI in one character */
		{ "\xc0\xaf \xe0\x80\xaf", "\\xc0\\xaf \\xe0\\x80\\xaf", 0 },
		{ "\xed\xa0\x80", "\\xed\\xa0\\x80", 0 },
		{ "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", 0 },
		{ "\x7f", "\\x7f", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check(cases[i].expected, cases[i].format, &cases[i].argument, 1);
	check("%d", "%d", NULL, 0);
}

/* All flags, widths and precisions against printf(). */
static void test_printf(void **state) {
	static const uint64_t values[] = { 0,          1,         7,          255,       0x80000000,
					   UINT32_MAX, INT64_MAX, 1ull << 63, UINT64_MAX };
	static const char *const sizes[] = { "", "hh", "h", "l", "ll" };
	static const char letters[] = "diuxXo";
	char flags[6], format[32], expected[256];

	for (unsigned int set = 0; set < 32; set++) {
		size_t n = 0;

		for (unsigned int i = 0; i < 5; i++)
			if (set >> i & 1)
				flags[n++] = "-+ #0"[i];
		flags[n] = '\0';
		for (unsigned int k = 0; k < 5 * 6 * 16; k++) {
			unsigned int width = k % 4 * 7, precision = k / 4 % 4 * 3;
			const char *size = sizes[k / 16 % 5];

			n = (size_t)snprintf(format, sizeof(format), "%%%s", flags);
			if (width)
				n += (size_t)snprintf(format + n, sizeof(format) - n, "%u", width);
			if (precision)
				n += (size_t)snprintf(format + n, sizeof(format) - n, ".%u",
						      precision - 3);
			snprintf(format + n, sizeof(format) - n, "%s%c", size, letters[k / 80]);
			for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
				snprintf(expected, sizeof(expected), format, values[i]);
#pragma GCC diagnostic pop
				check(expected, format, &values[i], 1);
			}
		}
	}
}

static void test_long(void **state) {
	static const uint64_t arguments[LOG_ARGS_MAX] = { 1 };
	char format[LOG_FORMAT_MAX + 1] = "", expected[LOG_TEXT_SIZE], text[LOG_TEXT_SIZE];

	for (int i = 0; i < LOG_ARGS_MAX; i++)
		strcat(format, "%999999999999d%-300d");
	log_format(text, format, strlen(format), arguments, LOG_ARGS_MAX);
	memset(expected, ' ', 127);
	memcpy(expected + 127, "1", 2);
	assert_memory_equal(text, expected, 128);
	assert_int_equal(strlen(text), 128 * LOG_ARGS_MAX + strlen("%999999999999d%-300d") * 6);
	memset(format, 0x1b, sizeof(format));
	log_format(text, format, sizeof(format), NULL, 0);
	assert_int_equal(strlen(text), 4 * sizeof(format));
}

struct record {
	struct log_record header;
	uint64_t arguments[2];
	char text[16];
};

static void test_records(void **state) {
	struct record good = { .header = { .time = 123,
					   .kind = LOG_PRINTK,
					   .format_length = 10,
					   .arg_count = 2,
					   .program = 3 },
			       .arguments = { 4, 5 },
			       .text = "%d and %d\n" },
		      record;
	struct log_line line;

	assert_int_equal(log_line_read(&line, &good, sizeof(good)), 0);
	assert_string_equal(line.text, "4 and 5");
	assert_int_equal(line.time, 123);
	assert_int_equal(line.program, 3);
	assert_int_equal(log_line_read(&line, &good, 16 + 16 + 10), 0);
	for (size_t n = 0; n < 16 + 16 + 10; n++)
		assert_int_equal(log_line_read(&line, &good, n), LOG_E_INVALID);
	record = good;
	record.header.kind = LOG_PUTS;
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), 0);
	assert_string_equal(line.text, "%d and %d");
	record.header.arg_count = 0; /* the text is where the arguments were */
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), 0);
	assert_string_equal(line.text, "\\x04\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x05\\x00");
	record.header.kind = 0;
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), LOG_E_INVALID);
	record.header.kind = 3;
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), LOG_E_INVALID);
	record = good;
	record.header.arg_count = LOG_ARGS_MAX + 1;
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), LOG_E_INVALID);
	record.header.arg_count = UINT16_MAX;
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), LOG_E_INVALID);
	record = good;
	record.header.format_length = UINT16_MAX;
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), LOG_E_INVALID);
	record.header.format_length = 17;
	assert_int_equal(log_line_read(&line, &record, sizeof(record)), LOG_E_INVALID);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conversions),
		cmocka_unit_test(test_printf),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
