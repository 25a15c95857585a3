/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of job-text.c: jobs and replies without what holds only during one daemon's life. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job-text.h"

#define REQUEST(id, image, a, b)                                                        \
	"{\"job\":\"image\",\"image\":" image ",\"timeout_ms\":" image                  \
	",\"kind\":\"ptx\",\"attachments\":[{\"id\":" a ",\"kernel\":\"f\"},{\"id\":" b \
	",\"kernel\":\"g*\"}],\"programs\":[{\"name\":\"p\"}],\"id\":" id "}"
#define REPLY(a, b)                                                                       \
	"{\"status\":\"made\",\"applied\":[" a "," b                                      \
	"],\"kernels\":[{\"name\":\"_Z1fv\",\"demangled\":\"f()\\n\",\"attachments\":[" a \
	"],\"missing\":[{\"id\":" b ",\"point\":\"x\"}]}],\"size\":7}"

static char *text_of(const char *json, struct job_ids *ids) {
	json_object *request = json_tokener_parse(json);
	char *text = job_text_request(request, ids);

	assert_non_null(request);
	json_object_put(request);
	return text;
}

/* The same job of another daemon has the same text; another job has not. */
static void test_request(void **state) {
	static const struct {
		const char *json;
		bool same;
	} cases[] = {
		{ REQUEST("9", "1234", "70", "80"), true },
		{ REQUEST("1", "1", "2", "1"), true },
		{ "{\"job\":\"image\",\"kind\":\"ptx\",\"attachments\":[{\"id\":3,\"kernel\":\"f\"}"
		  "],\"programs\":[{\"name\":\"p\"}]}",
		  false },
		{ "{\"job\":\"image\",\"kind\":\"cubin\",\"attachments\":[{\"id\":3,\"kernel\":"
		  "\"f\"},{\"id\":4,\"kernel\":\"g*\"}],\"programs\":[{\"name\":\"p\"}]}",
		  false },
	};
	struct job_ids ids;
	char *first = text_of(REQUEST("1", "17", "3", "4"), &ids);

	assert_int_equal(ids.n, 2);
	assert_int_equal(ids.ids[1], 4);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *text = text_of(cases[i].json, &ids);

		assert_int_equal(strcmp(text, first) == 0, cases[i].same);
		free(text);
	}
	free(first);
	assert_null(text_of("{\"attachments\":[{\"kernel\":\"f\"}]}", &ids));
	assert_null(text_of("{\"attachments\":{}}", &ids));
}

/* A reply is kept under positions, and comes back with the ids of the job that asks. */
static void test_reply(void **state) {
	const struct job_ids made = { .n = 2, .ids = { 3, 4 } },
			     asks = { .n = 2, .ids = { 70, 80 } };
	json_object *reply = json_tokener_parse(REPLY("3", "4")),
		    *wanted = json_tokener_parse(REPLY("70", "80"));
	json_object *foreign = json_tokener_parse(REPLY("3", "5"));
	struct cache_entry entry = {};
	size_t size;
	char *text;

	text = job_text_keep_reply(reply, &made, &size);
	assert_non_null(text);
	assert_int_equal(size, strlen(text));
	job_text_name(wanted, reply, &entry);
	assert_string_equal(entry.name, "f()?");
	json_object_put(reply);
	reply = job_text_take_reply(text, size, &asks);
	assert_true(json_object_equal(reply, wanted));
	assert_null(job_text_keep_reply(foreign, &made, &size)); /* an id that was not asked for */
	json_object_put(reply);
	json_object_put(wanted);
	json_object_put(foreign);
	free(text);
}

/* What no worker would have said is not taken. */
static void test_bad_reply(void **state) {
	static const char *const bad[] = {
		"",
		"{",
		"[]",
		"{}",
		"{\"status\":1}",
		"{\"status\":\"error\"}",
		"{\"status\":\"own\"} x",
		"{\"status\":\"own\",\"applied\":1}",
		"{\"status\":\"own\",\"applied\":[2]}",
		"{\"status\":\"own\",\"applied\":[-1]}",
		"{\"status\":\"own\",\"applied\":[\"0\"]}",
		"{\"status\":\"own\",\"kernels\":{}}",
		"{\"status\":\"own\",\"kernels\":[1]}",
		"{\"status\":\"own\",\"kernels\":[{\"attachments\":[7]}]}",
		"{\"status\":\"own\",\"kernels\":[{\"missing\":[0]}]}",
		"{\"status\":\"own\",\"kernels\":[{\"missing\":[{}]}]}",
	};
	const struct job_ids ids = { .n = 2, .ids = { 3, 4 } };
	json_object *reply;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_null(job_text_take_reply(bad[i], strlen(bad[i]), &ids));
	reply = job_text_take_reply("{\"status\":\"own\",\"applied\":[1]}", 30, &ids);
	assert_non_null(reply);
	json_object_put(reply);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_request),
					    cmocka_unit_test(test_reply),
					    cmocka_unit_test(test_bad_reply) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
