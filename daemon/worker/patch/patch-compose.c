/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Composes the PTX of a patch image (patch-compose.h).
 *
 * A function of a class:
 *
 * 	data 0: return
 * 	for each attachment at the class, in calling order:
 * 		its bit is not set: skip
 * 		the fields that its program reads
 * 		the program
 * 	return 0
 *
 * What is tested is the same for all threads of a warp that come here together: one function's
 * data, one load, one instruction. So branches are uniform, and a kernel that is not meant goes
 * through six instructions.
 *
 * ptxas never inlines a function, and a call by the ABI costs more than a counter. So the bodies of
 * programs stand in the function itself where they can (lib/ptx/ptx-inline.h); long ones are
 * called, so that a function of many attachments stays in the instruction cache.
 *
 * Symbols have the hash of the text in them, which is taken while they have zeros there. Two images
 * are then never mistaken for one another by a library that knows functions by their names.
 */

#include "patch-compose.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kernel-id.h"
#include "patch-fields.h"
#include "patch-program.h"
#include "lib/ptx/ptx-inline.h"

#define INLINE_MAX 16384 /* bytes of programs that are put into a function */
#define ISA_LEAST 63
#define TARGET_LEAST 70 /* slots are loaded with ld.relaxed */
#define ID_DIGITS 16
#define SYMBOL "gpuprobe_%016" PRIx64 "_%u"
#define LABEL "$gpuprobe_"

struct compose {
	const struct patch_request *request;
	struct patch_program *programs; /* owned; those that no attachment names are not parsed */
	size_t ids[PATCH_CLASSES_MAX]; /* by point: where its symbol has the id, in the functions */
	size_t inlined; /* bytes in this function */
	struct ptx_error *error;
};

/* Parses the programs that attachments name. */
static int parse_programs(struct compose *compose) {
	const struct image_request *image = &compose->request->image;
	int r = 0;

	compose->programs = calloc(image->n_programs + 1, sizeof(*compose->programs));
	if (!compose->programs)
		return -ENOMEM;
	for (size_t i = 0; !r && i < image->n_attachments; i++) {
		uint32_t index = image->attachments[i].use.program;

		if (!compose->programs[index].program)
			r = patch_program_parse(&compose->programs[index], &image->programs[index],
						compose->error);
	}
	return r;
}

/* A call of the program; the result is dropped. */
static void write_call(FILE *stream, const struct patch_program *program,
		       const char *const *arguments) {
	const bool loops = ptx_inline_has_loop(&program->module);
	uint32_t n = program->function->parameter_count;

	fputs(loops ? "\t{\n" PTX_LANES_BEGIN "\t.param .b64 r;\n" : "\t{\n\t.param .b64 r;\n",
	      stream);
	for (uint32_t i = 0; i < n; i++)
		fprintf(stream, "\t.param .b64 a%u;\n\tst.param.b64 [a%u], %s;\n", i, i,
			arguments[i]);
	fprintf(stream, "\tcall.uni (r), %s, (", program->program->symbol);
	for (uint32_t i = 0; i < n; i++)
		fprintf(stream, "%sa%u", i ? ", " : "", i);
	fputs(loops ? ");\n" PTX_LANES_END "\t}\n" : ");\n\t}\n", stream);
}

/* The program itself, or a call of it. */
static int write_program(struct compose *compose, FILE *stream, struct patch_program *program,
			 const char *const *arguments, const char *suffix) {
	char *body = NULL;
	size_t length = 0;
	FILE *inlined;
	int r;

	inlined = open_memstream(&body, &length);
	if (!inlined)
		return -ENOMEM;
	r = ptx_inline_write(inlined, &program->module, program->function, arguments, NULL, 0,
			     suffix);
	if (fclose(inlined))
		r = -ENOMEM;
	if (!r && length <= INLINE_MAX - compose->inlined) {
		compose->inlined += length;
		fwrite(body, 1, length, stream);
	} else if (r >= 0) {
		program->called = true;
		write_call(stream, program, arguments);
		r = 0;
	}
	free(body);
	return r;
}

/* Computes each field that the program reads once, however often it is among its parameters. */
static void write_fields(FILE *stream, const struct patch_class *class,
			 const struct probe_program *program, char fields[][PATCH_ARGUMENT_SIZE],
			 const char **arguments) {
	for (uint32_t i = 0; i < program->context_count; i++) {
		uint32_t first = 0;

		while (program->context[first] != program->context[i])
			first++;
		if (first == i)
			patch_field_write(stream, class, program->context[i], fields[i]);
		arguments[i] = fields[first];
	}
}

/* One attachment's part of a function. */
static int write_attachment(struct compose *compose, FILE *stream, const struct patch_class *class,
			    size_t index) {
	uint32_t number = compose->request->image.attachments[index].use.program;
	struct patch_program *program = &compose->programs[number];
	char fields[IMAGE_CONTEXT_MAX][PATCH_ARGUMENT_SIZE], suffix[48];
	const char *arguments[IMAGE_CONTEXT_MAX + 1] = { "%gpuprobe_slots" };
	int r;

	fprintf(stream,
		"\t{\n"
		"\tand.b64 " PATCH_REGISTER "t, " PATCH_REGISTER "bits, 0x%" PRIx64 ";\n"
		"\tsetp.eq.s64 " PATCH_REGISTER "p, " PATCH_REGISTER "t, 0;\n"
		"\t@" PATCH_REGISTER "p bra.uni " LABEL "skip%zu;\n"
		"\t.reg .b64 " PATCH_REGISTER "slots;\n"
		"\tadd.s64 " PATCH_REGISTER "slots, " PATCH_REGISTER "data, %u;\n",
		UINT64_C(1) << index, index, compose->request->slots[number]);
	write_fields(stream, class, program->program, fields, arguments + 1);
	snprintf(suffix, sizeof(suffix), "_%zu", index);
	r = write_program(compose, stream, program, arguments, suffix);
	fprintf(stream, LABEL "skip%zu:\n\t}\n", index);
	return r;
}

/* The function of a class; *id becomes the offset of the id in its symbol. */
static int write_function(struct compose *compose, FILE *stream, const struct patch_class *class,
			  size_t *id) {
	const struct patch_request *request = compose->request;
	int r = 0;

	compose->inlined = 0;
	fputs(".visible .func (.param .b32 result) ", stream);
	fflush(stream);
	*id = (size_t)ftell(stream) + strlen("gpuprobe_");
	fprintf(stream, SYMBOL, UINT64_C(0), class->instruction);
	patch_parameters_write(stream, class);
	fputs("\n{\n"
	      "\t.reg .pred %gpuprobe_p;\n"
	      "\t.reg .b64 %gpuprobe_data, %gpuprobe_bits, %gpuprobe_t;\n"
	      "\tld.param.u64 %gpuprobe_data, [data];\n"
	      "\tsetp.eq.s64 %gpuprobe_p, %gpuprobe_data, 0;\n"
	      "\t@%gpuprobe_p bra.uni " LABEL "end;\n"
	      "\tld.global.u64 %gpuprobe_bits, [%gpuprobe_data];\n",
	      stream);
	patch_prologue_write(stream, class, LABEL "end");
	for (size_t i = 0; !r && i < request->image.n_attachments; i++)
		if (request->meanings[i].classes & 1u << class->instruction)
			r = write_attachment(compose, stream, class, i);
	fputs(LABEL "end:\n\tst.param.b32 [result], 0;\n\tret;\n}\n", stream);
	return r;
}

/* All functions into memory of the caller's. */
static int write_functions(struct compose *compose, struct patch_text *text, char **functions,
			   size_t *length) {
	FILE *stream = open_memstream(functions, length);
	int r = 0;

	if (!stream)
		return -ENOMEM;
	for (uint32_t i = 0; !r && i < PATCH_CLASSES_MAX; i++) {
		if (!(compose->request->classes & 1u << i))
			continue;
		r = write_function(compose, stream, patch_class_find(i),
				   &compose->ids[text->n_points]);
		text->points[text->n_points++].instruction = i;
	}
	if (fclose(stream) || !*functions)
		r = r ? r : -ENOMEM;
	return r;
}

/* What the programs need; PTX of an older target compiles for a newer device. */
static int write_header(struct compose *compose, FILE *stream) {
	const struct image_request *image = &compose->request->image;
	uint32_t isa = ISA_LEAST, target = TARGET_LEAST;

	for (size_t i = 0; i < image->n_programs; i++) {
		if (!compose->programs[i].program)
			continue;
		isa = image->programs[i].isa > isa ? image->programs[i].isa : isa;
		target = image->programs[i].target > target ? image->programs[i].target : target;
	}
	if (target > image->capability) {
		snprintf(compose->error->message, sizeof(compose->error->message),
			 "the programs need sm_%u, the device is sm_%u", target, image->capability);
		return PATCH_COMPOSE_E_UNFIT;
	}
	fprintf(stream, ".version %u.%u\n.target sm_%u\n.address_size 64\n// patches for sm_%u\n",
		isa / 10, isa % 10, target, image->capability);
	return 0;
}

/* Header, programs, functions; *start becomes where the functions begin. */
static int assemble(struct compose *compose, struct patch_text *text, const char *functions,
		    size_t length, size_t *start) {
	FILE *stream = open_memstream(&text->text, &text->length);
	struct patch_symbols symbols = {};
	int r;

	if (!stream)
		return -ENOMEM;
	r = write_header(compose, stream);
	for (size_t i = 0; !r && i < compose->request->image.n_programs; i++)
		if (compose->programs[i].program)
			r = patch_program_write(stream, &compose->programs[i], &symbols,
						compose->error);
	patch_symbols_deinit(&symbols);
	*start = (size_t)ftell(stream);
	fwrite(functions, 1, length, stream);
	return fclose(stream) ? (r ? r : -ENOMEM) : r;
}

/* The id goes into the symbols, which are then the points'. */
static void name_points(const struct compose *compose, struct patch_text *text, size_t start) {
	char id[ID_DIGITS + 1];

	text->image_id = kernel_id(text->text, text->length);
	text->image_id += !text->image_id;
	snprintf(id, sizeof(id), "%016" PRIx64, text->image_id);
	for (uint32_t i = 0; i < text->n_points; i++) {
		memcpy(text->text + start + compose->ids[i], id, ID_DIGITS);
		snprintf(text->points[i].symbol, sizeof(text->points[i].symbol), SYMBOL,
			 text->image_id, text->points[i].instruction);
	}
}

int patch_compose(struct patch_text *text, const struct patch_request *request,
		  struct ptx_error *error) {
	struct compose compose = { .request = request, .error = error };
	char *functions = NULL;
	size_t length, start;
	int r;

	*text = (struct patch_text){};
	r = parse_programs(&compose);
	if (!r)
		r = write_functions(&compose, text, &functions, &length);
	if (!r)
		r = assemble(&compose, text, functions, length, &start);
	if (!r)
		name_points(&compose, text, start);
	for (size_t i = 0; compose.programs && i < request->image.n_programs; i++)
		patch_program_deinit(&compose.programs[i]);
	free(compose.programs);
	free(functions);
	return r;
}

void patch_text_deinit(struct patch_text *text) {
	free(text->text);
	*text = (struct patch_text){};
}
