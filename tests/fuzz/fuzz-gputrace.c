/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a script of gputrace: parsed, checked, made into an object that libbpf
 * opens, and its BEGIN and END evaluated.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>

#include "ctl/gputrace/code.h"
#include "ctl/gputrace/evaluate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int say_nothing(enum libbpf_print_level level, const char *format, va_list arguments) {
	return 0;
}

static void make_object(const struct script *script) {
	struct code *code = calloc(1, sizeof(*code));
	struct bpf_object *object;
	size_t n = 0;
	void *bytes;

	if (!code)
		return;
	if (code_make(code, script)) {
		bytes = object_make(code, &n);
		object = bytes ? bpf_object__open_mem(bytes, n, NULL) : NULL;
		if (bytes && !object)
			abort(); /* what we write can be read */
		bpf_object__close(object);
		free(bytes);
	} else if (!*code->error || strchr(code->error, '\n')) {
		abort();
	}
	code_deinit(code);
	free(code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static struct evaluator evaluator;
	static FILE *out;
	struct script *script;

	libbpf_set_print(say_nothing);
	if (!out)
		out = fopen("/dev/null", "we");
	script = script_new("-e", NULL, (const char *)data, size);
	if (!out || !script)
		return 0;
	if (script->failed) {
		if (!*script->error || strchr(script->error, '\n'))
			abort(); /* one line that says what is wrong */
	} else {
		if (script->needs_gpu)
			make_object(script);
		evaluator_init(&evaluator, script);
		evaluator.show.out = out;
		evaluate_kind(&evaluator, PROBE_BEGIN, 1);
		evaluate_kind(&evaluator, PROBE_END, 2);
		evaluate_print_all(&evaluator);
		evaluator_deinit(&evaluator);
	}
	script_free(script);
	return 0;
}
