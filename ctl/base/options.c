/* SPDX-License-Identifier: Apache-2.0 */

/* Options and numbers on the command line, and the one line that says what is wrong with them. */

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "lib/json.h"
#include "proto/paths.h"
#include "suggest.h"

/* Says what is wrong. Returns @status. */
int ctl_fail(enum ctl_exit status, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	ctl_tell_list(format, arguments);
	va_end(arguments);
	return status;
}

/* Says why a file, or one to @write, which need not be there, could not be opened. Returns the exit
 * status. */
int ctl_fail_open(const char *path, int error, bool write) {
	enum ctl_exit status = CTL_ERROR;

	if (error == EACCES || error == EPERM)
		status = CTL_PERMISSION;
	else if (error == ENOENT && !write)
		status = CTL_NOT_FOUND;
	return ctl_fail(status, "%s: %s", path, strerror(error));
}

/* What stands behind "gpuprobectl: " in the title of the command that runs; empty: none does so
 * far. */
static const char *command_name(void) {
	const char *title = program_invocation_name;

	return strncmp(title, CTL_TITLE, strlen(CTL_TITLE)) ? "" : title + strlen(CTL_TITLE);
}

/* Says what is wrong with the command line, and where to read. Returns CTL_USAGE. */
int ctl_usage(const char *format, ...) {
	const char *command = command_name();
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return ctl_fail(CTL_USAGE, "%s; see gpuprobectl %s%s--help", text, command,
			*command ? " " : "");
}

static const char *twice; /* the option that ctl_getopt() met once more */
static char fault[256]; /* what is wrong with the option that it refused */

static bool is_session_name(const char *name) {
	size_t n = strlen(name);

	return n <= PATHS_SESSION_NAME_MAX &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

/*
 * Takes an option that all commands have. @help is the text of the command. Returns -1 to go on, or
 * the exit status.
 */
int ctl_option(struct ctl *ctl, int option, const char *help) {
	switch (option) {
	case 'h':
		ctl_print_help(help);
		return CTL_OK;
	case 'V':
		puts("gpuprobectl " PROJECT_VERSION);
		return CTL_OK;
	case CTL_OPTION_PRETTY:
		ctl->pretty = true;
		ctl->json = true;
		return -1;
	case CTL_OPTION_JSON:
		ctl->json = true;
		return -1;
	case CTL_OPTION_SESSION:
		if (optarg && (!*optarg || !is_session_name(optarg)))
			return ctl_usage(
				"%s: the name of a session has letters, digits and _, at most %d",
				optarg, PATHS_SESSION_NAME_MAX);
		ctl->session = true;
		ctl->session_name = optarg;
		return -1;
	case CTL_OPTION_SOCKET:
		ctl->socket = optarg;
		return -1;
	case CTL_OPTION_TWICE:
		return ctl_usage("--%s may be given once", twice);
	default:
		return ctl_usage("%s%s%s", command_name(), *command_name() ? ": " : "", fault);
	}
}

/* Options that begin with what was typed are several, or none: names those, or the closest one. */
static void refuse_unknown(const char *typed, const struct option *options) {
	struct suggestion closest = { .wanted = typed };
	char candidate[64], several[128] = "";
	size_t n_several = 0;

	for (; options->name; options++) {
		snprintf(candidate, sizeof(candidate), "--%s", options->name);
		suggest_add(&closest, candidate);
		if (!strncmp(candidate, typed, strlen(typed)) && n_several < sizeof(several))
			n_several +=
				(size_t)snprintf(several + n_several, sizeof(several) - n_several,
						 "%s%s", n_several ? ", " : "", candidate);
	}
	if (n_several)
		snprintf(fault, sizeof(fault), "option %s is ambiguous: %s", typed, several);
	else
		snprintf(fault, sizeof(fault), "unknown option %s%s", typed,
			 suggest_text(&closest));
}

/* Puts into fault what is wrong with the option that getopt has just refused: it lacks its value
 * (':'), or else is unknown or has a value too much ('?'). */
static void refuse_option(int value, const char *typed, const char *letters,
			  const struct option *options) {
	const bool is_long = !strncmp(typed, "--", 2);
	char name[64];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(typed, "="), typed);
	if (value == ':' && is_long)
		snprintf(fault, sizeof(fault), "option %s requires a value", name);
	else if (value == ':')
		snprintf(fault, sizeof(fault), "option -%c requires a value", optopt);
	else if (!optopt)
		refuse_unknown(name, options);
	else if (is_long && (optopt > UCHAR_MAX || strchr(letters, optopt)))
		snprintf(fault, sizeof(fault), "option %s takes no value", name);
	else
		snprintf(fault, sizeof(fault), "unknown option -%c", optopt);
}

int ctl_getopt(int argc, char **argv, const char *letters, const struct option *options,
	       const int *repeatable) {
	static bool seen[CTL_OPTION_OWN + 64];
	const struct option *option = options;
	const int order = *letters == '+';
	char quiet[64]; /* a colon first: getopt says nothing, and tells a value that lacks from the
			   rest */
	int value;

	if (!optind) /* getopt starts over */
		memset(seen, 0, sizeof(seen));
	snprintf(quiet, sizeof(quiet), "%.*s:%s", order, letters, letters + order);
	value = getopt_long(argc, argv, quiet, options, NULL);
	if (value == '?' || value == ':') {
		refuse_option(value, argv[optind - 1], letters, options);
		return '?';
	}
	if (value < 0 || value >= (int)(sizeof(seen) / sizeof(*seen)) ||
	    (value > UCHAR_MAX && value < CTL_OPTION_OWN))
		return value;
	while (option->name && option->val != value)
		option++;
	while (repeatable && *repeatable && *repeatable != value)
		repeatable++;
	if (!option->name || option->has_arg == no_argument || (repeatable && *repeatable))
		return value;
	twice = option->name;
	if (seen[value])
		return CTL_OPTION_TWICE;
	seen[value] = true;
	return value;
}

int ctl_first_argument(int argc, char **argv) {
	static const struct option options[] = { CTL_OPTIONS, {} };
	int option, first;

	do
		option = getopt_long(argc, argv, "+:", options, NULL);
	while (option >= CTL_OPTION_JSON);
	first = option >= 0 || !strcmp(argv[optind - 1], "--") ? argc : optind;
	optind = 0; /* getopt starts over */
	return first;
}

/* For commands without options and arguments. Returns -1 to go on, or the exit status. */
int ctl_no_options(struct ctl *ctl, int argc, char **argv, const char *help) {
	static const struct option options[] = { CTL_OPTIONS, {} };
	int option, r;

	while ((option = ctl_getopt(argc, argv, "hV", options, NULL)) >= 0) {
		r = ctl_option(ctl, option, help);
		if (r >= 0)
			return r;
	}
	if (optind < argc)
		return ctl_usage("%s takes no argument, but got %s", argv[0] + strlen(CTL_TITLE),
				 argv[optind]);
	return -1;
}

/* Reads a decimal number of at least @min. Returns -1 to go on, or the exit status. */
int ctl_number(const char *what, const char *text, int64_t min, int64_t *numberp) {
	long long number;
	char *end;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || number < min)
		return ctl_usage("%s: %s is not a number from %lld up", what, text, (long long)min);
	*numberp = number;
	return -1;
}

/* Reads a number of bytes, which K, M or G may follow (1024 each). Returns -1 to go on, or the exit
 * status. */
int ctl_size(const char *what, const char *text, int64_t *sizep) {
	static const char suffixes[] = "KMG";
	long long size;
	const char *suffix;
	char *end;

	errno = 0;
	size = strtoll(text, &end, 10);
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix) {
		int shift = 10 * (int)(suffix - suffixes + 1);

		if (size > INT64_MAX >> shift)
			errno = ERANGE;
		else
			size <<= shift;
		end++;
	}
	if (*text < '0' || *text > '9' || *end || errno || size < 1)
		return ctl_usage("%s: %s is not a size, such as 65536, 64K or 1G", what, text);
	*sizep = size;
	return -1;
}

int ctl_put_number(json_object *parameters, const char *key, const char *what, const char *text,
		   int64_t min) {
	int64_t number;
	int r;

	r = ctl_number(what, text, min, &number);
	if (r < 0)
		json_add_int(parameters, key, number);
	return r;
}

int ctl_put_size(json_object *parameters, const char *key, const char *what, const char *text) {
	int64_t size;
	int r;

	r = ctl_size(what, text, &size);
	if (r < 0)
		json_add_int(parameters, key, size);
	return r;
}

int ctl_verb(struct ctl *ctl, int argc, char **argv, const char *help, const char *noun,
	     const struct ctl_command *verbs, size_t n) {
	static const struct option options[] = { CTL_OPTIONS, {} };
	struct suggestion suggestion = {};
	char all[96] = "";
	int option, first, r;

	while ((option = ctl_getopt(argc, argv, "+hV", options, NULL)) >= 0) {
		r = ctl_option(ctl, option, help);
		if (r >= 0)
			return r;
	}
	first = optind;
	optind = 0; /* getopt starts over */
	suggestion.wanted = argv[first];
	for (size_t i = 0; i < n; i++) {
		if (first < argc && !strcmp(argv[first], verbs[i].name)) {
			argv[first] = program_invocation_name = (char *)verbs[i].title;
			return verbs[i].run(ctl, argc - first, argv + first);
		}
		if (first < argc)
			suggest_add(&suggestion, verbs[i].name);
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " or " : "",
			 verbs[i].name);
	}
	if (first == argc)
		return ctl_usage("%s: %s?", noun, all);
	return ctl_usage("%s has no command %s%s", noun, argv[first], suggest_text(&suggestion));
}
