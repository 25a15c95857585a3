/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the end of an image that an application gives to the driver (image.h).
 *
 * The driver takes a module as a bare pointer and finds its end itself; so must we. Fatbin
 * containers say their size, an ELF image ends with the last thing that its headers name, PTX ends
 * with a NUL.
 */

#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/elf.h"
#include "proto/wire.h"

#define WRAPPER_MAGIC UINT32_C(0x466243b1)
#define CONTAINER_MAGIC UINT32_C(0xba55ed50)
#define SEAL_TRIES 4

struct wrapper_header {
	uint32_t magic;
	uint32_t version; /* 2: relocatable code, linked; the list of parts is not for us */
	const void *data;
};

struct container_header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_size;
	uint64_t size; /* of what follows the header */
};

static uint64_t larger(uint64_t a, uint64_t b) {
	return a > b ? a : b;
}

/* Where an ELF file of at most limit bytes ends. */
static bool elf_size(const void *bytes, size_t limit, size_t *size) {
	const Elf64_Ehdr *header;
	struct elf_view view;
	Elf64_Shdr section;
	uint64_t end;

	if (!elf_view_init(&view, bytes, limit))
		return false;
	header = &view.header;
	if (header->e_phoff > limit)
		return false;
	end = larger(header->e_shoff + view.n_sections * sizeof(section),
		     header->e_phoff + (uint64_t)header->e_phnum * header->e_phentsize);
	for (uint64_t i = 0; elf_view_section(&view, i, &section); i++) {
		if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL)
			continue;
		if (!elf_view_content(&view, &section))
			return false;
		end = larger(end, section.sh_offset + section.sh_size);
	}
	*size = end;
	return end >= sizeof(*header) && end <= limit;
}

/*
 * Could this be PTX? Comments, blank lines, directives: nothing that is not text in the first
 * bytes.
 */
static bool looks_like_text(const unsigned char *bytes) {
	for (unsigned i = 0; i < 16 && bytes[i]; i++)
		if (bytes[i] < ' ' && !strchr("\t\n\r\f", bytes[i]))
			return false;
	return bytes[0] != 0;
}

/*
 * The image inside a wrapper, a structure that nvcc leaves in the program's memory; NULL if it is
 * of no known version.
 */
static const void *unwrap(const struct wrapper_header *wrapper) {
	return wrapper->version == 1 || wrapper->version == 2 ? wrapper->data : NULL;
}

bool image_recognise(struct image *image, const void *code, size_t available) {
	uint32_t magic;

	*image = (struct image){ .data = code };
	if (!code || available < IMAGE_TAIL)
		return false;
	memcpy(&magic, code, sizeof(magic));
	if (magic == WRAPPER_MAGIC) {
		if (available != IMAGE_IN_MEMORY)
			return false; /* not text either: the driver would follow its pointer */
		image->data = unwrap(code);
		if (!image->data)
			return false;
		memcpy(&magic, image->data, sizeof(magic));
	}
	if (available > WIRE_IMAGE_SIZE_MAX)
		available = WIRE_IMAGE_SIZE_MAX;
	if (magic == CONTAINER_MAGIC) {
		struct container_header container;

		memcpy(&container, image->data, sizeof(container));
		image->kind = WIRE_IMAGE_FATBIN;
		if (container.header_size < sizeof(container) ||
		    container.header_size > available ||
		    container.size > available - container.header_size)
			return false;
		image->size = container.header_size + container.size;
	} else if (!memcmp(&magic, ELFMAG, SELFMAG)) {
		image->kind = WIRE_IMAGE_CUBIN;
		if (!elf_size(image->data, available, &image->size))
			return false;
	} else if (looks_like_text(image->data)) {
		image->kind = WIRE_IMAGE_PTX;
		image->size = strnlen(image->data, available);
		if (image->size == available)
			return false;
	} else {
		return false;
	}
	return image->size != 0;
}

/* Memory files count as files: what is written past the limit ends the program. */
bool image_is_too_long(const struct image *image) {
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && image->size > limit.rlim_cur;
}

/* The kernel gives up after 150 ms (EBUSY) while it moves a page elsewhere: then once more. */
static bool seal(int fd) {
	for (int tries = 0; tries < SEAL_TRIES; tries++) {
		if (fcntl(fd, F_ADD_SEALS,
			  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0)
			return true;
		if (errno != EBUSY)
			return false;
	}
	return false;
}

int image_to_memfd(const struct image *image) {
	const char *bytes = image->data;
	size_t left = image->size;
	int fd;

	if (image_is_too_long(image))
		return -1;
	fd = memfd_create("gpuprobe-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	while (left) {
		ssize_t written = write(fd, bytes, left);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0) {
			close(fd);
			return -1;
		}
		bytes += written;
		left -= (size_t)written;
	}
	if (!seal(fd)) {
		close(fd);
		return -1;
	}
	return fd;
}

bool image_file_begin(const char *path, struct image *image, size_t *size) {
	char *bytes = MAP_FAILED;
	struct stat status;
	bool good = false;
	int fd;

	fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd < 0)
		return false;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
	    (uint64_t)status.st_size < WIRE_IMAGE_SIZE_MAX) {
		*size = (size_t)status.st_size + IMAGE_TAIL;
		bytes = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	}
	if (bytes != MAP_FAILED) {
		good = pread(fd, bytes, (size_t)status.st_size, 0) == status.st_size &&
		       image_recognise(image, bytes, *size) && image->data == bytes;
		if (!good)
			munmap(bytes, *size);
	}
	close(fd);
	return good;
}

void image_file_end(const struct image *image, size_t size) {
	munmap((void *)image->data, size);
}
