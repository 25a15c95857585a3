/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of site.c and libcuda.c: sites of probes in bytes written by hand, and files of a
 * libcuda that are whole, cut off, or lie. With --lengths it decodes what test-site.py gives it: 32
 * bytes in hexadecimal a line. It answers with the site's kind and offset, and with length and
 * harmlessness of each instruction that it knows.
 */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu-list.h"
#include "lib/elf-symbols.h"
#include "daemon/gpuprobed/trace/sink/foreign.h"
#include "libcuda.h"
#include "site.h"

static const char *library;

static void test_sites(void **state) {
	static const struct {
		const char *bytes;
		size_t n;
		enum site_kind kind;
		size_t offset;
	} cases[] = {
		{ "\x55\x48\x89\xe5", 4, SITE_EMULATED, 0 }, /* push %rbp */
		{ "\x41\x57\x41\x56", 4, SITE_EMULATED, 0 }, /* push %r15 */
		{ "\x0f\x1f\x44\x00\x00\xc3", 6, SITE_EMULATED, 0 }, /* nop5 */
		{ "\x66\x90\xc3", 3, SITE_EMULATED, 0 },
		{ "\x90\xc3", 2, SITE_EMULATED, 0 },
		{ "\xf3\x0f\x1e\xfa\x55", 5, SITE_EMULATED, 4 }, /* endbr64, push */
		{ "\xf3\x0f\x1e\xfa\x0f\x1f\x44\x00\x00", 9, SITE_EMULATED, 4 },
		{ "\xf3\x0f\x1e\xfa\x48\x83\xec\x08", 8, SITE_STEPPED,
		  0 }, /* endbr64, sub $8, %rsp */
		{ "\x48\x83\xec\x08\x55", 5, SITE_STEPPED,
		  0 }, /* the stack pointer is another at the push */
		{ "\x31\xc0\x55", 3, SITE_EMULATED, 2 }, /* xor %eax, %eax */
		{ "\x31\xff\x55", 3, SITE_STEPPED, 0 }, /* xor %edi, %edi: an argument */
		{ "\x45\x31\xc0\x55", 4, SITE_STEPPED, 0 }, /* xor %r8d, %r8d */
		{ "\x45\x31\xd2\x55", 4, SITE_EMULATED, 3 }, /* xor %r10d, %r10d */
		{ "\x48\x8b\x05\x10\x00\x00\x00\x48\x85\xc0\x74\x05", 12, SITE_EMULATED,
		  10 }, /* mov 16(%rip), %rax; test; je */
		{ "\x48\x8b\x3d\x10\x00\x00\x00\x55", 8, SITE_STEPPED, 0 }, /* mov 16(%rip), %rdi */
		{ "\x48\x8d\x05\x10\x00\x00\x00\x55", 8, SITE_EMULATED, 7 }, /* lea */
		{ "\x80\x3d\x10\x00\x00\x00\x00\x75\x05", 9, SITE_EMULATED,
		  7 }, /* cmpb $0, 16(%rip); jne */
		{ "\xf7\x05\x10\x00\x00\x00\x01\x00\x00\x00\x75\x05", 12, SITE_EMULATED,
		  10 }, /* testl $1, 16(%rip) */
		{ "\xf7\x1d\x10\x00\x00\x00\x55", 7, SITE_STEPPED, 0 }, /* negl 16(%rip) */
		{ "\x83\x05\x10\x00\x00\x00\x01\x55", 8, SITE_STEPPED,
		  0 }, /* addl $1, 16(%rip): memory */
		{ "\x89\x7c\x24\xfc\x55", 5, SITE_STEPPED, 0 }, /* mov %edi, -4(%rsp) */
		{ "\x89\xf8\x55", 3, SITE_EMULATED, 2 }, /* mov %edi, %eax */
		{ "\xb8\x22\x00\x00\x00\xc3", 6, SITE_STEPPED, 0 }, /* mov $34, %eax; ret */
		{ "\xb8\x22\x00\x00\x00\xe9\x00\x00\x00\x00", 10, SITE_EMULATED,
		  5 }, /* and a jump */
		{ "\xbf\x22\x00\x00\x00\xe9\x00\x00\x00\x00", 10, SITE_STEPPED, 0 },
		{ "\xe9\x00\x00\x00\x00", 5, SITE_EMULATED, 0 },
		{ "\xe8\x00\x00\x00\x00", 5, SITE_EMULATED, 0 },
		{ "\x0f\x84\x00\x00\x00\x00", 6, SITE_EMULATED, 0 },
		{ "\xff\x25\x00\x00\x00\x00", 6, SITE_STEPPED, 0 }, /* jmp *0(%rip) */
		{ "\xf3\xc3", 2, SITE_STEPPED, 0 },
		{ "\xc3", 1, SITE_STEPPED, 0 },
		{ "\x66\x66\x66\x66\x90", 5, SITE_STEPPED, 0 },
		{ "\xf3\x0f\x1e\xfa", 4, SITE_STEPPED, 0 }, /* the function ends */
		{ "\xe9\x00\x00\x00", 4, SITE_STEPPED, 0 }, /* cut off */
		{ "\x48", 1, SITE_STEPPED, 0 },
		{ "\x48\x8b", 2, SITE_STEPPED, 0 },
		{ "\x48\x8b\x04", 3, SITE_STEPPED, 0 },
		{ "", 0, SITE_STEPPED, 0 },
	};

#ifndef __x86_64__
	skip();
#endif
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t *exact =
			malloc(cases[i].n + 1); /* what reads beyond is found by a sanitizer */
		size_t offset = 99;

		assert_non_null(exact);
		memcpy(exact + 1, cases[i].bytes, cases[i].n);
		if (site_select(exact + 1, cases[i].n, &offset) != cases[i].kind ||
		    offset != cases[i].offset)
			fail_msg("case %zu: offset %zu", i, offset);
		free(exact);
	}
}

static int open_copy(char **bytesp, size_t *np) {
	int fd = open(library, O_RDONLY | O_CLOEXEC), copy = memfd_create("libcuda", MFD_CLOEXEC);
	struct stat status;

	assert_true(fd >= 0 && copy >= 0);
	assert_int_equal(fstat(fd, &status), 0);
	*np = (size_t)status.st_size;
	*bytesp = malloc(*np);
	assert_non_null(*bytesp);
	assert_int_equal(read(fd, *bytesp, *np), (ssize_t)*np);
	assert_int_equal(write(copy, *bytesp, *np), (ssize_t)*np);
	close(fd);
	return copy;
}

/* The same at a path. */
static int copy_to(const char *path) {
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0755);
	char *bytes;
	size_t n;

	close(open_copy(&bytes, &n));
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	free(bytes);
	return fd;
}

static const struct libcuda_function *find_function(const struct libcuda *file, const char *name) {
	for (size_t i = 0; i < file->n; i++)
		if (!strcmp(file->functions[i].name, name))
			return &file->functions[i];
	return NULL;
}

static void test_file(void **state) {
	struct libcuda *file;
	char *bytes;
	size_t n;

	assert_int_equal(libcuda_new(&file, open_copy(&bytes, &n), "/x/libcuda.so.1"), 0);
	assert_non_null(find_function(file, "cuInit"));
	assert_non_null(find_function(file, "cuLaunchKernel"));
	assert_null(find_function(file, "handle_of"));
#ifdef __x86_64__
	assert_false(find_function(file, "cuSitePush")->stepped);
	assert_true(find_function(file, "cuSiteSub")->stepped);
	assert_int_equal(bytes[find_function(file, "cuSitePush")->offset], 0x55);
	assert_int_equal(bytes[find_function(file, "cuSiteEndbr")->offset],
			 0x53); /* push %rbx, behind endbr64 */
#endif
	assert_string_equal(file->path, "/x/libcuda.so.1");
	libcuda_free(file);
	free(bytes);
	assert_int_equal(libcuda_new(&file, open("/dev/null", O_RDONLY | O_CLOEXEC), "x"),
			 LIBCUDA_E_INVALID);
	assert_int_equal(libcuda_new(&file, open("/", O_RDONLY | O_CLOEXEC), "x"),
			 LIBCUDA_E_INVALID);
}

/* Cut off anywhere, and with any byte of its header and tables changed: an error, or functions that
 * lie in the file. */
static void test_broken_files(void **state) {
	struct libcuda *file;
	unsigned int seed = 1;
	char *bytes;
	size_t n;
	int fd = open_copy(&bytes, &n);

	for (size_t size = 0; size < n; size += size < 4096 ? 61 : 1021) {
		assert_int_equal(ftruncate(fd, (off_t)size), 0);
		assert_true(libcuda_new(&file, dup(fd), "x") !=
			    0); /* the sections' headers come last */
	}
	assert_int_equal(pwrite(fd, bytes, n, 0), (ssize_t)n);
	for (int i = 0; i < 3000; i++) {
		const Elf64_Ehdr *header = (const void *)bytes;
		size_t at = (size_t)rand_r(&seed) %
			    (i % 2 ? sizeof(*header) + header->e_phnum * sizeof(Elf64_Phdr)
				   : n - header->e_shoff);
		char byte = (char)rand_r(&seed);

		at += i % 2 ? 0 : header->e_shoff;
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
		if (libcuda_new(&file, dup(fd), "x") == 0) {
			for (size_t k = 0; k < file->n; k++)
				assert_true(file->functions[k].offset < n &&
					    strlen(file->functions[k].name) < LIBCUDA_NAME_MAX);
			libcuda_free(file);
		}
		assert_int_equal(pwrite(fd, bytes + at, 1, (off_t)at), 1);
	}
	close(fd);
	free(bytes);
}

/* Of a function's versions the one that a new program would get; of one that chooses what will be
 * called, that it does so. */
static void test_versions(void **state) {
	static const struct elf_limits limits = { .symbols = 1 << 20, .strings = 64 << 20 },
				       small = { .symbols = 100, .strings = 64 << 20 };
	struct elf_wanted wanted[] = { { .name = "glob" },
				       { .name = "memcpy" },
				       { .name = "no_such_function" },
				       { .name = "getpid" } };
	atomic_bool stop = false;
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD),
	     *function = libc ? dlsym(libc, "glob") : NULL; /* not that of a sanitizer */
	Dl_info info;
	int fd;

	assert_non_null(function);
	assert_true(dladdr(function, &info));
	fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_functions_find(fd, &limits, wanted, 4, &stop), 0);
	assert_int_equal(wanted[0].r, 0);
	assert_int_equal(
		wanted[0].offset,
		(uintptr_t)function -
			(uintptr_t)info.dli_fbase); /* its code is where its addresses say */
#ifdef __x86_64__
	assert_int_equal(wanted[1].r, ELF_E_IFUNC);
#endif
	assert_int_equal(wanted[2].r, ELF_E_NO_FUNCTION);
	assert_int_equal(wanted[3].r, 0);
	assert_true(wanted[3].size > 0 && wanted[3].size < 4096);
	assert_int_equal(elf_functions_find(fd, &small, wanted, 4, &stop), -ENOEXEC);
	atomic_store(&stop, true);
	assert_int_equal(elf_functions_find(fd, &limits, wanted, 4, &stop), -ECANCELED);
	close(fd);
	dlclose(libc);
}

static void test_paths(void **state) {
	static const char *const good[] = { "/usr/lib/libcuda.so.1", "libcuda.so",
					    "/x/libcuda.so.580.159.04" };
	static const char *const bad[] = { "/usr/lib/libcudart.so.13",
					   "/libcuda.so.1/x",
					   "libcuda.so1",
					   "/usr/lib/xlibcuda.so.1",
					   "",
					   "libcuda.s" };

	for (size_t i = 0; i < 3; i++)
		assert_true(libcuda_path_matches(good[i], strlen(good[i])));
	for (size_t i = 0; i < 6; i++)
		assert_false(libcuda_path_matches(bad[i], strlen(bad[i])));
}

static void keep(void *userdata, int fd, const char *path) {
	snprintf(userdata, 4096, "%s", path);
	close(fd);
}

/* A process whose loader would look into a folder. */
static pid_t start_with(const char *folder) {
	char variable[300];
	char *const arguments[] = { (char *)"sleep", (char *)"60", NULL }, *const environment[] = {
		(char *)"A=b", variable, NULL
	};
	int ready[2];
	pid_t child;
	char byte;

	snprintf(variable, sizeof(variable), "LD_LIBRARY_PATH=relative:/nowhere:%s", folder);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		execve("/bin/sleep", arguments, environment);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0); /* exec has closed it */
	close(ready[0]);
	return child;
}

/* What this process has mapped, also when it is deleted; what another one's loader would find, but
 * no FIFO. */
static void test_finding(void **state) {
	char folder[] = "/tmp/test-site-XXXXXX", path[256], found[4096] = "";
	pid_t child;
	void *map;
	int fd;

	assert_non_null(mkdtemp(folder));
	child = start_with(folder);
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	fd = copy_to(path);
	assert_int_equal(libcuda_find_mapped(getpid(), keep, found), 0);
	libcuda_find_environment(child, keep, found);
	assert_string_equal(found, path);
	map = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	found[0] = '\0';
	assert_int_equal(libcuda_find_mapped(getpid(), keep, found), 1);
	assert_string_equal(found, path);
	assert_int_equal(unlink(path), 0);
	found[0] = '\0';
	assert_int_equal(libcuda_find_mapped(getpid(), keep, found), 1);
	assert_string_equal(found, geteuid() == 0 ? path : ""); /* by map_files */
	assert_int_equal(mkfifo(path, 0755), 0);
	found[0] = '\0';
	libcuda_find_environment(child, keep, found); /* neither waits nor finds */
	assert_string_equal(found, "");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	munmap(map, 4096);
	unlink(path);
	rmdir(folder);
	assert_true(libcuda_find_mapped(1 << 30, keep, found) < 0);
	libcuda_find_usual(keep, found);
}

/* What lies on a mount that was removed while in use may be anybody's: it is not opened. */
static void test_removed_mount(void **state) {
	char folder[] = "/tmp/test-site-XXXXXX", path[256], found[4096] = "";
	void *map;
	int fd;

	assert_non_null(mkdtemp(folder));
	if (mount("test-site", folder, "tmpfs", 0, NULL) < 0) {
		rmdir(folder);
		skip();
	}
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	fd = copy_to(path);
	map = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	assert_int_equal(libcuda_find_mapped(getpid(), keep, found), 1);
	assert_string_equal(found, path);
	assert_int_equal(umount2(folder, MNT_DETACH), 0);
	found[0] = '\0';
	assert_int_equal(libcuda_find_mapped(getpid(), keep, found), 1);
	assert_string_equal(found, "");
	munmap(map, 4096);
	rmdir(folder);
}

/* A process whose file does not answer is waited for once, and asked again when it has answered;
 * here that is a pipe. */
static void test_foreign(void **state) {
	char name[32], *bytes;
	int ends[2];
	size_t n;

	bytes = foreign_read(getpid(), "maps", FOREIGN_MAPS_MAX, &n);
	assert_non_null(bytes);
	assert_true(n == strlen(bytes) && strstr(bytes, "[stack]"));
	free(bytes);
	bytes = foreign_read(getpid(), "comm", 4, &n);
	assert_true(bytes && n == 4 && strlen(bytes) == 4);
	free(bytes);
	assert_null(foreign_read(1 << 30, "maps", FOREIGN_MAPS_MAX, &n));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	snprintf(name, sizeof(name), "fd/%d", ends[0]);
	assert_null(foreign_read(getpid(), name, 100, &n));
	assert_int_equal(errno, ETIMEDOUT);
	assert_null(foreign_read(getpid(), "maps", FOREIGN_MAPS_MAX, &n));
	assert_int_equal(errno, EBUSY);
	bytes = foreign_read(getppid(), "comm", 100, &n); /* others are */
	assert_non_null(bytes);
	free(bytes);
	close(ends[1]);
	while (!(bytes = foreign_read(getpid(), "comm", 100, &n)))
		assert_int_equal(errno, EBUSY);
	free(bytes);
	close(ends[0]);
}

/* See above. */
static int decode(void) {
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		uint8_t bytes[SITE_BYTES];
		size_t n = 0, at = 0, offset;
		unsigned int byte;

		while (n < sizeof(bytes) && sscanf(line + 2 * n, "%2x", &byte) == 1)
			bytes[n++] = (uint8_t)byte;
		printf("%s",
		       site_select(bytes, n, &offset) == SITE_EMULATED ? "emulated" : "stepped");
		printf(" %zu", offset);
		while (at < n) {
			bool harmless = false;
			size_t length = site_instruction(bytes + at, n - at, &harmless);

			if (!length)
				break;
			printf(" %zu%s", length, harmless ? "h" : "");
			at += length;
		}
		printf("\n");
	}
	return 0;
}

static void test_cpu_list(void **state) {
	static const struct {
		const char *text;
		size_t n;
		int first, last;
	} lists[] = {
		{ "0\n", 1, 0, 0 },
		{ "0-3\n", 4, 0, 3 },
		{ "1-2,7,1024-1026", 6, 1, 1026 },
		{ "5,9\n", 2, 5, 9 },
		{ "", 0 },
		{ "\n", 0 },
		{ "x", 0 },
		{ "3-1", 0 },
		{ "0,0", 0 },
		{ "0-", 0 },
		{ "-1", 0 },
		{ "2,1", 0 },
		{ "0-65536", 0 },
		{ "0-99999999999999999999", 0 },
		{ "0;1", 0 },
	};
	int *cpus;
	size_t n;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		int r = cpu_list_parse(lists[i].text, &cpus, &n);

		assert_int_equal(r, lists[i].n ? 0 : -EINVAL);
		if (r)
			continue;
		assert_int_equal(n, lists[i].n);
		assert_int_equal(cpus[0], lists[i].first);
		assert_int_equal(cpus[n - 1], lists[i].last);
		free(cpus);
	}
	assert_true(cpu_first_online() >= 0);
}

int main(int argc, char **argv) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sites),         cmocka_unit_test(test_file),
		cmocka_unit_test(test_broken_files),  cmocka_unit_test(test_paths),
		cmocka_unit_test(test_versions),      cmocka_unit_test(test_finding),
		cmocka_unit_test(test_removed_mount), cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_cpu_list),
	};

	if (argc == 2 && !strcmp(argv[1], "--lengths"))
		return decode();
	if (argc < 2)
		return 2;
	library = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
