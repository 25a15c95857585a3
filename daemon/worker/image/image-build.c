/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Compiles edited PTX and puts it into a fatbin (image-build.h), which has
 *
 *   - a cubin for the device, with the ptxas options that the application's image recorded; it is
 * compiled twice if a kernel got so many registers that blocks become impossible which were
 * possible (image-registers.h); before that the original, if its code is not known,
 *   - the edited PTX, for people (--keep-artifacts).
 */

#include "image-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "image-registers.h"
#include "daemon/worker/compiler/ptxas-options.h"
#include "lib/base/clock.h"

/* ELF entries carry the version of the cubin's ABI as 1.7 or 1.8. */
#define CUBIN_ABI_OFFSET 8

void image_built_deinit(struct image_built *result) {
	free(result->data);
	free(result->log);
	free(result->text);
	*result = (struct image_built){};
}

static uint64_t target_flags(const struct ptx_module *module) {
	uint64_t flags = FATBIN_FLAG_64BIT | FATBIN_FLAG_LINUX;

	if (module->target.suffix == 'a')
		flags |= FATBIN_FLAG_ARCH_SPECIFIC;
	if (module->target.suffix == 'f')
		flags |= FATBIN_FLAG_FAMILY;
	return flags;
}

static void get_options(struct ptxas_options *options, const struct image_source *source) {
	*options = (struct ptxas_options){};
	if (source->entry)
		ptxas_options_read(options, source->entry->options, source->entry->options_size);
	if (source->module->target.debug)
		ptxas_options_add(options, "--device-debug");
	if (source->patch) {
		ptxas_options_add(options, "--compile-as-tools-patch");
		ptxas_options_add(options, "--verbose");
	}
}

/* The cubin for the device of a text, NULL if there is no compiler that can make it. */
static int compile(struct image_built *result, const struct image_source *source, const char *text,
		   size_t length, struct compiler *compiler, uint8_t **cubin, size_t *size) {
	const struct ptx_module *edited = source->module;
	struct ptxas_options options;
	int64_t start;
	char arch[32];
	int r;

	if (!compiler)
		return 0;
	get_options(&options, source);
	snprintf(arch, sizeof(arch), "sm_%u", source->capability);
	if (edited->target.suffix)
		snprintf(arch + strlen(arch), 2, "%c", edited->target.suffix);
	start = clock_us(CLOCK_MONOTONIC);
	r = compiler_compile(compiler, text, length, arch, options.options, options.n, cubin, size,
			     &result->log);
	result->compile_us += clock_us(CLOCK_MONOTONIC) - start;
	switch (r) {
	case COMPILER_E_NEWER:
		/* a device or PTX newer than the compiler */
		return 0;
	case COMPILER_E_OPTION:
	case COMPILER_E_SOURCE:
	case COMPILER_E_INTERNAL:
		return IMAGE_BUILD_E_COMPILE;
	}
	return r;
}

static bool is_bounded(const struct image_source *source) {
	static const char option[] = "--maxrregcount=";
	struct ptxas_options options;

	get_options(&options, source);
	for (size_t i = 0; i < options.n; i++)
		if (!strncmp(options.options[i], option, sizeof(option) - 1))
			return true;
	return false;
}

/* Compiles kernels as they were, where only that tells how many registers they had. What fails then
 * leaves that unknown. *code is what it is read from. */
static int compile_unedited(struct image_built *result, const struct image_source *source,
			    struct compiler *compiler, struct image_codes *codes, uint8_t **code) {
	struct image_built unedited = {};
	int r;

	if (!source->unedited)
		return 0;
	r = image_registers_wanted(&unedited.text, &unedited.text_length, source->module,
				   source->unedited, codes);
	if (!r && unedited.text)
		r = compile(&unedited, source, unedited.text, unedited.text_length, compiler, code,
			    &codes->unedited.size);
	codes->unedited.data = *code;
	result->compile_us += unedited.compile_us;
	image_built_deinit(&unedited);
	return r < 0 ? r : 0;
}

/* Compiles once more where registers have to be limited. What fails then leaves the cubin as it is.
 */
static int compile_limited(struct image_built *result, const struct image_source *source,
			   struct compiler *compiler, uint8_t **cubin, size_t *size) {
	struct image_codes codes = { .compiled = { *cubin, *size },
				     .original = { source->code, source->code_size } };
	struct image_built limited = {};
	uint8_t *better = NULL, *unedited = NULL;
	size_t better_size = 0;
	int r;

	if (source->patch || !*cubin || is_bounded(source))
		return 0;
	r = compile_unedited(result, source, compiler, &codes, &unedited);
	if (!r)
		r = image_registers_limit(&limited.text, &limited.text_length, source->module,
					  &codes);
	if (!r && limited.text)
		r = compile(&limited, source, limited.text, limited.text_length, compiler, &better,
			    &better_size);
	free(unedited);
	result->compile_us += limited.compile_us;
	if (!r && better) {
		free(*cubin);
		*cubin = better;
		*size = better_size;
		result->text = limited.text;
		result->text_length = limited.text_length;
		limited.text = NULL;
	}
	image_built_deinit(&limited);
	return r < 0 ? r : 0;
}

int image_pack(struct image_built *result, unsigned int capability, const uint8_t *cubin,
	       size_t cubin_size, const struct fatbin_spec *ptx, const char *text, size_t length) {
	const struct fatbin_spec code = {
		.kind = FATBIN_KIND_ELF,
		.isa_major = 1,
		.isa_minor = cubin_size > CUBIN_ABI_OFFSET ? cubin[CUBIN_ABI_OFFSET] : 0,
		.sm = capability,
		.flags = ptx ? ptx->flags : FATBIN_FLAG_64BIT | FATBIN_FLAG_LINUX,
		.name = ptx ? ptx->name : NULL,
		.name_size = ptx ? ptx->name_size : 0,
		.payload = cubin,
		.payload_size = cubin_size,
	};
	struct fatbin_writer writer;
	int r;

	r = fatbin_writer_init(&writer);
	if (!r)
		r = fatbin_writer_add(&writer, &code);
	if (!r && ptx)
		r = fatbin_writer_add_ptx(&writer, ptx, text, length);
	if (!r)
		r = fatbin_writer_finish(&writer, &result->data, &result->size);
	fatbin_writer_deinit(&writer);
	/* The only positive error of the writer: a name or options of gigabytes. */
	return r > 0 ? -EFBIG : r;
}

/* Puts the image together. */
static int pack(struct image_built *result, const struct image_source *source, const uint8_t *cubin,
		size_t cubin_size) {
	const struct ptx_module *edited = source->module;
	const struct fatbin_entry *entry = source->entry;
	const struct fatbin_spec ptx = {
		.kind = FATBIN_KIND_PTX,
		.isa_major = (uint16_t)(edited->isa / 10),
		.isa_minor = (uint16_t)(edited->isa % 10),
		.sm = edited->target.number,
		.flags = target_flags(edited),
		.options = entry ? entry->options : NULL,
		.options_size = entry ? entry->options_size : 0,
		.name = entry ? entry->name : NULL,
		.name_size = entry ? entry->name_size : 0,
	};

	return image_pack(result, source->capability, cubin, cubin_size, &ptx,
			  result->text ? result->text : edited->text,
			  result->text ? result->text_length : edited->length);
}

int image_build(struct image_built *result, const struct image_source *source,
		struct compiler *compiler) {
	const struct ptx_module *module = source->module;
	uint8_t *cubin = NULL;
	size_t cubin_size = 0;
	int r;

	*result = (struct image_built){};
	r = compile(result, source, module->text, module->length, compiler, &cubin, &cubin_size);
	if (!r)
		r = compile_limited(result, source, compiler, &cubin, &cubin_size);
	if (!r && cubin)
		r = pack(result, source, cubin, cubin_size);
	free(cubin);
	return r;
}
