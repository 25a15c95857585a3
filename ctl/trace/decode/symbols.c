/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the name of the function at an offset of an ELF file (symbols.h), for stacks of a trace. It
 * opens files that the trace names, and trusts neither the trace nor the files.
 */

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "demangle.h"
#include "lib/elf-symbols.h"
#include "symbols.h"

#define FILES_MAX 256
#define BYTES_MAX ((size_t)1 << 30) /* of all tables */
#define AROUND 16 /* symbols that are looked at for one that is around an address */

struct symbol {
	uint64_t address, size;
	uint64_t name; /* in strings */
};

struct file {
	uint64_t inode;
	char *path;
	struct elf_image image; /* without a descriptor */
	struct symbol *list; /* sorted by address */
	size_t n, n_max;
	char *strings;
};

struct trace_symbols {
	struct file files[FILES_MAX];
	size_t n, bytes;
	struct trace_demangler demangler;
};

int trace_symbols_new(struct trace_symbols **symbolsp) {
	*symbolsp = calloc(1, sizeof(**symbolsp));
	return *symbolsp ? 0 : -ENOMEM;
}

static void clear_table(struct file *file) {
	elf_image_deinit(&file->image);
	free(file->list);
	free(file->strings);
	file->list = NULL;
	file->strings = NULL;
	file->n = file->n_max = 0;
}

struct trace_symbols *trace_symbols_free(struct trace_symbols *symbols) {
	if (!symbols)
		return NULL;
	for (size_t i = 0; i < symbols->n; i++) {
		clear_table(&symbols->files[i]);
		free(symbols->files[i].path);
	}
	trace_demangler_deinit(&symbols->demangler);
	free(symbols);
	return NULL;
}

static int add_symbol(void *userdata, const Elf64_Sym *symbol, const char *name) {
	struct file *file = userdata;

	if (!*name || !symbol->st_value)
		return 0;
	if (file->n == file->n_max) {
		size_t n_max = file->n_max ? 2 * file->n_max : 1024;
		struct symbol *grown = reallocarray(file->list, n_max, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		file->list = grown;
		file->n_max = n_max;
	}
	file->list[file->n++] = (struct symbol){ symbol->st_value, symbol->st_size,
						 (uint64_t)(name - file->strings) };
	return 0;
}

/* By address; of those with the same one, the largest last: it is found first. */
static int compare_symbols(const void *a, const void *b) {
	const struct symbol *x = a, *y = b;

	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	return (x->size > y->size) - (x->size < y->size);
}

/* The file as process pid sees it, or as we do; -1: neither is the one that is meant. */
static int open_file(uint32_t pid, const char *path, uint64_t inode) {
	char *in_root;
	int fd = -1;

	if (asprintf(&in_root, "/proc/%u/root%s", pid, path) < 0)
		return -1;
	for (int i = 0; i < 2 && fd < 0; i++) {
		struct stat status;

		fd = elf_file_open(i ? path : in_root, true, 0);
		if (fd >= 0 && (fstat(fd, &status) < 0 || status.st_ino != inode)) {
			close(fd);
			fd = -1;
		}
	}
	free(in_root);
	return fd;
}

/* Reads a file's table: the whole one, or if it was stripped the one of what it exports. Of a file
 * that has none, or a broken one, no function has a name. */
static void read_file(struct trace_symbols *symbols, struct file *file, uint32_t pid) {
	const struct elf_limits limits = { .symbols = (BYTES_MAX - symbols->bytes) / 64,
					   .strings = (BYTES_MAX - symbols->bytes) / 4 };
	int fd = open_file(pid, file->path, file->inode), r;

	if (fd < 0)
		return;
	r = elf_image_init(&file->image, fd);
	if (!r)
		r = elf_image_functions(&file->image, SHT_SYMTAB, &limits, add_symbol, file,
					&file->strings);
	if (!r && !file->n)
		r = -ENOENT;
	if (r && file->image.segments) {
		free(file->strings);
		file->n = 0;
		r = elf_image_functions(&file->image, SHT_DYNSYM, &limits, add_symbol, file,
					&file->strings);
	}
	close(fd);
	if (r) {
		clear_table(file);
		return;
	}
	if (file->n) /* else there is no list */
		qsort(file->list, file->n, sizeof(*file->list), compare_symbols);
	symbols->bytes += file->n_max * sizeof(*file->list) + malloc_usable_size(file->strings) +
			  file->image.n_segments * sizeof(*file->image.segments) +
			  file->image.n_sections * sizeof(*file->image.sections);
}

/* NULL: there is no room. */
static const struct file *find_file(struct trace_symbols *symbols, uint32_t pid, const char *path,
				    uint64_t inode) {
	struct file *file;

	for (size_t i = 0; i < symbols->n; i++)
		if (symbols->files[i].inode == inode && !strcmp(symbols->files[i].path, path))
			return &symbols->files[i];
	if (symbols->n == FILES_MAX || symbols->bytes > BYTES_MAX / 2)
		return NULL;
	file = &symbols->files[symbols->n];
	*file = (struct file){ .inode = inode, .path = strdup(path) };
	if (!file->path)
		return NULL;
	symbols->n++;
	read_file(symbols, file, pid);
	return file;
}

/* The symbol that is around an address; one without a size goes as far as the next. */
static const struct symbol *find_symbol(const struct file *file, uint64_t address) {
	size_t low = 0, high = file->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (file->list[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = 0; i < AROUND && i < low; i++) {
		const struct symbol *symbol = &file->list[low - 1 - i];

		if (address - symbol->address < symbol->size || (!symbol->size && i == 0))
			return symbol;
	}
	return NULL;
}

const char *trace_symbols_name(struct trace_symbols *symbols, uint32_t pid, const char *path,
			       uint64_t inode, uint64_t offset, uint64_t *distancep) {
	const struct file *file =
		offset && path[0] == '/' ? find_file(symbols, pid, path, inode) : NULL;
	const struct symbol *symbol;
	uint64_t address;

	if (!file || !file->n || !elf_image_address(&file->image, offset - 1, &address))
		return NULL;
	symbol = find_symbol(file, address);
	if (!symbol)
		return NULL;
	*distancep = address + 1 - symbol->address;
	return trace_demangle(&symbols->demangler, file->strings + symbol->name);
}
