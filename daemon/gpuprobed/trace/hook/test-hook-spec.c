/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of hook specs and hook files: what they mean, and the messages about bad ones. The
 * newest driver must have the functions that alternatives for it name.
 */

#include "hook-spec.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *sources;

static struct hook *parse(const char *spec) {
	char error[HOOK_ERROR_SIZE] = "";
	struct hook *hook = NULL;

	if (hook_spec_parse(&hook, spec, error))
		fail_msg("%s", error);
	return hook;
}

static void test_function(void **state) {
	struct hook *hook = parse("k:nvidia:nv_dma_map_alloc(pages=arg1:u64,contig=arg3:bool,va="
				  "arg2+8:ptr,end=arg4->vm_area_struct.vm_end:hex)=ret:s32");
	const struct hook_alternative *alternative = hook->alternatives;
	char text[512];

	assert_int_equal(alternative->kind, HOOK_FUNCTION);
	assert_string_equal(alternative->place, "nvidia");
	assert_string_equal(alternative->name, "nv_dma_map_alloc");
	assert_int_equal(alternative->n_arguments, 4);
	assert_int_equal(alternative->arguments[0].index, 1);
	assert_false(alternative->arguments[0].follow);
	assert_int_equal(alternative->arguments[1].type->size, 1);
	assert_int_equal(alternative->arguments[2].offset, 8);
	assert_true(alternative->arguments[2].follow);
	assert_string_equal(alternative->arguments[3].structure, "vm_area_struct");
	assert_string_equal(alternative->arguments[3].member, "vm_end");
	assert_true(alternative->span);
	hook_describe(text, sizeof(text), hook, alternative, NULL);
	assert_string_equal(
		text, "user nvidia:nv_dma_map_alloc(pages:u64,contig:bool,va:ptr,end:hex)=s32");
	hook_free(hook);
	hook = parse("k:nvidia:nv_stop_device()=void");
	assert_true(hook->alternatives->span);
	hook_describe(text, sizeof(text), hook, hook->alternatives, NULL);
	assert_string_equal(text, "user nvidia:nv_stop_device()");
	hook_free(hook);
	hook = parse("k:vmlinux:vfs_read");
	assert_false(hook->alternatives->span);
	assert_int_equal(hook->alternatives->n_arguments, 0);
	hook_free(hook);
}

static void test_user_and_tracepoint(void **state) {
	struct hook *hook = parse("u:/opt/a:b/lib.so:symbol(name=arg0:str,n=arg11:u8)=ret:hex");

	assert_int_equal(hook->alternatives->kind, HOOK_USER);
	assert_string_equal(hook->alternatives->place, "/opt/a:b/lib.so");
	assert_string_equal(hook->alternatives->name, "symbol");
	hook_free(hook);
	hook = parse("t:sched:sched_switch(prev_comm,pid=next_pid:s32,prev_state:hex)");
	assert_int_equal(hook->alternatives->kind, HOOK_TRACEPOINT);
	assert_null(hook->alternatives->arguments[0].type);
	assert_string_equal(hook->alternatives->arguments[0].field, "prev_comm");
	assert_string_equal(hook->alternatives->arguments[1].name, "pid");
	assert_string_equal(hook->alternatives->arguments[1].field, "next_pid");
	assert_string_equal(hook->alternatives->arguments[2].type->name, "hex");
	hook_free(hook);
}

static void test_bad_specs(void **state) {
	static const struct {
		const char *spec;
		size_t character;
		const char *words;
	} bad[] = {
		{ "", 1, "k:, u: or t:" },
		{ "x:nvidia:f", 1, "k:, u: or t:" },
		{ "k", 1, "k:, u: or t:" },
		{ "k:", 3, "MODULE:NAME" },
		{ "k:nvidia", 3, "MODULE:NAME" },
		{ "k::f", 3, "MODULE:NAME" },
		{ "k:nvidia:", 10, "not a name" },
		{ "k:nvi dia:f", 3, "module or group" },
		{ "k:nvidia:f*", 10, "not a name" },
		{ "k:nvidia:f(", 12, "name" },
		{ "k:nvidia:f(a)", 13, "=" },
		{ "k:nvidia:f(a=arg1)", 18, "type" },
		{ "k:nvidia:f(a=arg12:u8)", 14, "arg0 to arg11" },
		{ "k:nvidia:f(a=arg1+:u8)", 14, "arg0 to arg11" },
		{ "k:nvidia:f(a=arg1->x:u8)", 14, "arg0 to arg11" },
		{ "k:nvidia:f(a=arg1:u9)", 19, "u8, u16" },
		{ "k:nvidia:f(a=arg1:void)", 23, "void" },
		{ "k:nvidia:f(a=arg1:u8", 21, ", or )" },
		{ "k:nvidia:f(a=arg1:u8,)", 21, ", or )" },
		{ "k:nvidia:f()x", 13, "=ret:TYPE" },
		{ "k:nvidia:f()=u8", 14, "ret:TYPE" },
		{ "k:nvidia:f()=ret:str", 21, "str" },
		{ "k:nvidia:f()=ret:u8x", 18, "u8, u16" },
		{ "k:nvidia:f()=ret:u8 ", 20, "nothing" },
		{ "u:lib.so:f", 3, "absolute" },
		{ "u:/lib.so", 3, "PATH:SYMBOL" },
		{ "t:sched:f(a=:u8)", 13, "field" },
		{ "t:sched:f(a)=ret:u8", 13, "nothing" },
		{ "k:m:f(a=arg0:u8,a=arg0:u8,a=arg0:u8,a=arg0:u8,a=arg0:u8,a=arg0:u8,a=arg0:u8,a="
		  "arg0:u8,a=arg0:u8,a=arg0:u8,a=arg0:u8)",
		  107, "more than 10" },
	};
	char error[HOOK_ERROR_SIZE], at[32], full[HOOK_SPEC_MAX + 1];
	struct hook *hook = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(at, sizeof(at), "character %zu:", bad[i].character);
		if (hook_spec_parse(&hook, bad[i].spec, error) != 1 || !strstr(error, at) ||
		    !strstr(error, bad[i].words))
			fail_msg("%s: %s", bad[i].spec, error);
		assert_null(hook);
	}
	memset(full, 'x', sizeof(full) - 1);
	full[sizeof(full) - 1] = '\0';
	assert_int_equal(hook_spec_parse(&hook, full, error), 1);
}

/* Every beginning of a good spec is good or bad, never more. */
static void test_cut_specs(void **state) {
	static const char spec[] = "k:nvidia:f(a=arg1+0x10:u64,b=arg2->s.m:str)=ret:s32";
	char error[HOOK_ERROR_SIZE], cut[sizeof(spec)];
	size_t n_good = 0;

	for (size_t n = 0; n < sizeof(spec); n++) {
		struct hook *hook = NULL;

		memcpy(cut, spec, n);
		cut[n] = '\0';
		n_good += !hook_spec_parse(&hook, cut, error);
		hook_free(hook);
	}
	assert_int_equal(n_good, 1 + 1 + 1); /* k:nvidia:f, with (...), with =ret:s32 */
}

static void test_versions(void **state) {
	struct hook_alternative alternative = { .from = { 545 } };
	uint16_t version[3];

	assert_true(hook_version_parse(version, "580.159.04"));
	assert_int_equal(version[2], 4);
	assert_true(hook_version_parse(version, "545.23"));
	assert_true(hook_alternative_fits(&alternative, version));
	assert_true(hook_version_parse(version, "535.54.03"));
	assert_false(hook_alternative_fits(&alternative, version));
	assert_true(hook_alternative_fits(&alternative, (uint16_t[]){ 0, 0, 0 }));
	alternative = (struct hook_alternative){ .to = { 544 } };
	assert_true(hook_alternative_fits(&alternative, (uint16_t[]){ 544, 99, 1 }));
	assert_false(hook_alternative_fits(&alternative, (uint16_t[]){ 545, 0, 0 }));
	alternative = (struct hook_alternative){ .from = { 575, 51, 2 } };
	assert_false(hook_alternative_fits(&alternative, (uint16_t[]){ 575, 51, 1 }));
	assert_true(hook_alternative_fits(&alternative, (uint16_t[]){ 575, 51, 2 }));
	assert_false(hook_version_parse(version, "580."));
	assert_false(hook_version_parse(version, "v580"));
	assert_false(hook_version_parse(version, "1.2.3.4"));
	assert_false(hook_version_parse(version, "70000.1"));
}

/* ---- the catalogue ---- */

static size_t n_complaints;
static char last_complaint[1024];

static void complain(const char *line, void *userdata) {
	n_complaints++;
	snprintf(last_complaint, sizeof(last_complaint), "%s", line);
}

/* Whether the list of functions of driver 595 has the function: lines "module function ftrace". */
static bool is_function(const char *module, const char *function) {
	char path[4096], line[256], wanted[256];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/hooks.d/functions-595.txt", sources);
	snprintf(wanted, sizeof(wanted), "%s %s ", module, function);
	file = fopen(path, "re");
	assert_non_null(file);
	while (!found && fgets(line, sizeof(line), file))
		found = !strncmp(line, wanted, strlen(wanted));
	fclose(file);
	return found;
}

static void test_catalogue(void **state) {
	static const char *const sets[] = { "driver", "rm",   "memory", "uvm", "interrupt", "gsp",
					    "lock",   "work", "power",  "p2p", "process",   "xid" };
	const uint16_t newest[] = { 595, 45, 4 }, old[] = { 535, 54, 3 };
	struct hook_catalogue catalogue;
	bool seen[12] = {};

	n_complaints = 0;
	assert_int_equal(hook_catalogue_read(&catalogue, "/nonexistent", complain, NULL), 0);
	assert_int_equal(n_complaints, 0);
	assert_true(catalogue.n > 60);
	for (size_t i = 0; i < catalogue.n; i++) {
		const struct hook *hook = catalogue.hooks[i];
		size_t n_newest = 0, set = 0;

		while (set < 12 && strcmp(sets[set], hook->set))
			set++;
		assert_true(set < 12);
		seen[set] = true;
		for (size_t k = 0; k < hook->n_alternatives; k++) {
			const struct hook_alternative *alternative = &hook->alternatives[k];

			n_newest += hook_alternative_fits(alternative, newest);
			if (alternative->kind == HOOK_FUNCTION &&
			    hook_alternative_fits(alternative, newest) &&
			    !is_function(alternative->place, alternative->name))
				fail_msg("%s: driver 595 has no %s:%s", hook->name,
					 alternative->place, alternative->name);
			/* one name with two layouts is of two versions */
			for (size_t j = 0; j < k; j++)
				if (alternative->kind == HOOK_FUNCTION &&
				    hook->alternatives[j].kind == HOOK_FUNCTION &&
				    !strcmp(alternative->name, hook->alternatives[j].name))
					assert_false(hook_alternative_fits(alternative, newest) &&
						     hook_alternative_fits(&hook->alternatives[j],
									   newest));
		}
		if (!n_newest)
			fail_msg("%s: none for driver 595", hook->name);
		if (!strcmp(hook->name, "sysmem-alloc")) {
			assert_true(hook_alternative_fits(&hook->alternatives[0], newest));
			assert_false(hook_alternative_fits(&hook->alternatives[0], old));
			assert_true(hook_alternative_fits(&hook->alternatives[1], old));
		}
	}
	for (size_t i = 0; i < 12; i++)
		assert_true(seen[i]);
	hook_catalogue_deinit(&catalogue);
}

static void write_file(const char *folder, const char *name, const char *text) {
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static const struct hook *find(const struct hook_catalogue *catalogue, const char *name) {
	for (size_t i = 0; i < catalogue->n; i++)
		if (!strcmp(catalogue->hooks[i]->name, name))
			return catalogue->hooks[i];
	return NULL;
}

static void test_files(void **state) {
#define HOOK_OF(alternatives)                                                        \
	"{\"version\":1,\"hooks\":[{\"name\":\"n\",\"set\":\"s\",\"purpose\":\"p\"," \
	"\"alternatives\":[" alternatives "]}]}"
	static const struct {
		const char *text, *words;
	} bad[] = {
		{ "", "byte 0" },
		{ "{", "byte 1" },
		{ "[]", "not an object" },
		{ "{\"version\":2,\"hooks\":[]}", "version" },
		{ "{\"version\":1,\"hooks\":{}}", "hooks is not an array" },
		{ "{\"version\":1,\"hooks\":[],\"more\":1}", "no member more" },
		{ "{\"version\":1,\"hooks\":[{\"name\":\"n\"}]}", "hook n: a hook has" },
		{ HOOK_OF(""), "alternatives" },
		{ HOOK_OF("{\"module\":\"m\"}"), "module and function" },
		{ HOOK_OF("{\"syscall\":\"read\"}"), "syscall is one of" },
		{ HOOK_OF("{\"module\":\"m\",\"function\":\"f\",\"from\":\"x\"}"), "from: x" },
		{ HOOK_OF("{\"module\":\"m\",\"function\":\"f\",\"return\":\"str\"}"),
		  "return: str" },
		{ HOOK_OF("{\"module\":\"m\",\"function\":\"f\","
			  "\"arguments\":[{\"name\":\"a\",\"source\":\"arg99\",\"type\":\"u8\"}]}"),
		  "argument a: arg99" },
		{ HOOK_OF("{\"tracepoint\":\"nvidia\"}"), "GROUP:NAME" },
		{ "{\"version\":1,\"hooks\":[]} x", "byte" },
	};
	char folder[] = "/tmp/test-hook-spec-XXXXXX", path[64];
	struct hook_catalogue catalogue;
	const struct hook *hook;

	assert_non_null(mkdtemp(folder));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		n_complaints = 0;
		write_file(folder, "bad.json", bad[i].text);
		assert_int_equal(hook_catalogue_read(&catalogue, folder, complain, NULL), 0);
		if (n_complaints != 1 || !strstr(last_complaint, bad[i].words) ||
		    !strstr(last_complaint, "bad.json"))
			fail_msg("%s: %zu, %s", bad[i].text, n_complaints, last_complaint);
		assert_non_null(find(&catalogue, "ioctl"));
		assert_null(find(&catalogue, "n"));
		hook_catalogue_deinit(&catalogue);
	}
	write_file(folder, "good.json",
		   "{\"version\":1,\"hooks\":[{\"name\":\"irq\",\"set\":\"mine\",\"purpose\":\"p\","
		   "\"alternatives\":[{\"module\":\"m\",\"function\":\"f\"}]},"
		   "{\"name\":\"own\",\"set\":\"mine\",\"purpose\":\"p\",\"process\":\"any\","
		   "\"alternatives\":["
		   "{\"module\":\"m\",\"function\":\"f\",\"arguments\":[{\"name\":\"a\",\"source\":"
		   "\"arg0+8\",\"type\":\"str\"}],\"return\":\"void\"}]}]}");
	write_file(folder, "ignored.txt", "{");
	n_complaints = 0;
	assert_int_equal(hook_catalogue_read(&catalogue, folder, complain, NULL), 0);
	assert_int_equal(n_complaints, 1); /* bad.json is there still */
	hook = find(&catalogue, "own");
	assert_non_null(hook);
	assert_int_equal(hook->process, HOOK_PROCESS_ANY);
	assert_int_equal(hook->alternatives[0].arguments[0].offset, 8);
	assert_string_equal(find(&catalogue, "irq")->set, "mine"); /* it replaces the other */
	hook_catalogue_deinit(&catalogue);
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder,
			 (const char *[]){ "bad.json", "good.json", "ignored.txt" }[i]);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(folder), 0);
}

static void test_selection(void **state) {
	struct hook_alternative alternative = { .kind = HOOK_FUNCTION,
						.place = (char *)"nvidia",
						.name = (char *)"nv_alloc_pages" };
	struct hook memory = { .name = (char *)"sysmem-alloc",
			       .set = (char *)"memory",
			       .alternatives = &alternative,
			       .n_alternatives = 1 };
	struct hook driver = { .name = (char *)"ioctl",
			       .set = (char *)"driver",
			       .alternatives = &alternative,
			       .n_alternatives = 1 };

#define SELECTED(hook, ...)                                          \
	hook_selected(&(hook), (const char *const[]){ __VA_ARGS__ }, \
		      sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))
	assert_false(hook_selected(&memory, NULL, 0));
	assert_true(hook_selected(&driver, NULL, 0));
	assert_true(SELECTED(memory, "memory"));
	assert_true(SELECTED(memory, "sysmem-*"));
	assert_true(SELECTED(memory, "nvidia:nv_alloc*"));
	assert_true(SELECTED(memory, "nv_alloc_pages"));
	assert_true(SELECTED(memory, "all"));
	assert_false(SELECTED(memory, "all", "!sysmem-alloc"));
	assert_true(SELECTED(driver, "!uvm"));
	assert_false(SELECTED(driver, "!driver"));
	assert_false(SELECTED(memory, "!uvm"));
	assert_false(SELECTED(memory, "driver"));
}

int main(int argc, char **argv) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_function),  cmocka_unit_test(test_user_and_tracepoint),
		cmocka_unit_test(test_bad_specs), cmocka_unit_test(test_cut_specs),
		cmocka_unit_test(test_versions),  cmocka_unit_test(test_catalogue),
		cmocka_unit_test(test_files),     cmocka_unit_test(test_selection),
	};

	sources = argc > 1 ? argv[1] : ".";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
