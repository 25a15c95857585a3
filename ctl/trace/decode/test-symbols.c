/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of symbols.c: names of functions of this program itself, and files that are not what
 * they should be.
 */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "demangle.h"
#include "symbols.h"

static struct trace_symbols *symbols;
static char self[4096];
static uint64_t inode;

static __attribute__((noinline, used)) int here_is_code(int n) {
	return n + (int)getpid();
}

/* Where the file has what is mapped at an address. */
static uint64_t offset_of(const void *address) {
	uint64_t start, end, offset, found = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4096];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 &&
		    (uintptr_t)address >= start && (uintptr_t)address < end)
			found = (uintptr_t)address - start + offset;
	fclose(maps);
	assert_true(found > 0);
	return found;
}

static const char *name_in(const char *path, uint64_t number, uint64_t offset, uint64_t *distance) {
	return trace_symbols_name(symbols, (uint32_t)getpid(), path, number, offset, distance);
}

static void test_names(void **state) {
	const uint64_t code = offset_of((const void *)(uintptr_t)here_is_code);
	uint64_t distance = 0;

	assert_string_equal(name_in(self, inode, code + 3, &distance), "here_is_code");
	assert_int_equal(distance, 3);
	/* a return address behind a call that ends the function before */
	assert_string_equal(name_in(self, inode, code + 1, &distance), "here_is_code");
	assert_true(!name_in(self, inode, code, &distance) ||
		    strcmp(name_in(self, inode, code, &distance), "here_is_code") != 0);
	assert_null(name_in(self, inode, 0, &distance));
	assert_null(name_in(self, inode, 1, &distance)); /* the header is no code */
	assert_null(name_in(self, inode, UINT64_MAX, &distance));
	/* another file, or none */
	assert_null(name_in(self, inode + 1, code + 3, &distance));
	assert_null(name_in("/dev/null", inode, code + 3, &distance));
	assert_null(name_in("/nowhere", inode, code + 3, &distance));
	assert_null(name_in("relative", inode, code + 3, &distance));
	/* of a process that is gone: the path as we see it */
	assert_string_equal(trace_symbols_name(symbols, 0, self, inode, code + 3, &distance),
			    "here_is_code");
}

/* Files that are cut off anywhere, or broken, have no names, or the right ones. */
static void test_broken(void **state) {
	const uint64_t code = offset_of((const void *)(uintptr_t)here_is_code);
	char path[] = "/tmp/test-symbols-XXXXXX";
	int fd = mkstemp(path), from = open(self, O_RDONLY | O_CLOEXEC);
	struct stat status;
	char *bytes;

	assert_true(fd >= 0 && from >= 0 && fstat(from, &status) == 0);
	bytes = malloc((size_t)status.st_size);
	assert_int_equal(read(from, bytes, (size_t)status.st_size), status.st_size);
	assert_int_equal(write(fd, bytes, (size_t)status.st_size), status.st_size);
	for (off_t size = status.st_size; size >= 0; size -= size > 4096 ? 997 : 1) {
		uint64_t distance;
		struct stat copy;
		const char *name;

		trace_symbols_free(symbols);
		assert_int_equal(trace_symbols_new(&symbols), 0);
		assert_true(ftruncate(fd, size) == 0 && fstat(fd, &copy) == 0);
		name = name_in(path, copy.st_ino, code + 3, &distance);
		if (size == status.st_size)
			assert_string_equal(name, "here_is_code");
		assert_true(!name || size > 4096);
	}
	unlink(path);
	close(fd);
	close(from);
	free(bytes);
}

static volatile sig_atomic_t children;

static void count_child(int number) {
	children++;
}

/* A name that is cut off, which takes a child to find out, is tried once however often it comes. */
static void test_demangled_once(void **state) {
	static const char part[] = "N7cutlass4gemm9Default_xIiiEE";
	struct trace_demangler demangler = {};
	char cut[1024] = "_Z6kernelI";
	const char *good = "_Z3addPfS_";

	for (int i = 0; i < 30; i++)
		strcat(cut, part);
	signal(SIGCHLD, count_child);
	for (int i = 0; i < 100; i++) {
		assert_string_equal(trace_demangle(&demangler, cut), cut);
		assert_string_equal(trace_demangle(&demangler, good), "add(float*, float*)");
		assert_string_equal(trace_demangle(&demangler, "plain"), "plain");
		assert_string_equal(trace_demangle(&demangler, "_RINvCs1234_4mykr3addfE"),
				    "mykr::add::<f32>");
		assert_string_equal(trace_demangle(&demangler, "_Rnonsense"), "_Rnonsense");
	}
	signal(SIGCHLD, SIG_DFL);
	assert_int_equal(children, 1);
	trace_demangler_deinit(&demangler);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names),
					    cmocka_unit_test(test_broken),
					    cmocka_unit_test(test_demangled_once) };
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	struct stat status;
	int r;

	if (n <= 0 || stat(self, &status) < 0 || trace_symbols_new(&symbols))
		return 1;
	inode = status.st_ino;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	trace_symbols_free(symbols);
	return r;
}
