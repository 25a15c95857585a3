/* SPDX-License-Identifier: Apache-2.0 */

/*
 * For tests, by hand and by script: what is understood of a cubin, and twins of its kernels.
 *
 * usage: sass-tool decode CUBIN               a line for each instruction: section, offset,
 * registers
 *        sass-tool kernels CUBIN              names of its kernels
 *        sass-tool twin CUBIN OUT KERNEL|--all [--entry PROBE_CUBIN] [--exit PROBE_CUBIN]
 * A probe is the kernel `probe` of its cubin. A line for each kernel: its name, and what it cost or
 * why it has no twin. Exit status: 0 all have twins, 3 one has none, 1 trouble.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instruction.h"
#include "kernel.h"
#include "lib/base/file.h"
#include "rewrite.h"

#define NO_TWIN 3
#define FILE_MAX ((size_t)1 << 30)

static int fail(const char *what, const struct sass_refusal *refusal, int r) {
	fprintf(stderr, "sass-tool: %s: %s\n", what, r < 0 ? strerror(-r) : refusal->text);
	return 1;
}

static const char field_names[] = { 'd', 'a', 'b', 'x', 'c' };

static void print_word(const struct sass_arch *arch, const char *section, uint64_t at,
		       struct sass_word word) {
	const struct sass_opcode *opcode = sass_opcode_find(arch, word);

	printf("%s %llx %s", section, (unsigned long long)at, opcode ? opcode->name : "?");
	for (unsigned field = 0; opcode && field < _SASS_FIELDS; field++) {
		const unsigned value = sass_field(word, field);

		if (opcode->registers & 1U << field)
			printf(" %c=R%u", field_names[field], value);
		if ((opcode->uniform & 1U << field) && sass_has_uniform(opcode, word))
			printf(" %c=UR%u", field_names[field], value & SASS_ZERO_UNIFORM);
		if (opcode->barriers & 1U << field)
			printf(" %c=B%u", field_names[field], value & 15);
	}
	printf("\n");
}

static int decode(const struct sass_cubin *cubin) {
	const struct sass_arch *arch = sass_arch_find(cubin->sm);

	for (size_t i = 0; arch && i < cubin->n_sections; i++) {
		const struct sass_section *section = &cubin->sections[i];

		if (!section->content || !(section->header.sh_flags & SHF_EXECINSTR))
			continue;
		for (uint64_t at = 0; at + SASS_WORD_SIZE <= section->header.sh_size;
		     at += SASS_WORD_SIZE)
			print_word(arch, section->name, at, sass_read(section->content, at));
	}
	return arch ? 0 : NO_TWIN;
}

static bool is_kernel(const Elf64_Sym *symbol, const char *name) {
	return name && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
	       (symbol->st_other & SASS_STO_ENTRY) && symbol->st_shndx != SHN_UNDEF;
}

static int kernels(const struct sass_cubin *cubin) {
	const char *name;
	Elf64_Sym symbol;

	for (uint64_t i = 1; sass_cubin_symbol(cubin, i, &symbol, &name); i++)
		if (is_kernel(&symbol, name))
			printf("%s\n", name);
	return 0;
}

struct image {
	uint8_t *data;
	size_t size;
};

static bool read_image(const char *path, struct image *image) {
	char *bytes;
	const int r = file_load_path(AT_FDCWD, path, true, FILE_MAX, &bytes, &image->size);

	if (r) {
		fprintf(stderr, "sass-tool: %s: %s\n", path, strerror(-r));
		return false;
	}
	image->data = (uint8_t *)bytes;
	return true;
}

/* Data of both probes: only that of one is in the module, so the other may have none. */
static int add_data(struct sass_cubin *cubin, const struct sass_cubin *probes,
		    struct sass_request *request) {
	struct sass_refusal refusal;
	const int r = probes ? sass_data_add(cubin, probes, &request->bases, &refusal) : 0;

	return r ? fail("data of the probe", &refusal, r) : 0;
}

static int make_twin(struct sass_cubin *cubin, struct sass_request *request) {
	struct sass_twin twin = {};
	struct sass_refusal refusal;
	const int r = sass_rewrite(&twin, cubin, request, &refusal);

	if (r < 0)
		return fail(request->kernel, &refusal, r);
	if (r) {
		printf("%s: no twin: %s\n", request->kernel, refusal.text);
		return NO_TWIN;
	}
	printf("%s: block %u at %u, registers %u -> %u, exits %u\n", request->kernel, twin.block,
	       twin.block_at, twin.registers_before, twin.registers, twin.exits);
	return 0;
}

static int make_all(struct sass_cubin *cubin, struct sass_request *request) {
	int r, status = 0;
	const char *name;
	Elf64_Sym symbol;

	for (uint64_t i = 1; status != 1 && sass_cubin_symbol(cubin, i, &symbol, &name); i++) {
		if (!is_kernel(&symbol, name))
			continue;
		request->kernel = name;
		r = make_twin(cubin, request);
		status = r ? r : status;
	}
	return status;
}

/* A probe, from a cubin that stays open. */
struct opened {
	struct image image;
	struct sass_cubin cubin;
	struct sass_probe probe;
};

static bool read_probe(const char *path, struct opened *opened) {
	struct sass_refusal refusal;
	int r;

	if (!read_image(path, &opened->image))
		return false;
	r = sass_cubin_init(&opened->cubin, opened->image.data, opened->image.size, &refusal);
	if (!r)
		r = sass_probe_init(&opened->probe, &opened->cubin, "probe", &refusal);
	return !r || (fail(path, &refusal, r), false);
}

static bool write_image(const char *path, const struct image *image) {
	FILE *file = fopen(path, "wb");
	bool good = file && fwrite(image->data, 1, image->size, file) == image->size;

	good = file && !fclose(file) && good;
	if (!good)
		perror(path);
	return good;
}

/* OUT KERNEL|--all [--entry PROBE] [--exit PROBE]; the last one brings its data */
static int twin(const struct image *image, int argc, char **argv) {
	struct opened opened[2] = {}, *data = NULL;
	struct sass_request request = { .kernel = argc > 1 ? argv[1] : "" };
	struct sass_refusal refusal;
	struct sass_cubin cubin = {};
	struct image out = {};
	int status = 1, r;
	bool made;

	r = sass_cubin_init(&cubin, image->data, image->size, &refusal);
	if (r < 0)
		return fail("cubin", &refusal, r);
	if (r) {
		printf("%s: no twin: %s\n", request.kernel, refusal.text);
		return write_image(argv[0], image) ? NO_TWIN : 1;
	}
	for (int i = 2; i + 1 < argc; i += 2) {
		const bool exit = !strcmp(argv[i], "--exit");

		if ((!exit && strcmp(argv[i], "--entry")) ||
		    !read_probe(argv[i + 1], &opened[exit]))
			goto end;
		data = &opened[exit];
		if (exit)
			request.exit = &opened[exit].probe;
		else
			request.entry = &opened[exit].probe;
	}
	status = add_data(&cubin, data ? &data->cubin : NULL, &request);
	if (!status)
		status = !strcmp(request.kernel, "--all") ? make_all(&cubin, &request)
							  : make_twin(&cubin, &request);
	made = !status || !strcmp(request.kernel, "--all");
	if (made && status != 1 && sass_cubin_write(&cubin, &out.data, &out.size))
		status = 1;
	if (status != 1 && !write_image(argv[0], made ? &out : image))
		status = 1;
end:
	free(out.data);
	sass_cubin_deinit(&cubin);
	for (size_t i = 0; i < 2; i++) {
		sass_probe_deinit(&opened[i].probe);
		sass_cubin_deinit(&opened[i].cubin);
		free(opened[i].image.data);
	}
	return status;
}

int main(int argc, char **argv) {
	struct sass_refusal refusal;
	struct sass_cubin cubin;
	struct image image;
	int r;

	if (argc < 3 || !read_image(argv[2], &image))
		return 1;
	if (!strcmp(argv[1], "twin") && argc >= 5) {
		r = twin(&image, argc - 3, argv + 3);
		free(image.data);
		return r;
	}
	r = sass_cubin_init(&cubin, image.data, image.size, &refusal);
	if (r)
		r = fail(argv[2], &refusal, r);
	else if (!strcmp(argv[1], "decode"))
		r = decode(&cubin);
	else
		r = kernels(&cubin);
	sass_cubin_deinit(&cubin);
	free(image.data);
	return r;
}
