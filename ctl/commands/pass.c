/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands pass list and pass test. `pass test` needs no daemon: it runs the passes itself, one
 * by one, each on its file as it is. The daemon's pass worker does the same, but in a sandbox.
 * Passes that are built in are run by their executables.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "ctl/base/ctl.h"
#include "lib/json.h"
#include "lib/pass/pass-run.h"
#include "lib/ptx/ptx-module.h"
#include "proto/point.h"
#include "lib/varlink/varlink-json.h"

static const char help[] =
	"Usage: gpuprobectl pass list\n"
	"       gpuprobectl pass test [OPTION]... FILE\n"
	"\n"
	"list shows the passes that the daemon runs, in their order. test runs each pass on a file "
	"with PTX, here and without a daemon, and\n"
	"says for each: ok (it changes nothing), changed, or failed, and why.\n"
	"\n"
	"      --pass=NAME      only this pass\n"
	"      --kernel=KERNEL  the kernel that it is to work on, as PTX names it; else the first "
	"one in the file\n"
	"      --pass-dir=DIR   definitions of passes, instead of " PASS_DATA_FOLDER " and\n"
	"                       " PASS_SYSTEM_FOLDER " (also: " PASS_VARIABLE "=DIR)\n";

/* ---- list ---- */

static json_object *points_text(json_object *pass, const char *key) {
	json_object *strings = json_member(pass, key), *excluded = json_member(pass, "exclude"),
		    *value;
	char *text = NULL;
	size_t n_text;
	FILE *stream = open_memstream(&text, &n_text);

	for (size_t i = 0; stream && i < json_object_array_length(strings); i++)
		fprintf(stream, "%s%s", i ? " " : "",
			json_object_get_string(json_object_array_get_idx(strings, i)));
	for (size_t i = 0; stream && i < json_object_array_length(excluded); i++)
		fprintf(stream, " !%s",
			json_object_get_string(json_object_array_get_idx(excluded, i)));
	if (stream)
		fclose(stream);
	value = json_object_new_string(text ? text : "");
	free(text);
	return value;
}

static json_object *executable_text(json_object *pass, const char *key) {
	const char *executable = ctl_string(pass, key);

	return json_object_new_string(*executable ? executable : "built in");
}

static void print_passes(json_object *parameters) {
	static const struct ctl_column columns[] = {
		{ "ORDER", "order" },
		{ "NAME", "name" },
		{ "POINTS", "include", points_text },
		{ "EXECUTABLE", "executable", executable_text },
		{ "DESCRIPTION", "description" },
		{},
	};

	ctl_print_columns(columns, json_member(parameters, "passes"), INT64_MAX);
}

static int list(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, help, "ListPasses", &reply);
	if (r >= 0)
		return r;
	print_passes(reply.parameters);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

/* ---- test ---- */

/* What a test goes by. */
struct trial {
	struct ctl *ctl;
	char *text; /* owned, NUL-terminated */
	size_t length;
	char kernel[4096];
	json_object *results;
	unsigned int failed;
};

/* All of a file. CTL_OK or an exit status. */
static int read_text(struct trial *trial, const char *path) {
	const int r =
		file_load_path(AT_FDCWD, path, true, PTX_SOURCE_MAX, &trial->text, &trial->length);

	if (r == -ENOTSUP || r == -EFBIG)
		return ctl_fail(CTL_ERROR, "%s: not a file of at most %u MiB", path,
				PTX_SOURCE_MAX >> 20);
	return r ? ctl_fail_open(path, -r, false) : CTL_OK;
}

/* The file has to be PTX, and to have the kernel that is named; else its first one is meant. */
static int read_kernel(struct trial *trial, const char *path, const char *kernel) {
	const struct ptx_function *first = NULL;
	struct ptx_error error = {};
	struct ptx_module module;
	int r;

	r = ptx_module_parse(&module, trial->text, trial->length, &error);
	if (r > 0)
		return ctl_fail(CTL_ERROR, "%s: line %u: %s", path, error.line, error.message);
	if (r < 0)
		return ctl_fail(CTL_ERROR, "%s: %s", path, strerror(-r));
	do
		first = ptx_module_next_kernel(&module, first);
	while (first && (!first->body.length ||
			 (kernel && !ptx_range_is(trial->text, first->name, kernel))));
	if (first)
		snprintf(trial->kernel, sizeof(trial->kernel), "%.*s", (int)first->name.length,
			 trial->text + first->name.offset);
	if (!first)
		r = kernel ? ctl_fail(CTL_NOT_FOUND, "%s: it has no kernel %s", path, kernel)
			   : ctl_fail(CTL_ERROR, "%s: it has no kernel", path);
	ptx_module_deinit(&module);
	return r;
}

/* The executable of a pass that is built in: where it is installed, or where meson builds it. */
static bool find_builtin(char path[static PATH_MAX], const char *name) {
	char self[PATH_MAX];
	static const char *const folders[] = { "../libexec/gpuprobe", "../daemon/worker/ptxpass" };
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (snprintf(path, PATH_MAX, "%s/%s/ptxpass_%s", self, folders[i], name) <
			    PATH_MAX &&
		    access(path, X_OK) == 0)
			return true;
	return false;
}

/* The first attach point of the kernel that the pass means: by kind, in this order. */
static bool choose_point(const struct pass_definition *definition, const char *kernel, char *point,
			 size_t size) {
	for (size_t i = POINT_ENTRY; i <= POINT_MEMORY; i++) {
		snprintf(point, size, "%s/%s", point_table[i].section, kernel);
		if (pass_definition_means(definition, point))
			return true;
	}
	return false;
}

static void add_result(struct trial *trial, const struct pass_definition *definition,
		       const char *point, const char *result, int status, const char *reason) {
	json_object *object = json_object_new_object();

	json_add_string(object, "pass", definition->name);
	json_add_string(object, "attach_point", point);
	json_add_string(object, "result", result);
	if (status >= 0)
		json_add_int(object, "exit_status", status);
	json_add_text(object, "reason", reason); /* also what the pass wrote */
	json_append(trial->results, object);
	trial->failed += !strcmp(result, "failed");
}

/* Runs one pass and remembers what came of it. */
static int try_pass(struct trial *trial, const struct pass_definition *definition) {
	char error[PASS_ERROR_SIZE] = "", path[PATH_MAX], point[sizeof(trial->kernel) + 16];
	struct pass_run run = {
		.executable = definition->executable,
		.attach_point = point,
		.ptx = trial->text,
		.ptx_length = trial->length,
		.kernel = trial->kernel,
		.parameters = definition->executable ? definition->parameters : NULL,
		.required_symbols = &definition->required_symbols,
		.max_output_bytes = definition->max_output_bytes,
		.timeout_ms = definition->timeout_ms,
		.memory_mib = definition->memory_mib,
	};
	struct pass_output output;
	int r;

	if (!choose_point(definition, trial->kernel, point, sizeof(point))) {
		add_result(trial, definition, "", "ok", -1, "not meant for this kernel");
		return CTL_OK;
	}
	if (!run.executable) {
		if (!find_builtin(path, definition->name)) {
			add_result(trial, definition, point, "failed", -1,
				   "its executable is not installed");
			return CTL_OK;
		}
		run.executable = path;
	}
	r = pass_run(&run, &output, error);
	if (r < 0)
		return ctl_fail(CTL_ERROR, "pass %s: %s", definition->name, strerror(-r));
	add_result(trial, definition, point,
		   r            ? "failed"
		   : output.ptx ? "changed"
				: "ok",
		   output.status, error);
	free(output.ptx);
	return CTL_OK;
}

static void print_results(const struct trial *trial) {
	static const struct ctl_column columns[] = {
		{ "PASS", "pass", ctl_cell_or_dash },
		{ "POINT", "attach_point", ctl_cell_or_dash },
		{ "RESULT", "result", ctl_cell_or_dash },
		{ "EXIT", "exit_status", ctl_cell_or_dash },
		{ "REASON", "reason" },
		{},
	};

	ctl_print_columns(columns, trial->results, INT64_MAX);
}

static void complain(const char *line, void *userdata) {
	ctl_fail(CTL_ERROR, "pass left out: %s", line);
}

/* Tries all passes that are meant. Returns the exit status. */
static int try_passes(struct trial *trial, const char *folder, const char *only) {
	const char *folders[2];
	struct pass_set set;
	int r;

	r = pass_set_load(&set, folders, pass_folders(folder, PASS_DATA_FOLDER, folders), complain,
			  NULL);
	if (r < 0)
		return ctl_fail(CTL_ERROR, "passes: %s", strerror(-r));
	r = only && !pass_set_find(&set, only)
		    ? ctl_fail(CTL_NOT_FOUND, "there is no pass %s", only)
		    : CTL_OK;
	trial->results = json_object_new_array();
	for (size_t i = 0; r == CTL_OK && i < set.n; i++)
		if (!only || !strcmp(set.definitions[i]->name, only))
			r = try_pass(trial, set.definitions[i]);
	pass_set_deinit(&set);
	if (r == CTL_OK && trial->ctl->json)
		ctl_print_json(trial->ctl, trial->results);
	else if (r == CTL_OK)
		print_results(trial);
	json_object_put(trial->results);
	return r == CTL_OK && trial->failed ? CTL_ERROR : r;
}

static int test(struct ctl *ctl, int argc, char **argv) {
	const char *pass = NULL, *kernel = NULL, *folder = NULL;
	const struct ctl_option options[] = {
		{ "pass", .value = CTL_TEXT, .text = &pass },
		{ "kernel", .value = CTL_TEXT, .text = &kernel },
		{ "pass-dir", .value = CTL_TEXT, .text = &folder },
		{},
	};
	struct ctl_command_line line = { .help = help, .options = options, .arguments = CTL_ANY };
	struct trial trial = { .ctl = ctl };
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	if (optind + 1 != argc)
		return ctl_usage("pass test takes one file");
	r = read_text(&trial, argv[optind]);
	if (r == CTL_OK)
		r = read_kernel(&trial, argv[optind], kernel);
	if (r == CTL_OK)
		r = try_passes(&trial, folder, pass);
	free(trial.text);
	return r;
}

int command_pass(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = {
		{ "list", list },
		{ "test", test },
		{},
	};

	return ctl_verb(ctl, argc, argv, help, verbs);
}
