/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command build: compiles the C source of an eBPF object by the clang that is installed, and
 * checks what has come of it as far as that goes without a daemon: its structure, and the attach
 * points of its programs. It needs no daemon.
 */

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "ctl/base/object-file.h"
#include "lib/bpf/elf-check.h"
#include "lib/bpf/thread-section.h"
#include "lib/json.h"
#include "lib/pass/section.h"

static const char help[] =
	"Usage: gpuprobectl build [OPTION]... FILE.bpf.c [-- CLANG-OPTION...]\n"
	"\n"
	"Compiles an eBPF object for attach, by the clang that is installed or that the variable "
	"CLANG names, checks it, and prints its programs.\n"
	"\n"
	"  -o, --output=FILE  the object; else the name of the source with .o, in the current "
	"folder\n";

#define CLANG_NEWEST 29 /* clang-29, ... are looked for where there is no plain clang */
#define CLANG_OLDEST 14

/* Whether PATH has a program of that name; or it is a path. */
static bool is_program(const char *name) {
	const char *at = getenv("PATH") ?: "/usr/local/bin:/usr/bin:/bin";
	char path[4096];

	if (strchr(name, '/'))
		return access(name, X_OK) == 0;
	for (size_t n; *at; at += n + (at[n] == ':')) {
		n = strcspn(at, ":");
		snprintf(path, sizeof(path), "%.*s/%s", (int)n, at, name);
		if (n && access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* Returns the exit status. */
static int find_clang(char name[static 4096]) {
	const char *variable = getenv("CLANG");

	snprintf(name, 4096, "%s", variable && *variable ? variable : "clang");
	if (is_program(name))
		return CTL_OK;
	if (variable && *variable)
		return ctl_fail(CTL_NOT_FOUND, "CLANG=%s: there is no such program", variable);
	for (int version = CLANG_NEWEST; version >= CLANG_OLDEST; version--) {
		snprintf(name, 4096, "clang-%d", version);
		if (is_program(name))
			return CTL_OK;
	}
	return ctl_fail(CTL_NOT_FOUND,
			"clang, which makes eBPF of C, is not installed: apt install "
			"clang, or dnf install clang; gputrace needs none");
}

/* The option that finds gpuprobe.bpf.h. Returns the exit status. */
static int find_header(char option[static 4100]) {
	strcpy(option, "-I");
	if (!ctl_find_file(option + 2, BPF_HEADER, "../../proto/gpuprobe.bpf.h"))
		return ctl_fail(CTL_NOT_FOUND, "%s: %s; it is in the package gpuprobe-dev",
				option + 2, strerror(errno));
	*strrchr(option, '/') = '\0';
	return CTL_OK;
}

/* Where Debian and its like keep <asm/types.h>; for sources that read <linux/bpf.h> first. */
static void name_asm_folder(char path[static 128]) {
	struct utsname system;

	snprintf(path, 128, "/usr/include/%.64s-linux-gnu",
		 uname(&system) ? "x86_64" : system.machine);
}

/* The command line, from calloc(). output and source may begin with a dash. */
static char **make_command(char *clang, char *include, char *folder, const char *output,
			   const char *source, char *const *options, size_t n_options) {
	const char *before[] = { clang,   "-O2",        "-g",   "-target", "bpf",
				 include, "-idirafter", folder, "-c" };
	const char *behind[] = { "-o", output, "--", source, NULL };
	const size_t n = sizeof(before) / sizeof(*before);
	char **command = calloc(n + n_options + sizeof(behind) / sizeof(*behind), sizeof(*command));

	if (!command)
		return NULL;
	memcpy(command, before, sizeof(before));
	memcpy(command + n, options, n_options * sizeof(*options));
	memcpy(command + n + n_options, behind, sizeof(behind));
	return command;
}

/* Runs clang, whose messages are the user's to read. Returns the exit status. */
static int compile(const char *source, const char *output, char *const *options, size_t n_options) {
	char clang[4096], include[4100], folder[128], **command;
	int status = 0, r;
	pid_t pid;

	r = find_clang(clang) ?: find_header(include);
	if (r)
		return r;
	name_asm_folder(folder);
	command = make_command(clang, include, folder, output, source, options, n_options);
	if (!command)
		return ctl_fail(CTL_ERROR, "out of memory");
	ctl_flush();
	pid = fork();
	if (pid == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execvp(clang, command);
		ctl_tell("%s: %s", clang, strerror(errno));
		_exit(127);
	}
	free(command);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0)
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	return status ? ctl_fail(CTL_ERROR, "%s: %s did not compile it", source, clang) : CTL_OK;
}

/* ---- the object ---- */

static int silent(enum libbpf_print_level level, const char *format, va_list arguments) {
	return 0;
}

/* Adds the programs; says which of them have no attach point. Returns the exit status. */
static int list_programs(const char *path, const struct bpf_object *object, json_object *programs) {
	struct bpf_program *program = NULL;
	struct section *section = malloc(sizeof(*section));
	char error[SECTION_ERROR_SIZE];
	int r = section ? CTL_OK : ctl_fail(CTL_ERROR, "out of memory");

	while (section && (program = bpf_object__next_program(object, program))) {
		const char *name = bpf_program__section_name(program);
		json_object *row = json_append_object(programs);

		json_add_text(row, "program", bpf_program__name(program));
		json_add_text(row, "section", name);
		if (section_parse(section, name, NULL, error) && section->known)
			r = ctl_fail(CTL_ERROR, "%s: program %s: %s", path,
				     bpf_program__name(program), error);
	}
	free(section);
	if (!r && !json_length_of(programs))
		r = ctl_fail(CTL_ERROR, "%s: there is no program in it: SEC(\"kprobe/KERNEL\")",
			     path);
	return r;
}

/* What attach would refuse at the first look. Returns the exit status. */
static int check(const char *path, json_object *programs) {
	char error[ELF_CHECK_ERROR_SIZE];
	struct bpf_object *object = NULL;
	unsigned char *data;
	size_t n_data = 0;
	int r;

	r = object_file_read(path, &data, &n_data);
	if (r)
		return r;
	libbpf_set_print(silent);
	if (elf_check(data, n_data, error))
		r = ctl_fail(CTL_ERROR, "%s: %s", path, error);
	else if (thread_section_mark(data, n_data) > THREAD_SECTION_FOUND)
		r = ctl_fail(CTL_ERROR,
			     "%s: its section " THREAD_SECTION
			     " has variables that begin as addresses, or " THREAD_LINKED_SECTION
			     " is there, too",
			     path);
	else if (!(object = bpf_object__open_mem(data, n_data, NULL)))
		r = ctl_fail(CTL_ERROR, "%s: libbpf cannot read it: %s", path,
			     libbpf_strerror(errno, error, sizeof(error)) ? "unknown error"
									  : error);
	else
		r = list_programs(path, object, programs);
	bpf_object__close(object);
	free(data);
	return r;
}

/* counter.bpf.o of docs/counter.bpf.c. */
static int name_output(const char *source, char output[static 4096]) {
	const char *slash = strrchr(source, '/'), *name = slash ? slash + 1 : source;
	const size_t n = strlen(name);

	if (n < 3 || n > 4000 || strcmp(name + n - 2, ".c") != 0)
		return ctl_usage("build: %s is no C source, as x.bpf.c is", source);
	snprintf(output, 4096, "%.*s.o", (int)n - 2, name);
	return CTL_OK;
}

static int print_built(const struct ctl *ctl, const char *output, json_object *programs) {
	static const struct ctl_column columns[] = { { "PROGRAM", "program" },
						     { "SECTION", "section" },
						     {} };
	json_object *reply;

	if (!ctl->json) {
		ctl_print_columns(columns, programs, INT64_MAX);
		return CTL_OK;
	}
	reply = json_object_new_object();
	json_add_text(reply, "object", output);
	json_add(reply, "programs", json_object_get(programs));
	ctl_print_json(ctl, reply);
	json_object_put(reply);
	return CTL_OK;
}

int command_build(struct ctl *ctl, int argc, char **argv) {
	const char *output = NULL, *source;
	const struct ctl_option options[] = {
		{ "output", 'o', .value = CTL_TEXT, .text = &output },
		{},
	};
	struct ctl_command_line line = {
		.help = help, .options = options, .arguments = CTL_ONE, .argument = "source"
	};
	json_object *programs;
	char own[4096];
	int n = 1, r;

	while (n < argc && strcmp(argv[n], "--") != 0)
		n++;
	r = ctl_parse(ctl, n, argv, &line);
	if (r >= 0)
		return r;
	source = argv[optind];
	r = name_output(source, own);
	if (!r && access(source, R_OK))
		r = ctl_fail_open(source, errno, false);
	output = output ?: own;
	if (!r)
		r = compile(source, output, argv + n + (n < argc), (size_t)(argc - n - (n < argc)));
	if (r)
		return r;
	programs = json_object_new_array();
	r = check(output, programs) ?: print_built(ctl, output, programs);
	json_object_put(programs);
	return r;
}
