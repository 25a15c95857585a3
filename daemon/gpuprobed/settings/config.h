/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What an operator sets: options of the command line, and the same names as keys of configuration
 * files. To add one: a member of struct config, its default in config_set_defaults() unless that is
 * 0, a line in config_settings[] (config-table.c), and one in gpuprobed.conf(5).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <stdio.h>

#include "engine.h"

#define CONFIG_FILE "/etc/gpuprobed/gpuprobed.conf"
#define CONFIG_FOLDER "/etc/gpuprobed/gpuprobed.conf.d"
#define CONFIG_ERROR_SIZE 1024
#define CONFIG_LIST_MAX 32
#define CONFIG_SETTINGS_MAX 64
#define CONFIG_COMMAND_LINE UINT32_MAX

/* what objects and sources for other tools call */
#define DAEMON_STUB_DEFAULT "__bpftime_cuda__kernel_trace"

enum {
	_CONFIG_E_SUCCESS,
	CONFIG_E_USAGE, /* the command line is wrong */
	CONFIG_E_FILE, /* a file is */
};

/* What the command line asks for. */
enum config_action {
	CONFIG_RUN,
	CONFIG_CHECK,
	CONFIG_HELP,
	CONFIG_VERSION,
};

struct config_list {
	size_t n;
	char *items[CONFIG_LIST_MAX + 1]; /* NULL-terminated */
};

/* An output of metrics that is not a file. */
#define CONFIG_SOCKET_PREFIX "unix:"

static inline bool config_is_socket(const char *text) {
	return !strncmp(text, CONFIG_SOCKET_PREFIX, strlen(CONFIG_SOCKET_PREFIX));
}

struct config {
	/* of the command line alone */
	enum config_action action;
	bool quiet; /* a check prints nothing but what is wrong */
	bool session;
	char *session_name, *file;

	bool verify, allow_exit;
	bool user_attach; /* users who are no members of the group may attach to their own processes
			   */
	unsigned int deadline_ms; /* of all images of a process together, and the most that a shim
				     waits for one answer */
	unsigned int deadline_others_ms; /* the same for a process to which its own user has
					    attached nothing: at most deadline_ms */
	unsigned int compile_ms; /* of one image, for its worker, when no process waits any more */
	unsigned int mirror_period_ms;
	unsigned int workers;
	struct config_list metrics; /* files, and unix:PATH */
	unsigned int metrics_period_ms, metrics_series_max, metrics_mode;
	char *metrics_mode_text, *metrics_format;
	bool metrics_prometheus; /* made of it */
	char *worker_dir, *pass_dir, *toolkit, *keep_artifacts, *sanitizer, *cupti;
	char *cache_dir; /* NULL: where it usually is; sessions: none */
	uint64_t cache_size; /* bytes; 0: no cache */
	/* of one user */
	unsigned int quota_connections, quota_clients, quota_images, quota_instances,
		quota_attachments, quota_traces, quota_compile_seconds;
	uint64_t quota_image_bytes, quota_map_bytes;
	struct config_list stubs; /* functions whose calls stand for the entry; none: what the
				     passes say, or the default */
	struct config_list engine_texts;
	struct engine_rules engines; /* made of them */
	struct config_list excludes;
	struct filter exclude_filters[CONFIG_LIST_MAX]; /* made of them */
	struct config_list image_arguments, program_arguments, pass_arguments; /* for tests */

	unsigned int source; /* that is being read: the number of a file, or CONFIG_COMMAND_LINE */
	unsigned int given[CONFIG_SETTINGS_MAX]; /* which has set it last; 0: none */
};

/* How the text of a setting becomes its value. */
enum config_kind {
	CONFIG_BOOL, /* bool; yes, no, on, off */
	CONFIG_NUMBER, /* unsigned int, from min to max */
	CONFIG_SIZE, /* uint64_t, from min to max, in bytes or with K, M, G, T behind it */
	CONFIG_TEXT, /* char *, not empty; NULL: not set */
	CONFIG_LIST, /* struct config_list; can be given several times: max, or CONFIG_LIST_MAX */
};

enum config_flags {
	CONFIG_LIVE = 1 << 0, /* a reload changes it; else it takes a restart */
	CONFIG_HIDDEN = 1 << 1, /* for tests: options alone, and not in the help */
	CONFIG_OPTIONAL = 1 << 2, /* of a bool: the option alone means yes */
};

struct config_setting {
	const char *name; /* of the option, and the key */
	enum config_kind kind;
	unsigned int flags; /* enum config_flags */
	size_t offset; /* in struct config */
	uint64_t min, max;
	const char *argument; /* in the help */
	const char *help; /* lines */
	/* Looks at the value that was just set, and may make something else of it. 0, or
	 * CONFIG_E_USAGE with what is wrong in error. */
	int (*apply)(struct config *config, char error[static CONFIG_ERROR_SIZE]);
};

extern const struct config_setting config_settings[]; /* ends with one without a name */
const struct config_setting *config_setting(const char *name);
void config_set_defaults(struct config *config);

/*
 * Reads the command line and the files: file and the *.conf in folder, as far as they are there, or
 * the one that --config names. Sessions read none but that. 0, CONFIG_E_USAGE or CONFIG_E_FILE with
 * one line in error (empty: said already), -errno.
 */
int config_new(struct config **configp, int argc, char *argv[], const char *file,
	       const char *folder, char error[static CONFIG_ERROR_SIZE]);
struct config *config_free(struct config *config);

/* Sets one thing. 0, CONFIG_E_USAGE with error, -ENOMEM. */
int config_set(struct config *config, const struct config_setting *setting, const char *text,
	       char error[static CONFIG_ERROR_SIZE]);

/* Reads one file. required: it must be there. 0, CONFIG_E_FILE with error, -ENOMEM. (config-file.c)
 */
int config_read_file(struct config *config, const char *path, bool required,
		     char error[static CONFIG_ERROR_SIZE]);
/* The *.conf in it, by name; it need not be there. */
int config_read_folder(struct config *config, const char *path,
		       char error[static CONFIG_ERROR_SIZE]);

/* Whether a setting is the same in both. */
bool config_same(const struct config_setting *setting, const struct config *a,
		 const struct config *b);

/* Makes it the same as in other. 0 or -ENOMEM. */
int config_copy(const struct config_setting *setting, struct config *config,
		const struct config *other);

/* Writes what holds, as a file could say it. */
void config_print(const struct config *config, FILE *file);
void config_usage(FILE *file);
