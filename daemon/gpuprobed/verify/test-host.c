/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of host.c: host programs of real objects (daemon/translator/objects/) are loaded into the
 * kernel and attached to a function of this very program. Needs CAP_BPF and CAP_PERFMON; without
 * them it only tests the message about that. The argument is the folder of the compiled objects.
 */

#include "host.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/translator/job/link.h"
#include "verify.h"

static const char *folder;
static uint8_t elf[1 << 20];
static size_t n_elf;
static struct link_output *output;
static char *targets[LINKED_PROGRAMS_MAX]; /* none: as sections say */

void host_target(void); /* the uprobe's */
__attribute__((noinline, noclone)) void host_target(void) {
	__asm__ volatile("");
}

static int setup(void **state) {
	struct link_failure failure;
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/host-shared.bpf.o", folder);
	file = fopen(path, "rb");
	assert_non_null(file);
	n_elf = fread(elf, 1, sizeof(elf), file);
	fclose(file);
	assert_int_equal(link_object(elf, n_elf, NULL, &output, &failure), 0);
	return 0;
}

static int teardown(void **state) {
	link_output_free(output);
	return 0;
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

static uint64_t program(const char *name) {
	for (size_t i = 0; i < output->linked.n_programs; i++)
		if (!strcmp(output->linked.programs[i].name, name))
			return UINT64_C(1) << i;
	fail_msg("no program %s", name);
	return 0;
}

static size_t map(const char *name) {
	for (size_t i = 0; i < output->linked.n_maps; i++)
		if (!strcmp(output->linked.maps[i].name, name))
			return i;
	fail_msg("no map %s", name);
	return 0;
}

static int make(struct host **hostp, uint64_t gpu, uint64_t programs,
		struct verify_report *report) {
	return host_new(hostp, elf, n_elf, &output->linked, output->blob, gpu, programs, targets,
			report);
}

/* Element `key` of a kernel array, as the GPU would see it. */
static uint64_t mapped(int fd, uint32_t key) {
	const uint64_t *values = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t value;

	assert_true(values != MAP_FAILED);
	value = values[key];
	munmap((void *)values, 4096);
	return value;
}

static void test_shares_arrays(void **state) {
	unsigned int before = descriptors();
	struct verify_report report = {};
	struct host *host;
	uint32_t key = 7;
	uint64_t value = 0;

	assert_int_equal(make(&host, program("cuda__on_gpu"), program("on_host"), &report), 0);
	assert_true(host_map_shared(host, map("shared")));
	assert_true(host_map_shared(host, map("plain")));
	assert_true(host_map_shared(host, map(".bss")));
	assert_false(host_map_shared(host, map("host_only")));
	assert_false(host_map_shared(host, map("gpu_only")));
	assert_int_equal(host_map_fd(host, map("gpu_only")), -1);
	host_target(); /* not attached yet */
	assert_int_equal(mapped(host_map_fd(host, map("shared")), 0), 0);
	assert_int_equal(host_attach(host, targets, &report), 0);
	for (int i = 0; i < 5; i++)
		host_target();
	assert_int_equal(mapped(host_map_fd(host, map("shared")), 0), 5);
	assert_int_equal(mapped(host_map_fd(host, map("plain")), 1), 5);
	assert_int_equal(mapped(host_map_fd(host, map(".bss")), 0), 5);
	assert_int_equal(bpf_map_lookup_elem(host_map_fd(host, map("host_only")), &key, &value), 0);
	assert_int_equal(value, 1);
	host_free(host);
	host_target();
	verify_report_deinit(&report);
	assert_int_equal(descriptors(), before);
}

/* The GPU's own arrays are shared where a program on the host uses them, else not even made. */
static void test_shares_gpu_arrays(void **state) {
	struct verify_report report = {};
	struct host *host;

	assert_int_equal(make(&host, program("cuda__gpu_arrays"), program("on_host_gpu_arrays"),
			      &report),
			 0);
	assert_true(host_map_shared(host, map("gpu_both")));
	assert_true(host_map_shared(host, map("gpu_both_in_host")));
	assert_int_equal(host_map_fd(host, map("gpu_only")), -1);
	assert_int_equal(host_attach(host, targets, &report), 0);
	host_target();
	assert_int_equal(mapped(host_map_fd(host, map("gpu_both")), 1), 1);
	assert_int_equal(mapped(host_map_fd(host, map("gpu_both_in_host")), 1), 1);
	host_free(host);
	verify_report_deinit(&report);
}

static void test_alone_shares_nothing(void **state) {
	struct verify_report report = {};
	struct host *host;

	assert_int_equal(make(&host, 0, program("on_host"), &report), 0);
	assert_false(host_map_shared(host, map("shared")));
	assert_true(host_map_fd(host, map("shared")) >= 0);
	host_free(host);
	verify_report_deinit(&report);
}

/* Each gets a result, a program and words of its own, and leaves no descriptor behind. */
static void test_refused(void **state) {
	static const struct {
		const char *gpu, *host;
		int result;
		const char *words;
		bool log, at_attach;
	} cases[] = {
		{ "cuda__hash", "on_host_hash", HOST_E_INVALID,
		  "map hash (hash): programs on the host and on the GPU can share arrays only: "
		  "make it a BPF_MAP_TYPE_ARRAY",
		  false, false },
		{ "cuda__table", "on_host_table", HOST_E_INVALID,
		  "map gpu_hash (gpu_hash): programs on the host and on the GPU can share arrays "
		  "only: make it a BPF_MAP_TYPE_ARRAY",
		  false, false },
		{ "cuda__on_gpu", "on_host_bad", HOST_E_REFUSED, "R0 invalid mem access", true,
		  false },
		{ "cuda__on_gpu", "on_nothing", HOST_E_ATTACH, "no_such_function", false, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned int before = descriptors();
		struct verify_report report = {};
		struct host *host = NULL;
		int r;

		r = make(&host, program(cases[i].gpu), program(cases[i].host), &report);
		if (cases[i].at_attach) {
			assert_int_equal(r, 0);
			r = host_attach(host, targets, &report);
		}
		assert_int_equal(r, cases[i].result);
		assert_non_null(strstr(report.reason, cases[i].words));
		assert_true(cases[i].log ==
			    (report.log && strstr(report.log, "invalid mem access")));
		host_free(host);
		verify_report_deinit(&report);
		assert_int_equal(descriptors(), before);
	}
}

static void test_no_object(void **state) {
	struct verify_report report = {};
	struct host *host = NULL;

	assert_int_equal(host_new(&host, "no ELF at all", 13, &output->linked, output->blob, 0,
				  program("on_host"), targets, &report),
			 HOST_E_INVALID);
	assert_non_null(strstr(report.reason, "libbpf does not open the object"));
	verify_report_deinit(&report);
}

static void test_not_permitted(void **state) {
	struct verify_report report = {};
	struct host *host = NULL;

	assert_int_equal(make(&host, 0, program("on_host"), &report), HOST_E_NOT_PERMITTED);
	assert_non_null(strstr(report.reason, "CAP_BPF"));
	verify_report_deinit(&report);
}

int main(int argc, char **argv) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares_arrays),
		cmocka_unit_test(test_shares_gpu_arrays),
		cmocka_unit_test(test_alone_shares_nothing),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_no_object),
	};
	static const struct CMUnitTest unprivileged[] = {
		cmocka_unit_test(test_no_object),
		cmocka_unit_test(test_not_permitted),
	};

	if (argc != 2)
		return 2;
	folder = argv[1];
	return verify_available() ? cmocka_run_group_tests(unprivileged, setup, teardown)
				  : cmocka_run_group_tests(tests, setup, teardown);
}
