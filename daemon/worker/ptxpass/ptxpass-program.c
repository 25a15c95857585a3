/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Translates the program in a request of a pass to PTX (ptxpass.h).
 *
 * Instructions become PTX. They may refer to maps by index (BPF_PSEUDO_MAP_IDX), as our own linker
 * leaves them, or by descriptor (BPF_PSEUDO_MAP_FD), as they would go to the kernel, if the request
 * says what is behind it.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptxpass.h"

/* Does nothing; for the name. */
static const char empty[] = ".func (.param .b64 r) %s()\n"
			    "{\n"
			    "	.reg .b64 %%zero;\n"
			    "	mov.b64 %%zero, 0;\n"
			    "	st.param.b64 [r], %%zero;\n"
			    "	ret;\n"
			    "}\n";

/* The map that a descriptor stands for; -1: none. */
static int find_map(const struct ptxpass_request *request, int fd) {
	for (size_t i = 0; i < request->n_maps; i++)
		if (request->fds[i] == fd)
			return (int)i;
	return -1;
}

/* Makes all references to maps indexes. */
static int resolve_maps(struct ptxpass_request *request, struct ptxpass_error *error) {
	for (size_t i = 0; i < request->n_insns; i++) {
		struct bpf_insn *insn = &request->insns[i];
		int map = insn->imm;

		if (insn->code != (BPF_LD | BPF_IMM | BPF_DW))
			continue;
		if (insn->src_reg == BPF_PSEUDO_MAP_FD || insn->src_reg == BPF_PSEUDO_MAP_VALUE)
			map = find_map(request, insn->imm);
		if (insn->src_reg && (map < 0 || (size_t)map >= request->n_maps))
			return ptxpass_fail(error, PTXPASS_TRANSFORM,
					    "instruction %zu refers to map %d, and the request has "
					    "no such member of \"maps\"",
					    i, insn->imm);
		insn->imm = map;
		if (insn->src_reg == BPF_PSEUDO_MAP_FD)
			insn->src_reg = BPF_PSEUDO_MAP_IDX;
		else if (insn->src_reg == BPF_PSEUDO_MAP_VALUE)
			insn->src_reg = BPF_PSEUDO_MAP_IDX_VALUE;
		i++; /* its second half */
	}
	return 0;
}

static int translate(struct ptxpass_program *program, struct ptxpass_request *request,
		     struct ptxpass_error *error) {
	const struct translate_program input = {
		.name = "program",
		.symbol = program->symbol,
		.insns = request->insns,
		.n_insns = request->n_insns,
	};
	struct translate_program_result *made;
	struct translate_result result;
	char *why = NULL;
	int r;

	r = translate_object(&input, 1, request->maps, request->n_maps, &result, &why);
	if (r) {
		r = ptxpass_fail(error,
				 r == TRANSLATE_E_PROGRAM || r == TRANSLATE_E_MAP || r == -EINVAL
					 ? PTXPASS_TRANSFORM
					 : PTXPASS_INTERNAL,
				 "the instructions do not become PTX: %s",
				 why ? why : strerror(r < 0 ? -r : EIO));
		free(why);
		return r;
	}
	made = &result.programs[0];
	program->text = made->ptx;
	made->ptx = NULL;
	program->isa = made->isa;
	program->target = made->target;
	program->context_count = made->context_count;
	memcpy(program->context, made->context, sizeof(program->context));
	translate_result_deinit(&result);
	return 0;
}

int ptxpass_program_make(struct ptxpass_program *program, struct ptxpass_request *request,
			 struct ptxpass_error *error) {
	int r;

	program->isa = TRANSLATE_ISA;
	program->target = TRANSLATE_TARGET;
	if (!request->n_insns) {
		if (asprintf(&program->text, empty, program->symbol) >= 0)
			return 0;
		program->text = NULL;
		return ptxpass_fail(error, PTXPASS_INTERNAL, "no memory");
	}
	r = resolve_maps(request, error);
	return r ? r : translate(program, request, error);
}

void ptxpass_program_deinit(struct ptxpass_program *program) {
	free(program->text);
	program->text = NULL;
}
