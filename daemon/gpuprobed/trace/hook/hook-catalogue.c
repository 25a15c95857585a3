/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the catalogue of hooks (hook.h): hooks.d/nvidia.json, which is compiled in, and files of
 * the same form. A file is accepted as a whole or not at all, so that a mistake in it is noticed.
 */

#include "hook-spec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/file.h"

#include "hooks-nvidia.h"
#include "lib/json.h"

#define HOOKS_MAX 256 /* of one file */
#define FILES_MAX 64
#define ALTERNATIVES_MAX 16

/* One file: where it is read, and what is wrong with it. */
struct reader {
	const char *file;
	const char *hook; /* that it is at, or NULL */
	char error[HOOK_ERROR_SIZE + 300];
};

static int __attribute__((format(printf, 2, 3))) wrong(struct reader *reader, const char *format,
						       ...) {
	char line[HOOK_ERROR_SIZE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	snprintf(reader->error, sizeof(reader->error), "%.200s: %s%.40s%s%s", reader->file,
		 reader->hook ? "hook " : "", reader->hook ? reader->hook : "",
		 reader->hook ? ": " : "", line);
	return 1;
}

/* Only members that are known: a misspelt one is no silent no-op. */
static int check_members(struct reader *reader, json_object *object, const char *what,
			 const char *const *names) {
	if (!json_object_is_type(object, json_type_object))
		return wrong(reader, "%s is not an object", what);
	json_object_object_foreach(object, name, value) {
		size_t i = 0;

		(void)value;
		while (names[i] && strcmp(names[i], name))
			i++;
		if (!names[i])
			return wrong(reader, "%s: there is no member %.40s", what, name);
	}
	return 0;
}

/* A member of type string, or NULL if it is not there. It is wrong if it is something else, or
 * empty: reader->error says so, unless something else was wrong before. */
static const char *get_text(struct reader *reader, json_object *object, const char *name) {
	const char *text = json_string_of(object, name);

	if (json_has(object, name) && (!text || !*text) && !*reader->error)
		wrong(reader, "%s is not a text", name);
	return text;
}

static int copy_text(struct reader *reader, char *to, size_t size, const char *what,
		     const char *text) {
	if (strlen(text) >= size)
		return wrong(reader, "%s: %.40s is too long", what, text);
	strcpy(to, text);
	return 0;
}

/* "group:name" */
static int split(struct reader *reader, const char *text, char **placep, char **namep) {
	const char *colon = strchr(text, ':');

	if (!colon || colon == text || !colon[1] || strchr(colon + 1, ':') || strchr(text, '/'))
		return wrong(reader, "tracepoint: %.80s is not GROUP:NAME", text);
	*placep = strndup(text, (size_t)(colon - text));
	*namep = strdup(colon + 1);
	return *placep && *namep ? 0 : -ENOMEM;
}

static int read_argument(struct reader *reader, json_object *object,
			 struct hook_alternative *alternative) {
	static const char *const members[] = { "name", "source", "type", NULL };
	struct hook_argument *argument = &alternative->arguments[alternative->n_arguments];
	const char *name, *source, *type;

	if (alternative->n_arguments == HOOK_WORDS_MAX)
		return wrong(reader, "more than %d arguments", HOOK_WORDS_MAX);
	if (check_members(reader, object, "argument", members))
		return 1;
	name = get_text(reader, object, "name");
	source = get_text(reader, object, "source");
	type = get_text(reader, object, "type");
	if (*reader->error)
		return 1;
	if (!name || !source || !type)
		return wrong(reader, "an argument has name, source and type");
	if (copy_text(reader, argument->name, sizeof(argument->name), "argument", name))
		return 1;
	argument->type = hook_type_find(type, strlen(type));
	if (!argument->type || !argument->type->size)
		return wrong(reader, "argument %s: there is no type %.40s", name, type);
	alternative->n_arguments++;
	if (alternative->kind == HOOK_TRACEPOINT)
		return copy_text(reader, argument->field, sizeof(argument->field), "source",
				 source);
	if (!hook_source_parse(argument, source, strlen(source)))
		return wrong(reader,
			     "argument %s: %.80s is not arg0 to arg%d, argN+OFFSET, or "
			     "argN->STRUCT.MEMBER",
			     name, source, HOOK_ARGUMENTS_MAX - 1);
	return 0;
}

/* Members that only tracepoints have. */
static int read_tracepoint(struct reader *reader, json_object *object,
			   struct hook_alternative *alternative) {
	static const char *const members[] = { "field", "value", NULL };
	const char *until = get_text(reader, object, "until"),
		   *returned = get_text(reader, object, "returned"), *field, *value;
	json_object *match;
	int r = *reader->error != '\0';

	if (!r && (match = json_member(object, "match"))) {
		if (check_members(reader, match, "match", members))
			return 1;
		field = get_text(reader, match, "field");
		value = get_text(reader, match, "value");
		if (!*reader->error && (!field || !value))
			wrong(reader, "match has field and value");
		r = *reader->error != '\0';
		r = r ? r
		      : copy_text(reader, alternative->match_field,
				  sizeof(alternative->match_field), "match", field);
		r = r ? r
		      : copy_text(reader, alternative->match, sizeof(alternative->match), "match",
				  value);
		if (!r &&
		    (!alternative->n_arguments || strcmp(alternative->arguments[0].field, field) ||
		     !(alternative->arguments[0].type->flags & HOOK_WORD_TEXT)))
			r = wrong(reader,
				  "match: the first argument is to be field %s, of type str",
				  field);
	}
	if (r)
		return r;
	if (until) {
		r = split(reader, until, &alternative->until_place, &alternative->until_name);
		alternative->span = true;
	} else if (alternative->result || returned) {
		r = wrong(reader, "a tracepoint has a result only where it has `until`");
	}
	if (!r && returned)
		r = copy_text(reader, alternative->returned, sizeof(alternative->returned),
			      "returned", returned);
	return r;
}

static int read_versions(struct reader *reader, json_object *object,
			 struct hook_alternative *alternative) {
	const char *from = get_text(reader, object, "from"), *to = get_text(reader, object, "to");

	if (*reader->error)
		return 1;
	if (from && !hook_version_parse(alternative->from, from))
		return wrong(reader, "from: %.40s is not a version, as 580.159.04", from);
	if (to && !hook_version_parse(alternative->to, to))
		return wrong(reader, "to: %.40s is not a version, as 580.159.04", to);
	return 0;
}

/* What hook.bpf.c gives of system calls, in this order. */
static void set_syscall(struct hook_alternative *alternative) {
	static const struct {
		const char *call, *result;
		struct {
			const char *name, *type;
		} arguments[5];
	} calls[] = {
		{ "open", "s32", { { "path", "str" }, { "flags", "u32" } } },
		{ "close", "s32", { { "fd", "s32" }, { "device", "u8" }, { "minor", "u8" } } },
		{ "mmap",
		  "hex",
		  { { "fd", "s32" },
		    { "device", "u8" },
		    { "minor", "u8" },
		    { "length", "u64" },
		    { "offset", "hex" } } },
		{ "ioctl", "s32", {} },
	};
	size_t i = 0, n;

	while (strcmp(calls[i].call, alternative->name))
		i++;
	for (n = 0; n < 5 && calls[i].arguments[n].name; n++) {
		strcpy(alternative->arguments[n].name, calls[i].arguments[n].name);
		alternative->arguments[n].type = hook_type_find(calls[i].arguments[n].type,
								strlen(calls[i].arguments[n].type));
		alternative->arguments[n].index = (uint8_t)n;
	}
	alternative->n_arguments = n;
	alternative->result = hook_type_find(calls[i].result, strlen(calls[i].result));
	alternative->span = true;
}

/* Which kind it is, and where. */
static int read_place(struct reader *reader, json_object *object,
		      struct hook_alternative *alternative) {
	const char *module = get_text(reader, object, "module"),
		   *function = get_text(reader, object, "function"),
		   *tracepoint = get_text(reader, object, "tracepoint"),
		   *syscall = get_text(reader, object, "syscall"),
		   *raw = get_text(reader, object, "raw");

	if (*reader->error)
		return 1;
	if (!module != !function || !!function + !!tracepoint + !!syscall + !!raw != 1)
		return wrong(reader,
			     "an alternative has module and function, or tracepoint, or syscall");
	if (tracepoint) {
		alternative->kind = HOOK_TRACEPOINT;
		return split(reader, tracepoint, &alternative->place, &alternative->name);
	}
	if (syscall && strcmp(syscall, "ioctl") && strcmp(syscall, "open") &&
	    strcmp(syscall, "close") && strcmp(syscall, "mmap"))
		return wrong(reader, "syscall is one of ioctl, open, close, mmap");
	alternative->kind = function ? HOOK_FUNCTION : syscall ? HOOK_SYSCALL : HOOK_RAW;
	alternative->place = module ? strdup(module) : NULL;
	alternative->name = strdup(function ? function : syscall ? syscall : raw);
	return alternative->name && (!module || alternative->place) ? 0 : -ENOMEM;
}

static int read_alternative(struct reader *reader, json_object *object, struct hook *hook) {
	static const char *const members[] = { "module", "function", "tracepoint", "syscall",
					       "raw",    "from",     "to",         "arguments",
					       "return", "until",    "returned",   "match",
					       NULL };
	struct hook_alternative *alternative = &hook->alternatives[hook->n_alternatives++];
	json_object *arguments;
	const char *result;
	int r;

	r = check_members(reader, object, "alternative", members);
	r = r ? r : read_place(reader, object, alternative);
	r = r ? r : read_versions(reader, object, alternative);
	if (r)
		return r;
	result = get_text(reader, object, "return");
	if (*reader->error)
		return 1;
	if (result) {
		alternative->result = hook_type_find(result, strlen(result));
		if (!alternative->result || alternative->result->flags & HOOK_WORD_TEXT)
			return wrong(reader, "return: %.40s is not a type of a result", result);
		alternative->span = true;
	}
	if (json_has(object, "arguments")) {
		if (!json_get_array(object, "arguments", SIZE_MAX, &arguments))
			return wrong(reader, "arguments is not an array");
		for (size_t i = 0; !r && i < json_object_array_length(arguments); i++)
			r = read_argument(reader, json_object_array_get_idx(arguments, i),
					  alternative);
	}
	if (!r && alternative->kind == HOOK_SYSCALL)
		set_syscall(alternative);
	if (!r && alternative->kind == HOOK_TRACEPOINT)
		r = read_tracepoint(reader, object, alternative);
	return r;
}

static int read_texts(struct reader *reader, json_object *object, struct hook *hook) {
	const char *name = get_text(reader, object, "name"), *set, *purpose, *process;

	reader->hook = name;
	set = get_text(reader, object, "set");
	purpose = get_text(reader, object, "purpose");
	process = get_text(reader, object, "process");
	if (*reader->error)
		return 1;
	if (!name || !set || !purpose)
		return wrong(reader, "a hook has name, set, purpose and alternatives");
	if (strpbrk(name, " !(,") || strpbrk(set, " !(,"))
		return wrong(reader, "names and sets have no blanks, and none of !(,");
	if (strlen(name) > 64 || strlen(set) > 32 || strlen(purpose) > 200)
		return wrong(reader, "name, set or purpose is too long");
	if (process && !strcmp(process, "any"))
		hook->process = HOOK_PROCESS_ANY;
	else if (process && !strcmp(process, "none"))
		hook->process = HOOK_PROCESS_NONE;
	else if (process)
		return wrong(reader, "process is any or none");
	hook->name = strdup(name);
	hook->set = strdup(set);
	hook->purpose = strdup(purpose);
	return hook->name && hook->set && hook->purpose ? 0 : -ENOMEM;
}

static int read_hook(struct reader *reader, json_object *object, struct hook **hookp) {
	static const char *const members[] = { "name",    "set",          "purpose",
					       "process", "alternatives", NULL };
	json_object *alternatives;
	struct hook *hook;
	size_t n;
	int r;

	hook = calloc(1, sizeof(*hook));
	if (!hook)
		return -ENOMEM;
	*hookp = hook; /* freed with the catalogue, whatever happens */
	r = check_members(reader, object, "hook", members);
	r = r ? r : read_texts(reader, object, hook);
	if (r)
		return r;
	if (!json_get_array(object, "alternatives", ALTERNATIVES_MAX, &alternatives) ||
	    !json_object_array_length(alternatives))
		return wrong(reader, "alternatives is not an array of 1 to %d", ALTERNATIVES_MAX);
	n = json_object_array_length(alternatives);
	hook->alternatives = calloc(n, sizeof(*hook->alternatives));
	if (!hook->alternatives)
		return -ENOMEM;
	for (size_t i = 0; !r && i < n; i++)
		r = read_alternative(reader, json_object_array_get_idx(alternatives, i), hook);
	return r;
}

void hook_catalogue_deinit(struct hook_catalogue *catalogue) {
	for (size_t i = 0; i < catalogue->n; i++)
		hook_free(catalogue->hooks[i]);
	free(catalogue->hooks);
	catalogue->hooks = NULL;
	catalogue->n = 0;
}

static int read_hooks(struct reader *reader, json_object *root, struct hook_catalogue *file) {
	static const char *const members[] = { "version", "hooks", NULL };
	json_object *hooks;
	size_t n;
	int r;

	r = check_members(reader, root, "the file", members);
	if (r)
		return r;
	if (json_int_of(root, "version") != 1)
		return wrong(reader, "version is not 1");
	if (!json_get_array(root, "hooks", HOOKS_MAX, &hooks))
		return wrong(reader, "hooks is not an array of at most %d", HOOKS_MAX);
	n = json_object_array_length(hooks);
	file->hooks = calloc(n ? n : 1, sizeof(*file->hooks));
	if (!file->hooks)
		return -ENOMEM;
	for (file->n = 0; !r && file->n < n; file->n++) {
		reader->hook = NULL;
		r = read_hook(reader, json_object_array_get_idx(hooks, file->n),
			      &file->hooks[file->n]);
	}
	return r;
}

/* Hooks of a file replace those of the same name. */
static int merge(struct hook_catalogue *catalogue, struct hook_catalogue *file) {
	struct hook **hooks =
		reallocarray(catalogue->hooks, catalogue->n + file->n + 1, sizeof(*hooks));

	if (!hooks)
		return -ENOMEM;
	catalogue->hooks = hooks;
	for (size_t i = 0; i < file->n; i++) {
		size_t k = 0;

		while (k < catalogue->n && strcmp(hooks[k]->name, file->hooks[i]->name))
			k++;
		if (k == catalogue->n)
			catalogue->n++;
		else
			hook_free(hooks[k]);
		hooks[k] = file->hooks[i];
		file->hooks[i] = NULL;
	}
	return 0;
}

/* Takes a file's text. 0, also where it is bad, which is told; or -ENOMEM. */
static int take_text(struct hook_catalogue *catalogue, const char *name, const char *text, size_t n,
		     hook_complain_fn complain, void *userdata) {
	json_tokener *tokener = json_tokener_new();
	struct reader reader = { .file = name };
	struct hook_catalogue file = {};
	json_object *root;
	int r;

	if (!tokener)
		return -ENOMEM;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	root = json_tokener_parse_ex(tokener, text, (int)n + 1);
	if (!root || json_tokener_get_error(tokener) != json_tokener_success)
		r = wrong(&reader, "byte %zu: %s", json_tokener_get_parse_end(tokener),
			  json_tokener_error_desc(json_tokener_get_error(tokener)));
	else
		r = read_hooks(&reader, root, &file);
	if (!r)
		r = merge(catalogue, &file);
	if (r > 0) {
		if (complain)
			complain(reader.error, userdata);
		r = 0;
	}
	hook_catalogue_deinit(&file);
	json_object_put(root);
	json_tokener_free(tokener);
	return r;
}

static int is_file(const struct dirent *entry) {
	size_t n = strlen(entry->d_name);

	return *entry->d_name != '.' && n > 5 && !strcmp(entry->d_name + n - 5, ".json");
}

/* Our own. Not strndup(3): clang 19 makes strdup(3) of it, although no NUL is behind the bytes. */
static char *own_text(void) {
	char *text = malloc(sizeof(hooks_nvidia) + 1);

	if (text) {
		memcpy(text, hooks_nvidia, sizeof(hooks_nvidia));
		text[sizeof(hooks_nvidia)] = '\0';
	}
	return text;
}

int hook_catalogue_read(struct hook_catalogue *catalogue, const char *folder,
			hook_complain_fn complain, void *userdata) {
	char *text = own_text(), path[512], line[1024];
	struct dirent **entries;
	int r, n, fd;

	catalogue->hooks = NULL;
	catalogue->n = 0;
	r = text ? take_text(catalogue, "the catalogue", text, sizeof(hooks_nvidia), complain,
			     userdata)
		 : -ENOMEM;
	free(text);
	if (r < 0)
		return r;
	folder = folder ? folder : HOOK_FOLDER;
	n = scandir(folder, &entries, is_file, alphasort);
	if (n < 0) {
		if (errno != ENOENT && complain) {
			snprintf(line, sizeof(line), "%.300s: %s", folder, strerror(errno));
			complain(line, userdata);
		}
		return 0;
	}
	fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < n; i++) {
		const char *error = "too many files";
		size_t size;
		int loaded;

		snprintf(path, sizeof(path), "%.250s/%.250s", folder, entries[i]->d_name);
		text = NULL;
		if (i < FILES_MAX) {
			loaded = file_load_path(fd, entries[i]->d_name, true, HOOK_FILE_MAX, &text,
						&size);
			error = loaded == -ENOTSUP || loaded == -EFBIG
					? "not a file of at most 1 MiB"
					: strerror(-loaded);
		}
		if (text && !r) {
			r = take_text(catalogue, path, text, size, complain, userdata);
		} else if (!text && complain) {
			snprintf(line, sizeof(line), "%s: %s", path, error);
			complain(line, userdata);
		}
		free(text);
		free(entries[i]);
	}
	free(entries);
	if (fd >= 0)
		close(fd);
	if (r < 0)
		hook_catalogue_deinit(catalogue);
	return r;
}
