/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of pass-definition.c and pass-set.c: valid definitions, which files count, in which
 * order passes run, and whose files are trusted.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pass-definition.h"

#define POINTS "\"attach_points\":{\"include\":[\"kprobe/*\"]}"

static void test_parse(void **state) {
	static const char text[] =
		"{\"name\":\"mine\",\"description\":\"d\",\"executable\":\"bin/x\","
		"\"attach_points\":{\"include\":[\"kprobe/a*\",\"kretprobe/"
		"b\"],\"exclude\":[\"kprobe/ab\"]},"
		"\"attach_type\":\"any\",\"order\":-5,\"parameters\":{\"x\":1},"
		"\"validation\":{\"max_output_bytes\":100,\"required_symbols\":[\"s\"]},"
		"\"timeout_ms\":5,\"memory_mib\":7}\n";
	char error[PASS_ERROR_SIZE] = "";
	struct pass_definition *d = NULL;
	json_object *printed;

	assert_int_equal(
		pass_definition_parse(&d, text, sizeof(text) - 1, "/etc/p/mine.json", error), 0);
	assert_string_equal(d->name, "mine");
	assert_string_equal(d->executable, "/etc/p/bin/x");
	assert_int_equal(d->order, -5);
	assert_int_equal(d->max_output_bytes, 100);
	assert_int_equal(d->timeout_ms, 5);
	assert_int_equal(d->memory_mib, 7);
	assert_int_equal(d->required_symbols.n, 1);
	assert_true(pass_definition_means(d, "kprobe/abc"));
	assert_false(pass_definition_means(d, "kprobe/ab"));
	assert_false(pass_definition_means(d, "kprobe/b"));
	assert_true(pass_definition_means(d, "kretprobe/b"));
	assert_false(pass_definition_means(d, "memcapture/a"));
	/* What is printed says the same. */
	printed = pass_definition_to_json(d);
	pass_definition_free(d);
	assert_int_equal(pass_definition_parse(&d, json_object_to_json_string(printed),
					       strlen(json_object_to_json_string(printed)), "/x",
					       error),
			 0);
	assert_string_equal(d->executable, "/etc/p/bin/x");
	assert_true(pass_definition_means(d, "kprobe/abc"));
	json_object_put(printed);
	pass_definition_free(d);
}

static void test_types(void **state) {
	static const struct {
		const char *type, *point;
		bool means;
	} cases[] = {
		{ "kprobe", "kprobe/f", true },
		{ "kprobe", "kretprobe/f", false },
		{ "kprobe", "kprobe/__memcapture", false },
		{ "memcapture", "kprobe/__memcapture", true },
		{ "memcapture", "memcapture/f", true },
		{ "memcapture", "kprobe/f", false },
		{ "kretprobe", "kretprobe/f", true },
		{ "kretprobe", "kprobe/f", false },
		{ "any", "kretprobe/f", true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[256], error[PASS_ERROR_SIZE];
		struct pass_definition *d;

		snprintf(text, sizeof(text),
			 "{\"name\":\"kretprobe\",\"attach_type\":\"%s\",\"attach_points\":{"
			 "\"include\":[\"*\"]}}",
			 cases[i].type);
		assert_int_equal(pass_definition_parse(&d, text, strlen(text), "/x", error), 0);
		assert_int_equal(pass_definition_means(d, cases[i].point), cases[i].means);
		pass_definition_free(d);
	}
}

static void test_invalid(void **state) {
	static const struct {
		const char *text, *words;
	} cases[] = {
		{ "", "not JSON: it ends too early" },
		{ "x", "not JSON" },
		{ "[]", "it is not one object" },
		{ "{} {}", "not JSON" },
		{ "{}", "name is missing" },
		{ "{\"name\":3," POINTS "}", "name is not a string" },
		{ "{\"name\":\"a b\"," POINTS "}", "name is missing, or not" },
		{ "{\"name\":\"mine\"," POINTS "}",
		  "executable is missing, and no pass mine is built in" },
		{ "{\"name\":\"mine\",\"executable\":\"\"," POINTS "}", "executable is empty" },
		{ "{\"name\":\"mine\",\"executable\":7," POINTS "}", "executable is not a string" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\"}", "attach_points is missing" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"attach_points\":[]}",
		  "attach_points is not an object" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"attach_points\":{}}",
		  "include is missing" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"attach_points\":{\"include\":[]}}",
		  "include is missing" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"attach_points\":{\"include\":[1]}}",
		  "no string" },
		{ "{\"name\":\"mine\",\"executable\":\"/"
		  "x\",\"attach_points\":{\"include\":[\"*\"],\"exlude\":[]}}",
		  "attach_points.exlude: there is no such member" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"ordr\":1," POINTS "}",
		  "ordr: there is no such member" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"order\":\"1\"," POINTS "}",
		  "order is not an integer" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"order\":99999999999," POINTS "}",
		  "order is not from" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"attach_type\":\"x\"," POINTS "}",
		  "attach_type is not" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"parameters\":3," POINTS "}",
		  "parameters is not an object" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"timeout_ms\":0," POINTS "}",
		  "timeout_ms is not from" },
		{ "{\"name\":\"mine\",\"executable\":\"/x\",\"validation\":{\"max\":1}," POINTS "}",
		  "validation.max" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char error[PASS_ERROR_SIZE] = "";
		struct pass_definition *d = NULL;

		assert_int_equal(pass_definition_parse(&d, cases[i].text, strlen(cases[i].text),
						       "/x/y", error),
				 PASS_E_INVALID);
		assert_null(d);
		if (!strstr(error, cases[i].words))
			fail_msg("%s: %s", cases[i].text, error);
		assert_null(strchr(error, '\n'));
	}
}

/* ---- folders ---- */

static char base[] = "/tmp/test-pass-definition-XXXXXX";
static char complaints[8192];

static void complain(const char *line, void *userdata) {
	assert_null(strchr(line, '\n'));
	strcat(complaints, line);
	strcat(complaints, "\n");
}

static const char *place(const char *folder, const char *name) {
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s/%s", base, folder, name);
	return path;
}

static void put(const char *folder, const char *name, const char *text, mode_t mode) {
	FILE *file;

	mkdir(place(folder, ""), 0755);
	file = fopen(place(folder, name), "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(chmod(place(folder, name), mode), 0);
}

/* Loads two folders; `names` is what the set has, in order. */
static void expect(const char *first, const char *second, size_t n_found, const char *names) {
	char a[256], b[256], found[1024] = "";
	const char *const folders[] = { a, b };
	struct pass_set set;

	snprintf(a, sizeof(a), "%s/%s", base, first);
	snprintf(b, sizeof(b), "%s/%s", base, second);
	complaints[0] = '\0';
	assert_int_equal(pass_set_load(&set, folders, 2, complain, NULL), 0);
	for (size_t i = 0; i < set.n; i++) {
		strcat(found, i ? " " : "");
		strcat(found, set.definitions[i]->name);
		assert_ptr_equal(pass_set_find(&set, set.definitions[i]->name), set.definitions[i]);
	}
	assert_null(pass_set_find(&set, "nothing of this name"));
	assert_string_equal(found, names);
	assert_int_equal(set.n_found, n_found);
	pass_set_deinit(&set);
}

#define BUILTINS "kprobe_entry kretprobe kprobe_memcapture"
#define USER(name, order) \
	"{\"name\":\"" name "\",\"executable\":\"/bin/sh\",\"order\":" order "," POINTS "}"

static void test_relative(void) {
	const char *const folders[] = { "e" };
	struct pass_set set;
	char *wanted;

	assert_int_equal(chdir(base), 0);
	assert_int_equal(pass_set_load(&set, folders, 1, complain, NULL), 0);
	wanted = realpath("e/run", NULL);
	assert_string_equal(pass_set_find(&set, "r")->executable, wanted);
	assert_int_equal(chdir("/"), 0);
	free(wanted);
	pass_set_deinit(&set);
}

static void test_folders(void **state) {
	assert_non_null(mkdtemp(base));
	/* Nothing there: what is built in. */
	expect("none", "neither", 0, BUILTINS);
	assert_string_equal(complaints, "");

	put("a", "x.json", USER("x", "50"), 0644);
	put("a", "y.json", USER("y", "400"), 0644);
	put("a", "README", "this is no definition", 0644);
	put("a", ".hidden.json", "nor this", 0644);
	expect("a", "none", 2, "x " BUILTINS " y");
	/* Another file of the same name, in a later folder, stands for it; an empty one hides it.
	 */
	put("b", "x.json", USER("z", "500"), 0644);
	expect("a", "b", 2, BUILTINS " y z");
	expect("b", "a", 2, "x " BUILTINS " y");
	/* An executable beside the file is found from anywhere, however the folder was named. */
	put("e", "run", "#!/bin/sh\n", 0755);
	put("e", "r.json", "{\"name\":\"r\",\"executable\":\"run\"," POINTS "}", 0644);
	test_relative();
	put("b", "x.json", "", 0644);
	expect("a", "b", 1, BUILTINS " y");
	assert_string_equal(complaints, "");
	/* Who defines one of ours leaves the others out. */
	put("c", "mine.json", "{\"name\":\"kretprobe\",\"order\":5," POINTS "}", 0644);
	put("c", "x.json", USER("x", "1"), 0644);
	expect("c", "none", 2, "x kretprobe");
	/* Of equals, by name. */
	put("d", "1.json", USER("q", "7"), 0644);
	put("d", "2.json", USER("p", "7"), 0644);
	expect("d", "none", 2, "p q " BUILTINS);
}

static void test_bad_files(void **state) {
	put("bad", "1.json", "{", 0644);
	put("bad", "2.json", USER("good", "1"), 0644);
	put("bad", "3.json", USER("good", "2"), 0644);
	put("bad", "4.json", USER("open", "2"), 0666);
	put("bad", "5.json", "{\"name\":\"gone\",\"executable\":\"nowhere\"," POINTS "}", 0644);
	put("bad", "6.json", "{\"name\":\"plain\",\"executable\":\"2.json\"," POINTS "}", 0644);
	put("bad", "program", "#!/bin/sh\n", 0777);
	put("bad", "7.json", "{\"name\":\"loose\",\"executable\":\"program\"," POINTS "}", 0644);
	mkdir(place("bad", "8.json"), 0755);
	assert_int_equal(symlink("nowhere", place("bad", "9.json")), 0);
	expect("bad", "none", 1, "good " BUILTINS);
	for (size_t i = 0; i < 8; i++) {
		static const char *const words[] = {
			"1.json: not JSON",
			"3.json: there is a pass good already",
			"4.json: it is writable by everybody",
			"5.json: executable",
			"6.json: executable",
			"7.json: its executable is writable by everybody",
			"8.json: not a regular file",
			"9.json: No such file",
		};

		if (!strstr(complaints, words[i]))
			fail_msg("%s is not in\n%s", words[i], complaints);
	}
	/* A file of another user. */
	if (!geteuid()) {
		put("other", "1.json", USER("other", "1"), 0644);
		assert_int_equal(chown(place("other", "1.json"), 12345, 0), 0);
		expect("other", "none", 0, BUILTINS);
		assert_non_null(strstr(complaints, "belongs to uid 12345"));
		put("other", "1.json", USER("other", "1"), 0664); /* of a group */
		assert_int_equal(chown(place("other", "1.json"), 0, 12345), 0);
		expect("other", "none", 0, BUILTINS);
		assert_non_null(strstr(complaints, "writable by group 12345"));
	}
	/* An executable that others can replace. */
	put("loose", "program", "#!/bin/sh\n", 0755);
	put("loose", "1.json", "{\"name\":\"p\",\"executable\":\"program\"," POINTS "}", 0644);
	expect("loose", "none", 1, BUILTINS " p");
	assert_int_equal(chmod(place("loose", ""), 0777), 0);
	expect("loose", "none", 0, BUILTINS);
	assert_non_null(
		strstr(complaints, "the folder of its executable is writable by everybody"));
	assert_int_equal(chmod(place("loose", ""), 01777), 0);
	expect("loose", "none", 1, BUILTINS " p");
	/* A folder that is none. */
	put("file", "x", "", 0644);
	expect("file/x", "none", 0, BUILTINS);
	assert_non_null(strstr(complaints, "Not a directory"));
}

static void test_which_folders(void **state) {
	const char *folders[2];

	unsetenv(PASS_VARIABLE);
	assert_int_equal(pass_folders(NULL, "/installed", folders), 2);
	assert_string_equal(folders[0], "/installed");
	assert_string_equal(folders[1], PASS_SYSTEM_FOLDER);
	setenv(PASS_VARIABLE, "/mine", 1);
	assert_int_equal(pass_folders(NULL, "/installed", folders), 1);
	assert_string_equal(folders[0], "/mine");
	assert_int_equal(pass_folders("/explicit", "/installed", folders), 1);
	assert_string_equal(folders[0], "/explicit");
	setenv(PASS_VARIABLE, "", 1);
	assert_int_equal(pass_folders(NULL, "/installed", folders), 2);
}

static int remove_base(void **state) {
	char command[sizeof(base) + 16];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	return system(command);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),     cmocka_unit_test(test_types),
		cmocka_unit_test(test_invalid),   cmocka_unit_test(test_folders),
		cmocka_unit_test(test_bad_files), cmocka_unit_test(test_which_folders),
	};

	return cmocka_run_group_tests(tests, NULL, remove_base);
}
