/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The main function of a pass as a program (ptxpass.h): options, standard input, standard output,
 * and the exit status.
 */

#include "ptxpass.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "lib/json.h"
#include "lib/ptx/ptx-module.h"

#define INPUT_MAX (INT32_MAX - 1)

static int usage(FILE *file, const char *name) {
	fprintf(file,
		"usage: ptxpass_%s [--config FILE] [--print-config]\n"
		"\n"
		"Reads a JSON request with PTX on standard input, writes one with the PTX that the "
		"pass makes of it on\n"
		"standard output. " PTXPASS_ATTACH_POINT
		" in the environment says where, as in kprobe/vectorAdd.\n"
		"\n"
		"  --config FILE    definition of the pass, instead of the one that is built in\n"
		"  --print-config   print the definition, and end\n"
		"  --help, --version\n"
		"\n"
		"Exit status: 0 fine, 64 configuration or usage, 65 input, 66 the PTX or the "
		"program, 70 internal.\n"
		"See gpuprobe-pass(5), PASSES AS PROGRAMS.\n",
		name);
	return file == stdout ? PTXPASS_OK : PTXPASS_CONFIGURATION;
}

static int complain(const char *name, const struct ptxpass_error *error, int status) {
	fprintf(stderr, "ptxpass_%s: %s\n", name, error->message);
	return status;
}

/* The definition that counts. */
static int load(struct pass_definition **definitionp, const char *name, const char *config,
		struct ptxpass_error *error) {
	char why[PASS_ERROR_SIZE];
	size_t length;
	const char *text = pass_builtin_text(name, &length);
	int r;

	r = config ? pass_definition_load(definitionp, config, false, why)
		   : pass_definition_parse(definitionp, text, length, NULL, why);
	if (r < 0)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "%s", strerror(-r));
	if (r)
		return ptxpass_fail(error, PTXPASS_CONFIGURATION, "%.300s: %s",
				    config ? config : name, why);
	if (!strcmp((*definitionp)->name, name) && !(*definitionp)->executable)
		return 0;
	*definitionp = pass_definition_free(*definitionp);
	return ptxpass_fail(error, PTXPASS_CONFIGURATION,
			    "%.300s: it does not define the pass %s that is built in", config,
			    name);
}

static int read_input(char **textp, size_t *lengthp, struct ptxpass_error *error) {
	const int r = file_load(STDIN_FILENO, INPUT_MAX, textp, lengthp);

	if (r == -EFBIG)
		return ptxpass_fail(error, PTXPASS_INPUT, "the input is too large");
	if (r == -ENOMEM)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "no memory");
	if (r < 0)
		return ptxpass_fail(error, PTXPASS_INPUT, "standard input: %s", strerror(-r));
	return 0;
}

/* A definition may bound what comes out and say what has to be in it. */
static int validate(const struct pass_definition *definition, const char *output, size_t length,
		    struct ptxpass_error *error) {
	struct ptx_error why = {};
	struct ptx_module module;
	int r;

	if (length > definition->max_output_bytes)
		return ptxpass_fail(error, PTXPASS_TRANSFORM,
				    "the output has %zu bytes, at most %llu are allowed", length,
				    (unsigned long long)definition->max_output_bytes);
	if (!definition->required_symbols.n)
		return 0;
	r = ptx_module_parse(&module, output, length, &why);
	if (r)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "the output: %s",
				    r < 0 ? strerror(-r) : why.message);
	for (size_t i = 0; !r && i < definition->required_symbols.n; i++) {
		const char *symbol = definition->required_symbols.strings[i];

		if (!ptx_module_has_symbol(&module, symbol, strlen(symbol)))
			r = ptxpass_fail(error, PTXPASS_TRANSFORM, "the output lacks %.200s",
					 symbol);
	}
	ptx_module_deinit(&module);
	return r;
}

static int write_reply(const struct ptxpass_request *request, const char *output, size_t length,
		       struct ptxpass_error *error) {
	json_object *reply = json_object_new_object();
	const char *line;
	int r = 0;

	json_add(reply, "output_ptx",
		 length <= INT32_MAX ? json_object_new_string_len(output ? output : "", (int)length)
				     : NULL);
	if (request->nested)
		json_add_bool(reply, "modified", output != NULL);
	line = reply ? json_object_to_json_string_ext(reply, JSON_C_TO_STRING_PLAIN |
								     JSON_C_TO_STRING_NOSLASHESCAPE)
		     : NULL;
	if (!line)
		r = ptxpass_fail(error, PTXPASS_INTERNAL, "no memory");
	else if (puts(line) == EOF || fflush(stdout) == EOF)
		r = ptxpass_fail(error, PTXPASS_INTERNAL, "standard output: %s", strerror(errno));
	json_object_put(reply);
	return r;
}

static int run(const struct pass_definition *definition, struct ptxpass_error *error) {
	const char *attach_point = getenv(PTXPASS_ATTACH_POINT);
	struct ptxpass_request request = {};
	char *text = NULL, *output = NULL;
	size_t length = 0;
	int r;

	r = read_input(&text, &length, error);
	if (r)
		return r;
	r = ptxpass_request_read(&request, text, length, error);
	free(text);
	length = 0;
	if (!r)
		r = ptxpass_apply(definition, &request,
				  attach_point && *attach_point ? attach_point : NULL, &output,
				  &length, error);
	if (!r && output)
		r = validate(definition, output, length, error);
	if (!r)
		r = write_reply(&request, output, length, error);
	free(output);
	ptxpass_request_deinit(&request);
	return r;
}

static int print_config(const struct pass_definition *definition, struct ptxpass_error *error) {
	json_object *object = pass_definition_to_json(definition);

	if (json_incomplete(object)) {
		json_object_put(object);
		return ptxpass_fail(error, PTXPASS_INTERNAL, "no memory");
	}
	puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
							    JSON_C_TO_STRING_SPACED |
							    JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(object);
	if (fflush(stdout) == EOF)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "standard output: %s",
				    strerror(errno));
	return 0;
}

static int ptxpass_main(const char *name, int argc, char **argv) {
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "print-config", no_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{},
	};
	struct pass_definition *definition = NULL;
	struct ptxpass_error error;
	const char *config = NULL;
	bool print = false;
	int option, r;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
		switch (option) {
		case 'c':
			config = optarg;
			break;
		case 'p':
			print = true;
			break;
		case 'h':
			return usage(stdout, name);
		case 'V':
			printf("ptxpass_%s %s\n", name, PROJECT_VERSION);
			return PTXPASS_OK;
		default:
			return PTXPASS_CONFIGURATION; /* getopt has said what is wrong */
		}
	}
	if (optind < argc) {
		ptxpass_fail(&error, PTXPASS_CONFIGURATION, "%.200s: what is this? See --help",
			     argv[optind]);
		return complain(name, &error, PTXPASS_CONFIGURATION);
	}
	r = load(&definition, name, config, &error);
	if (!r)
		r = print ? print_config(definition, &error) : run(definition, &error);
	pass_definition_free(definition);
	return r ? complain(name, &error, r) : PTXPASS_OK;
}

int main(int argc, char **argv) {
	return ptxpass_main(PTXPASS_NAME, argc, argv);
}
