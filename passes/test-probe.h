/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What tests of the pass `probe` share: a text goes in with programs and points, the new text comes
 * out.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "probe.h"
#include "lib/ptx/ptx-inline.h"

#define HEADER ".version 7.0\n.target sm_80\n.address_size 64\n"
#define FUNCTION(name) \
	".func (.param .b64 r) " name "()\n{\n\tst.param.b64 [r], 0; // }\n\tret;\n}\n"
#define USES_MAX 8

struct trial {
	struct probe_options options;
	const struct probe_program *programs;
	uint32_t count; /* of programs */
	struct probe_use uses[USES_MAX]; /* for every function that has a body */
	uint32_t use_count;
	bool kernels_only;
	const char *only; /* NULL, or the name of the one function that gets uses */
	/* out */
	struct probe_result result;
	struct ptx_error error;
	uint32_t sites[USES_MAX];
	char *out;
};

static inline struct probe_program program(const char *symbol, const char *text) {
	return (struct probe_program){
		.symbol = symbol, .text = text, .length = strlen(text), .isa = 63, .target = 52
	};
}

/* Does what the trial says to the text; what it leaves in there is freed by finish(). */
static inline int attempt(const char *text, struct trial *trial) {
	struct probe_function *functions;
	struct probe_use *uses;
	struct ptx_module module;
	struct ptx_edit *edit;
	size_t n = 0, length;
	int r;

	trial->error = (struct ptx_error){ 0 };
	trial->out = NULL;
	trial->result = (struct probe_result){ 0 };
	memset(trial->sites, 0, sizeof(trial->sites));
	if (ptx_module_parse(&module, text, strlen(text), &trial->error))
		fail_msg("%u:%u: %s\n%s", trial->error.line, trial->error.column,
			 trial->error.message, text);
	functions = calloc(module.function_count + 1, sizeof(*functions));
	uses = calloc((size_t)module.function_count * USES_MAX + 1, sizeof(*uses));
	assert_non_null(functions);
	assert_non_null(uses);
	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	for (uint32_t i = 0; i < module.function_count; i++) {
		if (trial->kernels_only && !module.functions[i].entry)
			continue;
		if (trial->only && !ptx_range_is(text, module.functions[i].name, trial->only))
			continue;
		functions[n] = (struct probe_function){ &module.functions[i], uses + n * USES_MAX,
							trial->use_count };
		memcpy(functions[n++].uses, trial->uses, sizeof(trial->uses));
	}
	r = probe_apply(edit, &module, &trial->options, trial->programs, trial->count, functions, n,
			&trial->result, &trial->error);
	if (!r) {
		assert_int_equal(ptx_edit_apply(edit, &trial->out, &length), 0);
		assert_int_equal(strlen(trial->out), length);
	}
	for (size_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < trial->use_count; j++)
			trial->sites[j] += functions[i].uses[j].sites;
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
	free(functions);
	free(uses);
	return r;
}

static inline void finish(struct trial *trial) {
	free(trial->out);
	free(trial->result.instructions);
}

static inline void must(const char *text, struct trial *trial) {
	int r = attempt(text, trial);

	if (r)
		fail_msg("%d: %u:%u: %s\n%s", r, trial->error.line, trial->error.column,
			 trial->error.message, text);
}

static inline size_t occurrences(const char *text, const char *what) {
	size_t n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

/* ptxas takes the text, if the environment names one (PTXAS). */
static inline void assemble(const char *text, const char *architecture) {
	char path[] = "/tmp/test-probe-XXXXXX", command[512];
	const char *ptxas = getenv("PTXAS");
	int fd, status;

	if (!ptxas || !*ptxas)
		return;
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	snprintf(command, sizeof(command), "%s -arch %s -o /dev/null %s", ptxas, architecture,
		 path);
	status = system(command);
	unlink(path);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("ptxas does not take:\n%s", text);
}
