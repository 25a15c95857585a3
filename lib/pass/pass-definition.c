/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads one definition of a pass (pass-definition.h). Members that the schema does not have are
 * refused: a misspelt "exclude" would let a pass run where it is not wanted.
 */

#include "pass-definition.h"
#include "lib/base/file.h"
#include "lib/json.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (1024 * 1024)
#define STRINGS_MAX 256
#define OUTPUT_MAX (UINT64_C(256) << 20)
#define TIMEOUT_MS 1000
#define MEMORY_MIB 1024

/* Says what is wrong. Returns PASS_E_INVALID. */
__attribute__((format(printf, 2, 3))) static int invalid(char error[static PASS_ERROR_SIZE],
							 const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, PASS_ERROR_SIZE, format, arguments);
	va_end(arguments);
	for (char *c = error; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	return PASS_E_INVALID;
}

/* All of a text as one JSON object; NULL with the reason. */
static json_object *parse_object(const char *text, size_t length, const char **why) {
	struct json_tokener *tokener = json_tokener_new_ex(16);
	json_object *object = NULL;

	*why = "no memory";
	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	while (length && (text[length - 1] == '\n' || text[length - 1] == ' ' ||
			  text[length - 1] == '\t' || text[length - 1] == '\r'))
		length--;
	object = json_tokener_parse_ex(tokener, text, (int)length);
	if (json_tokener_get_error(tokener) == json_tokener_continue)
		*why = "it ends too early";
	else if (json_tokener_get_error(tokener) != json_tokener_success)
		*why = json_tokener_error_desc(json_tokener_get_error(tokener));
	else if (json_tokener_get_parse_end(tokener) != length ||
		 !json_object_is_type(object, json_type_object))
		*why = "it is not one object";
	else
		*why = NULL;
	json_tokener_free(tokener);
	if (!*why)
		return object;
	json_object_put(object);
	return NULL;
}

/* Refuses members that are not in `names`, which NULL ends. */
static int check_members(json_object *object, const char *const *names, const char *where,
			 char error[static PASS_ERROR_SIZE]) {
	json_object_object_foreach(object, key, value) {
		size_t i = 0;

		(void)value;
		while (names[i] && strcmp(names[i], key))
			i++;
		if (!names[i])
			return invalid(error, "%s%.64s: there is no such member", where, key);
	}
	return 0;
}

/* A member of a type; *memberp is NULL if it is absent. */
static int get(json_object *object, const char *key, enum json_type type, json_object **memberp,
	       char error[static PASS_ERROR_SIZE]) {
	*memberp = json_get(object, key, type);
	if (*memberp || !json_has(object, key))
		return 0;
	return invalid(error, "%s is not %s", key,
		       type == json_type_string  ? "a string"
		       : type == json_type_int   ? "an integer"
		       : type == json_type_array ? "an array"
						 : "an object");
}

static int get_string(json_object *object, const char *key, char **stringp,
		      char error[static PASS_ERROR_SIZE]) {
	json_object *member;
	int r;

	r = get(object, key, json_type_string, &member, error);
	if (r || !member)
		return r;
	if (strlen(json_object_get_string(member)) != (size_t)json_object_get_string_len(member))
		return invalid(error, "%s has a NUL in it", key);
	*stringp = strdup(json_object_get_string(member));
	return *stringp ? 0 : -ENOMEM;
}

static int get_strings(json_object *object, const char *key, struct pass_strings *strings,
		       char error[static PASS_ERROR_SIZE]) {
	json_object *array;
	int r;

	r = get(object, key, json_type_array, &array, error);
	if (r || !array)
		return r;
	if (json_object_array_length(array) > STRINGS_MAX)
		return invalid(error, "%s has more than %d members", key, STRINGS_MAX);
	strings->strings = calloc(json_object_array_length(array) + 1, sizeof(*strings->strings));
	if (!strings->strings)
		return -ENOMEM;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		json_object *member = json_object_array_get_idx(array, i);

		if (!json_object_is_type(member, json_type_string))
			return invalid(error, "%s has a member that is no string", key);
		strings->strings[i] = strdup(json_object_get_string(member));
		if (!strings->strings[i])
			return -ENOMEM;
		strings->n++;
	}
	return 0;
}

static int get_number(json_object *object, const char *key, int64_t min, int64_t max,
		      int64_t *number, char error[static PASS_ERROR_SIZE]) {
	json_object *member;
	int r;

	r = get(object, key, json_type_int, &member, error);
	if (r || !member)
		return r;
	*number = json_object_get_int64(member);
	if (*number < min || *number > max)
		return invalid(error, "%s is not from %lld to %lld", key, (long long)min,
			       (long long)max);
	return 0;
}

static int parse_attach(struct pass_definition *definition, json_object *object,
			char error[static PASS_ERROR_SIZE]) {
	static const char *const members[] = { "include", "exclude", NULL };
	json_object *points;
	char *type = NULL;
	size_t i = 0;
	int r;

	r = get_string(object, "attach_type", &type, error);
	if (r)
		return r;
	while (type && i < sizeof(pass_attach_types) / sizeof(*pass_attach_types) &&
	       strcmp(type, pass_attach_types[i]))
		i++;
	free(type);
	if (i == sizeof(pass_attach_types) / sizeof(*pass_attach_types))
		return invalid(error, "attach_type is not any, kprobe, kretprobe or memcapture");
	definition->attach_type = (enum pass_attach_type)i;
	r = get(object, "attach_points", json_type_object, &points, error);
	if (r)
		return r;
	if (!points)
		return invalid(error, "attach_points is missing");
	r = check_members(points, members, "attach_points.", error);
	if (!r)
		r = get_strings(points, "include", &definition->include, error);
	if (!r)
		r = get_strings(points, "exclude", &definition->exclude, error);
	if (!r && !definition->include.n)
		return invalid(error, "attach_points.include is missing or empty");
	return r;
}

static int parse_validation(struct pass_definition *definition, json_object *object,
			    char error[static PASS_ERROR_SIZE]) {
	static const char *const members[] = { "max_output_bytes", "required_symbols", NULL };
	json_object *validation;
	int64_t max = OUTPUT_MAX;
	int r;

	r = get(object, "validation", json_type_object, &validation, error);
	if (!r && validation)
		r = check_members(validation, members, "validation.", error);
	if (!r && validation)
		r = get_number(validation, "max_output_bytes", 1, OUTPUT_MAX, &max, error);
	if (!r && validation)
		r = get_strings(validation, "required_symbols", &definition->required_symbols,
				error);
	definition->max_output_bytes = (uint64_t)max;
	return r;
}

/* A name in the folder of a file, as an absolute path; the caller's. NULL: no memory. */
static char *name_beside(const char *file, const char *name) {
	const char *slash = strrchr(file, '/');
	char *folder =
		     slash ? strndup(file, slash > file ? (size_t)(slash - file) : 1) : strdup("."),
	     *real, *path;

	real = folder ? realpath(folder, NULL) : NULL;
	if (!folder || asprintf(&path, "%s/%s", real ? real : folder, name) < 0)
		path = NULL;
	free(real);
	free(folder);
	return path;
}

/* `executable`: relative to the folder of the definition. */
static int parse_executable(struct pass_definition *definition, json_object *object,
			    char error[static PASS_ERROR_SIZE]) {
	char *name = NULL;
	size_t length;
	int r;

	r = get_string(object, "executable", &name, error);
	if (r || !name) {
		free(name);
		if (!r && !pass_builtin_text(definition->name, &length))
			r = invalid(error, "executable is missing, and no pass %.64s is built in",
				    definition->name);
		return r;
	}
	if (!*name) {
		free(name);
		return invalid(error, "executable is empty");
	}
	if (*name == '/') {
		definition->executable = name;
		return 0;
	}
	definition->executable = name_beside(definition->file, name);
	free(name);
	return definition->executable ? 0 : -ENOMEM;
}

static int parse_members(struct pass_definition *definition, json_object *object,
			 char error[static PASS_ERROR_SIZE]) {
	static const char *const members[] = { "name",          "description", "executable",
					       "attach_points", "attach_type", "order",
					       "parameters",    "validation",  "timeout_ms",
					       "memory_mib",    "$schema",     NULL };
	int64_t timeout = TIMEOUT_MS, memory = MEMORY_MIB;
	json_object *parameters = NULL;
	int r;

	r = check_members(object, members, "", error);
	if (!r)
		r = get_string(object, "name", &definition->name, error);
	if (!r && (!definition->name || !*definition->name || strlen(definition->name) > 64 ||
		   definition->name[strspn(definition->name,
					   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					   "0123456789_-.")]))
		return invalid(error,
			       "name is missing, or not 1 to 64 letters, digits, _, - and .");
	if (!r)
		r = get_string(object, "description", &definition->description, error);
	if (!r && !definition->description) {
		definition->description = strdup("");
		r = definition->description ? 0 : -ENOMEM;
	}
	if (!r)
		r = parse_executable(definition, object, error);
	if (!r)
		r = parse_attach(definition, object, error);
	if (!r)
		r = get_number(object, "order", INT32_MIN, INT32_MAX, &definition->order, error);
	if (!r)
		r = get(object, "parameters", json_type_object, &parameters, error);
	if (!r)
		r = parse_validation(definition, object, error);
	if (!r)
		r = get_number(object, "timeout_ms", 1, 600000, &timeout, error);
	if (!r)
		r = get_number(object, "memory_mib", 1, 1 << 20, &memory, error);
	definition->parameters = json_object_get(parameters);
	definition->timeout_ms = (unsigned int)timeout;
	definition->memory_mib = (unsigned int)memory;
	return r;
}

int pass_definition_parse(struct pass_definition **definitionp, const char *text, size_t length,
			  const char *file, char error[static PASS_ERROR_SIZE]) {
	struct pass_definition *definition;
	json_object *object;
	const char *why;
	int r;

	if (length > FILE_MAX)
		return invalid(error, "it is larger than 1 MiB");
	object = parse_object(text, length, &why);
	if (!object)
		return invalid(error, "not JSON: %s", why);
	definition = calloc(1, sizeof(*definition));
	if (!definition) {
		json_object_put(object);
		return -ENOMEM;
	}
	definition->file = strdup(file ? file : "");
	definition->order = 1000;
	r = definition->file ? parse_members(definition, object, error) : -ENOMEM;
	json_object_put(object);
	if (r) {
		pass_definition_free(definition);
		return r;
	}
	*definitionp = definition;
	return 0;
}

/* A file that somebody else could have written is not believed. */
static int check_owner(const struct stat *status, const char *what,
		       char error[static PASS_ERROR_SIZE]) {
	if (status->st_uid && status->st_uid != geteuid())
		return invalid(error, "%s belongs to uid %u, not to root or uid %u", what,
			       (unsigned)status->st_uid, (unsigned)geteuid());
	if (S_ISDIR(status->st_mode) && status->st_mode & S_ISVTX)
		return 0; /* what is ours there stays */
	if (status->st_mode & S_IWOTH)
		return invalid(error, "%s is writable by everybody", what);
	if (status->st_mode & S_IWGRP && status->st_gid && status->st_gid != getegid())
		return invalid(error, "%s is writable by group %u", what, (unsigned)status->st_gid);
	return 0;
}

/* All of a file, NUL-terminated, to be freed. */
static int read_file(const char *file, bool trusted, char **textp, size_t *lengthp,
		     char error[static PASS_ERROR_SIZE]) {
	struct stat status;
	int fd, r = 0;

	fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return invalid(error, "%s", strerror(errno));
	if (fstat(fd, &status))
		r = invalid(error, "%s", strerror(errno));
	else if (!S_ISREG(status.st_mode) || status.st_size > FILE_MAX)
		r = invalid(error, "not a regular file of at most 1 MiB");
	else if (trusted)
		r = check_owner(&status, "it", error);
	if (!r)
		r = file_load(fd, FILE_MAX, textp, lengthp);
	close(fd);
	return r < 0 && r != -ENOMEM ? invalid(error, "%s", strerror(-r)) : r;
}

int pass_definition_load(struct pass_definition **definitionp, const char *file, bool trusted,
			 char error[static PASS_ERROR_SIZE]) {
	size_t length = 0;
	char *text = NULL;
	int r;

	r = read_file(file, trusted, &text, &length, error);
	if (r)
		return r;
	r = pass_definition_parse(definitionp, text, length, file, error);
	free(text);
	return r;
}

static void strings_deinit(struct pass_strings *strings) {
	for (size_t i = 0; i < strings->n; i++)
		free(strings->strings[i]);
	free(strings->strings);
}

struct pass_definition *pass_definition_free(struct pass_definition *definition) {
	if (!definition)
		return NULL;
	free(definition->name);
	free(definition->description);
	free(definition->file);
	free(definition->executable);
	strings_deinit(&definition->include);
	strings_deinit(&definition->exclude);
	strings_deinit(&definition->required_symbols);
	json_object_put(definition->parameters);
	free(definition);
	return NULL;
}

static void append_strings(json_object *array, const struct pass_strings *strings) {
	for (size_t i = 0; i < strings->n; i++)
		json_append_string(array, strings->strings[i]);
}

json_object *pass_definition_to_json(const struct pass_definition *definition) {
	json_object *object = json_object_new_object(), *inner;

	json_add_string(object, "name", definition->name);
	json_add_string(object, "description", definition->description);
	if (definition->executable)
		json_add_string(object, "executable", definition->executable);
	inner = json_add_object(object, "attach_points");
	append_strings(json_add_array(inner, "include"), &definition->include);
	append_strings(json_add_array(inner, "exclude"), &definition->exclude);
	json_add_string(object, "attach_type", pass_attach_types[definition->attach_type]);
	json_add_int(object, "order", definition->order);
	json_add(object, "parameters",
		 definition->parameters ? json_object_get(definition->parameters)
					: json_object_new_object());
	inner = json_add_object(object, "validation");
	json_add_int(inner, "max_output_bytes", definition->max_output_bytes);
	append_strings(json_add_array(inner, "required_symbols"), &definition->required_symbols);
	json_add_int(object, "timeout_ms", definition->timeout_ms);
	json_add_int(object, "memory_mib", definition->memory_mib);
	return object;
}

static bool matches(const struct pass_strings *globs, const char *text) {
	for (size_t i = 0; i < globs->n; i++)
		if (!strcmp(globs->strings[i], text) || !fnmatch(globs->strings[i], text, 0))
			return true;
	return false;
}

bool pass_definition_means(const struct pass_definition *definition, const char *attach_point) {
	enum pass_attach_type type = PASS_ATTACH_KPROBE;

	if (!strncmp(attach_point, "kretprobe/", 10))
		type = PASS_ATTACH_KRETPROBE;
	else if (!strncmp(attach_point, "memcapture/", 11) ||
		 !strcmp(attach_point, "kprobe/__memcapture"))
		type = PASS_ATTACH_MEMCAPTURE;
	return (definition->attach_type == PASS_ATTACH_ANY || definition->attach_type == type) &&
	       matches(&definition->include, attach_point) &&
	       !matches(&definition->exclude, attach_point);
}

int pass_executable_check(const char *path, char error[static PASS_ERROR_SIZE]) {
	const char *slash = strrchr(path, '/');
	struct stat status;
	char *folder;
	int r;

	if (stat(path, &status))
		return invalid(error, "executable %.300s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode) || access(path, X_OK))
		return invalid(error, "executable %.300s cannot be executed", path);
	r = check_owner(&status, "its executable", error);
	if (r)
		return r;
	/* Who may replace it later has it, too. */
	folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!folder)
		return -ENOMEM;
	r = stat(folder, &status) ? invalid(error, "folder of its executable: %s", strerror(errno))
				  : check_owner(&status, "the folder of its executable", error);
	free(folder);
	return r;
}
