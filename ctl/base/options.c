/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses options and numbers on the command line for all commands. For a mistake it prints one line
 * that says what is wrong.
 */

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <pwd.h>
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
	return ctl_fail(CTL_USAGE, "%s; see %s %s%s--help", text, ctl_program, command,
			*command ? " " : "");
}

#define OPTIONS_MAX 48 /* of a command */
/* Completion gives it to any command. It is in no table, so it shortens no other option. */
#define OPTION_WORDS "--words"

static char fault[256]; /* what is wrong with the option that getopt refused */

static bool is_session_name(const char *name) {
	size_t n = strlen(name);

	return n <= PATHS_SESSION_NAME_MAX &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

/* Options of all commands: their long forms; those without a letter. */
enum {
	OPTION_JSON = 256,
	OPTION_PRETTY,
	OPTION_SESSION,
	OPTION_SOCKET,
	OPTION_OWN, /* the first one of a command, in the order of its table */
};

static const struct option common[] = {
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "pretty", no_argument, NULL, OPTION_PRETTY },
	{ "session", optional_argument, NULL, OPTION_SESSION },
	{ "socket", required_argument, NULL, OPTION_SOCKET },
};

#define COMMON_N (sizeof(common) / sizeof(*common))

/* Takes an option that all commands have, or one that getopt refused. Returns -1 to go on, or the
 * exit status. */
static int take_common(struct ctl *ctl, int option, const char *help) {
	switch (option) {
	case 'h':
		ctl_print_help(help);
		return CTL_OK;
	case 'V':
		puts("gpuprobectl " PROJECT_VERSION);
		return CTL_OK;
	case OPTION_PRETTY:
		ctl->pretty = true;
		ctl->json = true;
		return -1;
	case OPTION_JSON:
		ctl->json = true;
		return -1;
	case OPTION_SESSION:
		if (optarg && (!*optarg || !is_session_name(optarg)))
			return ctl_usage(
				"%s: the name of a session has letters, digits and _, at most %d",
				optarg, PATHS_SESSION_NAME_MAX);
		ctl->session = true;
		ctl->session_name = optarg;
		return -1;
	case OPTION_SOCKET:
		ctl->socket = optarg;
		return -1;
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
static int read_size(const char *what, const char *text, int64_t *sizep) {
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

static int read_user(const char *what, const char *user, int64_t *uidp) {
	const struct passwd *passwd = getpwnam(user);

	if (!passwd && user[strspn(user, "0123456789")])
		return ctl_usage("%s: there is no user %s", what, user);
	if (!passwd)
		return ctl_number(what, user, 0, uidp);
	*uidp = passwd->pw_uid;
	return -1;
}

/* Fills in what getopt wants of the options of a command. letters: "hV" and theirs. */
static void make_options(const struct ctl_option *own, struct option *options, char *letters) {
	memcpy(options, common, sizeof(common));
	options += COMMON_N;
	letters = stpcpy(letters, "hV");
	for (int i = 0; own && own[i].name; i++) {
		const int has_arg = own[i].value == CTL_FLAG            ? no_argument
				    : own[i].value == CTL_TEXT_OPTIONAL ? optional_argument
									: required_argument;

		*options++ = (struct option){ own[i].name, has_arg, NULL,
					      own[i].letter ?: OPTION_OWN + i };
		if (own[i].letter) {
			*letters++ = own[i].letter;
			letters = stpcpy(letters, has_arg == required_argument ? ":" : "");
		}
	}
	*options = (struct option){};
}

void ctl_put(json_object *object, const char *key, json_object *consume_value) {
	const char *dot = strchr(key, '.');
	char name[32];

	if (dot) {
		snprintf(name, sizeof(name), "%.*s", (int)(dot - key), key);
		if (!json_member(object, name))
			json_object_object_add(object, name, json_object_new_object());
		object = json_member(object, name);
	}
	json_object_object_add(object, dot ? dot + 1 : key, consume_value);
}

/* What the text of an option means as a number; 0 for those that are none. Returns -1 to go on, or
 * the exit status. */
static int read_value(const struct ctl_option *option, const char *text, int64_t *numberp) {
	char what[64];
	int r;

	*numberp = 0;
	snprintf(what, sizeof(what), "--%s", option->name);
	switch (option->value) {
	case CTL_NUMBER:
		return ctl_number(what, text, option->min, numberp);
	case CTL_SIZE:
		return read_size(what, text, numberp);
	case CTL_PID:
		r = ctl_number(what, text, 1, numberp);
		return r < 0 ? ctl_check_pid(what, *numberp) : r;
	case CTL_USER:
		return read_user(what, text, numberp);
	default:
		return -1;
	}
}

int ctl_take_option(const struct ctl_command_line *line, const struct ctl_option *option,
		    const char *value) {
	int64_t number;
	int r;

	if (option->take)
		return option->take(line->userdata, value);
	r = read_value(option, value, &number);
	if (r >= 0)
		return r;
	if (option->flag)
		*option->flag = true;
	if (option->text)
		*option->text = value;
	if (option->number)
		*option->number = number;
	if (option->key)
		ctl_put(line->parameters, option->key,
			option->value == CTL_FLAG   ? json_object_new_boolean(true)
			: option->value == CTL_TEXT ? json_object_new_string(value)
						    : json_object_new_int64(number));
	return -1;
}

/*
 * For completion: prints what may come next, a word a line. "--count=" is an option that wants a
 * value. Returns CTL_OK.
 */
static int print_words(const struct ctl_command_line *line, const struct option *options) {
	for (const struct ctl_command *verb = line->verbs; verb && verb->name; verb++)
		puts(verb->name);
	for (; options->name; options++)
		printf("--%s%s\n", options->name, options->has_arg == required_argument ? "=" : "");
	return CTL_OK;
}

static int check_arguments(int argc, char **argv, const struct ctl_command_line *line) {
	const char *command = argv[0] + strlen(CTL_TITLE);

	if (line->arguments == CTL_NONE && optind < argc)
		return ctl_usage("%s takes no argument, but got %s", command, argv[optind]);
	if ((line->arguments == CTL_ONE || line->arguments == CTL_SOME) && optind == argc)
		return ctl_usage("%s: which %s?", command, line->argument);
	if ((line->arguments == CTL_ONE || line->arguments == CTL_MAYBE_ONE) && optind + 1 < argc)
		return ctl_usage("%s takes one %s, but got %s too", command, line->argument,
				 argv[optind + 1]);
	return -1;
}

int ctl_parse(struct ctl *ctl, int argc, char **argv, struct ctl_command_line *line) {
	struct option options[COMMON_N + OPTIONS_MAX + 1];
	char letters[2 * OPTIONS_MAX + 4], quiet[sizeof(letters) + 2];
	bool seen[OPTIONS_MAX] = {};
	int value, r = -1;

	make_options(line->options, options, letters);
	/* a colon first: getopt says nothing, and tells a value that lacks from the rest */
	snprintf(quiet, sizeof(quiet), "%s:%s", line->stops ? "+" : "", letters);
	while (r < 0 && (value = getopt_long(argc, argv, quiet, options, NULL)) >= 0) {
		const struct ctl_option *own = line->options;

		if (value == '?' && !strcmp(argv[optind - 1], OPTION_WORDS))
			return print_words(line, options);
		if (value == '?' || value == ':')
			refuse_option(value, argv[optind - 1], letters, options);
		while (own && own->name &&
		       value != (own->letter ?: OPTION_OWN + (int)(own - line->options)))
			own++;
		if (!own || !own->name) {
			r = take_common(ctl, value, line->help);
		} else if (own->value != CTL_FLAG && !own->repeats && seen[own - line->options]) {
			r = ctl_usage("--%s may be given once", own->name);
		} else {
			seen[own - line->options] = true;
			line->last = optarg ?: line->last;
			r = ctl_take_option(line, own, optarg);
		}
	}
	return r < 0 ? check_arguments(argc, argv, line) : r;
}

int ctl_first_argument(int argc, char **argv) {
	struct option options[COMMON_N + 1] = {};
	int option, first;

	memcpy(options, common, sizeof(common));
	do
		option = getopt_long(argc, argv, "+:", options, NULL);
	while (option >= OPTION_JSON);
	first = option >= 0 || !strcmp(argv[optind - 1], "--") ? argc : optind;
	optind = 0; /* getopt starts over */
	return first;
}

/* For commands without options and arguments. Returns -1 to go on, or the exit status. */
int ctl_no_options(struct ctl *ctl, int argc, char **argv, const char *help) {
	return ctl_parse(ctl, argc, argv, &(struct ctl_command_line){ .help = help });
}

/* Says that there is no command of the suggestion's name, or that one is wanted. */
static int refuse_command(const char *help, const struct ctl_command *verbs,
			  const struct suggestion *suggestion) {
	const char *noun = command_name();
	char all[96] = "";

	if (suggestion->wanted)
		return ctl_usage("%s%s command %s%s", *noun ? noun : "there is",
				 *noun ? " has no" : " no", suggestion->wanted,
				 suggest_text(suggestion));
	if (!*noun) {
		fputs(help, stderr);
		return CTL_USAGE;
	}
	for (size_t i = 0; verbs[i].name; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " or " : "",
			 verbs[i].name);
	return ctl_usage("%s: %s?", noun, all);
}

int ctl_verb(struct ctl *ctl, int argc, char **argv, const char *help,
	     const struct ctl_command *verbs) {
	struct ctl_command_line line = {
		.help = help, .verbs = verbs, .arguments = CTL_ANY, .stops = true
	};
	struct suggestion suggestion = {};
	int first, r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	first = optind;
	optind = 0; /* getopt starts over */
	suggestion.wanted = argv[first];
	for (const struct ctl_command *verb = verbs; verb->name; verb++) {
		const size_t n = strlen(ctl->title);

		if (first == argc) {
			if (verb->is_default)
				return verb->run(ctl, 1, argv);
			continue;
		}
		suggest_add(&suggestion, verb->name);
		if (strcmp(argv[first], verb->name) != 0)
			continue;
		snprintf(ctl->title + n, sizeof(ctl->title) - n, "%s%s", n ? " " : CTL_TITLE,
			 verb->name);
		argv[first] = program_invocation_name = ctl->title;
		return verb->run(ctl, argc - first, argv + first);
	}
	return refuse_command(help, verbs, &suggestion);
}
