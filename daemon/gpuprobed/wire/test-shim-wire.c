/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of shim-wire.c: each rule of shim_wire_check(), broken alone. */

#include "shim-wire.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "proto/patch.h"

static union wire_message make(uint16_t type) {
	union wire_message message = {};

	message.header.magic = WIRE_MAGIC;
	message.header.version = WIRE_VERSION;
	message.header.type = type;
	message.header.size = (uint32_t)wire_size(type);
	if (type == WIRE_HELLO)
		message.hello.role = WIRE_ROLE_LOADER;
	if (type == WIRE_IMAGE) {
		message.image.image_size = 100;
		message.image.kind = WIRE_IMAGE_PTX;
		message.image.capability_major = 9;
	}
	return message;
}

static const char *check(enum shim_state state, const union wire_message *message) {
	return shim_wire_check(state, message, message->header.size,
			       shim_wire_fds(message->header.type));
}

static void test_states(void **state) {
	static const uint16_t types[] = { WIRE_HELLO,  WIRE_IMAGE,          WIRE_INSTANCE,
					  WIRE_ARMED,  WIRE_UNLOAD,         WIRE_REPORT,
					  WIRE_SYNCED, WIRE_WELCOME,        WIRE_IMAGE_REPLY,
					  WIRE_SLOT,   WIRE_INSTANCE_REPLY, WIRE_SYNC,
					  WIRE_DISARM, WIRE_TRACE,          WIRE_TRACE_REPLY };
	static const char *const allowed[] = {
		[SHIM_NEW] = "100000000000000",         [SHIM_LOADER] = "011111000000000",
		[SHIM_LOADER_BUSY] = "000111000000000", [SHIM_MIRROR] = "000000100000000",
		[SHIM_TRACE] = "000000000000010",       [SHIM_CLOSED] = "000000000000000",
	};

	for (int s = SHIM_NEW; s <= SHIM_CLOSED; s++)
		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
			union wire_message message = make(types[i]);

			if ((check((enum shim_state)s, &message) == NULL) != (allowed[s][i] == '1'))
				fail_msg("state %d, type %d", s, types[i]);
		}
}

static void test_next(void **state) {
	union wire_message message = make(WIRE_HELLO);

	assert_int_equal(shim_wire_next(SHIM_NEW, &message), SHIM_LOADER);
	message.hello.role = WIRE_ROLE_MIRROR;
	assert_int_equal(shim_wire_next(SHIM_NEW, &message), SHIM_MIRROR);
	message.hello.role = WIRE_ROLE_TRACE;
	assert_int_equal(shim_wire_next(SHIM_NEW, &message), SHIM_TRACE);
	message = make(WIRE_TRACE);
	assert_int_equal(shim_wire_next(SHIM_TRACE, &message), SHIM_TRACE);
	message = make(WIRE_IMAGE);
	assert_int_equal(shim_wire_next(SHIM_LOADER, &message), SHIM_LOADER_BUSY);
	message = make(WIRE_ARMED);
	assert_int_equal(shim_wire_next(SHIM_LOADER_BUSY, &message), SHIM_LOADER_BUSY);
}

static void test_framing(void **state) {
	union wire_message message = make(WIRE_IMAGE);

	assert_null(check(SHIM_LOADER, &message));
	assert_non_null(shim_wire_check(SHIM_LOADER, &message, message.header.size, 0));
	assert_non_null(shim_wire_check(SHIM_LOADER, &message, message.header.size, 2));
	assert_non_null(shim_wire_check(SHIM_LOADER, &message, message.header.size - 1, 1));
	assert_non_null(shim_wire_check(SHIM_LOADER, &message, 3, 1));
	assert_non_null(shim_wire_check(SHIM_LOADER, &message, 0, 1));
	message.header.version++;
	assert_non_null(check(SHIM_LOADER, &message));
	message = make(WIRE_IMAGE);
	message.header.magic++;
	assert_non_null(check(SHIM_LOADER, &message));
	message = make(WIRE_ARMED);
	assert_non_null(shim_wire_check(SHIM_LOADER, &message, message.header.size,
					1)); /* surplus descriptor */
	message.header.type = 1000;
	assert_non_null(shim_wire_check(SHIM_LOADER, &message, message.header.size, 0));
}

/* Shims of other versions say who they are, as far as that can be shown. */
static void test_other_versions(void **state) {
	union wire_message message = make(WIRE_HELLO);
	struct shim_greeting greeting;
	const size_t size = message.header.size;

	assert_false(shim_wire_other(&message, size, 0, &greeting)); /* ours */
	strcpy(message.hello.shim_version, "0.2.0~rc1+deb12");
	for (uint32_t version = 0; version < 2 * WIRE_VERSION; version++) {
		if (version == WIRE_VERSION)
			continue;
		message.header.version = (uint16_t)version;
		assert_true(shim_wire_other(&message, size, 0, &greeting));
		assert_int_equal(greeting.version, version);
		assert_string_equal(greeting.shim_version, "0.2.0~rc1+deb12");
	}
	message.header.size = size + 8;
	assert_true(
		shim_wire_other(&message, size + 8, 0, &greeting)); /* a later one may have more */
	message.header.size = sizeof(message.header);
	assert_true(shim_wire_other(&message, sizeof(message.header), 0, &greeting));
	assert_string_equal(greeting.shim_version, "?");
	assert_false(shim_wire_other(&message, sizeof(message.header) - 1, 0, &greeting));
	assert_false(shim_wire_other(&message, size, 0, &greeting));
	message.header.size = size;
	assert_false(shim_wire_other(&message, size, 1, &greeting));
	strcpy(message.hello.shim_version, "1.0\033[2J");
	assert_true(shim_wire_other(&message, size, 0, &greeting));
	assert_string_equal(greeting.shim_version, "?");
	memset(message.hello.shim_version, '1', sizeof(message.hello.shim_version));
	assert_true(shim_wire_other(&message, size, 0, &greeting));
	assert_string_equal(greeting.shim_version, "?");
	message.header.type = WIRE_IMAGE;
	assert_false(shim_wire_other(&message, size, 0, &greeting));
}

static void test_fields(void **state) {
	union wire_message message;

#define BAD(TYPE, STATE, CHANGE)                         \
	do {                                             \
		message = make(TYPE);                    \
		assert_null(check(STATE, &message));     \
		CHANGE;                                  \
		assert_non_null(check(STATE, &message)); \
	} while (0)
	BAD(WIRE_HELLO, SHIM_NEW, message.hello.role = 0);
	BAD(WIRE_HELLO, SHIM_NEW, message.hello.role = 4);
	BAD(WIRE_TRACE, SHIM_TRACE, message.trace.flags = 1);
	BAD(WIRE_HELLO, SHIM_NEW, memset(message.hello.shim_version, 'x', 32));
	BAD(WIRE_HELLO, SHIM_NEW, message.hello.shim_version[31] = 'x');
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.image_size = 0);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.image_size = WIRE_IMAGE_SIZE_MAX + 1);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.kind = 0);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.kind = 5);
	BAD(WIRE_IMAGE, SHIM_LOADER,
	    (message.image.kind = WIRE_IMAGE_NAMES,
	     message.image.image_size = PATCH_NAMES_SIZE_MAX + 1));
	BAD(WIRE_IMAGE, SHIM_LOADER,
	    (message.image.kind = WIRE_IMAGE_NAMES, message.image.flags = WIRE_IMAGE_FLAG_AWAITED));
	message = make(WIRE_IMAGE);
	message.image.kind = WIRE_IMAGE_NAMES;
	message.image.image_size = PATCH_NAMES_SIZE_MAX;
	assert_null(check(SHIM_LOADER, &message));
	assert_non_null(check(SHIM_LOADER_BUSY, &message)); /* one at a time, images and lists */
	message = make(WIRE_IMAGE);
	message.image.flags = WIRE_IMAGE_FLAG_AWAITED;
	assert_null(check(SHIM_LOADER, &message));
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.flags = 2);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.capability_major = 0);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.capability_major = UINT32_MAX);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.capability_minor = 10);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.device = SHIM_DEVICES_MAX);
	BAD(WIRE_IMAGE, SHIM_LOADER, message.image.reserved = 1);
	BAD(WIRE_INSTANCE, SHIM_LOADER, message.instance.device = UINT32_MAX);
	BAD(WIRE_INSTANCE, SHIM_LOADER, message.instance.reserved = 1);
	BAD(WIRE_ARMED, SHIM_LOADER, message.armed.device = SHIM_DEVICES_MAX);
	BAD(WIRE_ARMED, SHIM_LOADER, message.armed.reserved = 1);
	BAD(WIRE_REPORT, SHIM_LOADER, memset(message.report.reason, 'x', WIRE_REASON_MAX));
	BAD(WIRE_REPORT, SHIM_LOADER, message.report.reason[100] = 'x');
#undef BAD
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),  cmocka_unit_test(test_next),
		cmocka_unit_test(test_framing), cmocka_unit_test(test_other_versions),
		cmocka_unit_test(test_fields),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
