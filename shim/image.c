/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The driver takes a module as a bare pointer and finds its end itself; so must we. Fatbin containers say their size, an
 * ELF image ends with the last thing that its headers name, PTX ends with a NUL.
 */

#include "image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire.h"

#define WRAPPER_MAGIC UINT32_C(0x466243b1)
#define CONTAINER_MAGIC UINT32_C(0xba55ed50)

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

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool elf_size(const Elf64_Ehdr *header, size_t *size)
{
	uint64_t end = larger(header->e_shoff + (uint64_t)header->e_shnum * header->e_shentsize,
			      header->e_phoff + (uint64_t)header->e_phnum * header->e_phentsize);
	const Elf64_Shdr *sections;

	if (header->e_ident[EI_CLASS] != ELFCLASS64 || end > WIRE_IMAGE_SIZE_MAX ||
	    (header->e_shnum && header->e_shentsize != sizeof(Elf64_Shdr)) || header->e_shoff % 8)
		return false;
	sections = (const Elf64_Shdr *)((const char *)header + header->e_shoff);
	for (unsigned i = 0; i < header->e_shnum; i++) {
		if (sections[i].sh_type == SHT_NOBITS)
			continue;
		if (sections[i].sh_offset > WIRE_IMAGE_SIZE_MAX || sections[i].sh_size > WIRE_IMAGE_SIZE_MAX)
			return false;
		end = larger(end, sections[i].sh_offset + sections[i].sh_size);
	}
	*size = end;
	return end >= sizeof(*header) && end <= WIRE_IMAGE_SIZE_MAX;
}

/* Could this be PTX? Comments, blank lines, directives: nothing that is not text in the first bytes. */
static bool looks_like_text(const unsigned char *bytes)
{
	for (unsigned i = 0; i < 16 && bytes[i]; i++)
		if (bytes[i] < ' ' && !strchr("\t\n\r\f", bytes[i]))
			return false;
	return bytes[0] != 0;
}

bool image_recognise(struct image *image, const void *code)
{
	const struct container_header *container;
	uint32_t magic;

	if (!code)
		return false;
	image->flags = 0;
	memcpy(&magic, code, sizeof(magic));
	if (magic == WRAPPER_MAGIC) {
		const struct wrapper_header *wrapper = code;

		if (wrapper->version != 1 && wrapper->version != 2)
			return false;
		if (wrapper->version == 2)
			image->flags = WIRE_IMAGE_FLAG_RELOCATABLE;
		code = wrapper->data;
		if (!code)
			return false;
		memcpy(&magic, code, sizeof(magic));
	}
	image->data = code;
	if (magic == CONTAINER_MAGIC) {
		container = code;
		image->kind = WIRE_IMAGE_FATBIN;
		if (container->size > WIRE_IMAGE_SIZE_MAX - container->header_size)
			return false;
		image->size = container->header_size + container->size;
	} else if (!memcmp(&magic, ELFMAG, SELFMAG)) {
		image->kind = WIRE_IMAGE_CUBIN;
		if (!elf_size(code, &image->size))
			return false;
	} else if (looks_like_text(code)) {
		image->kind = WIRE_IMAGE_PTX;
		image->size = strnlen(code, WIRE_IMAGE_SIZE_MAX);
		if (image->size == WIRE_IMAGE_SIZE_MAX)
			return false;
	} else {
		return false;
	}
	return image->size != 0;
}

int image_to_memfd(const struct image *image)
{
	const char *bytes = image->data;
	size_t left = image->size;
	int fd;

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
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}
