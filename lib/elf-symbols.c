/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads segments, sections and symbols of an ELF file by pread() (elf-symbols.h). The file may be
 * anybody's and may change while it is read: all sizes and offsets are checked.
 */

#include "elf-symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/elf.h"

#define CHUNK 1024 /* symbols */
#define SEGMENTS_MAX 256 /* of files that people run */
#define SECTIONS_MAX 4096
#define VERSION_HIDDEN 0x8000 /* bit of a symbol's version */

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
		ssize_t r = offset > INT64_MAX - n ? 0
						   : pread(fd, (char *)to + done, n - done,
							   (off_t)(offset + done));

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
	if (!elf_is_readable(&header) || (header.e_type != ET_DYN && header.e_type != ET_EXEC) ||
	    header.e_phentsize != sizeof(Elf64_Phdr) || header.e_shentsize != sizeof(Elf64_Shdr) ||
	    !header.e_shnum || header.e_phnum > SEGMENTS_MAX || header.e_shnum > SECTIONS_MAX)
		return -ENOEXEC;
	image->type = header.e_type;
	image->machine = header.e_machine;
	image->n_segments = header.e_phnum;
	image->n_sections = header.e_shnum;
	r = read_new(fd, &image->segments, image->n_segments * sizeof(Elf64_Phdr), header.e_phoff);
	if (!r)
		r = read_new(fd, &image->sections, image->n_sections * sizeof(Elf64_Shdr),
			     header.e_shoff);
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
	return segment->p_type == PT_LOAD && segment->p_flags & PF_X &&
	       segment->p_offset <= INT64_MAX && segment->p_filesz <= INT64_MAX - segment->p_offset;
}

bool elf_image_offset(const struct elf_image *image, uint64_t address, uint64_t *offsetp,
		      uint64_t *followp) {
	for (size_t i = 0; i < image->n_segments; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (!is_code(segment) || address < segment->p_vaddr ||
		    address - segment->p_vaddr >= segment->p_filesz)
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

		if (!is_code(segment) || offset < segment->p_offset ||
		    offset - segment->p_offset >= segment->p_filesz)
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
	if (header.version != 1 || header.frames_encoding != 0x1b ||
	    header.count_encoding != 0x03 || header.table_encoding != 0x3b ||
	    header.count > (segment->p_filesz - sizeof(header)) / 8)
		return -ENOENT;
	for (high = header.count; low < high;) {
		const uint64_t middle = low + (high - low) / 2;
		int32_t pair[2];
		uint64_t start;

		r = elf_file_read(image->fd, pair, sizeof(pair),
				  segment->p_offset + sizeof(header) + 8 * middle);
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

/* A symbol that a table defines; hidden: a version that is there for programs of old alone. What is
 * not 0 ends the table. */
typedef int (*take_symbol_fn)(void *userdata, const Elf64_Sym *symbol, const char *name,
			      bool hidden);

/* The versions of a table's symbols, a number for each, or NULL. */
static const Elf64_Shdr *find_versions(const struct elf_image *image, const Elf64_Shdr *table) {
	for (const Elf64_Shdr *section = image->sections;
	     section < image->sections + image->n_sections; section++)
		if (section->sh_type == SHT_GNU_versym &&
		    section->sh_link == (size_t)(table - image->sections) &&
		    section->sh_size / sizeof(Elf64_Versym) >= table->sh_size / sizeof(Elf64_Sym))
			return section;
	return NULL;
}

/* What one table defines, a part of it at a time. */
static int read_table(const struct elf_image *image, const Elf64_Shdr *table, const char *strings,
		      uint64_t n_strings, take_symbol_fn take, void *userdata) {
	const uint64_t n = table->sh_size / sizeof(Elf64_Sym);
	const Elf64_Shdr *versions = find_versions(image, table);
	Elf64_Versym numbers[CHUNK] = {};
	Elf64_Sym symbols[CHUNK];
	int r = 0;

	for (uint64_t first = 0; first < n && !r; first += CHUNK) {
		size_t k = n - first < CHUNK ? n - first : CHUNK;

		r = elf_file_read(image->fd, symbols, k * sizeof(symbols[0]),
				  table->sh_offset + first * sizeof(symbols[0]));
		if (!r && versions)
			r = elf_file_read(image->fd, numbers, k * sizeof(numbers[0]),
					  versions->sh_offset + first * sizeof(numbers[0]));
		for (size_t i = 0; i < k && !r; i++)
			if (symbols[i].st_shndx != SHN_UNDEF && symbols[i].st_name < n_strings)
				r = take(userdata, &symbols[i], strings + symbols[i].st_name,
					 numbers[i] & VERSION_HIDDEN);
	}
	return r;
}

/* As elf_image_functions(), of all symbols. */
static int read_symbols(const struct elf_image *image, uint32_t kind,
			const struct elf_limits *limits, take_symbol_fn take, void *userdata,
			char **stringsp) {
	const Elf64_Shdr *table = image->sections, *end = image->sections + image->n_sections,
			 *names;
	int r;

	*stringsp = NULL;
	while (table < end && table->sh_type != kind)
		table++;
	if (table == end)
		return -ENOENT;
	if (table->sh_link >= image->n_sections || table->sh_entsize != sizeof(Elf64_Sym) ||
	    table->sh_size / sizeof(Elf64_Sym) > limits->symbols)
		return -ENOEXEC;
	names = &image->sections[table->sh_link];
	if (names->sh_type != SHT_STRTAB || names->sh_size > limits->strings)
		return -ENOEXEC;
	r = read_new(image->fd, stringsp, names->sh_size, names->sh_offset);
	return r ? r : read_table(image, table, *stringsp, names->sh_size, take, userdata);
}

struct taker {
	int (*take)(void *userdata, const Elf64_Sym *symbol, const char *name);
	void *userdata;
};

static int take_function(void *userdata, const Elf64_Sym *symbol, const char *name, bool hidden) {
	const struct taker *taker = userdata;

	return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC
		       ? taker->take(taker->userdata, symbol, name)
		       : 0;
}

int elf_image_functions(const struct elf_image *image, uint32_t kind,
			const struct elf_limits *limits,
			int (*take)(void *userdata, const Elf64_Sym *symbol, const char *name),
			void *userdata, char **stringsp) {
	struct taker taker = { take, userdata };

	return read_symbols(image, kind, limits, take_function, &taker, stringsp);
}

/* ---- those that are wanted ---- */

enum rank {
	RANK_NONE,
	RANK_OLD, /* a version that is not the default one */
	RANK_BEST,
};

struct finding {
	struct elf_wanted *wanted;
	size_t n;
	const atomic_bool *stop;
};

/* What a symbol is to a name; .symtab has versions in its names: f@@NEW, f@OLD. */
static enum rank rank_of(const char *symbol, const char *name, bool hidden) {
	const size_t n = strlen(name);

	if (strncmp(symbol, name, n) || (symbol[n] && symbol[n] != '@'))
		return RANK_NONE;
	return hidden || (symbol[n] && symbol[n + 1] != '@') ? RANK_OLD : RANK_BEST;
}

static int take_wanted(void *userdata, const Elf64_Sym *symbol, const char *name, bool hidden) {
	const unsigned char type = ELF64_ST_TYPE(symbol->st_info);
	const struct finding *finding = userdata;

	if (atomic_load_explicit(finding->stop, memory_order_relaxed))
		return -ECANCELED;
	if (type != STT_FUNC && type != STT_GNU_IFUNC)
		return 0;
	for (size_t i = 0; i < finding->n; i++) {
		struct elf_wanted *wanted = &finding->wanted[i];
		enum rank rank = rank_of(name, wanted->name, hidden);

		if (rank <= wanted->rank)
			continue;
		wanted->rank = rank;
		wanted->r = type == STT_FUNC ? 0 : ELF_E_IFUNC;
		wanted->address = symbol->st_value;
		wanted->size = symbol->st_size;
	}
	return 0;
}

/* Where it is in the file. */
static void place_wanted(const struct elf_image *image, struct elf_wanted *wanted) {
	uint64_t follow;

	if (wanted->r)
		return;
	if (!elf_image_offset(image, wanted->address, &wanted->offset, &follow))
		wanted->r = ELF_E_NO_FUNCTION;
	else if (!wanted->size || wanted->size > follow)
		wanted->size = follow;
}

/* How many have been found; the others have an answer for the case that no table has them. */
static size_t count_found(struct elf_wanted *wanted, size_t n, int answer) {
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		found += wanted[i].rank != RANK_NONE;
		if (wanted[i].rank == RANK_NONE)
			wanted[i].r = answer;
	}
	return found;
}

int elf_functions_find(int fd, const struct elf_limits *limits, struct elf_wanted *wanted, size_t n,
		       const atomic_bool *stop) {
	static const uint32_t kinds[] = { SHT_DYNSYM, SHT_SYMTAB };
	struct finding finding = { wanted, n, stop };
	struct elf_image image;
	size_t found = 0;
	int r;

	r = elf_image_init(&image, fd);
	for (size_t i = 0; i < n; i++)
		wanted[i].rank = RANK_NONE;
	for (size_t i = 0; i < 2 && !r && found < n; i++) {
		char *strings;

		r = read_symbols(&image, kinds[i], limits, take_wanted, &finding, &strings);
		free(strings);
		found = count_found(wanted, n, r && r != -ENOENT ? r : ELF_E_NO_FUNCTION);
		if (r == -ENOENT || (r == -ENOEXEC && found))
			r = 0;
	}
	for (size_t i = 0; i < n && !r; i++)
		place_wanted(&image, &wanted[i]);
	elf_image_deinit(&image);
	return r;
}
