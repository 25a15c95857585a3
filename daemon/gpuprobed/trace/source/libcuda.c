/* SPDX-License-Identifier: Apache-2.0 */

/* Lists the functions that a libcuda exports, from its .dynsym (libcuda.h). */

#include "libcuda.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/elf-symbols.h"
#include "site.h"

#ifdef __x86_64__
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

/* Whether it is the name of a function of the interface. */
static bool is_function_name(const char *name) {
	size_t n;

	if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z')
		return false;
	n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	return !name[n] && n < LIBCUDA_NAME_MAX;
}

struct reading {
	struct libcuda *library;
	struct elf_image image;
};

/* Adds the function of a symbol, with its site. */
static int add_function(void *userdata, const Elf64_Sym *symbol, const char *name) {
	struct reading *reading = userdata;
	struct libcuda *library = reading->library;
	struct libcuda_function *function = &library->functions[library->n];
	uint8_t bytes[SITE_BYTES];
	uint64_t offset, follow;
	size_t n = SITE_BYTES, site;
	int r;

	if (library->n == LIBCUDA_FUNCTIONS_MAX || !is_function_name(name) ||
	    !elf_image_offset(&reading->image, symbol->st_value, &offset, &follow))
		return 0;
	if (n > follow)
		n = follow;
	if (symbol->st_size && n > symbol->st_size)
		n = symbol->st_size;
	r = elf_file_read(reading->image.fd, bytes, n, offset);
	if (r)
		return r;
	function->name = name;
	function->stepped = site_select(bytes, n, &site) == SITE_STEPPED;
	function->entry = offset;
	function->offset = offset + site;
	library->n++;
	return 0;
}

/* Which of the names that one function has says best what its arguments are: the highest version;
 * of the default stream of old. */
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
}

static int read_functions(struct libcuda *library) {
	static const struct elf_limits limits = { .symbols = 65536, .strings = UINT64_C(4) << 20 };
	struct reading reading = { .library = library };
	int r;

	r = elf_image_init(&reading.image, library->fd);
	if (!r && (reading.image.type != ET_DYN || reading.image.machine != MACHINE))
		r = -ENOEXEC;
	if (!r) {
		library->functions = calloc(LIBCUDA_FUNCTIONS_MAX, sizeof(*library->functions));
		r = library->functions
			    ? elf_image_functions(&reading.image, SHT_DYNSYM, &limits, add_function,
						  &reading, &library->names)
			    : -ENOMEM;
	}
	elf_image_deinit(&reading.image);
	if (r == -ENOEXEC || r == -ENOENT || (!r && !library->n))
		return LIBCUDA_E_INVALID;
	if (!r)
		keep_best_names(library);
	return r;
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
	r = !library->path             ? -ENOMEM
	    : fstat(fd, &status) < 0   ? -errno
	    : !S_ISREG(status.st_mode) ? LIBCUDA_E_INVALID
				       : 0;
	if (!r) {
		library->device = status.st_dev;
		library->inode = status.st_ino;
		library->size = (uint64_t)status.st_size;
		library->changed = status.st_ctim;
		r = read_functions(library);
	}
	if (r) {
		libcuda_free(library);
		return r;
	}
	*libraryp = library;
	return 0;
}

static bool is_on_overlay(int fd) {
	struct statfs status;

	return fstatfs(fd, &status) == 0 && status.f_type == OVERLAYFS_SUPER_MAGIC;
}

/*
 * Each container's overlay has a device of its own, and shows what it has not changed with the
 * inode number and times of the one file below. Other file systems are not asked for that:
 * snapshots of btrfs have them, too, and are different files.
 */
bool libcuda_is_file(const struct libcuda *library, int fd, const struct stat *status) {
	if (library->inode != status->st_ino)
		return false;
	return library->device == status->st_dev ||
	       (library->size == (uint64_t)status->st_size &&
		library->changed.tv_sec == status->st_ctim.tv_sec &&
		library->changed.tv_nsec == status->st_ctim.tv_nsec &&
		(is_on_overlay(fd) || is_on_overlay(library->fd)));
}

int libcuda_site(const struct libcuda *library, uint64_t entry, uint64_t *offsetp) {
	uint8_t bytes[SITE_BYTES];
	struct elf_image image;
	uint64_t address;
	size_t site;
	int r;

	r = elf_image_init(&image, library->fd);
	if (!r) {
		r = elf_image_address(&image, entry, &address) ? elf_image_function(&image, address)
							       : -ENOENT;
		elf_image_deinit(&image);
	}
	if (!r)
		r = elf_file_read(library->fd, bytes, sizeof(bytes), entry);
	if (r)
		return r == -ENOEXEC || r == -ENOENT ? LIBCUDA_E_INVALID : r;
	site_select(bytes, sizeof(bytes), &site);
	*offsetp = entry + site;
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
