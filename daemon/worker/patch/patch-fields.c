/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the PTX that computes the fields of a context in a patch function (patch-fields.h).
 *
 * A parameter has a register of its name, 64 bits wide; ptxas drops those that nothing reads. What
 * is loaded from memory is loaded where a program wants it, behind the test of its attachment's
 * bit.
 */

#include "patch-fields.h"

#include <stdlib.h>

#define LINE(stream, format, ...) fprintf(stream, "\t" format "\n", ##__VA_ARGS__)
#define FIELD PATCH_REGISTER "c%u"

/* Offsets / 8 in struct gpuprobe_kernel_ctx, gpuprobe_memory_ctx, gpuprobe_event_ctx. */
enum {
	KERNEL_ID,
	KERNEL_DEVICE,
	KERNEL_PID,
	KERNEL_GRID_DIM,
	KERNEL_GRID_DIM_Z,
	KERNEL_BLOCK_DIM,
	KERNEL_SHARED_BYTES,
};

enum {
	MEMORY_INSTRUCTION_ID,
	MEMORY_ADDRESS,
	MEMORY_SIZE,
	MEMORY_SPACE,
	MEMORY_KIND,
	MEMORY_VALUE,
};

enum {
	EVENT_KERNEL_ID,
	EVENT_PC,
	EVENT_ARGUMENTS,
};

void patch_parameters_write(FILE *stream, const struct patch_class *class) {
	fputs("(.param .b64 data, .param .b64 pc", stream);
	for (size_t i = 0; i < PATCH_PARAMETERS_MAX && class->parameters[i].name; i++)
		fprintf(stream, ", .param .b%u %s", class->parameters[i].bits,
			class->parameters[i].name);
	fputs(")", stream);
}

static void write_parameter(FILE *stream, const char *name, unsigned int bits) {
	LINE(stream, ".reg .b64 " PATCH_REGISTER "%s;", name);
	LINE(stream, "ld.param.u%u " PATCH_REGISTER "%s, [%s];", bits, name, name);
}

void patch_prologue_write(FILE *stream, const struct patch_class *class, const char *end) {
	write_parameter(stream, "pc", 64);
	for (size_t i = 0; i < PATCH_PARAMETERS_MAX && class->parameters[i].name; i++)
		write_parameter(stream, class->parameters[i].name, class->parameters[i].bits);
	if (class->context != POINT_MEMORY_CONTEXT)
		return;
	LINE(stream, ".reg .b64 " PATCH_REGISTER "kind;");
	LINE(stream, "and.b64 " PATCH_REGISTER "t, " PATCH_REGISTER "flags, 8;");
	LINE(stream, "setp.ne.s64 " PATCH_REGISTER "p, " PATCH_REGISTER "t, 0;");
	LINE(stream, "@" PATCH_REGISTER "p bra.uni %s;", end);
	/* 1 load, 2 store, 3 atomic: as the flags say, but that 4 is an atomic for itself */
	LINE(stream, "and.b64 " PATCH_REGISTER "kind, " PATCH_REGISTER "flags, 3;");
	LINE(stream, "and.b64 " PATCH_REGISTER "t, " PATCH_REGISTER "flags, 4;");
	LINE(stream, "setp.ne.s64 " PATCH_REGISTER "p, " PATCH_REGISTER "t, 0;");
	LINE(stream,
	     "selp.b64 " PATCH_REGISTER "kind, 3, " PATCH_REGISTER "kind, " PATCH_REGISTER "p;");
}

/*
 * What a store stores, in pieces of at most 4 bytes: nothing is promised about the alignment of the
 * copy.
 */
static void write_value(FILE *stream, unsigned int field) {
	static const struct {
		const char *compare;
		unsigned int size;
	} pieces[] = { { "eq", 1 }, { "eq", 2 }, { "eq", 4 }, { "ge", 8 } };

	LINE(stream, "mov.b64 " FIELD ", 0;", field);
	LINE(stream, "{\n\t.reg .pred " PATCH_REGISTER "q, " PATCH_REGISTER "s;");
	LINE(stream, ".reg .b32 " PATCH_REGISTER "l, " PATCH_REGISTER "h;");
	LINE(stream, "setp.eq.s64 " PATCH_REGISTER "q, " PATCH_REGISTER "kind, 2;");
	LINE(stream, "setp.ne.and.s64 " PATCH_REGISTER "q, " PATCH_REGISTER
		     "pointer, 0, " PATCH_REGISTER "q;");
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		LINE(stream,
		     "setp.%s.and.u64 " PATCH_REGISTER "s, " PATCH_REGISTER
		     "size, %u, " PATCH_REGISTER "q;",
		     pieces[i].compare, pieces[i].size);
		if (pieces[i].size < 8) {
			LINE(stream,
			     "@" PATCH_REGISTER "s ld.u%u " FIELD ", [" PATCH_REGISTER "pointer];",
			     8 * pieces[i].size, field);
			continue;
		}
		LINE(stream, "@" PATCH_REGISTER "s ld.u32 " PATCH_REGISTER "l, [" PATCH_REGISTER
			     "pointer];");
		LINE(stream, "@" PATCH_REGISTER "s ld.u32 " PATCH_REGISTER "h, [" PATCH_REGISTER
			     "pointer+4];");
		LINE(stream,
		     "@" PATCH_REGISTER "s mov.b64 " FIELD ", {" PATCH_REGISTER "l, " PATCH_REGISTER
		     "h};",
		     field);
	}
	LINE(stream, "}");
}

/* Part of the struct gpuprobe_process; 0 while there is none. */
static void write_process(FILE *stream, unsigned int field, unsigned int offset,
			  unsigned int bits) {
	LINE(stream, "mov.b64 " FIELD ", 0;", field);
	LINE(stream, "ld.global.u64 " PATCH_REGISTER "t, [" PATCH_REGISTER "data+%zu];",
	     offsetof(struct patch_data, process));
	LINE(stream, "setp.ne.s64 " PATCH_REGISTER "p, " PATCH_REGISTER "t, 0;");
	LINE(stream, "@" PATCH_REGISTER "p ld.global.u%u " FIELD ", [" PATCH_REGISTER "t+%u];",
	     bits, field, offset);
}

/* low | middle << 16 | high << 32, of special registers; middle and high may be NULL. */
static void write_special(FILE *stream, unsigned int field, const char *low, const char *middle,
			  const char *high) {
	LINE(stream, "{\n\t.reg .b32 " PATCH_REGISTER "l, " PATCH_REGISTER "h;");
	LINE(stream, "mov.u32 " PATCH_REGISTER "l, %s;", low);
	if (middle) {
		LINE(stream, "mov.u32 " PATCH_REGISTER "h, %s;", middle);
		LINE(stream, "shl.b32 " PATCH_REGISTER "h, " PATCH_REGISTER "h, 16;");
		LINE(stream,
		     "or.b32 " PATCH_REGISTER "l, " PATCH_REGISTER "l, " PATCH_REGISTER "h;");
	}
	LINE(stream, "mov.u32 " PATCH_REGISTER "h, %s;", high ? high : "0");
	LINE(stream, "mov.b64 " FIELD ", {" PATCH_REGISTER "l, " PATCH_REGISTER "h};\n\t}", field);
}

static void write_kernel_id(FILE *stream, unsigned int field) {
	LINE(stream, "ld.global.u64 " FIELD ", [" PATCH_REGISTER "data+%zu];", field,
	     offsetof(struct patch_data, kernel_id));
}

static void write_kernel_field(FILE *stream, unsigned int field) {
	switch (field) {
	case KERNEL_ID:
		write_kernel_id(stream, field);
		break;
	case KERNEL_DEVICE:
		write_process(stream, field, 8, 64);
		break;
	case KERNEL_PID:
		write_process(stream, field, 0, 32);
		break;
	case KERNEL_GRID_DIM:
		write_special(stream, field, "%nctaid.x", NULL, "%nctaid.y");
		break;
	case KERNEL_GRID_DIM_Z:
		write_special(stream, field, "%nctaid.z", NULL, NULL);
		break;
	case KERNEL_BLOCK_DIM:
		write_special(stream, field, "%ntid.x", "%ntid.y", "%ntid.z");
		break;
	case KERNEL_SHARED_BYTES:
		write_special(stream, field, "%dynamic_smem_size", NULL, NULL);
		break;
	}
}

/* The name of the parameter that the field is; NULL: it is none. */
static const char *parameter_of(const struct patch_class *class, unsigned int field) {
	if (class->context == POINT_MEMORY_CONTEXT) {
		switch (field) {
		case MEMORY_INSTRUCTION_ID:
			return "pc";
		case MEMORY_ADDRESS:
			return "address";
		case MEMORY_SIZE:
			return "size";
		case MEMORY_KIND:
			return "kind";
		}
	} else if (class->context == POINT_EVENT_CONTEXT) {
		if (field == EVENT_PC)
			return "pc";
		if (field >= EVENT_ARGUMENTS)
			return class->arguments[field - EVENT_ARGUMENTS];
	}
	return NULL;
}

void patch_field_write(FILE *stream, const struct patch_class *class, uint32_t offset,
		       char argument[PATCH_ARGUMENT_SIZE]) {
	unsigned int field = offset / 8;
	const char *parameter = parameter_of(class, field);

	if (parameter) {
		snprintf(argument, PATCH_ARGUMENT_SIZE, PATCH_REGISTER "%s", parameter);
		return;
	}
	if (class->context == POINT_MEMORY_CONTEXT && field == MEMORY_SPACE) {
		snprintf(argument, PATCH_ARGUMENT_SIZE, "%u", class->space);
		return;
	}
	if ((class->context == POINT_EVENT_CONTEXT && field >= EVENT_ARGUMENTS) ||
	    point_is_launch(class->context, offset) || offset == POINT_UNIFORM) {
		snprintf(argument, PATCH_ARGUMENT_SIZE, "0");
		return;
	}
	snprintf(argument, PATCH_ARGUMENT_SIZE, FIELD, field);
	LINE(stream, ".reg .b64 " FIELD ";", field);
	if (class->context == POINT_KERNEL_CONTEXT)
		write_kernel_field(stream, field);
	else if (class->context == POINT_MEMORY_CONTEXT)
		write_value(stream, field);
	else
		write_kernel_id(stream, field);
}
