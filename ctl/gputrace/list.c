/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lists what can be probed (list.h). Functions of the driver are known by a table. Kernels are
 * known when a program launches them: those are listed by a script of our own.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "lib/function.h"
#include "list.h"
#include "script.h"
#include "tool.h"
#include "words.h"

void list_words(void) {
	const struct builtin *builtin;
	const struct probe_row *row;
	const struct word *word;

	puts("Probes:");
	for (size_t i = 0; (row = probe_row_at(i)); i++)
		printf("  %-38s %s\n", row->form, row->help);
	puts("\nWords, and the probes that have them:");
	for (size_t i = 0; (word = word_at(i)); i++) {
		if (strchr(word->name, '.'))
			continue;
		printf("  %-10s %s%s\n            ", word->name, word->help ? word->help : "",
		       word->id == WORD_GRID || word->id == WORD_BLOCKDIM ||
				       word->id == WORD_BLOCKID || word->id == WORD_THREADID
			       ? "; also .x .y .z"
			       : "");
		for (size_t j = 0; (row = probe_row_at(j)); j++)
			if (word->probes & (1u << row->kind))
				printf(" %s%s", row->name,
				       word->ends & (1u << row->kind) ? ":end" : "");
		putchar('\n');
	}
	puts("\nFunctions:");
	for (size_t i = 0; (builtin = builtin_at(i)); i++)
		printf("  %s\n", builtin->form);
	puts("\nTools:");
	tool_list();
}

static void list_functions(const struct probe *probe, bool arguments) {
	for (size_t i = 0; i < function_count; i++) {
		const struct function *function = function_all[i];

		if (!probe_has_function(probe, function))
			continue;
		printf("%s:%s\n", probe->kind == PROBE_MODULE ? "driver" : probe->parts[0],
		       function->name);
		for (int j = 0; arguments && j < function->n_arguments; j++)
			printf("    %s args.%s\n", function->arguments[j].type->name,
			       function->arguments[j].name);
	}
}

static void put_quoted(FILE *out, const char *text) {
	fputc('"', out);
	for (; *text; text++)
		fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	fputc('"', out);
}

/* Each kernel that is launched, once, as the probe with its name. */
static char *kernel_script(const struct probe *probe) {
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	fputs("launch:", out);
	put_quoted(out, probe->name);
	fputs(" { @k[kernel] = count(); } END { for ($k, $n : @k) { printf(\"%s:\\\"%s\\\"", out);
	for (size_t i = 2; i < probe->n_parts; i++)
		fputs(":%s", out);
	fputs("\\n\", ", out);
	put_quoted(out, probe->parts[0]);
	fputs(", $k", out);
	for (size_t i = 2; i < probe->n_parts; i++) {
		fputs(", ", out);
		put_quoted(out, probe->parts[i]);
	}
	fputs("); } clear(@k); }", out);
	fclose(out);
	return text;
}

static int list_one(const struct options *options, const struct probe *probe, char **scriptp) {
	const struct probe_row *row = probe_row_find(probe->parts[0]);

	if (!PROBE_ON_GPU(probe->kind) && probe->kind >= PROBE_DRIVER &&
	    probe->kind <= PROBE_MODULE) {
		list_functions(probe, options->verbose);
		return CTL_OK;
	}
	if (!row->kernel) {
		printf("%s\n    %s\n", row->form, row->help);
		return CTL_OK;
	}
	if (!options->pid && !options->command)
		return ctl_usage(
			"-l %s: kernels are seen when they are launched: -p PID -d SECONDS, "
			"or -- CMD",
			options->file);
	*scriptp = kernel_script(probe);
	return *scriptp ? CTL_OK : ctl_fail(CTL_ERROR, "out of memory");
}

int list_probe(const struct options *options, char **scriptp) {
	struct script *script = NULL;
	char *text = NULL;
	int r;

	*scriptp = NULL;
	if (asprintf(&text, "%s { }", options->file) >= 0)
		script = script_new("-l", options->kernel, text, strlen(text));
	else
		text = NULL;
	if (!script)
		r = ctl_fail(CTL_ERROR, "out of memory");
	else if (script->failed)
		r = ctl_fail(CTL_ERROR, "%s", script->error);
	else
		r = list_one(options, script->clauses->probes, scriptp);
	script_free(script);
	free(text);
	return r;
}
