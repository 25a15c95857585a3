/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes probes for machine code (image-probe.h).
 *
 * Programs are put into an empty kernel by the pass that puts them into kernels of applications
 * (passes/probe.h), so contexts are the same. At an exit the kernel is
 *
 *	two registers that are 0		image-apart.h
 *	mov.u32 %r, %lanemask_lt;
 *	setp.eq.u32 %p, %r, 0xffffffff;		never true, which the compiler does not know
 *	@%p bra END;
 *	programs				in a basic block of its own
 * END:	pmevent 0;				all threads meet here; the rewriter drops it
 *	ret;
 *
 * so that the compiler takes the warp for one that is not together (probe.h of sass/).
 */

#include "image-probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image-apart.h"
#include "lib/base/clock.h"
#include "lib/ptx/ptx-edit.h"
#include "proto/kernel-id.h"
#include "proto/point.h"

#define NAME "__gpuprobe_place" /* of probes, with a number behind it */
#define PARAMETER "__gpuprobe_parameter"
#define IDS "__gpuprobe_kernels" /* a variable with the ids of all targets */
#define IDS_MAX 4096 /* half of the constant bank */
#define ID_FIELD 0 /* of a gpuprobe_kernel_ctx: kernel_id, */
#define COUNT_FIELD 56 /* and param_count, which the parameters follow */
#define EXIT_BLOCK 1 /* the basic block of programs at an exit */
#define ALIGNMENT_MAX 16

bool image_probe_can(const struct probe_use *use) {
	return !use->ptx && (use->point == POINT_ENTRY || use->point == POINT_RETURN);
}

static enum image_probe_place place_of(const struct probe_use *use) {
	return use->point == POINT_RETURN ? IMAGE_PROBE_EXIT : IMAGE_PROBE_ENTRY;
}

/* Has a kernel a probe of its own for this field of a context? */
static bool is_kernels(uint32_t field) {
	return field >= COUNT_FIELD && field != POINT_UNIFORM &&
	       !point_is_launch(POINT_KERNEL_CONTEXT, field);
}

static bool is_id(uint32_t field) {
	return field == ID_FIELD;
}

/* Do programs of a target read a field of a kind? */
static bool reads(const struct image_request *request, const struct image_target *target,
		  bool (*is_meant)(uint32_t field)) {
	for (uint32_t i = 0; i < target->count; i++) {
		const struct probe_program *program = &request->programs[target->uses[i].program];

		for (uint32_t k = 0;
		     image_probe_can(&target->uses[i]) && k < program->context_count; k++)
			if (is_meant(program->context[k]))
				return true;
	}
	return false;
}

/* The next use of a target at a place, from *at on. NULL: there is none. */
static const struct probe_use *next_use(const struct image_target *target,
					enum image_probe_place place, uint32_t *at) {
	while (*at < target->count) {
		const struct probe_use *use = &target->uses[(*at)++];

		if (image_probe_can(use) && place_of(use) == place)
			return use;
	}
	return NULL;
}

static bool has_same(const struct image_target *a, const struct image_target *b,
		     enum image_probe_place place) {
	uint32_t i = 0, k = 0;
	const struct probe_use *one, *other;

	do {
		one = next_use(a, place, &i);
		other = next_use(b, place, &k);
		if (!one != !other || (one && one->program != other->program))
			return false;
	} while (one);
	return true;
}

/* Gives a target its probe at a place, which it may share. */
static void give_probe(struct image_probes *probes, const struct image_target *target, size_t index,
		       const struct sass_kernel *kernel, enum image_probe_place place) {
	uint32_t at = 0;
	size_t i = 0;

	if (!next_use(target, place, &at))
		return;
	while (i < probes->n &&
	       (kernel || probes->probes[i].kernel || probes->probes[i].place != place ||
		!has_same(probes->probes[i].target, target, place)))
		i++;
	if (i == probes->n)
		probes->probes[probes->n++] =
			(struct image_probe){ .place = place, .target = target, .kernel = kernel };
	probes->of[place][index] = (uint32_t)i + 1;
}

static int choose(struct image_probes *probes, const struct image_request *request,
		  const struct image_targets *targets, const struct sass_kernel *kernels) {
	probes->probes = calloc(_IMAGE_PROBE_PLACES * targets->n + 1, sizeof(*probes->probes));
	if (!probes->probes)
		return -ENOMEM;
	for (size_t place = 0; place < _IMAGE_PROBE_PLACES; place++) {
		probes->of[place] = calloc(targets->n + 1, sizeof(*probes->of[place]));
		if (!probes->of[place])
			return -ENOMEM;
	}
	for (size_t i = 0; i < targets->n; i++) {
		const bool own = reads(request, &targets->targets[i], is_kernels);

		probes->ids |= reads(request, &targets->targets[i], is_id);
		for (size_t place = 0; kernels[i].arch && place < _IMAGE_PROBE_PLACES; place++)
			give_probe(probes, &targets->targets[i], i, own ? &kernels[i] : NULL,
				   (enum image_probe_place)place);
	}
	return 0;
}

/* Declares the parameters of a kernel, so that they lie where its own do. False: they cannot. */
static bool write_parameters(FILE *stream, const struct sass_kernel *kernel) {
	uint32_t end = 0;

	for (uint32_t i = 0; i < kernel->parameters_n; i++) {
		const struct sass_parameter *one = &kernel->parameter[i];
		uint32_t alignment = ALIGNMENT_MAX;

		while (alignment && (end + alignment - 1) / alignment * alignment != one->offset)
			alignment /= 2;
		if (!alignment || !one->size)
			return false;
		fprintf(stream, "%s\n\t.param .align %u .b8 " PARAMETER "%u[%u]", i ? "," : "",
			alignment, i, one->size);
		end = one->offset + one->size;
	}
	return end == kernel->parameters;
}

/* The kernel of a probe, without programs. */
static void write_kernel(FILE *stream, struct image_probe *probe, size_t number) {
	char *parameters = NULL;
	size_t length = 0;
	FILE *list = open_memstream(&parameters, &length);

	if (probe->kernel && list && !write_parameters(list, probe->kernel))
		sass_refuse(&probe->refusal, "where the kernel's parameters lie is not understood");
	if (list)
		fclose(list);
	fprintf(stream, ".visible .entry " NAME "%zu(%s)\n{\n", number,
		parameters && !probe->refusal.text[0] ? parameters : "");
	if (probe->place == IMAGE_PROBE_EXIT)
		fputs(IMAGE_APART_ZEROS "\t.reg .pred %apart;\n\t.reg .b32 %lanes;\n"
					"\tmov.u32 %lanes, %lanemask_lt;\n"
					"\tsetp.eq.u32 %apart, %lanes, 0xffffffff;\n"
					"\t@%apart bra $L__end;\n"
					"\tmov.u32 %lanes, %lanes;\n"
					"$L__end:\n\tpmevent 0;\n",
		      stream);
	fputs("\tret;\n}\n", stream);
	free(parameters);
}

static void write_ids(FILE *stream, const struct image_targets *targets) {
	fprintf(stream, ".visible .const .align 8 .u64 " IDS "[%zu] = {", targets->n);
	for (size_t i = 0; i < targets->n; i++) {
		const char *name = targets->targets[i].name.mangled;

		fprintf(stream, "%s0x%" PRIx64, i ? ", " : "", kernel_id(name, strlen(name)));
	}
	fputs("};\n", stream);
}

static int write_module(struct image_probes *probes, uint32_t capability,
			const struct image_targets *targets, char **text, size_t *length) {
	FILE *stream = open_memstream(text, length);

	if (!stream)
		return -ENOMEM;
	/* 8.1: parameters of more than 4 KiB */
	fprintf(stream, ".version 8.1\n.target sm_%u\n.address_size 64\n", capability);
	if (probes->ids)
		write_ids(stream, targets);
	for (size_t i = 0; i < probes->n; i++)
		write_kernel(stream, &probes->probes[i], i);
	return fclose(stream) ? -ENOMEM : 0;
}

/* The uses of a probe. NULL: no memory. */
static struct probe_use *make_uses(const struct image_probe *probe, uint32_t *count) {
	struct probe_use *uses = calloc(probe->target->count + 1, sizeof(*uses));
	const struct probe_use *use;
	uint32_t at = 0;

	*count = 0;
	while (uses && (use = next_use(probe->target, probe->place, &at)))
		uses[(*count)++] = (struct probe_use){
			.program = use->program,
			.point = probe->place == IMAGE_PROBE_EXIT ? POINT_BLOCK : POINT_ENTRY,
			.block = EXIT_BLOCK,
		};
	return uses;
}

static bool has_all(const struct probe_function *functions, size_t n) {
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < functions[i].use_count; k++)
			if (functions[i].uses[k].sites != 1)
				return false;
	return true;
}

/* Puts the programs into the kernels. */
static int edit(struct image_probes *probes, const struct ptx_module *module,
		const struct image_request *request, struct probe_function *functions) {
	struct probe_options options = {
		.image = request->options.image,
		.capability = request->capability,
		.launch = true,
		.inlined = true,
	};
	struct probe_result result = {};
	struct ptx_error error = {};
	struct ptx_edit *edit;
	int r;

	r = ptx_edit_new(&edit, module->text, module->length);
	if (r)
		return r;
	r = probe_apply(edit, module, &options, request->programs, request->n_programs, functions,
			probes->n, &result, &error);
	free(result.instructions);
	if (!r && !has_all(functions, probes->n))
		r = -EINVAL;
	if (!r)
		r = ptx_edit_apply(edit, &probes->text, &probes->length);
	ptx_edit_free(edit);
	if (r > 0)
		snprintf(probes->message, sizeof(probes->message), "%s", error.message);
	return r > 0 ? IMAGE_PROBE_E_TRANSFORM : r;
}

static int put_programs(struct image_probes *probes, const struct image_request *request,
			const struct ptx_module *module) {
	struct probe_function *functions = calloc(probes->n + 1, sizeof(*functions));
	int r = functions ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < probes->n; i++) {
		char name[40];

		snprintf(name, sizeof(name), NAME "%zu", i);
		functions[i].function = ptx_module_find_function(module, name, strlen(name));
		functions[i].uses = make_uses(&probes->probes[i], &functions[i].use_count);
		functions[i].kernel_variable = probes->ids ? IDS : NULL;
		r = !functions[i].uses ? -ENOMEM : !functions[i].function ? -EINVAL : 0;
	}
	if (!r)
		r = edit(probes, module, request, functions);
	for (size_t i = 0; functions && i < probes->n; i++)
		free(functions[i].uses);
	free(functions);
	return r;
}

static int write_text(struct image_probes *probes, const struct image_request *request,
		      const struct image_targets *targets) {
	struct ptx_module module;
	struct ptx_error error;
	char *text = NULL;
	size_t length;
	int r;

	if (probes->ids && targets->n > IDS_MAX) {
		snprintf(probes->message, sizeof(probes->message),
			 "programs read the ids of more than %u kernels of one image", IDS_MAX);
		return IMAGE_PROBE_E_TRANSFORM;
	}
	r = write_module(probes, request->capability, targets, &text, &length);
	if (!r)
		r = ptx_module_parse(&module, text, length, &error);
	if (!r) {
		r = put_programs(probes, request, &module);
		ptx_module_deinit(&module);
	} else if (r > 0) {
		r = -EINVAL;
	}
	free(text);
	return r;
}

/* In probes at exits, values of a warp become ones of its threads. */
static int set_apart(struct image_probes *probes) {
	struct ptx_edit *edit = NULL;
	struct ptx_module module;
	struct ptx_error error;
	char *text = NULL;
	size_t length = 0;
	int r;

	r = ptx_module_parse(&module, probes->text, probes->length, &error);
	if (r)
		return r < 0 ? r : -EINVAL;
	r = ptx_edit_new(&edit, module.text, module.length);
	for (size_t i = 0; !r && i < probes->n; i++) {
		const struct ptx_function *kernel;
		char name[40];

		snprintf(name, sizeof(name), NAME "%zu", i);
		kernel = ptx_module_find_function(&module, name, strlen(name));
		if (probes->probes[i].place == IMAGE_PROBE_EXIT)
			r = kernel ? image_apart(edit, &module, kernel) : -EINVAL;
	}
	if (!r)
		r = ptx_edit_apply(edit, &text, &length);
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
	if (r)
		return r < 0 ? r : -EINVAL;
	free(probes->text);
	probes->text = text;
	probes->length = length;
	return 0;
}

static int compile(struct image_probes *probes, uint32_t capability, struct compiler *compiler) {
	const int64_t start = clock_us(CLOCK_MONOTONIC);
	char arch[32];
	int r;

	if (!compiler)
		return IMAGE_PROBE_E_NO_COMPILER;
	snprintf(arch, sizeof(arch), "sm_%u", capability);
	r = compiler_compile(compiler, probes->text, probes->length, arch, NULL, 0, &probes->code,
			     &probes->code_size, &probes->log);
	probes->compile_us = clock_us(CLOCK_MONOTONIC) - start;
	if (r == COMPILER_E_NEWER)
		return IMAGE_PROBE_E_NO_COMPILER;
	return r > 0 ? IMAGE_PROBE_E_COMPILE : r;
}

/* Where the ids of kernels are in constant bank 3. */
static bool find_ids(struct image_probes *probes) {
	const size_t bank = sass_cubin_find(&probes->cubin, ".nv.constant3", "");
	const char *name;
	Elf64_Sym symbol;

	for (uint64_t i = 1; bank && sass_cubin_symbol(&probes->cubin, i, &symbol, &name); i++)
		if (symbol.st_shndx == bank && name && !strcmp(name, IDS)) {
			probes->ids_at = (uint32_t)symbol.st_value;
			return true;
		}
	return false;
}

/* Reads what the compiler made. What is no probe says why. */
static int read_probes(struct image_probes *probes) {
	struct sass_refusal refusal;
	int r;

	r = sass_cubin_init(&probes->cubin, probes->code, probes->code_size, &refusal);
	if (r > 0)
		snprintf(probes->message, sizeof(probes->message), "the probe's machine code: %s",
			 refusal.text);
	if (r)
		return r > 0 ? IMAGE_PROBE_E_TRANSFORM : r;
	probes->opened = true;
	if (probes->ids && !find_ids(probes))
		return -EINVAL;
	for (size_t i = 0; i < probes->n; i++) {
		struct image_probe *one = &probes->probes[i];
		char name[40];

		snprintf(name, sizeof(name), NAME "%zu", i);
		if (one->refusal.text[0])
			continue;
		r = sass_probe_init(&one->probe, &probes->cubin, name, &one->refusal);
		if (r < 0)
			return r;
	}
	return 0;
}

int image_probes_make(struct image_probes *probes, const struct image_request *request,
		      const struct image_targets *targets, const struct sass_kernel *kernels,
		      struct compiler *compiler) {
	int r;

	*probes = (struct image_probes){};
	r = choose(probes, request, targets, kernels);
	if (!r)
		r = write_text(probes, request, targets);
	if (!r)
		r = set_apart(probes);
	if (!r)
		r = compile(probes, request->capability, compiler);
	return r ? r : read_probes(probes);
}

void image_probes_deinit(struct image_probes *probes) {
	for (size_t i = 0; probes->probes && i < probes->n; i++)
		sass_probe_deinit(&probes->probes[i].probe);
	if (probes->opened)
		sass_cubin_deinit(&probes->cubin);
	for (size_t place = 0; place < _IMAGE_PROBE_PLACES; place++)
		free(probes->of[place]);
	free(probes->probes);
	free(probes->text);
	free(probes->code);
	free(probes->log);
	*probes = (struct image_probes){};
}
