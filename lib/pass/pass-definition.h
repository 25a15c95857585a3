/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Definitions of passes: JSON files (proto/pass.schema.json) in several folders. A file in a later
 * folder overrides files of the same name in earlier ones; an empty file hides them. Used by the
 * daemon, by gpuprobectl and by the pass executables.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	_PASS_SUCCESS,
	PASS_E_INVALID, /* no definition: `error` says what is wrong with it */
};

#define PASS_ERROR_SIZE 512
#define PASS_VARIABLE "GPUPROBE_PTXPASS_DIR" /* a folder that stands for all */
#define PASS_SYSTEM_FOLDER "/etc/gpuprobe/passes.d"

/* What a definition is about; the points of job.md: entry, line and block are kprobes. */
enum pass_attach_type {
	PASS_ATTACH_ANY,
	PASS_ATTACH_KPROBE,
	PASS_ATTACH_KRETPROBE,
	PASS_ATTACH_MEMCAPTURE,
};
/* As definitions name them: those of a kind of section (proto/point.h), or all. */
static const char *const pass_attach_types[] = { "any", "kprobe", "kretprobe", "memcapture" };

struct pass_strings {
	char **strings; /* owned */
	size_t n;
};

struct pass_definition {
	char *name;
	char *description; /* "" if there is none */
	char *file; /* "" if built in */
	char *executable; /* absolute; NULL: built in */
	struct pass_strings include, exclude; /* globs of attach points: kprobe/vector* */
	enum pass_attach_type attach_type;
	int64_t order;
	json_object *parameters; /* an object, or NULL */
	/* validation */
	uint64_t max_output_bytes;
	struct pass_strings required_symbols; /* that the output has to define */
	/* limits of an executable */
	unsigned int timeout_ms;
	unsigned int memory_mib;
};

/*
 * Reads one. `file` names it, for messages and for a relative `executable`; NULL: it is built in.
 * 0, PASS_E_INVALID with one line in error, or -ENOMEM.
 */
int pass_definition_parse(struct pass_definition **definitionp, const char *text, size_t length,
			  const char *file, char error[static PASS_ERROR_SIZE]);
/* As above from a file; what cannot be read is invalid. With `trusted` it has to be root's or our
 * own, and not writable by others. */
int pass_definition_load(struct pass_definition **definitionp, const char *file, bool trusted,
			 char error[static PASS_ERROR_SIZE]);
struct pass_definition *pass_definition_free(struct pass_definition *definition);

/* The definition as JSON, all members filled in. The caller's; NULL: no memory. */
json_object *pass_definition_to_json(const struct pass_definition *definition);

/* Does it mean this attach point ("kprobe/vectorAdd")? */
bool pass_definition_means(const struct pass_definition *definition, const char *attach_point);

/* May we run this file: a regular executable file of root or our own, which others can neither
 * write nor replace? 0, PASS_E_INVALID with error, or -ENOMEM. */
int pass_executable_check(const char *path, char error[static PASS_ERROR_SIZE]);

struct pass_set {
	struct pass_definition **definitions; /* owned; in the order in which they run */
	size_t n;
	size_t n_found; /* of them from files */
};

typedef void (*pass_complain_fn)(const char *line, void *userdata);

/*
 * Loads all definitions of the folders; a folder that does not exist has none. For a bad file
 * `complain` (may be NULL) gets one line, and the file is left out. If no file defines a built-in
 * pass, the set also has the built-in ones. 0 or -ENOMEM.
 */
int pass_set_load(struct pass_set *set, const char *const *folders, size_t n_folders,
		  pass_complain_fn complain, void *userdata);
void pass_set_deinit(struct pass_set *set);

/* The pass of that name; NULL if there is none. */
const struct pass_definition *pass_set_find(const struct pass_set *set, const char *name);

/* The JSON of a pass that is built in, without a NUL; NULL for another name. */
const char *pass_builtin_text(const char *name, size_t *length);

/* The folder that is meant: explicitly, by PASS_VARIABLE, or <datadir>/gpuprobe/passes.d and
 * PASS_SYSTEM_FOLDER. 1 or 2. */
size_t pass_folders(const char *explicitly, const char *installed, const char *folders[static 2]);
