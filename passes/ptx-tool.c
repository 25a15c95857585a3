/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ptx-tool: what the PTX model sees in a file, for developers and for the judging scripts. Each
 * command prints lines that a script can read; an error is `FILE:line:column: message` and exit
 * code 1, wrong usage is exit code 2.
 */

#include "probe.h"
#include "lib/base/file.h"
#include "lib/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <time.h>

static const char usage[] =
	"usage: ptx-tool parse FILE             parse everything; print counts and speed\n"
	"       ptx-tool roundtrip FILE         parse, write unedited, compare\n"
	"       ptx-tool list FILE              kernels, functions and variables, one per line\n"
	"       ptx-tool statements FILE        each body's statements, one per line\n"
	"       ptx-tool probe FILE --probe PROBE.ptx [options] -o OUT\n"
	"                                       put programs into it; FILE and OUT may be -\n"
	"options of probe:\n"
	"       --probe PROBE.ptx               a program: its last function; the next options are "
	"this one's\n"
	"       --context N,N,...               offsets of the fields that its parameters stand "
	"for\n"
	"       --point entry|return|memory|line:FILE:N|block:N   where it goes: several; else at "
	"the entry\n"
	"       --spaces MASK                   of which state spaces, for a memory point before "
	"it\n"
	"       --kernel GLOB, --device GLOB    in which kernels (else all) and device functions "
	"(else none)\n"
	"       --stub NAME                     calls of this stand for the entry\n"
	"       --image N                       upper half of the ids of instructions\n"
	"       --call                          call programs, even if they could be put there\n"
	"       --instructions                  list the instructions that got memory probes\n";

#define TEXT_MAX ((size_t)1 << 32)

struct file {
	const char *path;
	char *text;
	size_t length;
	struct ptx_module module;
};

/* The file's bytes, without NULs at the end. */
static int read_file(const char *path, char **text, size_t *length) {
	int r = strcmp(path, "-") ? file_load_path(AT_FDCWD, path, false, TEXT_MAX, text, length)
				  : file_load(STDIN_FILENO, TEXT_MAX, text, length);

	if (r < 0) {
		fprintf(stderr, "ptx-tool: %s: %s\n", path, strerror(-r));
		return 1;
	}
	while (*length && !(*text)[*length - 1])
		--*length;
	return 0;
}

static int report(const char *path, int r, const struct ptx_error *error) {
	if (r > 0)
		fprintf(stderr, "%s:%u:%u: %s\n", path, error->line, error->column, error->message);
	else
		fprintf(stderr, "%s: %s\n", path, strerror(-r));
	return 1;
}

static int open_module(struct file *file, const char *path) {
	struct ptx_error error;
	int r;

	*file = (struct file){ .path = path };
	if (read_file(path, &file->text, &file->length))
		return 1;
	r = ptx_module_parse(&file->module, file->text, file->length, &error);
	if (!r)
		return 0;
	free(file->text);
	return report(path, r, &error);
}

static void close_module(struct file *file) {
	ptx_module_deinit(&file->module);
	free(file->text);
}

static double seconds(void) {
	return (double)monotonic_now() / 1e9;
}

static int parse(int argc, char **argv) {
	struct ptx_error error;
	struct ptx_module *module;
	struct ptx_body body;
	struct file file;
	uint64_t statements = 0, tokens = 0, calls = 0;
	uint32_t kernels = 0, bodies = 0;
	struct ptx_call call;
	double start, middle;
	int r;

	if (open_module(&file, argv[1]))
		return 1;
	module = &file.module;
	ptx_module_deinit(module); /* once more, to measure it without reading the file */
	start = seconds();
	r = ptx_module_parse(module, file.text, file.length, &error);
	middle = seconds();
	for (uint32_t i = 0; i < module->function_count && !r; i++) {
		kernels += module->functions[i].entry && module->functions[i].body.length;
		if (!module->functions[i].body.length)
			continue;
		bodies++;
		r = ptx_body_parse(&body, module, &module->functions[i], &error);
		if (r)
			break;
		statements += body.statement_count;
		tokens += body.token_count;
		for (uint32_t j = 0; j < body.statement_count; j++)
			calls += ptx_instruction_call(&body, &body.statements[j], &call);
		ptx_body_deinit(&body);
	}
	if (!r)
		printf("%zu bytes, version %u.%u, target sm_%u%.1s%s, %u kernels, %u bodies, %u "
		       "variables, "
		       "%llu statements, %llu tokens, %llu calls; module %.0f MB/s, bodies %.0f "
		       "MB/s\n",
		       file.length, module->isa / 10, module->isa % 10, module->target.number,
		       &module->target.suffix, module->target.debug ? " debug" : "", kernels,
		       bodies, module->variable_count, (unsigned long long)statements,
		       (unsigned long long)tokens, (unsigned long long)calls,
		       file.length / 1e6 / (middle - start),
		       file.length / 1e6 / (seconds() - middle));
	else
		report(file.path, r, &error);
	close_module(&file);
	return !!r;
}

/*
 * Checks that statements and tokens of a body cover it: nothing lies between tokens but white space
 * and comments.
 */
static bool body_covers(const struct ptx_body *body) {
	uint32_t next = 0;

	for (uint32_t i = 0; i < body->statement_count; i++) {
		if (body->statements[i].first != next || body->statements[i].end <= next)
			return false;
		next = body->statements[i].end;
	}
	return next == body->token_count;
}

static int roundtrip(int argc, char **argv) {
	struct ptx_edit *edit = NULL;
	struct ptx_error error;
	struct ptx_body body;
	struct file file;
	char *out = NULL;
	size_t length;
	int r = 0;

	if (open_module(&file, argv[1]))
		return 1;
	for (uint32_t i = 0; i < file.module.function_count && !r; i++) {
		if (!file.module.functions[i].body.length)
			continue;
		r = ptx_body_parse(&body, &file.module, &file.module.functions[i], &error);
		if (r) {
			report(file.path, r, &error);
			break;
		}
		if (!body_covers(&body)) {
			fprintf(stderr, "%s: statements of %.*s do not cover its body\n", file.path,
				(int)file.module.functions[i].name.length,
				file.text + file.module.functions[i].name.offset);
			r = 1;
		}
		ptx_body_deinit(&body);
	}
	if (!r)
		r = ptx_edit_new(&edit, file.text, file.length);
	if (!r)
		r = ptx_edit_apply(edit, &out, &length);
	if (!r && (length != file.length || memcmp(out, file.text, length))) {
		fprintf(stderr, "%s: the text written differs\n", file.path);
		r = 1;
	}
	ptx_edit_free(edit);
	free(out);
	close_module(&file);
	return !!r;
}

static int list(int argc, char **argv) {
	const struct ptx_function *function;
	const struct ptx_variable *variable;
	struct file file;

	if (open_module(&file, argv[1]))
		return 1;
	for (uint32_t i = 0; i < file.module.function_count; i++) {
		function = &file.module.functions[i];
		printf("%s%s %.*s\n", function->entry ? "kernel" : "function",
		       function->body.length ? "" : "-prototype", (int)function->name.length,
		       file.text + function->name.offset);
	}
	for (uint32_t i = 0; i < file.module.variable_count; i++) {
		variable = &file.module.variables[i];
		printf("variable %.*s %llu\n", (int)variable->name.length,
		       file.text + variable->name.offset, (unsigned long long)variable->size);
	}
	close_module(&file);
	return 0;
}

static int statements(int argc, char **argv) {
	static const char *const kinds[] = { "instruction",   "label",       "registers",
					     "variable",      "open",        "close",
					     "loc",           "file",        "pragma",
					     "branchtargets", "calltargets", "callprototype",
					     "section",       "other" };
	const struct ptx_statement *statement;
	struct ptx_error error;
	struct ptx_range range;
	struct ptx_body body;
	struct file file;
	int r = 0;

	if (open_module(&file, argv[1]))
		return 1;
	for (uint32_t i = 0; i < file.module.function_count && !r; i++) {
		if (!file.module.functions[i].body.length)
			continue;
		printf("%.*s\n", (int)file.module.functions[i].name.length,
		       file.text + file.module.functions[i].name.offset);
		r = ptx_body_parse(&body, &file.module, &file.module.functions[i], &error);
		if (r) {
			report(file.path, r, &error);
			break;
		}
		for (uint32_t j = 0; j < body.statement_count; j++) {
			statement = &body.statements[j];
			range = ptx_statement_text(&body, statement);
			printf("  %u %s %u | ", statement->depth, kinds[statement->kind],
			       statement->operand_count);
			for (uint32_t k = range.offset; k < range.offset + range.length; k++)
				putchar(file.text[k] == '\n' ? ' ' : file.text[k]);
			putchar('\n');
		}
		ptx_body_deinit(&body);
	}
	close_module(&file);
	return !!r;
}

/* The probe's function is the last one that its file defines. */
static int read_probe(const char *path, struct probe_program *program, char **buffer) {
	static const char header[] = ".version 6.3\n.target sm_52\n.address_size 64\n";
	const struct ptx_function *function = NULL;
	struct ptx_error error;
	struct ptx_module module;
	size_t length;
	char *text, *whole;
	int r;

	if (read_file(path, &text, &length))
		return 1;
	if (asprintf(&whole, "%s%.*s", header, (int)length, text) < 0)
		return report(path, -ENOMEM, NULL);
	r = ptx_module_parse(&module, whole, strlen(whole), &error);
	if (r) {
		error.line -= error.line > 3 ? 3 : 0;
		free(whole);
		free(text);
		return report(path, r, &error);
	}
	for (uint32_t i = 0; i < module.function_count; i++)
		if (module.functions[i].body.length)
			function = &module.functions[i];
	*program = (struct probe_program){
		.symbol = function ? strndup(whole + function->name.offset, function->name.length)
				   : strdup(""),
		.text = text,
		.length = length,
		.isa = 63,
		.target = 52,
	};
	*buffer = text;
	ptx_module_deinit(&module);
	free(whole);
	return 0;
}

static int write_file(const char *path, const char *text, size_t length) {
	FILE *stream = strcmp(path, "-") ? fopen(path, "we") : stdout;

	if (stream && fwrite(text, 1, length, stream) == length && !fflush(stream)) {
		if (stream != stdout)
			fclose(stream);
		return 0;
	}
	fprintf(stderr, "ptx-tool: %s: %s\n", path, strerror(errno));
	if (stream && stream != stdout)
		fclose(stream);
	return 1;
}

#define PROGRAMS_MAX 8
#define USES_MAX 32
#define CONTEXT_MAX 32

/* What the options of `probe` say. */
struct request {
	struct probe_program programs[PROGRAMS_MAX];
	char *buffers[PROGRAMS_MAX];
	uint16_t contexts[PROGRAMS_MAX][CONTEXT_MAX];
	uint32_t program_count;
	struct probe_use uses[USES_MAX];
	uint32_t use_count;
	const char *stubs[USES_MAX];
	struct probe_options options;
	const char *kernels, *devices, *to;
	bool instructions;
};

static bool name_matches(const struct file *file, const struct ptx_function *function,
			 const char *glob) {
	char *name = strndup(file->text + function->name.offset, function->name.length);
	bool matches = name && !fnmatch(glob, name, 0);

	free(name);
	return matches;
}

static void print_instructions(const struct file *file, const struct probe_result *result) {
	for (size_t i = 0; i < result->n_instructions; i++) {
		const struct probe_instruction *one = &result->instructions[i];

		fprintf(stderr, "%u %.*s %.*s:%u %.*s\n", one->index,
			(int)one->function->name.length, file->text + one->function->name.offset,
			(int)one->file.length, file->text + one->file.offset, one->line,
			(int)one->text.length, file->text + one->text.offset);
	}
}

/* Probes the matching functions and writes the new text. */
static int probe_module(struct file *file, const struct request *request) {
	size_t count = 0, sites = 0, probed = 0, length, n = file->module.function_count;
	struct probe_function *functions = calloc(n + 1, sizeof(*functions));
	struct probe_use *uses = calloc(n * request->use_count + 1, sizeof(*uses));
	struct probe_result result = { 0 };
	struct ptx_error error = { 0 };
	struct ptx_edit *edit = NULL;
	char *out = NULL;
	int r;

	r = functions && uses ? ptx_edit_new(&edit, file->text, file->length) : -ENOMEM;
	for (size_t i = 0; i < n && !r; i++) {
		const struct ptx_function *function = &file->module.functions[i];
		const char *glob = function->entry ? request->kernels : request->devices;

		if (!glob || !function->body.length || !name_matches(file, function, glob))
			continue;
		functions[count] =
			(struct probe_function){ function, uses + count * request->use_count,
						 request->use_count };
		memcpy(functions[count].uses, request->uses, request->use_count * sizeof(*uses));
		count++;
	}
	if (!r)
		r = probe_apply(edit, &file->module, &request->options, request->programs,
				request->program_count, functions, count, &result, &error);
	if (!r)
		r = ptx_edit_apply(edit, &out, &length);
	if (r) {
		report(file->path, r, &error);
	} else {
		for (size_t i = 0; i < count; i++) {
			size_t before = sites;

			for (uint32_t j = 0; j < request->use_count; j++)
				sites += functions[i].uses[j].sites;
			probed += functions[i].function->entry && sites > before;
		}
		r = write_file(request->to, out, length);
		if (!r)
			fprintf(stderr, "%zu kernels probed at %zu sites\n", probed, sites);
		if (!r && request->instructions)
			print_instructions(file, &result);
	}
	free(result.instructions);
	free(out);
	ptx_edit_free(edit);
	free(uses);
	free(functions);
	return !!r;
}

/* entry, return, memory, line:FILE:N, block:N */
static bool read_point(struct request *request, char *word) {
	struct probe_use use = { .spaces = POINT_SPACES_DEFAULT };
	char *colon = strrchr(word, ':'), *end;
	unsigned long number;

	if (!request->program_count || request->use_count == USES_MAX)
		return false;
	use.program = request->program_count - 1;
	if (!strcmp(word, "entry")) {
		use.point = POINT_ENTRY;
	} else if (!strcmp(word, "return")) {
		use.point = POINT_RETURN;
	} else if (!strcmp(word, "memory")) {
		use.point = POINT_MEMORY;
	} else if (colon && colon[1]) {
		number = strtoul(colon + 1, &end, 10);
		if (*end || number > UINT32_MAX)
			return false;
		*colon = '\0';
		if (!strcmp(word, "block")) {
			use.point = POINT_BLOCK;
			use.block = (uint32_t)number;
		} else if (!strncmp(word, "line:", 5)) {
			use.point = POINT_LINE;
			use.file = word + 5;
			use.line = (uint32_t)number;
		} else {
			return false;
		}
	} else {
		return false;
	}
	request->uses[request->use_count++] = use;
	return true;
}

static bool read_context(struct request *request, const char *list) {
	struct probe_program *program;
	uint16_t *context;
	char *end;

	if (!request->program_count)
		return false;
	program = &request->programs[request->program_count - 1];
	context = request->contexts[request->program_count - 1];
	program->context = context;
	for (program->context_count = 0; *list && program->context_count < CONTEXT_MAX;
	     list = end + (*end == ',')) {
		context[program->context_count++] = (uint16_t)strtoul(list, &end, 10);
		if (end == list)
			return false;
	}
	return !*list;
}

/* Takes one option; false: wrong usage, or a program that cannot be read. */
static bool read_option(struct request *request, int option) {
	switch (option) {
	case 'p':
		if (request->program_count == PROGRAMS_MAX ||
		    read_probe(optarg, &request->programs[request->program_count],
			       &request->buffers[request->program_count]))
			return false;
		request->program_count++;
		return true;
	case 'c':
		return read_context(request, optarg);
	case 'P':
		return read_point(request, optarg);
	case 's':
		if (request->use_count)
			request->uses[request->use_count - 1].spaces =
				(uint32_t)strtoul(optarg, NULL, 0);
		return request->use_count;
	case 'k':
		request->kernels = optarg;
		return true;
	case 'd':
		request->devices = optarg;
		return true;
	case 'S':
		if (request->options.n_stubs < USES_MAX)
			request->stubs[request->options.n_stubs++] = optarg;
		return true;
	case 'I':
		request->options.image = (uint32_t)strtoul(optarg, NULL, 0);
		return true;
	case 'C':
		request->options.call = true;
		return true;
	case 'l':
		request->instructions = true;
		return true;
	case 'o':
		request->to = optarg;
		return true;
	}
	return false;
}

static int probe(int argc, char **argv) {
	static const struct option options[] = {
		{ "probe", required_argument, NULL, 'p' },
		{ "context", required_argument, NULL, 'c' },
		{ "point", required_argument, NULL, 'P' },
		{ "spaces", required_argument, NULL, 's' },
		{ "kernel", required_argument, NULL, 'k' },
		{ "device", required_argument, NULL, 'd' },
		{ "stub", required_argument, NULL, 'S' },
		{ "image", required_argument, NULL, 'I' },
		{ "call", no_argument, NULL, 'C' },
		{ "instructions", no_argument, NULL, 'l' },
		{ "output", required_argument, NULL, 'o' },
		{ 0 },
	};
	struct request request = { .kernels = "*" };
	struct file file;
	bool good = true;
	int option, r = 2;

	request.options.stubs = request.stubs;
	while (good && (option = getopt_long(argc, argv, "o:", options, NULL)) >= 0)
		good = read_option(&request, option);
	if (!good || optind + 1 != argc || !request.program_count || !request.to) {
		fputs(usage, stderr);
	} else {
		char entry[] = "entry";

		if (!request.use_count)
			read_point(&request, entry);
		r = open_module(&file, argv[optind]);
		if (!r) {
			r = probe_module(&file, &request);
			close_module(&file);
		}
	}
	for (uint32_t i = 0; i < request.program_count; i++) {
		free((char *)(uintptr_t)request.programs[i].symbol);
		free(request.buffers[i]);
	}
	return r;
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = {
		{ "parse", parse },           { "roundtrip", roundtrip }, { "list", list },
		{ "statements", statements }, { "probe", probe },
	};

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (argc >= 3 && !strcmp(argv[1], commands[i].name) &&
		    (argc == 3 || commands[i].run == probe))
			return commands[i].run(argc - 1, argv + 1);
	fputs(usage, stderr);
	return 2;
}
