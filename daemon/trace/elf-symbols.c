/* SPDX-License-Identifier: Apache-2.0 */

#include "elf-symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK 1024 /* symbols */
#define SEGMENTS_MAX 256 /* of files that people run */
#define SECTIONS_MAX 4096

int elf_file_open(const char *path, bool any, uid_t owner) {
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

int elf_file_read(int fd, void *to, size_t n, uint64_t offset) {
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
	int r = bytes ? elf_file_read(fd, bytes, n, offset) : -ENOMEM;

	if (r) {
		free(bytes);
		return r;
	}
	bytes[n] = '\0';
	*(void **)top = bytes;
	return 0;
}

int elf_image_init(struct elf_image *image, int fd) {
	Elf64_Ehdr header;
	int r;

	*image = (struct elf_image){ .fd = fd };
	r = elf_file_read(fd, &header, sizeof(header), 0);
	if (r)
		return r;
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    (header.e_type != ET_DYN && header.e_type != ET_EXEC) || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_shentsize != sizeof(Elf64_Shdr) ||
	    !header.e_shnum || header.e_phnum > SEGMENTS_MAX || header.e_shnum > SECTIONS_MAX)
		return -ENOEXEC;
	image->type = header.e_type;
	image->machine = header.e_machine;
	image->n_segments = header.e_phnum;
	image->n_sections = header.e_shnum;
	r = read_new(fd, &image->segments, image->n_segments * sizeof(Elf64_Phdr), header.e_phoff);
	if (!r)
		r = read_new(fd, &image->sections, image->n_sections * sizeof(Elf64_Shdr), header.e_shoff);
	if (r)
		elf_image_deinit(image);
	return r;
}

void elf_image_deinit(struct elf_image *image) {
	free(image->segments);
	free(image->sections);
	*image = (struct elf_image){};
}

/* Whether it is code that lies in the file as a whole. */
static bool is_code(const Elf64_Phdr *segment) {
	return segment->p_type == PT_LOAD && segment->p_flags & PF_X && segment->p_offset <= INT64_MAX && segment->p_filesz <= INT64_MAX - segment->p_offset;
}

bool elf_image_offset(const struct elf_image *image, uint64_t address, uint64_t *offsetp, uint64_t *followp) {
	for (size_t i = 0; i < image->n_segments; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (!is_code(segment) || address < segment->p_vaddr || address - segment->p_vaddr >= segment->p_filesz)
			continue;
		*offsetp = segment->p_offset + (address - segment->p_vaddr);
		*followp = segment->p_filesz - (address - segment->p_vaddr);
		return true;
	}
	return false;
}

bool elf_image_address(const struct elf_image *image, uint64_t offset, uint64_t *addressp) {
	for (size_t i = 0; i < image->n_segments; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (!is_code(segment) || offset < segment->p_offset || offset - segment->p_offset >= segment->p_filesz)
			continue;
		*addressp = segment->p_vaddr + (offset - segment->p_offset);
		return true;
	}
	return false;
}

int elf_image_function(const struct elf_image *image, uint64_t address) {
	struct {
		uint8_t version, frames_encoding, count_encoding, table_encoding;
		int32_t frames;
		uint32_t count;
	} header;
	const Elf64_Phdr *segment = image->segments, *end = image->segments + image->n_segments;
	uint64_t low = 0, high;
	int r;

	while (segment < end && segment->p_type != PT_GNU_EH_FRAME)
		segment++;
	if (segment == end || segment->p_filesz < sizeof(header))
		return -ENOENT;
	r = elf_file_read(image->fd, &header, sizeof(header), segment->p_offset);
	if (r)
		return r;
	/* pcrel, 4 bytes; 4 bytes; relative to the table, 4 bytes: sorted pairs */
	if (header.version != 1 || header.frames_encoding != 0x1b || header.count_encoding != 0x03 || header.table_encoding != 0x3b ||
	    header.count > (segment->p_filesz - sizeof(header)) / 8)
		return -ENOENT;
	for (high = header.count; low < high;) {
		const uint64_t middle = low + (high - low) / 2;
		int32_t pair[2];
		uint64_t start;

		r = elf_file_read(image->fd, pair, sizeof(pair), segment->p_offset + sizeof(header) + 8 * middle);
		if (r)
			return r;
		start = segment->p_vaddr + (uint64_t)(int64_t)pair[0];
		if (start == address)
			return 0;
		if (start < address)
			low = middle + 1;
		else
			high = middle;
	}
	return -ENOENT;
}

/* The functions of one table, a part of it at a time. */
static int read_table(const struct elf_image *image, const Elf64_Shdr *table, const char *strings, uint64_t n_strings,
		      int (*take)(void *userdata, const Elf64_Sym *symbol, const char *name), void *userdata) {
	const uint64_t n = table->sh_size / sizeof(Elf64_Sym);
	Elf64_Sym symbols[CHUNK];
	int r = 0;

	for (uint64_t first = 0; first < n && !r; first += CHUNK) {
		size_t k = n - first < CHUNK ? n - first : CHUNK;

		r = elf_file_read(image->fd, symbols, k * sizeof(symbols[0]), table->sh_offset + first * sizeof(symbols[0]));
		for (size_t i = 0; i < k && !r; i++)
			if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF && symbols[i].st_name < n_strings)
				r = take(userdata, &symbols[i], strings + symbols[i].st_name);
	}
	return r;
}

int elf_image_functions(const struct elf_image *image, uint32_t kind, const struct elf_limits *limits,
			int (*take)(void *userdata, const Elf64_Sym *symbol, const char *name), void *userdata, char **stringsp) {
	const Elf64_Shdr *table = image->sections, *end = image->sections + image->n_sections, *names;
	int r;

	*stringsp = NULL;
	while (table < end && table->sh_type != kind)
		table++;
	if (table == end)
		return -ENOENT;
	if (table->sh_link >= image->n_sections || table->sh_entsize != sizeof(Elf64_Sym) || table->sh_size / sizeof(Elf64_Sym) > limits->symbols)
		return -ENOEXEC;
	names = &image->sections[table->sh_link];
	if (names->sh_type != SHT_STRTAB || names->sh_size > limits->strings)
		return -ENOEXEC;
	r = read_new(image->fd, stringsp, names->sh_size, names->sh_offset);
	return r ? r : read_table(image, table, *stringsp, names->sh_size, take, userdata);
}

struct wanted {
	const char *name;
	uint64_t address;
};

/* Ends with 1 at the function, with a version or without. */
static int take_wanted(void *userdata, const Elf64_Sym *symbol, const char *name) {
	struct wanted *wanted = userdata;
	size_t n = strlen(wanted->name);

	if (strncmp(name, wanted->name, n) || (name[n] && name[n] != '@'))
		return 0;
	wanted->address = symbol->st_value;
	return 1;
}

int elf_function_find(int fd, const char *name, uint64_t *offsetp) {
	static const struct elf_limits limits = { .symbols = UINT64_C(2) << 20, .strings = UINT64_C(64) << 20 };
	static const uint32_t kinds[] = { SHT_DYNSYM, SHT_SYMTAB };
	struct wanted wanted = { .name = name };
	struct elf_image image;
	uint64_t follow;
	int r;

	r = elf_image_init(&image, fd);
	if (r)
		return r;
	for (size_t i = 0; i < 2 && (i == 0 || r == 0 || r == -ENOENT); i++) {
		char *strings;

		r = elf_image_functions(&image, kinds[i], &limits, take_wanted, &wanted, &strings);
		free(strings);
	}
	if (r == 1)
		r = elf_image_offset(&image, wanted.address, offsetp, &follow) ? 0 : -ENOENT;
	else if (r == 0)
		r = -ENOENT;
	elf_image_deinit(&image);
	return r;
}
