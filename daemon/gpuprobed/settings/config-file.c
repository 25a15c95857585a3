/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads configuration files (config.h).
 *
 * Configuration files: lines "key = value", empty lines, and lines that begin with #. (Debian's
 * libinih tells its callers no line numbers, cuts lines at 200 bytes and takes some mistakes for
 * values.) Who can write to a file can do with it what the daemon can, so it must be root's, or in
 * a session the user's, and nobody else's.
 */

#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "daemon/gpuprobed/base/memfd.h"

#define CONFIG_FILE_SIZE_MAX (64 * 1024)
#define CONFIG_FILES_MAX 64

/* Says what is wrong; returns CONFIG_E_FILE. */
__attribute__((format(printf, 2, 3))) static int config_bad_file(char *error, const char *format,
								 ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, CONFIG_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return CONFIG_E_FILE;
}

/* Whose a file or folder is. 0, or CONFIG_E_FILE with error. */
static int config_check_owner(const struct config *config, const char *path,
			      const struct stat *status, char *error) {
	if ((status->st_uid && !(config->session && status->st_uid == geteuid())) ||
	    status->st_mode & (S_IWGRP | S_IWOTH))
		return config_bad_file(error,
				       "%s: must belong to root%s, and nobody else may write to it "
				       "(chown root, chmod go-w)",
				       path, config->session ? " or to you" : "");
	return 0;
}

/* All bytes of a file, with a NUL behind them. 0, CONFIG_E_FILE with error, -ENOENT, -ENOMEM. */
static int config_load(const struct config *config, const char *path, char **textp, char *error) {
	_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;
	size_t size;
	char *text;
	int r;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 || fstat(fd, &status) < 0)
		return config_bad_file(error, "%s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		return config_bad_file(error, "%s: not a file", path);
	if (config_check_owner(config, path, &status, error))
		return CONFIG_E_FILE;
	r = file_load(fd, CONFIG_FILE_SIZE_MAX, &text, &size);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return config_bad_file(error, "%s: %s", path,
				       r == -EFBIG ? "more than 64 KiB" : strerror(-r));
	if (strlen(text) != size) {
		free(text);
		return config_bad_file(error, "%s: has a NUL in it", path);
	}
	*textp = text;
	return 0;
}

/* The text without the white space around it, in place. */
static char *config_trim(char *text) {
	size_t n;

	text += strspn(text, " \t\r");
	n = strlen(text);
	while (n && strchr(" \t\r", text[n - 1]))
		n--;
	text[n] = '\0';
	return text;
}

static int config_read_line(struct config *config, char *line, char *error) {
	const struct config_setting *setting;
	char *value, *key;
	char why[CONFIG_ERROR_SIZE] = "";
	int r;

	line = config_trim(line);
	if (!*line || *line == '#')
		return 0;
	value = strchr(line, '=');
	if (!value)
		return config_bad_file(error, "%.200s: expected \"key = value\"", line);
	*value++ = '\0';
	value = config_trim(value);
	key = config_trim(line);
	setting = config_setting(key);
	if (!setting || setting->flags & CONFIG_HIDDEN)
		return config_bad_file(
			error, "%.200s: there is no such setting; gpuprobed --help has their names",
			key);
	r = config_set(config, setting, value, why);
	return r > 0 ? config_bad_file(error, "%s = %.400s: %s", key, value, why) : r;
}

int config_read_file(struct config *config, const char *path, bool required,
		     char error[static CONFIG_ERROR_SIZE]) {
	char why[CONFIG_ERROR_SIZE] = "", *text = NULL, *next;
	unsigned int number = 1;
	int r;

	r = config_load(config, path, &text, error);
	if (r == -ENOENT)
		return required ? config_bad_file(error, "%s: there is no such file", path) : 0;
	if (r)
		return r;
	config->source++;
	for (char *line = text; r == 0 && line; line = next, number++) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		r = config_read_line(config, line, why);
		if (r > 0)
			config_bad_file(error, "%.256s:%u: %.700s", path, number, why);
	}
	free(text);
	return r;
}

static int config_is_conf(const struct dirent *entry) {
	const size_t n = strlen(entry->d_name);

	return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0;
}

int config_read_folder(struct config *config, const char *path,
		       char error[static CONFIG_ERROR_SIZE]) {
	struct dirent **entries = NULL;
	struct stat status;
	char file[512];
	int n, r = 0;

	if (stat(path, &status) == 0 && config_check_owner(config, path, &status, error))
		return CONFIG_E_FILE;
	n = scandir(path, &entries, config_is_conf, alphasort);
	if (n < 0)
		return errno == ENOENT ? 0
				       : config_bad_file(error, "%s: %s", path, strerror(errno));
	if (n > CONFIG_FILES_MAX)
		r = config_bad_file(error, "%s: more than %d files", path, CONFIG_FILES_MAX);
	for (int i = 0; i < n; i++) {
		if (r == 0 && snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name) <
				      (int)sizeof(file))
			r = config_read_file(config, file, true, error);
		free(entries[i]);
	}
	free(entries);
	return r;
}
