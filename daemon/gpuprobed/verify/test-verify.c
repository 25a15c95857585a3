/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of verify.c: what the kernel's verifier says about real objects
 * (daemon/translator/objects/). Needs CAP_BPF and CAP_PERFMON; without them it only tests the
 * message about that. The argument is the folder of the compiled objects.
 */

#include "verify.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/translator/job/link.h"
#include "shadow.h"

static const char *folder;

static struct link_output *link_named(const char *name) {
	struct link_failure failure;
	struct link_output *output = NULL;
	static uint8_t elf[1 << 20];
	char path[4096];
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.bpf.o", folder, name);
	file = fopen(path, "rb");
	assert_non_null(file);
	size = fread(elf, 1, sizeof(elf), file);
	fclose(file);
	assert_int_equal(link_object(elf, size, NULL, &output, &failure), 0);
	return output;
}

static unsigned int descriptors(void) {
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Verifies all programs that were linked. */
static int verify_linked(const struct link_output *output, bool allow_exit,
			 struct verify_report *report) {
	const struct verify_options options = { .allow_exit = allow_exit };
	unsigned int before = descriptors();
	uint64_t programs = 0;
	int r;

	for (size_t i = 0; i < output->linked.n_programs; i++)
		if (output->linked.programs[i].insns.count)
			programs |= UINT64_C(1) << i;
	assert_int_not_equal(programs, 0);
	*report = (struct verify_report){};
	r = verify_object(&output->linked, output->blob, programs, &options, report);
	assert_int_equal(descriptors(), before); /* nothing is left behind */
	assert_int_equal(r > 0, report->reason != NULL);
	return r;
}

static void test_accepted(void **state) {
	static const char *const names[] = { "counter",   "calls",        "context",    "globals",
					     "gpu-array", "hash-ring",    "helpers",    "log",
					     "percpu",    "rodata-bound", "configured", "host",
					     "rings",     "sections",     "hash_count", "numbers" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct link_output *output = link_named(names[i]);
		struct verify_report report;
		int r = verify_linked(output, false, &report);

		if (r)
			print_message("%s: %s\n%s\n", names[i], report.reason,
				      report.log ? report.log : "");
		assert_int_equal(r, 0);
		verify_report_deinit(&report);
		link_output_free(output);
	}
}

/* Refused, with a conclusion in the reason and the user's line of source in both. */
static void refused(const char *name, const char *conclusion, const char *source) {
	struct link_output *output = link_named(name);
	struct verify_report report;

	assert_int_equal(verify_linked(output, false, &report), VERIFY_E_REFUSED);
	assert_int_equal(report.program, 0);
	assert_null(strchr(report.reason, '\n'));
	if (!strstr(report.reason, conclusion))
		fail_msg("%s: %s", name, report.reason);
	if (source) {
		assert_non_null(strstr(report.reason, source));
		assert_non_null(report.log);
		assert_non_null(strstr(report.log, source));
	}
	verify_report_deinit(&report);
	link_output_free(output);
}

static void test_refused(void **state) {
	refused("past-end", "invalid access to map value, value_size=8 off=8 size=8",
		"count[1] = 2;");
	refused("no-null-check", "invalid mem access 'map_value_or_null'", "*count += 1;");
	refused("bad-pointer", "invalid mem access 'scalar'", "bpf_get_thread_idx(&x, bad, &x);");
	refused("bad-atomic", "invalid mem access 'map_value_or_null'",
		"bpf_atomic_max_u64(most, 1);");
	refused("bad-number", "pointer arithmetic with *= operator prohibited",
		"bpf_warp_sum((__u64)value)");
	refused("parameter", "invalid mem access 'scalar'", "ctx->params[0]");
	refused("context-beyond", "invalid bpf_context access off=168 size=8", "ctx + 168");
	refused("endless", "a loop without an end", NULL);
	refused("host-helper",
		"there is no bpf_probe_read_kernel (helper 113) on a GPU: return "
		"bpf_probe_read_kernel(buffer, sizeof(buffer), ctx);",
		NULL);
	refused("callback",
		"there is no bpf_for_each_map_elem (helper 164) on a GPU: "
		"bpf_for_each_map_elem(&numbers, add, &sum, 0);",
		NULL);
	refused("kfunc", "functions of the kernel cannot be called on a GPU: bpf_rcu_read_lock();",
		NULL);
	refused("exit", "bpf_cuda_exit", NULL);
}

static void test_exit_allowed(void **state) {
	struct link_output *output = link_named("exit");
	struct verify_report report;

	assert_int_equal(verify_linked(output, true, &report), 0);
	verify_report_deinit(&report);
	link_output_free(output);
}

/* Loops without a constant bound, which newer kernels verify. */
static void test_loops(void **state) {
	struct link_output *output = link_named("loops");
	struct verify_report report;
	int r = verify_linked(output, false, &report);

	if (r) /* an older kernel's verifier: it says so */
		assert_non_null(strstr(report.reason, "this kernel's verifier does not know"));
	verify_report_deinit(&report);
	link_output_free(output);
}

/* Numbers from a GPU are unknown ones, and each on its own: what holds for x does not hold for y.
 */
static void test_unknown(void **state) {
	refused("unknown", "R", "table[y]");
	refused("unknown-sm", "R", "table[sm]");
}

/* The records of another program, or damaged ones, are no reason to refuse a good program. */
static void test_without_records(void **state) {
	struct link_output *output = link_named("helpers");
	struct linked_program *program = &output->linked.programs[0];
	struct verify_report report;

	memset(output->blob + program->line_info.offset, 0xff, 32);
	assert_int_equal(verify_linked(output, false, &report), 0);
	verify_report_deinit(&report);
	memset(output->blob + output->linked.btf.offset, 0xff, output->linked.btf.count);
	assert_int_equal(verify_linked(output, false, &report), 0);
	verify_report_deinit(&report);
	link_output_free(output);
}

/* And a bad program is refused for what it does, not for its records. */
static void test_bad_without_records(void **state) {
	struct link_output *output = link_named("past-end");
	struct verify_report report;

	memset(output->blob + output->linked.programs[0].func_info.offset, 0xff, 8);
	assert_int_equal(verify_linked(output, false, &report), VERIFY_E_REFUSED);
	assert_non_null(strstr(report.reason, "invalid access to map value"));
	verify_report_deinit(&report);
	link_output_free(output);
}

static void test_garbage(void **state) {
	struct link_output *output = link_named("counter");
	struct linked_program *program = &output->linked.programs[0];
	struct verify_report report;

	memset(output->blob + program->insns.offset, 0xff,
	       program->insns.count * sizeof(struct bpf_insn));
	assert_int_equal(verify_linked(output, false, &report), VERIFY_E_REFUSED);
	verify_report_deinit(&report);
	link_output_free(output);

	output = link_named("rodata-bound");
	for (size_t i = 0; i < output->linked.n_maps; i++)
		output->linked.maps[i].initial.offset = UINT64_MAX;
	assert_int_equal(verify_linked(output, false, &report), VERIFY_E_INVALID);
	verify_report_deinit(&report);
	link_output_free(output);
}

/* Without the capabilities: a clear word, in a process of its own. */
static void test_not_permitted(void **state) {
	struct link_output *output = link_named("counter");
	struct verify_report report;
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		const struct verify_options options = {};

		if (!geteuid() && (setgid(65534) || setuid(65534)))
			_exit(1);
		report = (struct verify_report){};
		if (verify_available() != VERIFY_E_NOT_PERMITTED)
			_exit(2);
		if (verify_object(&output->linked, output->blob, 1, &options, &report) !=
		    VERIFY_E_NOT_PERMITTED)
			_exit(3);
		_exit(strstr(report.reason, "CAP_BPF") ? 0 : 4);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	link_output_free(output);
}

/* What the kernel takes for a map while its program is verified does not grow with its entries, nor
 * with the machine's processors. */
static void test_memory(void **state) {
	static const uint32_t types[] = { BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY,
					  BPF_MAP_TYPE_PERCPU_HASH };
	LIBBPF_OPTS(bpf_map_create_opts, options);
	const uint32_t size = 1 << 20;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const struct linked_map map = { .name = "map",
						.type = types[i],
						.key_size = 4,
						.value_size = size,
						.max_entries = 1000 };
		unsigned long long bytes = 0;
		char error[SHADOW_ERROR_SIZE], line[256];
		struct shadow_map shadow;
		FILE *info;
		int fd;

		assert_int_equal(shadow_map_make(&map, 4096, &shadow, error), 0);
		fd = bpf_map_create((enum bpf_map_type)shadow.type, shadow.name, shadow.key_size,
				    shadow.value_size, shadow.max_entries, &options);
		assert_true(fd >= 0);
		snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", fd);
		info = fopen(line, "re");
		assert_non_null(info);
		while (fgets(line, sizeof(line), info))
			sscanf(line, "memlock: %llu", &bytes);
		fclose(info);
		close(fd);
		assert_in_range(bytes, size, 2 * size);
	}
}

int main(int argc, char *argv[]) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepted),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_exit_allowed),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_loops),
		cmocka_unit_test(test_without_records),
		cmocka_unit_test(test_bad_without_records),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_not_permitted),
		cmocka_unit_test(test_memory),
	};
	static const struct CMUnitTest unprivileged[] = { cmocka_unit_test(test_not_permitted) };

	if (argc < 2 || !*argv[1])
		return 77; /* no clang 19 */
	folder = argv[1];
	if (verify_available()) {
		if (cmocka_run_group_tests(unprivileged, NULL, NULL))
			return 1;
		return 77; /* no CAP_BPF */
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
