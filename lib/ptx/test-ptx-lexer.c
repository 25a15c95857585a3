/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of ptx-lexer.c. Each case is a text and the tokens that it must become, written as
 * kind letter and text, separated by spaces.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ptx-lexer.h"

/*
 * The tokens as "W:add D:.u32 ,"; an error as "E:line:column". text is copied so that a sanitizer
 * sees any byte read behind it.
 */
static void lex(const char *text, size_t length, char *out, size_t size) {
	static const char letters[] = "?WDIFS";
	char *copy = malloc(length + 1);
	struct ptx_error error;
	struct ptx_token token;
	struct ptx_lexer lexer;
	size_t used = 0;

	memcpy(copy, text, length);
	copy = realloc(copy, length ?: 1);
	ptx_lexer_init(&lexer, copy, 0, length);
	*out = '\0';
	for (;;) {
		if (ptx_lexer_next(&lexer, &token, &error)) {
			snprintf(out + used, size - used, "%sE:%u:%u", used ? " " : "", error.line,
				 error.column);
			break;
		}
		if (token.kind == PTX_TOKEN_END)
			break;
		assert_true(token.length > 0);
		if (token.kind == PTX_TOKEN_PUNCTUATION)
			used += snprintf(out + used, size - used, "%s%.*s", used ? " " : "",
					 (int)token.length, copy + token.offset);
		else
			used += snprintf(out + used, size - used, "%s%c:%.*s", used ? " " : "",
					 letters[token.kind], (int)token.length,
					 copy + token.offset);
	}
	free(copy);
}

static void check(const char *text, const char *expected) {
	char out[4096];

	lex(text, strlen(text), out, sizeof(out));
	assert_string_equal(out, expected);
}

static void test_words(void **state) {
	check("ld.global.u32 %r1, [%rd1+4];", "W:ld.global.u32 W:%r1 , [ W:%rd1 + I:4 ] ;");
	check("ld.global.L1::no_allocate.L2::128B.v4.f32",
	      "W:ld.global.L1::no_allocate.L2::128B.v4.f32");
	check("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64",
	      "W:tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64");
	check("tex.2d.v4.f32.f32 mma.m16n8k16", "W:tex.2d.v4.f32.f32 W:mma.m16n8k16");
	check("ld .global .v4.u32", "W:ld D:.global D:.v4 D:.u32");
	check(".visible.global.align 8", "D:.visible D:.global D:.align I:8");
	check("$L__BB0_1: _ a$b.c _$x %tid.x % 3",
	      "W:$L__BB0_1 : W:_ W:a$b.c W:_$x W:%tid.x % I:3");
	check("@!%p1 bra $L;", "@ ! W:%p1 W:bra W:$L ;");
	check("%f<7>", "W:%f < I:7 >");
	check("p|q {%r1,_}", "W:p | W:q { W:%r1 , W:_ }");
	check("a:b", "W:a : W:b");
	check("{ts:.branchtargets a;}", "{ W:ts : D:.branchtargets W:a ; }");
}

static void test_numbers(void **state) {
	check("0 12 017 0x1F 0XfU 0b101 12u", "I:0 I:12 I:017 I:0x1F I:0XfU I:0b101 I:12u");
	check("0f3F800000 0F3f800000 0d3FF0000000000000",
	      "F:0f3F800000 F:0F3f800000 F:0d3FF0000000000000");
	check("1.5 .5 1. 1e5 1.E-3 2e+7", "F:1.5 F:.5 F:1. F:1e5 F:1.E-3 F:2e+7");
	check("-1.5+2", "- F:1.5 + I:2");
	check(".5x .2d .8x8", "D:.5x D:.2d D:.8x8");
	check("0f3F80000", "E:1:1");
	check("0f3F8000001", "E:1:1");
	check("0x", "E:1:1");
	check("0b2", "E:1:1");
	check("12abc", "E:1:1");
	check("8.b64", "E:1:1");
}

static void test_blank(void **state) {
	check("a // } ret; \"\nb /* } \" */ c/**/d", "W:a W:b W:c W:d");
	check("/* /* */ x // no newline", "W:x");
	check("# 1 \"f } .cu\"\n x\n  #pragma\ny", "W:x W:y");
	check("a /", "W:a /");
	check("a / b", "W:a / W:b");
	check("a\r\n\tb", "W:a W:b");
	check("", "");
	check("x /* no end *", "W:x E:1:3");
	check("/*/", "E:1:1");
	check("a # b", "W:a E:1:3");
}

static void test_strings(void **state) {
	check(".pragma \"a } b; // c\";", "D:.pragma S:\"a } b; // c\" ;");
	check("\"\" \"back\\\" x", "S:\"\" S:\"back\\\" W:x");
	check("\n\n  \"no end", "E:3:3");
}

static void test_errors(void **state) {
	char out[64];

	check("a . b", "W:a E:1:3");
	check("a .", "W:a E:1:3");
	check("\x01", "E:1:1");
	check("a\n  \xc3\xa9", "W:a E:2:3");
	check("`", "E:1:1");
	lex("a\0b", 3, out, sizeof(out));
	assert_string_equal(out, "W:a E:1:2");
}

/* Every prefix of a text with everything: nothing behind it may be read (a sanitizer tells). */
static void test_prefixes(void **state) {
	static const char text[] = "ld.a::b.c %x.y 0f3F800000 0d3FF0000000000000 1.5e-3 .5e+3 "
				   "0x1FU 0b1 .entry $a.b /* c */ \"s\" // d";
	char out[4096];

	for (size_t length = 0; length < sizeof(text); length++)
		lex(text, length, out, sizeof(out));
}

static void test_values(void **state) {
	static const struct {
		const char *text;
		bool good;
		uint64_t value;
	} integers[] = {
		{ "0", true, 0 },
		{ "12", true, 12 },
		{ "017", true, 15 },
		{ "0x1fU", true, 31 },
		{ "0b101", true, 5 },
		{ "18446744073709551615", true, UINT64_MAX },
		{ "18446744073709551616", false, 0 },
		{ "09", false, 0 },
		{ "0xFFFFFFFFFFFFFFFF", true, UINT64_MAX },
		{ "0x1FFFFFFFFFFFFFFFF", false, 0 },
		{ "x", false, 0 },
		{ "", false, 0 },
		{ "U", false, 0 },
	};
	unsigned int width;
	uint64_t value;

	for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
		assert_int_equal(ptx_integer_value(integers[i].text, strlen(integers[i].text),
						   &value),
				 integers[i].good);
		if (integers[i].good)
			assert_true(value == integers[i].value);
	}
	assert_true(ptx_float_bits("0f3F800000", 10, &value, &width) && value == 0x3f800000 &&
		    width == 32);
	assert_true(ptx_float_bits("0D3ff0000000000000", 18, &value, &width) &&
		    value == 0x3ff0000000000000 && width == 64);
	assert_true(ptx_float_bits("1.5", 3, &value, &width) && value == 0x3ff8000000000000 &&
		    width == 64);
	assert_true(ptx_float_bits(".5", 2, &value, &width) && value == 0x3fe0000000000000);
	assert_false(ptx_float_bits("0f3F80000", 9, &value, &width));
	assert_false(ptx_float_bits("inf", 3, &value, &width));
	assert_false(ptx_float_bits("", 0, &value, &width));
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),  cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_blank),  cmocka_unit_test(test_strings),
		cmocka_unit_test(test_errors), cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
