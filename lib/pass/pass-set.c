/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads all definitions of passes from their folders (pass-definition.h): which files count, and in
 * which order the passes run.
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pass-definition.h"
#include "pass-kprobe-entry.h"
#include "pass-kprobe-memcapture.h"
#include "pass-kretprobe.h"

#define FILES_MAX 1024

static const struct {
	const char *name;
	const unsigned char *text;
	size_t size;
} builtins[] = {
	{ "kprobe_entry", pass_kprobe_entry, sizeof(pass_kprobe_entry) },
	{ "kretprobe", pass_kretprobe, sizeof(pass_kretprobe) },
	{ "kprobe_memcapture", pass_kprobe_memcapture, sizeof(pass_kprobe_memcapture) },
};

const char *pass_builtin_text(const char *name, size_t *length) {
	for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++)
		if (!strcmp(builtins[i].name, name)) {
			*length = builtins[i].size;
			return (const char *)builtins[i].text;
		}
	return NULL;
}

size_t pass_folders(const char *explicitly, const char *installed, const char *folders[static 2]) {
	const char *variable = secure_getenv(PASS_VARIABLE);

	if (!explicitly && variable && *variable)
		explicitly = variable;
	folders[0] = explicitly ? explicitly : installed;
	folders[1] = PASS_SYSTEM_FOLDER;
	return explicitly ? 1 : 2;
}

/* Files that count: names, each with the last folder that has it. */
struct file {
	char *name;
	const char *folder;
};

struct files {
	struct file *files;
	size_t n;
};

static void files_deinit(struct files *files) {
	for (size_t i = 0; i < files->n; i++)
		free(files->files[i].name);
	free(files->files);
}

static int files_add(struct files *files, const char *name, const char *folder) {
	for (size_t i = 0; i < files->n; i++)
		if (!strcmp(files->files[i].name, name)) {
			files->files[i].folder = folder;
			return 0;
		}
	if (files->n == FILES_MAX)
		return 0;
	files->files[files->n].name = strdup(name);
	if (!files->files[files->n].name)
		return -ENOMEM;
	files->files[files->n++].folder = folder;
	return 0;
}

static int files_read(struct files *files, const char *folder, pass_complain_fn complain,
		      void *userdata) {
	char line[PASS_ERROR_SIZE];
	struct dirent *entry;
	int r = 0;
	DIR *dir;

	dir = opendir(folder);
	if (!dir) {
		if (errno != ENOENT && complain) {
			snprintf(line, sizeof(line), "%.300s: %s", folder, strerror(errno));
			complain(line, userdata);
		}
		return 0;
	}
	while (!r && (entry = readdir(dir))) {
		size_t length = strlen(entry->d_name);

		if (entry->d_name[0] != '.' && length > 5 &&
		    !strcmp(entry->d_name + length - 5, ".json"))
			r = files_add(files, entry->d_name, folder);
	}
	closedir(dir);
	return r;
}

static int compare_files(const void *a, const void *b) {
	return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

/* By order; of equals, by name. */
static int compare_definitions(const void *a, const void *b) {
	const struct pass_definition *x = *(struct pass_definition *const *)a,
				     *y = *(struct pass_definition *const *)b;

	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* One file into the set. A name that is there already, of an earlier file, is bad. */
static int set_load_file(struct pass_set *set, const struct file *file, pass_complain_fn complain,
			 void *userdata) {
	char path[4096], error[PASS_ERROR_SIZE], line[sizeof(path) + sizeof(error) + 8];
	struct pass_definition *definition = NULL;
	struct stat status;
	int r;

	snprintf(path, sizeof(path), "%s/%s", file->folder, file->name);
	if (!stat(path, &status) && !status.st_size)
		return 0;
	r = pass_definition_load(&definition, path, true, error);
	if (!r && definition->executable)
		r = pass_executable_check(definition->executable, error);
	if (!r && pass_set_find(set, definition->name)) {
		snprintf(error, sizeof(error), "there is a pass %s already", definition->name);
		r = PASS_E_INVALID;
	}
	if (!r) {
		set->definitions[set->n++] = definition;
		set->n_found++;
		return 0;
	}
	pass_definition_free(definition);
	if (r > 0 && complain) {
		snprintf(line, sizeof(line), "%s: %s", path, error);
		complain(line, userdata);
	}
	return r > 0 ? 0 : r;
}

static int set_load_builtins(struct pass_set *set) {
	char error[PASS_ERROR_SIZE];

	for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++) {
		int r = pass_definition_parse(&set->definitions[set->n],
					      (const char *)builtins[i].text, builtins[i].size,
					      NULL, error);

		if (r)
			return r < 0 ? r : -EINVAL;
		set->n++;
	}
	return 0;
}

static bool has_builtin(const struct pass_set *set) {
	for (size_t i = 0; i < set->n; i++)
		if (!set->definitions[i]->executable)
			return true;
	return false;
}

int pass_set_load(struct pass_set *set, const char *const *folders, size_t n_folders,
		  pass_complain_fn complain, void *userdata) {
	struct files files = { .files = calloc(FILES_MAX, sizeof(*files.files)) };
	int r;

	*set = (struct pass_set){ .definitions = calloc(FILES_MAX + 3, sizeof(*set->definitions)) };
	r = files.files && set->definitions ? 0 : -ENOMEM;
	for (size_t i = 0; !r && i < n_folders; i++)
		r = files_read(&files, folders[i], complain, userdata);
	if (!r)
		qsort(files.files, files.n, sizeof(*files.files), compare_files);
	for (size_t i = 0; !r && i < files.n; i++)
		r = set_load_file(set, &files.files[i], complain, userdata);
	if (!r && !has_builtin(set))
		r = set_load_builtins(set);
	if (!r)
		qsort(set->definitions, set->n, sizeof(*set->definitions), compare_definitions);
	files_deinit(&files);
	if (r)
		pass_set_deinit(set);
	return r;
}

void pass_set_deinit(struct pass_set *set) {
	for (size_t i = 0; i < set->n; i++)
		pass_definition_free(set->definitions[i]);
	free(set->definitions);
	*set = (struct pass_set){};
}

const struct pass_definition *pass_set_find(const struct pass_set *set, const char *name) {
	for (size_t i = 0; i < set->n; i++)
		if (!strcmp(set->definitions[i]->name, name))
			return set->definitions[i];
	return NULL;
}
