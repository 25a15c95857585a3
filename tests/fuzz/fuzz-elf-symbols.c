/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a program or library: names of functions end, and addresses and offsets
 * lead to each other. Then the same file as one that a stack of a trace names: the answer, if there
 * is one, is a text.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/elf-symbols.h"
#include "ctl/trace/decode/symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUNCTIONS_MAX 64 /* that are looked at */

struct seen {
	const struct elf_image *image;
	size_t n;
	uint64_t addresses[FUNCTIONS_MAX];
	char name[64]; /* of the last */
};

static int take(void *userdata, const Elf64_Sym *symbol, const char *name) {
	struct seen *seen = userdata;
	uint64_t offset, follow, address;

	snprintf(seen->name, sizeof(seen->name), "%s", name);
	seen->addresses[seen->n] = symbol->st_value;
	if (elf_image_offset(seen->image, symbol->st_value, &offset, &follow) &&
	    (!follow || !elf_image_address(seen->image, offset, &address)))
		abort();
	return ++seen->n == FUNCTIONS_MAX;
}

static void read_image(int fd, size_t size) {
	static const struct elf_limits limits = { .symbols = 4096, .strings = 65536 };
	static const uint32_t kinds[] = { SHT_DYNSYM, SHT_SYMTAB };
	struct elf_image image;
	struct seen seen = { .image = &image };
	struct elf_wanted wanted = {};
	const atomic_bool stop = false;

	if (elf_image_init(&image, fd))
		return;
	if (image.n_segments * sizeof(Elf64_Phdr) > size ||
	    image.n_sections * sizeof(Elf64_Shdr) > size)
		abort();
	for (size_t i = 0; i < 2; i++) {
		char *strings;

		seen.n = 0;
		elf_image_functions(&image, kinds[i], &limits, take, &seen, &strings);
		for (size_t j = 0; j < seen.n; j++)
			elf_image_function(&image, seen.addresses[j]);
		free(strings);
	}
	wanted.name = seen.name;
	if (elf_functions_find(fd, &limits, &wanted, 1, &stop) == 0 && !wanted.r &&
	    wanted.offset > INT64_MAX) /* beyond the end is for who reads there */
		abort();
	elf_image_deinit(&image);
}

static void read_names(int fd, size_t size) {
	struct trace_symbols *symbols;
	struct stat status;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fstat(fd, &status) || trace_symbols_new(&symbols))
		abort();
	for (uint64_t offset = 1; offset < size; offset += 1 + size / 16) {
		uint64_t distance;
		const char *name = trace_symbols_name(symbols, (uint32_t)getpid(), path,
						      status.st_ino, offset, &distance);

		if (name && (!*name || strlen(name) > (size_t)64 << 20))
			abort();
	}
	trace_symbols_free(symbols);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	read_image(fd, size);
	read_names(fd, size);
	close(fd);
	return 0;
}
