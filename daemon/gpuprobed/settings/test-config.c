/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of config.c: defaults, the order of command line, drop-ins and file, lists, and
 * errors.
 */

#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARGUMENTS_MAX 8

static char folder[64], main_file[96], drop_ins[96];
static char error[CONFIG_ERROR_SIZE];

/* Where the files are; all of this ends with remove(). */
static int setup(void **state) {
	strcpy(folder, "/tmp/test-config-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(main_file, sizeof(main_file), "%s/gpuprobed.conf", folder);
	snprintf(drop_ins, sizeof(drop_ins), "%s/gpuprobed.conf.d", folder);
	return 0;
}

static int teardown(void **state) {
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static void write_text(const char *path, const char *text, size_t size) {
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0644), 0);
}

static void write_file(const char *path, const char *text) {
	write_text(path, text, strlen(text));
}

static void write_drop_in(const char *name, const char *text) {
	char path[128];

	mkdir(drop_ins, 0755);
	snprintf(path, sizeof(path), "%s/%s", drop_ins, name);
	write_file(path, text);
}

/* Reads the files and these arguments. NULL: failed, as r says; error has the line. */
static struct config *read_config(int expected, const char *a, const char *b, const char *c) {
	const char *arguments[ARGUMENTS_MAX] = { "gpuprobed", a, b, c };
	char *argv[ARGUMENTS_MAX] = {};
	struct config *config = NULL;
	int argc = 0;

	while (arguments[argc]) {
		argv[argc] = strdup(arguments[argc]);
		argc++;
	}
	assert_int_equal(config_new(&config, argc, argv, main_file, drop_ins, error), expected);
	while (argc)
		free(argv[--argc]);
	if (expected)
		assert_null(config);
	else
		assert_string_equal(error, "");
	return config;
}

static void test_defaults(void **state) {
	struct config *config = read_config(0, NULL, NULL, NULL);

	assert_true(config->verify);
	assert_false(config->allow_exit);
	assert_int_equal(config->deadline_ms, 2000);
	assert_in_range(config->workers, 2, 8);
	assert_int_equal(config->engines.fallback, ENGINE_PTX);
	assert_null(config->toolkit);
	assert_int_equal(config->action, CONFIG_RUN);
	config_free(config);
}

/* The command line, then drop-ins in the order of their names, then the file. */
static void test_precedence(void **state) {
	struct config *config;

	write_file(main_file, "# a comment\n\n  deadline-ms = 100  "
			      "\r\nverify=off\ncompile-ms=1\n\ttoolkit = /a b#c\nallow-exit = yes");
	write_drop_in("20.conf", "compile-ms = 3\nworkers = 3\n");
	write_drop_in("10.conf", "compile-ms = 2\nmirror-period-ms = 0\n");
	write_drop_in("10.conf.dpkg-old", "nonsense\n");
	write_drop_in(".hidden.conf", "nonsense\n");
	config = read_config(0, "--workers=4", "--workers=5", NULL);
	assert_int_equal(config->deadline_ms, 100);
	assert_false(config->verify);
	assert_true(config->allow_exit);
	assert_string_equal(config->toolkit, "/a b#c");
	assert_int_equal(config->compile_ms, 3);
	assert_int_equal(config->mirror_period_ms, 0);
	assert_int_equal(config->workers, 5);
	config_free(config);

	config = read_config(0, "--allow-exit=no", "--verify=on", NULL);
	assert_false(config->allow_exit);
	assert_true(config->verify);
	config_free(config);
	config = read_config(0, "--session", NULL, NULL); /* reads no file */
	assert_int_equal(config->deadline_ms, 2000);
	config_free(config);
	config = read_config(0, "--session=a", "--config",
			     main_file); /* but this, and not the drop-ins */
	assert_string_equal(config->session_name, "a");
	assert_int_equal(config->deadline_ms, 100);
	assert_int_equal(config->compile_ms, 1);
	config_free(config);
}

/* Items add up over files; the command line's stand for theirs; an empty one forgets. */
static void test_lists(void **state) {
	struct config *config;

	write_file(main_file, "stub = a\nstub = b\nengine = sanitizer:uid=1\n");
	write_drop_in("a.conf", "stub = c\nengine = off:uid=2\nengine = auto\n");
	config = read_config(0, NULL, NULL, NULL);
	assert_int_equal(config->stubs.n, 3);
	assert_string_equal(config->stubs.items[2], "c");
	assert_null(config->stubs.items[3]);
	assert_int_equal(config->engines.n, 2);
	assert_int_equal(config->engines.rules[1].filter.uid, 2);
	assert_int_equal(config->engines.fallback, ENGINE_AUTO);
	config_free(config);

	config = read_config(0, "--stub=x", "--stub=y", "--engine=sanitizer");
	assert_int_equal(config->stubs.n, 2);
	assert_string_equal(config->stubs.items[0], "x");
	assert_int_equal(config->engines.n, 0);
	assert_int_equal(config->engines.fallback, ENGINE_SANITIZER);
	config_free(config);

	write_drop_in("b.conf", "engine =\nengine = off\nstub =\n");
	config = read_config(0, NULL, NULL, NULL);
	assert_int_equal(config->stubs.n, 0);
	assert_int_equal(config->engines.n, 0);
	assert_int_equal(config->engines.fallback, ENGINE_OFF);
	config_free(config);
}

static void test_bad_file(void **state) {
	static const struct {
		const char *text, *what;
	} cases[] = {
		{ "# x\nworker = 4\n",
		  ":2: worker: there is no such setting; gpuprobed --help has their names" },
		{ "image-worker-argument = x\n", ":1: image-worker-argument: there is no such "
						 "setting; gpuprobed --help has their names" },
		{ "session = x\n",
		  ":1: session: there is no such setting; gpuprobed --help has their names" },
		{ "workers\n", ":1: workers: expected \"key = value\"" },
		{ "= 4\n", ":1: : there is no such setting; gpuprobed --help has their names" },
		{ "\n\nworkers = 0", ":3: workers = 0: not a number from 1 to 64" },
		{ "workers = 65", ":1: workers = 65: not a number from 1 to 64" },
		{ "workers = -1", ":1: workers = -1: not a number from 1 to 64" },
		{ "workers = 4 # four", ":1: workers = 4 # four: not a number from 1 to 64" },
		{ "workers = 1K", ":1: workers = 1K: not a number from 1 to 64" },
		{ "deadline-ms = 18446744073709551626",
		  ":1: deadline-ms = 18446744073709551626: not a number from 10 to 600000" },
		{ "workers =", ":1: workers = : a value is missing" },
		{ "verify = true", ":1: verify = true: expected on or off" },
		{ "allow-exit = 1", ":1: allow-exit = 1: expected yes or no" },
		{ "workers = 2\nworkers = 2", ":2: workers = 2: this file has set it before" },
		{ "engine = sanitizer:gid=1", ":1: engine = sanitizer:gid=1: expected uid=N, "
					      "exe=PATH, comm=NAME or cgroup=PATH" },
		{ "exclude = exe=a",
		  ":1: exclude = exe=a: expected an absolute path or a glob after exe=" },
		{ "exclude = uid=x", ":1: exclude = uid=x: expected a number after uid=" },
		{ "exclude = pid=1",
		  ":1: exclude = pid=1: expected uid=N, exe=PATH, comm=NAME or cgroup=PATH" },
		{ "cupti = libcupti.so",
		  ":1: cupti = libcupti.so: expected an absolute path of at most 255 bytes" },
		{ "sanitizer = lib.so",
		  ":1: sanitizer = lib.so: expected an absolute path of at most 255 bytes" },
	};
	char expected[CONFIG_ERROR_SIZE], many[CONFIG_LIST_MAX * 32] = "";

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_file(main_file, cases[i].text);
		read_config(CONFIG_E_FILE, NULL, NULL, NULL);
		snprintf(expected, sizeof(expected), "%s%s", main_file, cases[i].what);
		assert_string_equal(error, expected);
	}
	for (unsigned int i = 0; i < 17; i++)
		strcat(many, "stub = x\n");
	write_file(main_file, many);
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(error, ":17: stub = x: at most 16 of them"));
	*many = '\0';
	for (unsigned int i = 0; i < CONFIG_LIST_MAX + 1; i++)
		strcat(many, "exclude = comm=x\n");
	write_file(main_file, many);
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(error, ":33: exclude = comm=x: at most 32 of them"));
}

/* What cannot be a configuration at all, or may be somebody else's. */
static void test_refused_file(void **state) {
	static char large[64 * 1024 + 1];
	char other[128];

	read_config(CONFIG_E_FILE, "--config=/nonexistent/x", NULL, NULL);
	assert_string_equal(error, "/nonexistent/x: there is no such file");
	memset(large, '\n', sizeof(large));
	write_text(main_file, large, sizeof(large) - 1);
	config_free(read_config(0, NULL, NULL, NULL));
	write_text(main_file, large, sizeof(large));
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(error, "more than 64 KiB"));
	write_text(main_file, "stub = a\0b", 10);
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(error, "has a NUL in it"));
	write_file(main_file, "");
	assert_int_equal(chmod(main_file, 0664), 0);
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(error, "must belong to root, and nobody else may write to it"));
	snprintf(other, sizeof(other), "--config=%s", folder);
	read_config(CONFIG_E_FILE, other, NULL, NULL);
	assert_non_null(strstr(error, "not a file"));
	if (geteuid())
		return;
	assert_int_equal(chmod(main_file, 0644), 0);
	write_drop_in("a.conf", "");
	assert_int_equal(chmod(drop_ins, 0775), 0);
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(
		error, "gpuprobed.conf.d: must belong to root, and nobody else may write to it"));
	assert_int_equal(chmod(drop_ins, 0755), 0);
	assert_int_equal(chown(drop_ins, 1234, 1234), 0);
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(error, "gpuprobed.conf.d: must belong to root"));
	assert_int_equal(chown(drop_ins, 0, 0), 0);
	assert_int_equal(chown(main_file, 1234, 1234), 0);
	read_config(CONFIG_E_FILE, NULL, NULL, NULL);
	assert_non_null(strstr(error, "must belong to root"));
}

static void test_command_line(void **state) {
	struct config *config;

	read_config(CONFIG_E_USAGE, "--workers=0", NULL, NULL);
	assert_string_equal(error, "--workers=0: not a number from 1 to 64");
	read_config(CONFIG_E_USAGE, "--engine=x", NULL, NULL);
	assert_non_null(strstr(error, "--engine=x: expected auto, ptx, sanitizer or off"));
	read_config(CONFIG_E_USAGE, "--toolkit=", NULL, NULL);
	assert_string_equal(error, "--toolkit=: a value is missing");
	read_config(CONFIG_E_USAGE, "--engine=", NULL, NULL);
	assert_string_equal(error, "--engine=: a value is missing");
	read_config(CONFIG_E_USAGE, "--nope", NULL, NULL); /* a line, not the 60 of the help */
	assert_string_equal(error, "see gpuprobed --help");
	read_config(CONFIG_E_USAGE, "x", NULL, NULL);
	assert_string_equal(error, "x: there are options only; see gpuprobed --help");
	config = read_config(0, "--check-config", "--image-worker-argument=-x", "--allow-exit");
	assert_int_equal(config->action, CONFIG_CHECK);
	assert_true(config->allow_exit);
	assert_string_equal(config->image_arguments.items[0], "-x");
	config_free(config);
	read_config(CONFIG_E_USAGE, "--check-config=x", NULL, NULL);
	assert_string_equal(error, "--check-config=x: expected quiet");
	config = read_config(0, "--check-config=quiet", NULL, NULL);
	assert_true(config->quiet);
	config_free(config);
	config = read_config(0, "--version", "--help", NULL);
	assert_int_equal(config->action, CONFIG_VERSION);
	config_free(config);
}

/* What is printed is a file that says the same. */
static void test_print(void **state) {
	struct config *config, *again;
	FILE *file;

	write_file(main_file,
		   "engine = sanitizer:exe=/a b\nengine = auto\nverify = off\ndeadline-ms = "
		   "77\ntoolkit = /x\nstub = a\n");
	config = read_config(0, "--allow-exit", NULL, NULL);
	file = fopen(main_file, "w");
	assert_non_null(file);
	config_print(config, file);
	assert_int_equal(fclose(file), 0);
	again = read_config(0, NULL, NULL, NULL);
	for (const struct config_setting *setting = config_settings; setting->name; setting++)
		assert_true(config_same(setting, config, again));
	assert_int_equal(again->deadline_ms, 77);
	assert_int_equal(again->engines.n, 1);
	assert_true(again->allow_exit);
	config_free(again);

	/* and what differs is seen */
	again = read_config(0, "--toolkit=/y", "--stub=b", "--deadline-ms=78");
	for (const struct config_setting *setting = config_settings; setting->name; setting++)
		assert_int_equal(config_same(setting, config, again),
				 strcmp(setting->name, "toolkit") != 0 &&
					 strcmp(setting->name, "stub") != 0 &&
					 strcmp(setting->name, "deadline-ms") != 0);

	/* and what is copied is the same */
	for (const struct config_setting *setting = config_settings; setting->name; setting++) {
		assert_int_equal(config_copy(setting, again, config), 0);
		assert_true(config_same(setting, config, again));
	}
	assert_int_equal(again->engines.n, 1);
	assert_int_equal(again->engines.fallback, ENGINE_AUTO);
	config_free(again);
	config_free(config);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
		cmocka_unit_test_setup_teardown(test_precedence, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lists, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_command_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_print, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
