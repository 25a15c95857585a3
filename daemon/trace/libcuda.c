/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The functions of a libcuda: .dynsym, found by its section. Everything is read by pread(2) into memory of bounded size, as a file that somebody truncates would
 * kill who has it mapped.
 */

#include "libcuda.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "site.h"

#define SEGMENTS_MAX 64
#define SECTIONS_MAX 512
#define SYMBOLS_MAX 65536
#define STRINGS_MAX ((uint64_t)4 << 20)

#ifdef __x86_64__
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

/* What of the file is in memory while it is read. */
struct image {
	int fd;
	size_t n_segments, n_symbols, n_strings;
	Elf64_Phdr *segments;
	Elf64_Sym *symbols;
	char *strings; /* NUL-terminated */
};

static void image_deinit(struct image *image) {
	free(image->segments);
	free(image->symbols);
	free(image->strings);
}

/* Reads n bytes at an offset. */
static int read_at(int fd, void *to, size_t n, uint64_t offset) {
	size_t done = 0;

	if (offset > INT64_MAX - n)
		return LIBCUDA_E_INVALID;
	while (done < n) {
		ssize_t r = pread(fd, (char *)to + done, n - done, (off_t)(offset + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			return LIBCUDA_E_INVALID;
		done += (size_t)r;
	}
	return 0;
}

/* Reads n bytes at an offset into new memory, with a NUL behind. */
static int read_new(int fd, void *top, size_t n, uint64_t offset) {
	char *bytes = malloc(n + 1);
	int r;

	if (!bytes)
		return -ENOMEM;
	r = read_at(fd, bytes, n, offset);
	if (r) {
		free(bytes);
		return r;
	}
	bytes[n] = '\0';
	*(void **)top = bytes;
	return 0;
}

/* Reads the dynamic symbols and their names, which the sections tell. */
static int read_symbols(struct image *image, const Elf64_Shdr *sections, size_t n) {
	for (size_t i = 0; i < n; i++) {
		const Elf64_Shdr *section = &sections[i], *strings;
		int r;

		if (section->sh_type != SHT_DYNSYM)
			continue;
		if (section->sh_link >= n || section->sh_entsize != sizeof(Elf64_Sym) || section->sh_size / sizeof(Elf64_Sym) > SYMBOLS_MAX)
			return LIBCUDA_E_INVALID;
		strings = &sections[section->sh_link];
		if (strings->sh_type != SHT_STRTAB || strings->sh_size > STRINGS_MAX)
			return LIBCUDA_E_INVALID;
		image->n_symbols = section->sh_size / sizeof(Elf64_Sym);
		image->n_strings = strings->sh_size;
		r = read_new(image->fd, &image->symbols, image->n_symbols * sizeof(Elf64_Sym), section->sh_offset);
		return r ? r : read_new(image->fd, &image->strings, image->n_strings, strings->sh_offset);
	}
	return LIBCUDA_E_INVALID;
}

static int read_image(struct image *image) {
	Elf64_Shdr *sections;
	Elf64_Ehdr header;
	int r;

	r = read_at(image->fd, &header, sizeof(header), 0);
	if (r)
		return r;
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_type != ET_DYN || header.e_machine != MACHINE || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > SEGMENTS_MAX ||
	    header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > SECTIONS_MAX)
		return LIBCUDA_E_INVALID;
	image->n_segments = header.e_phnum;
	r = read_new(image->fd, &image->segments, header.e_phnum * sizeof(Elf64_Phdr), header.e_phoff);
	if (r)
		return r;
	r = read_new(image->fd, &sections, header.e_shnum * sizeof(Elf64_Shdr), header.e_shoff);
	if (r)
		return r;
	r = read_symbols(image, sections, header.e_shnum);
	free(sections);
	return r;
}

/* The name of a function of the interface; NULL: it is none. */
static const char *function_name(const struct image *image, const Elf64_Sym *symbol) {
	const char *name;
	size_t n;

	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF || symbol->st_name >= image->n_strings)
		return NULL;
	name = image->strings + symbol->st_name;
	if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z')
		return NULL;
	n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	return name[n] || n >= LIBCUDA_NAME_MAX ? NULL : name;
}

/* Where an address of code is in the file, and how many bytes of the segment follow; false: nowhere. */
static bool find_offset(const struct image *image, uint64_t address, uint64_t *offsetp, uint64_t *followp) {
	for (size_t i = 0; i < image->n_segments; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || address < segment->p_vaddr || address - segment->p_vaddr >= segment->p_filesz ||
		    segment->p_offset > INT64_MAX || segment->p_filesz > INT64_MAX - segment->p_offset)
			continue;
		*offsetp = segment->p_offset + (address - segment->p_vaddr);
		*followp = segment->p_filesz - (address - segment->p_vaddr);
		return true;
	}
	return false;
}

/* Adds the function of a symbol, with its site. */
static int add_function(struct libcuda *library, const struct image *image, const Elf64_Sym *symbol) {
	struct libcuda_function *function = &library->functions[library->n];
	const char *name = function_name(image, symbol);
	uint8_t bytes[SITE_BYTES];
	uint64_t offset, follow;
	size_t n = SITE_BYTES, site;
	int r;

	if (!name || !find_offset(image, symbol->st_value, &offset, &follow))
		return 0;
	if (n > follow)
		n = follow;
	if (symbol->st_size && n > symbol->st_size)
		n = symbol->st_size;
	r = read_at(image->fd, bytes, n, offset);
	if (r)
		return r;
	function->name = name;
	function->stepped = site_select(bytes, n, &site) == SITE_STEPPED;
	function->offset = offset + site;
	library->n++;
	return 0;
}

/* Which of the names that one function has says best what its arguments are: the highest version; of the default stream of old. */
static unsigned int name_rank(const char *name) {
	const char *version = strstr(name, "_v"), *stream = strstr(name, "_pt");

	return 2 * (version ? (unsigned int)strtoul(version + 2, NULL, 10) & 0xff : 1) + !stream;
}

static int compare_functions(const void *a, const void *b) {
	const struct libcuda_function *x = a, *y = b;
	unsigned int x_rank = name_rank(x->name), y_rank = name_rank(y->name);

	if (x->offset != y->offset)
		return x->offset > y->offset ? 1 : -1;
	return x_rank != y_rank ? (x_rank < y_rank ? 1 : -1) : strcmp(x->name, y->name);
}

/* Leaves the best name of those that share a site. */
static void keep_best_names(struct libcuda *library) {
	size_t n = 0;

	qsort(library->functions, library->n, sizeof(*library->functions), compare_functions);
	for (size_t i = 0; i < library->n; i++)
		if (!n || library->functions[i].offset != library->functions[n - 1].offset)
			library->functions[n++] = library->functions[i];
	library->n = n;
	for (size_t i = 0; i < n; i++)
		library->n_stepped += library->functions[i].stepped;
}

static int read_functions(struct libcuda *library) {
	struct image image = { .fd = library->fd };
	int r;

	r = read_image(&image);
	library->functions = r ? NULL : calloc(LIBCUDA_FUNCTIONS_MAX, sizeof(*library->functions));
	if (!r && !library->functions)
		r = -ENOMEM;
	for (size_t i = 0; !r && i < image.n_symbols && library->n < LIBCUDA_FUNCTIONS_MAX; i++)
		r = add_function(library, &image, &image.symbols[i]);
	if (!r) {
		keep_best_names(library);
		library->names = image.strings;
		image.strings = NULL;
	}
	image_deinit(&image);
	return r ? r : library->n ? 0 : LIBCUDA_E_INVALID;
}

int libcuda_new(struct libcuda **libraryp, int fd, const char *path) {
	struct libcuda *library = calloc(1, sizeof(*library));
	struct stat status;
	int r;

	if (!library) {
		close(fd);
		return -ENOMEM;
	}
	library->fd = fd;
	library->path = strdup(path);
	for (char *at = library->path; at && *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	r = !library->path ? -ENOMEM : fstat(fd, &status) < 0 ? -errno : !S_ISREG(status.st_mode) ? LIBCUDA_E_INVALID : 0;
	if (!r) {
		library->device = status.st_dev;
		library->inode = status.st_ino;
		r = read_functions(library);
	}
	if (r) {
		libcuda_free(library);
		return r;
	}
	*libraryp = library;
	return 0;
}

struct libcuda *libcuda_free(struct libcuda *library) {
	if (!library)
		return NULL;
	close(library->fd);
	free(library->path);
	free(library->functions);
	free(library->names);
	free(library);
	return NULL;
}
