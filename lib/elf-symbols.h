/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds functions of ELF files. Any user may write such a file, and change it at any time. It may
 * be a FIFO that blocks its opener, become a link to another file, or become shorter, which kills a
 * process that has it mapped. So a file is opened as a path first and examined. Then it is read by
 * pread(2) into memory of bounded size, and every field is checked.
 */

#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens a regular file, which belongs to the owner unless any will do; never blocks. The
 * descriptor, or -errno. */
int elf_file_open(const char *path, bool any, uid_t owner);

/* All n bytes at an offset. 0, -ENOEXEC: the file ends before that, or another -errno. */
int elf_file_read(int fd, void *to, size_t n, uint64_t offset);

/* The parts of a file that are in memory: its headers. */
struct elf_image {
	int fd; /* borrowed */
	uint16_t type, machine; /* ET_*, EM_* */
	size_t n_segments, n_sections;
	Elf64_Phdr *segments;
	Elf64_Shdr *sections;
};

/* 0, -ENOEXEC: it is no program or library, or another -errno. */
int elf_image_init(struct elf_image *image, int fd);
void elf_image_deinit(struct elf_image *image);

/* Where an address of code is in the file, and how many bytes of its segment follow. False:
 * nowhere. */
bool elf_image_offset(const struct elf_image *image, uint64_t address, uint64_t *offsetp,
		      uint64_t *followp);
/* The other way. */
bool elf_image_address(const struct elf_image *image, uint64_t offset, uint64_t *addressp);

/*
 * Whether a function begins at an address, as the file's table for unwinding (.eh_frame_hdr) says,
 * which also has functions without symbols. 0, -ENOENT: none does, or there is no such table of the
 * usual form, or another -errno.
 */
int elf_image_function(const struct elf_image *image, uint64_t address);

struct elf_limits {
	uint64_t symbols, strings; /* bytes of the latter */
};

/*
 * Gives each function of a table of symbols (SHT_DYNSYM or SHT_SYMTAB) with its name, which lies in
 * *stringsp: those are the caller's to free, also when the answer is another. take ends it by not
 * returning 0, which is the answer then. 0, -ENOENT: there is no such table, -ENOEXEC: it is broken
 * or over the limits, or another -errno.
 */
int elf_image_functions(const struct elf_image *image, uint32_t kind,
			const struct elf_limits *limits,
			int (*take)(void *userdata, const Elf64_Sym *symbol, const char *name),
			void *userdata, char **stringsp);

enum {
	_ELF_E_SUCCESS,
	ELF_E_NO_FUNCTION, /* the file has none of that name */
	ELF_E_IFUNC, /* the name is that of a function which returns the one that will be called */
};

/* A function that is sought in a file. */
struct elf_wanted {
	const char *name; /* of several versions the default one is meant */
	int r; /* 0, ELF_E_*, or -ENOEXEC: it may be in a table that is broken or over the limits */
	uint64_t offset, size; /* in the file; bytes that are its own at most */
	/* while seeking */
	unsigned int rank;
	uint64_t address;
};

/*
 * Finds n functions in one reading of a file, which *stop ends with -ECANCELED. 0: see `r` of each;
 * -ENOEXEC: it is no program or library, or over the limits; or another -errno.
 */
int elf_functions_find(int fd, const struct elf_limits *limits, struct elf_wanted *wanted, size_t n,
		       const atomic_bool *stop);
