/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Translates all GPU programs of an object from eBPF to PTX (translate.h).
 *
 * In order: every program is validated, its flow built and analysed; then the maps are laid out,
 * from what all programs do; then each program is emitted, optimised and printed. The text that
 * LLVM prints is cut to what job.md promises: slots first, then private data, then the function, no
 * header, no comments. A patch form is a program emitted, optimised and printed once more.
 */

#include "translate.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/translator/check/analysis.h"
#include "daemon/translator/emit/codegen.h"
#include "daemon/translator/emit/emit.h"
#include "daemon/translator/check/fault.h"
#include "daemon/translator/check/flow.h"
#include "proto/helper.h"
#include "daemon/translator/check/insn.h"
#include "daemon/translator/emit/layout.h"
#include "daemon/translator/check/validate.h"

/* A program on its way. */
struct unit {
	struct flow flow;
	struct analysis analysis;
};

struct translation {
	const struct translate_program *programs;
	size_t n_programs;
	const struct translate_map *maps;
	size_t n_maps;
	struct unit *units;
	struct translate_result result;
	char **error;
};

static bool is_identifier(const char *s) {
	if (!s || !(isalpha((unsigned char)*s) || *s == '_'))
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && *s != '_')
			return false;
	return true;
}

static bool input_is_valid(const struct translation *t) {
	if (t->n_programs > TRANSLATE_PROGRAMS_MAX || t->n_maps > TRANSLATE_MAPS_MAX)
		return false;
	for (size_t i = 0; i < t->n_programs; i++)
		if (!is_identifier(t->programs[i].symbol) || strlen(t->programs[i].symbol) > 256 ||
		    t->programs[i].thread.size > 8 * POINT_THREAD_WORDS)
			return false;
	for (size_t i = 0; i < t->n_maps; i++)
		if (!is_identifier(t->maps[i].slot_symbol) ||
		    strlen(t->maps[i].slot_symbol) > 256 || t->maps[i].place > MAP_PLACE_KERNEL ||
		    (t->maps[i].log && t->maps[i].type != BPF_MAP_TYPE_GPU_RINGBUF_MAP))
			return false;
	return true;
}

/* Passes a fault on as the caller's error. */
static int set_error(struct translation *t, int r, const char *text) {
	if (r <= 0)
		return r;
	*t->error = strdup(text);
	return *t->error ? r : -ENOMEM;
}

static int analyse(struct translation *t, size_t i) {
	const struct translate_program *program = t->programs + i;
	struct fault fault = { .program = program->name, .lines = &program->lines };
	struct unit *unit = t->units + i;
	int r;

	if (program->n_insns > TRANSLATE_INSNS_MAX)
		r = fault_whole(&fault, "more than %u instructions", TRANSLATE_INSNS_MAX);
	else
		r = validate_program(program->insns, program->n_insns, t->n_maps,
				     program->thread.size, &fault);
	if (!r)
		r = flow_init(&unit->flow, program->insns, program->n_insns, &fault);
	if (!r)
		r = analysis_init(&unit->analysis, &unit->flow, t->maps, t->n_maps,
				  &program->thread, program->takes_memory, &fault);
	return set_error(t, r, fault.text);
}

static int lay_out_maps(struct translation *t) {
	for (size_t i = 0; i < t->n_maps; i++) {
		const char *reason = NULL;
		uint8_t uses = 0;
		char text[256];
		int r;

		for (size_t p = 0; p < t->n_programs; p++)
			uses |= t->units[p].analysis.uses[i];
		r = layout_map(t->maps + i, uses, t->result.maps + i, &reason);
		if (r) {
			snprintf(text, sizeof(text), "map %.64s: %s", t->maps[i].name, reason);
			return set_error(t, r, text);
		}
	}
	return 0;
}

/* Bytes of local memory, from its declarations: `.local .align 8 .b8 __local_depot0[512];`. */
static uint64_t local_bytes(const char *ptx) {
	uint64_t bytes = 0;

	for (const char *p = ptx; (p = strstr(p, ".local .align")); p++) {
		const char *bracket = strchr(p, '[');

		if (bracket)
			bytes += strtoull(bracket + 1, NULL, 10);
	}
	return bytes;
}

/* Appends a line of LLVM's output if it is one to keep, without comment. */
static void put_line(FILE *out, const char *line, size_t length) {
	const char *comment = memmem(line, length, "//", 2);
	/* the pragma only says that LLVM did not unroll a loop */
	static const char *const dropped[] = { ".version ", ".target ", ".address_size ",
					       "\t.pragma \"nounroll\"" };

	if (comment)
		length = (size_t)(comment - line);
	while (length && isspace((unsigned char)line[length - 1]))
		length--;
	if (length == 0)
		return;
	for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
		if (length > strlen(dropped[i]) &&
		    memcmp(line, dropped[i], strlen(dropped[i])) == 0)
			return;
	/* the function is for the module that it is put in, not for linking */
	if (length > 15 && memcmp(line, ".visible .func ", 15) == 0) {
		line += 9;
		length -= 9;
	}
	fprintf(out, "%.*s\n", (int)length, line);
}

/* Whether a line declares a variable that the host writes. */
static bool is_slot(const char *line) {
	return strncmp(line, ".visible .global ", 17) == 0 ||
	       strncmp(line, ".visible .const ", 16) == 0;
}

/* Cuts LLVM's output to what job.md says. Returns text that the caller frees, or NULL. */
static char *cut_ptx(const char *text, size_t *size) {
	char *ptx = NULL;
	FILE *out = open_memstream(&ptx, size);

	if (!out)
		return NULL;
	for (int slots = 1; slots >= 0; slots--) {
		for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
			end = strchrnul(line, '\n');
			if (is_slot(line) == (slots == 1))
				put_line(out, line, (size_t)(end - line));
		}
	}
	if (fclose(out) != 0) {
		free(ptx);
		return NULL;
	}
	return ptx;
}

/* Whether a program calls a helper, reachable or not. */
static bool calls(const struct translate_program *program, enum helper_kind kind) {
	for (size_t pc = 0; pc < program->n_insns; pc++) {
		const struct bpf_insn *insn = program->insns + pc;

		if (insn_is_ld_imm64(insn))
			pc++;
		else if (insn_is_call(insn) && insn->src_reg == INSN_CALL_HELPER) {
			const struct helper *helper = helper_find(insn->imm);

			if (helper && helper->kind == kind)
				return true;
		}
	}
	return false;
}

/* What a program needs beyond the least, by the maps that it uses and what it calls. */
static struct codegen_parts find_needs(const struct translation *t,
				       const struct translate_program *program,
				       const struct analysis *analysis,
				       struct translate_program_result *result) {
	struct codegen_parts needs = { .helpers = calls(program, HELPER_NUMBER) ||
						  calls(program, HELPER_ATOMIC) };
	bool host = false;

	for (size_t m = 0; m < t->n_maps; m++) {
		const struct map_layout *layout = &t->result.maps[m].layout;

		if (!analysis->uses[m])
			continue;
		result->maps |= UINT64_C(1) << m;
		needs.rings |= layout->kind == MAP_KIND_RING;
		needs.hashes |= layout->kind == MAP_KIND_HASH;
		host |= layout->place != MAP_PLACE_DEVICE;
	}
	result->isa = TRANSLATE_ISA;
	result->target = needs.rings || needs.hashes ? TRANSLATE_TARGET_ORDERED
			 : host                      ? TRANSLATE_TARGET_SYSTEM
						     : TRANSLATE_TARGET;
	if (analysis->sm > result->target)
		result->target = analysis->sm;
	if (result->target >= TRANSLATE_TARGET_CLUSTER)
		result->isa = TRANSLATE_ISA_CLUSTER;
	result->process = analysis->process;
	for (unsigned i = 0; i < POINT_FIELDS; i++)
		if (analysis->context >> i & 1)
			result->context[result->context_count++] = (uint16_t)(8 * i);
	for (unsigned i = 0; i < POINT_THREAD_WORDS; i++)
		if (analysis->words >> i & 1)
			result->context[result->context_count++] = (uint16_t)(POINT_THREAD + 8 * i);
	return needs;
}

/* One form of a program, as LLVM prints it. */
static int emit_form(struct translation *t, size_t i, bool patch, const struct codegen_parts *needs,
		     char **text) {
	unsigned target = t->result.programs[i].target;
	struct fault fault = { .program = t->programs[i].name, .lines = &t->programs[i].lines };
	struct unit *unit = t->units + i;
	struct codegen codegen;
	LLVMValueRef function;
	int r;

	/* what only a newer architecture has is text of the device library: LLVM need not know it
	 */
	if (patch || target > TRANSLATE_TARGET_PATCH)
		target = TRANSLATE_TARGET_PATCH;
	unit->analysis.fault = &fault;
	r = codegen_init(&codegen, target, needs, t->error);
	if (!r)
		r = set_error(t,
			      emit_program(codegen.module, &unit->analysis, t->programs + i,
					   t->result.maps, target, patch, &function),
			      fault.text);
	if (!r)
		r = codegen_emit(&codegen, function, text, t->error);
	codegen_deinit(&codegen);
	return r;
}

/*
 * The patch form, if there can be one. LLVM has a thread end, too, where it sees that an address
 * can be none.
 */
static int emit_patch(struct translation *t, size_t i, const struct codegen_parts *needs) {
	struct translate_program_result *result = t->result.programs + i;
	char *text = NULL;
	int r;

	if (t->units[i].analysis.words) {
		result->patch_reason = "it has variables of a thread (.thread), which are "
				       "registers that only PTX can have yet";
		return 0;
	}
	r = emit_form(t, i, true, needs, &text);
	if (!r && (strstr(text, "\texit;") || strstr(text, "\ttrap;"))) {
		result->patch_reason =
			calls(t->programs + i, HELPER_EXIT)
				? "bpf_cuda_exit ends a thread, which the sanitizer engine cannot"
				: "it uses an address that is none, which ends a thread";
	} else if (!r) {
		result->patch_maps = 1 + (uint32_t)__builtin_popcountll(result->maps);
		result->patch = cut_ptx(text, &result->patch_size);
		if (!result->patch)
			r = -ENOMEM;
	}
	free(text);
	return r;
}

/*
 * A driver sets local memory aside for as many threads as the device can hold (270,336 on an H100),
 * and takes it from what the application has.
 */
static int check_local(struct translation *t, size_t i) {
	struct fault fault = { .program = t->programs[i].name };
	uint64_t bytes = t->result.programs[i].local_bytes;

	if (bytes <= TRANSLATE_LOCAL_MAX)
		return 0;
	return set_error(t,
			 fault_whole(&fault,
				     "needs %llu bytes of local memory a thread, %d are allowed: "
				     "reserve fewer or smaller records, or have smaller arrays on "
				     "the stack",
				     (unsigned long long)bytes, TRANSLATE_LOCAL_MAX),
			 fault.text);
}

static int emit(struct translation *t, size_t i) {
	struct translate_program_result *result = t->result.programs + i;
	struct codegen_parts needs = find_needs(t, t->programs + i, &t->units[i].analysis, result);
	char *text = NULL;
	int r;

	r = emit_form(t, i, false, &needs, &text);
	if (!r) {
		result->local_bytes = local_bytes(text);
		result->ptx = cut_ptx(text, &result->size);
		r = result->ptx ? check_local(t, i) : -ENOMEM;
	}
	free(text);
	return r || !t->programs[i].patch ? r : emit_patch(t, i, &needs);
}

static int translate(struct translation *t) {
	int r = 0;

	for (size_t i = 0; !r && i < t->n_programs; i++)
		r = analyse(t, i);
	if (!r)
		r = lay_out_maps(t);
	for (size_t i = 0; !r && i < t->n_programs; i++)
		r = emit(t, i);
	return r;
}

int translate_object(const struct translate_program *programs, size_t n_programs,
		     const struct translate_map *maps, size_t n_maps,
		     struct translate_result *result, char **error) {
	struct translation t = {
		.programs = programs, .n_programs = n_programs, .maps = maps, .n_maps = n_maps
	};
	char *text = NULL;
	int r = -ENOMEM;

	if (!input_is_valid(&t))
		return -EINVAL;
	t.error = &text;
	t.units = calloc(n_programs + 1, sizeof(*t.units));
	t.result.maps = calloc(n_maps + 1, sizeof(*t.result.maps));
	t.result.programs = calloc(n_programs + 1, sizeof(*t.result.programs));
	t.result.n_maps = n_maps;
	t.result.n_programs = n_programs;
	if (t.units && t.result.maps && t.result.programs)
		r = translate(&t);

	for (size_t i = 0; t.units && i < n_programs; i++) {
		analysis_deinit(&t.units[i].analysis);
		flow_deinit(&t.units[i].flow);
	}
	free(t.units);
	if (r) {
		translate_result_deinit(&t.result);
		if (r > 0)
			*error = text;
		else
			free(text);
		return r;
	}
	*result = t.result;
	return TRANSLATE_OK;
}

void translate_result_deinit(struct translate_result *result) {
	for (size_t i = 0; result->programs && i < result->n_programs; i++) {
		free(result->programs[i].ptx);
		free(result->programs[i].patch);
	}
	free(result->programs);
	free(result->maps);
	*result = (struct translate_result){ 0 };
}
