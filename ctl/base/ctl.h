/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the commands of gpuprobectl share. Each command is one function that returns the exit
 * status.
 */

#include <getopt.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "commands.h"
#include "lib/varlink/varlink-client.h"

enum ctl_exit {
	CTL_OK = 0,
	CTL_ERROR = 1,
	CTL_USAGE = 2,
	CTL_UNREACHABLE = 3, /* no daemon, or it went away */
	CTL_VERIFIER = 4, /* the verifier refused a program */
	CTL_NOT_FOUND = 5,
	CTL_PERMISSION = 6,
};

#define CTL_TIMEOUT_MS 30000
#define CTL_TITLE "gpuprobectl: " /* argv[0] of a command begins with it */

struct ctl {
	bool json, pretty;
	const char *socket; /* --socket, or NULL */
	bool session; /* --session or the variable: no other daemon will do */
	const char *session_name; /* NULL or "": the one without a name */
	char path[256]; /* of the socket, once connected */
	struct varlink_client *client;
	unsigned int n_reconnects; /* the daemon hung up so often, and there was another one */
	struct varlink_interface *interface;
	bool seeking; /* in ctl_seek() */
	bool quiet; /* that the daemon hung up is not said: the caller does something about it */
	struct json_object *unanswered; /* parameters of a call with `more` that only looks and has
					   had no reply yet, or NULL */
	bool pipe_ignored, child_ignored; /* SIGPIPE and SIGCHLD were, when we were started; they
					     are not here */
	sigset_t mask; /* of then */
	char title[48]; /* of the command that runs: "gpuprobectl: map dump"; "": none so far */
};

/* options.c */

/* An option of a command. Those of all commands (--json, --help, ...) are not in its table. */
struct ctl_option {
	const char *name; /* the long form; NULL ends a table */
	char letter; /* the short form; 0: there is none */
	enum ctl_value {
		CTL_FLAG, /* no value */
		CTL_TEXT_OPTIONAL, /* with take alone, which gets NULL if there is none */
		CTL_TEXT,
		CTL_NUMBER, /* decimal, from min up */
		CTL_SIZE, /* bytes, perhaps with K, M or G (1024 each) */
		CTL_PID, /* of a process, not of a thread */
		CTL_USER, /* by name or number: the number */
	} value;
	bool repeats; /* may be given more than once, though it has a value */
	int64_t min;
	/* where the value goes: one of these */
	bool *flag;
	const char **text;
	int64_t *number;
	const char *key; /* a member of the command line's parameters, as ctl_put() has it */
	/* Returns -1 to go on, or the exit status. */
	int (*take)(void *userdata, const char *value);
};

/* What a command takes. */
struct ctl_command_line {
	const char *help; /* its text */
	const struct ctl_option *options; /* NULL: none of its own */
	const struct ctl_command *verbs; /* what its first argument may be; NULL: something else */
	json_object *parameters; /* borrowed; for options with a key */
	void *userdata; /* for take() */
	enum {
		CTL_NONE,
		CTL_MAYBE_ONE,
		CTL_ONE,
		CTL_SOME, /* one or more */
		CTL_ANY, /* the command looks at them itself */
	} arguments;
	const char *argument; /* what one is, in words: "map" */
	bool stops; /* options end at the first argument */
	const char *last; /* out: the value of the last own option, or NULL */
};

/* Reads the options, and counts the arguments, which begin at optind then. Returns -1 to go on, or
 * the exit status. */
int ctl_parse(struct ctl *ctl, int argc, char **argv, struct ctl_command_line *line);
/* Takes one option with its value, as from a command line. As above. */
int ctl_take_option(const struct ctl_command_line *line, const struct ctl_option *option,
		    const char *value);

/* A command, or the verb of one: `map dump`. {} ends a table. */
struct ctl_command {
	const char *name;
	int (*run)(struct ctl *ctl, int argc, char **argv);
	bool is_default; /* the verb that runs where none is given */
};
/* Runs the command that the first argument names. Its argv[0] is "gpuprobectl: map dump", which
 * messages begin with. Returns the exit status. */
int ctl_verb(struct ctl *ctl, int argc, char **argv, const char *help,
	     const struct ctl_command *verbs);
/* Where the first argument stands that is no option which all commands have; argc: nowhere, or
 * behind an option of another kind or a "--". */
int ctl_first_argument(int argc, char **argv);
int ctl_no_options(struct ctl *ctl, int argc, char **argv, const char *help);
int ctl_number(const char *what, const char *text, int64_t min, int64_t *numberp);
/* Adds a member to an object. "filter.pid": to its member filter, which is made if needed. */
void ctl_put(json_object *object, const char *key, json_object *consume_value);
int ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
int ctl_fail(enum ctl_exit status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int ctl_fail_open(const char *path, int error, bool write);

/* connection.c */
bool ctl_connect_again(struct ctl *ctl);
/* Connects, as the first call would. CTL_UNREACHABLE without a message: nobody listens there, or
 * the system's daemon may not be spoken to. */
int ctl_seek(struct ctl *ctl);
/* Where the log of the daemon is that we are connected to, or tried to: the journal has the
 * system's alone. */
const char *ctl_log_place(const struct ctl *ctl);
int ctl_call(struct ctl *ctl, const char *method, json_object *consume_parameters,
	     const char *subject, int timeout_ms, struct varlink_reply *reply);
/* A call that may fail without a message: nothing is printed. True: the reply is the caller's. */
bool ctl_ask(struct varlink_client *client, const char *method, json_object *consume_parameters,
	     struct varlink_reply *reply);
/*
 * A command without options and arguments that asks one thing: with --json it is printed here.
 * Returns -1 with a reply that the caller prints and deinitialises, or the exit status.
 */
int ctl_query(struct ctl *ctl, int argc, char **argv, const char *help, const char *method,
	      struct varlink_reply *reply);
int ctl_call_more(struct ctl *ctl, const char *method, json_object *consume_parameters);
int ctl_next(struct ctl *ctl, const char *method, const char *subject, struct varlink_reply *reply);

/*
 * stream.c: calls a method that gives records, with `more`, and hands the parameters of each reply
 * to take(), until the last one, Ctrl-C, or until take() returns another value than CTL_OK:
 * CTL_STREAM_ENOUGH, or an exit status. Says what was lost. Returns the exit status.
 */
#define CTL_STREAM_ENOUGH (-1)
int ctl_stream(struct ctl *ctl, const char *method, json_object *consume_parameters,
	       const char *subject, int (*take)(json_object *parameters, void *userdata),
	       void *userdata);

/*
 * stuck.c: from now on, these signals (which are blocked) end the process if nothing takes one
 * within 2 s. Before that, `before` is called in another thread, if it is not NULL. Once a process.
 */
void ctl_end_if_stuck(const sigset_t *signals, void (*before)(void));

/* find.c: a file of ours, in the build folder that we lie in, or as installed. False: it is not
 * there; path is where it should be, and errno says why. */
bool ctl_find_file(char path[static 4096], const char *installed, const char *beside);

/* process.c: why nothing may be probed in a process; continues "process 4711 ...". NULL: nothing is
 * to be seen that is in the way. */
const char *ctl_process_lacks(int64_t pid);
/* Says so if it is the number of a thread, or none that a process can have; what: the option that
 * gave it. Returns -1 to go on, or the exit status. */
int ctl_check_pid(const char *what, int64_t pid);
/* Which libraries a process has mapped. False: that is not to be seen, as it is another user's, or
 * gone. */
struct ctl_process_libraries {
	bool cuda, shim, engine; /* libcuda, our shim, its sanitizer engine */
};
bool ctl_process_libraries(int64_t pid, struct ctl_process_libraries *libraries);

/* map.c: dumps a map, by its name or id, as `map dump` does; JSON has no line end. Returns the exit
 * status. */
int ctl_dump_map(struct ctl *ctl, const char *map, bool nonzero);

/* ring.c: prints the records that are in a ring now, as `ring read` does; as elements of a JSON
 * array if asked. Returns the exit status. */
int ctl_read_ring(struct ctl *ctl, const char *map, bool in_array);

/* kernel.c: fills in the demangled name of a kernel that the daemon listed, where it has not got
 * it. */
void ctl_add_demangled(json_object *kernel, unsigned int *failures);

/* log.c: prints the lines that an object's programs have written; as elements of a JSON array if
 * asked. Returns the exit status. */
int ctl_log_object(struct ctl *ctl, int64_t object, bool in_array);

/* help.c: prints a help text, which ends with a newline, at the width of the terminal. */
void ctl_print_help(const char *help);

/* output.c; ctl_tell() is a line on standard error, ctl_tell_log() several: without control
 * characters, as ctl_print_text() */
/* Writes out standard output. 0, or the errno of the first write of it that failed. */
int ctl_flush(void);
/* What lines on standard error begin with. */
extern const char *ctl_program;
void ctl_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ctl_tell_list(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));
void ctl_tell_log(const char *log);
/* Takes control characters out of a text, but for those of @kept. */
void ctl_clean_text(char *text, const char *kept);
void ctl_put_json(const struct ctl *ctl, json_object *value); /* without a line end */
void ctl_print_json(const struct ctl *ctl, json_object *value);
void ctl_print_text(const char *text);
void ctl_print_table(const char *const *header, json_object *rows);

/*
 * A table of objects: of each a row. `member` may be in an object in the object: "idle.max_ns".
 * `cell` makes the text of it, which the table puts; NULL: as ctl_cell(). {} ends the columns.
 */
typedef json_object *ctl_cell_fn(json_object *object, const char *member);

struct ctl_column {
	const char *title, *member;
	ctl_cell_fn *cell;
};

json_object *ctl_cell(json_object *object, const char *member); /* as it is; "" if it is absent */
json_object *ctl_cell_or_dash(json_object *object, const char *member);
json_object *ctl_cell_list(json_object *object, const char *member); /* "1,2", or "-" */
void ctl_print_columns(const struct ctl_column *columns, json_object *list, int64_t limit);
void ctl_print_time(int64_t microseconds);
const char *ctl_string(json_object *object, const char *key);
/* The bytes of a string in base64, from malloc(); NULL if it is none. */
unsigned char *ctl_decode(json_object *text, size_t *n_datap);
struct value_types;
/* The types of a map, of BTF in base64. Without BTF that can be read, values are shown in
 * hexadecimal. Returns the exit status. */
int ctl_value_types(json_object *btf, struct value_types **typesp);
json_object *ctl_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CTL_DECLARE(name, text) int command_##name(struct ctl *ctl, int argc, char **argv);
CTL_COMMANDS(CTL_DECLARE)
int command_trace_report(struct ctl *ctl, int argc, char **argv);
