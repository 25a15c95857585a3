/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The file is its user's, who may make anything of it at any time: a FIFO, on whose opening one would wait; a link to another file, once somebody has looked; a shorter
 * file, which would kill who has it mapped. So it is opened as a path first, looked at, and read by pread(2) into memory of bounded size.
 */

#include "hook-file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYMBOLS_MAX (UINT64_C(2) << 20)
#define STRINGS_MAX (UINT64_C(64) << 20)
#define CHUNK 1024 /* symbols */

int hook_file_open(const char *path, bool any, uid_t owner) {
	int path_fd = open(path, O_PATH | O_CLOEXEC), fd = -1, r = 0;
	char link[64];
	struct stat status;

	if (path_fd < 0)
		return -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	if (fstat(path_fd, &status) < 0)
		r = -errno;
	else if (!S_ISREG(status.st_mode))
		r = -ENOEXEC;
	else if (!any && status.st_uid != owner)
		r = -EACCES;
	else
		fd = open(link, O_RDONLY | O_CLOEXEC);
	if (!r && fd < 0)
		r = -errno;
	close(path_fd);
	return r ? r : fd;
}

/* All n bytes at an offset. */
static int read_at(int fd, void *to, size_t n, uint64_t offset) {
	for (size_t done = 0; done < n;) {
		ssize_t r = offset > INT64_MAX - n ? 0 : pread(fd, (char *)to + done, n - done, (off_t)(offset + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			return -ENOEXEC;
		done += (size_t)r;
	}
	return 0;
}

/* The same into new memory, with a NUL behind. */
static int read_new(int fd, void *top, size_t n, uint64_t offset) {
	char *bytes = malloc(n + 1);
	int r = bytes ? read_at(fd, bytes, n, offset) : -ENOMEM;

	if (r) {
		free(bytes);
		return r;
	}
	bytes[n] = '\0';
	*(char **)top = bytes;
	return 0;
}

/* Whether a name is the function's, with a version or without. */
static bool is_name(const char *name, const char *function) {
	size_t n = strlen(function);

	return !strncmp(name, function, n) && (!name[n] || name[n] == '@');
}

/* The address of the function in a table of symbols. */
static int find_in_table(int fd, const Elf64_Shdr *table, const Elf64_Shdr *names, const char *function, uint64_t *addressp) {
	uint64_t n = table->sh_size / sizeof(Elf64_Sym);
	Elf64_Sym symbols[CHUNK];
	char *strings = NULL;
	int r;

	if (table->sh_entsize != sizeof(Elf64_Sym) || n > SYMBOLS_MAX || names->sh_type != SHT_STRTAB || names->sh_size > STRINGS_MAX)
		return -ENOEXEC;
	r = read_new(fd, &strings, names->sh_size, names->sh_offset);
	if (r)
		return r;
	r = -ENOENT;
	for (uint64_t first = 0; first < n && r == -ENOENT; first += CHUNK) {
		size_t k = n - first < CHUNK ? n - first : CHUNK;
		int error = read_at(fd, symbols, k * sizeof(symbols[0]), table->sh_offset + first * sizeof(symbols[0]));

		r = error ? error : r;
		for (size_t i = 0; i < k && r == -ENOENT; i++) {
			if (ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_name >= names->sh_size ||
			    !is_name(strings + symbols[i].st_name, function))
				continue;
			*addressp = symbols[i].st_value;
			r = 0;
		}
	}
	free(strings);
	return r;
}

/* Where an address of code is in the file. */
static int find_offset(int fd, const Elf64_Ehdr *header, uint64_t address, uint64_t *offsetp) {
	for (size_t i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;
		int r = read_at(fd, &segment, sizeof(segment), header->e_phoff + i * sizeof(segment));

		if (r)
			return r;
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz &&
		    segment.p_offset <= INT64_MAX && segment.p_filesz <= INT64_MAX - segment.p_offset) {
			*offsetp = segment.p_offset + (address - segment.p_vaddr);
			return 0;
		}
	}
	return -ENOENT;
}

int hook_file_find(int fd, const char *function, uint64_t *offsetp) {
	static const uint32_t kinds[] = { SHT_DYNSYM, SHT_SYMTAB };
	Elf64_Shdr *sections = NULL;
	Elf64_Ehdr header;
	uint64_t address;
	int r;

	r = read_at(fd, &header, sizeof(header), 0);
	if (r)
		return r;
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    (header.e_type != ET_DYN && header.e_type != ET_EXEC) || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_shentsize != sizeof(Elf64_Shdr) ||
	    !header.e_shnum)
		return -ENOEXEC;
	r = read_new(fd, &sections, header.e_shnum * sizeof(*sections), header.e_shoff);
	if (r)
		return r;
	r = -ENOENT;
	for (size_t kind = 0; kind < 2; kind++)
		for (size_t i = 0; i < header.e_shnum && r == -ENOENT; i++)
			if (sections[i].sh_type == kinds[kind] && sections[i].sh_link < header.e_shnum)
				r = find_in_table(fd, &sections[i], &sections[sections[i].sh_link], function, &address);
	free(sections);
	return r ? r : find_offset(fd, &header, address, offsetp);
}
