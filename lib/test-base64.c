/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of base64.c. */

#include "base64.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The vectors of RFC 4648, section 10. */
static void test_vectors(void **state) {
	static const char *const vectors[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "fo", "Zm8=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
		{ "\xff\xfe\xfd", "//79" },
	};

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		size_t n = strlen(vectors[i][0]), decoded;
		unsigned char *data;
		char text[32];

		base64_encode(text, vectors[i][0], n);
		assert_string_equal(text, vectors[i][1]);
		assert_int_equal(strlen(text) + 1, base64_encoded_size(n));
		assert_int_equal(base64_decode(text, strlen(text), &data, &decoded), 0);
		assert_int_equal(decoded, n);
		assert_memory_equal(data, vectors[i][0], n);
		free(data);
	}
}

static void test_bad(void **state) {
	static const char *const bad[] = { "Z",      "Zg",   "Zg=",  "Z===", "====",    "Zg==Zg==",
					   "Zm9v\n", "Zh==", "Zm9=", "Zm-v", "Zm9v ===" };
	unsigned char *data;
	size_t n;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(base64_decode(bad[i], strlen(bad[i]), &data, &n), -EINVAL);
}

static void test_all_bytes(void **state) {
	unsigned char bytes[256], *data;
	char text[400];
	size_t n;

	for (int i = 0; i < 256; i++)
		bytes[i] = (unsigned char)(i * 37);
	for (size_t length = 0; length <= 256; length++) {
		base64_encode(text, bytes, length);
		assert_int_equal(base64_decode(text, strlen(text), &data, &n), 0);
		assert_int_equal(n, length);
		assert_memory_equal(data, bytes, length);
		free(data);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_all_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
