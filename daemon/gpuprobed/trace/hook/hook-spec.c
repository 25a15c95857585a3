/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses hooks (hook-spec.h): specs of the command line, and the members that files of the
 * catalogue have in common with them.
 */

#include "hook-spec.h"
#include "lib/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hook_type types[] = {
	{ "u8", 1, 0 },
	{ "u16", 2, 0 },
	{ "u32", 4, 0 },
	{ "u64", 8, 0 },
	{ "s8", 1, HOOK_WORD_SIGNED },
	{ "s16", 2, HOOK_WORD_SIGNED },
	{ "s32", 4, HOOK_WORD_SIGNED },
	{ "s64", 8, HOOK_WORD_SIGNED },
	{ "hex", 8, 0 },
	{ "bool", 1, 0 },
	{ "ptr", 8, 0 },
	{ "str", 8, HOOK_WORD_TEXT },
	{ "void", 0, 0 },
};

const struct hook_type *hook_type_find(const char *name, size_t n) {
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strlen(types[i].name) == n && !memcmp(types[i].name, name, n))
			return &types[i];
	return NULL;
}

/* How many characters of an identifier text begins with. */
static size_t identifier(const char *text, const char *more) {
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || text[n] == '_' ||
	       (text[n] && strchr(more, text[n])))
		n++;
	return n;
}

/* Copies n characters, if they fit. */
static bool keep(char *to, size_t size, const char *from, size_t n) {
	if (!n || n >= size)
		return false;
	memcpy(to, from, n);
	to[n] = '\0';
	return true;
}

bool hook_source_parse(struct hook_argument *argument, const char *text, size_t n) {
	const char *end = text + n;
	unsigned long number;
	char *after;

	if (n < 4 || strncmp(text, "arg", 3) || !isdigit((unsigned char)text[3]))
		return false;
	number = strtoul(text + 3, &after, 10);
	if (number >= HOOK_ARGUMENTS_MAX || after > end)
		return false;
	argument->index = number;
	if (after == end)
		return true;
	argument->follow = true;
	if (*after == '+' && isdigit((unsigned char)after[1])) {
		number = strtoul(after + 1, &after, 0);
		argument->offset = number;
		return after == end && number <= UINT16_MAX;
	}
	if (end - after < 3 || strncmp(after, "->", 2))
		return false;
	text = after + 2;
	n = identifier(text, "");
	if (text[n] != '.' || !keep(argument->structure, sizeof(argument->structure), text, n))
		return false;
	text += n + 1;
	n = identifier(text, "");
	return text + n == end && keep(argument->member, sizeof(argument->member), text, n);
}

bool hook_version_parse(uint16_t version[static 3], const char *text) {
	size_t i;

	memset(version, 0, 3 * sizeof(*version));
	for (i = 0; i < 3; i++) {
		unsigned long number;
		char *end;

		if (!isdigit((unsigned char)*text))
			return false;
		number = strtoul(text, &end, 10);
		if (number > UINT16_MAX)
			return false;
		version[i] = number;
		text = end + 1;
		if (*end != '.')
			return !*end;
	}
	return false;
}

static int compare_versions(const uint16_t a[static 3], const uint16_t b[static 3], size_t n) {
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

bool hook_alternative_fits(const struct hook_alternative *alternative,
			   const uint16_t version[static 3]) {
	size_t n = 3;

	if (!version[0])
		return true;
	if (alternative->from[0] && compare_versions(version, alternative->from, 3) < 0)
		return false;
	/* "544" is all of 544 */
	while (n > 1 && !alternative->to[n - 1])
		n--;
	return !alternative->to[0] || compare_versions(version, alternative->to, n) <= 0;
}

static bool pattern_matches(const char *pattern, const struct hook *hook) {
	const char *target = hook->n_alternatives ? hook->alternatives[0].name : NULL;
	char text[HOOK_SPEC_MAX];

	if (!strcmp(pattern, "all") || !strcmp(pattern, hook->set) ||
	    !fnmatch(pattern, hook->name, 0))
		return true;
	if (!target)
		return false;
	hook_target(text, sizeof(text), hook->alternatives);
	return !fnmatch(pattern, target, 0) || !fnmatch(pattern, text, 0);
}

bool hook_selected(const struct hook *hook, const char *const *patterns, size_t n) {
	static const char *const usual[] = { "driver", "uvm", "xid" };
	bool selected = false, first = true;

	for (size_t i = 0; i < n; i++) {
		bool not = *patterns[i] == '!';

		if (!strncmp(patterns[i], HOOK_DISCOVER, strlen(HOOK_DISCOVER)))
			continue;
		/* a list that begins by taking away takes from what is usual */
		if (first && not)
			selected = hook_selected(hook, usual, 3);
		first = false;
		if (pattern_matches(patterns[i] + not, hook))
			selected = !not;
	}
	return n ? selected : hook_selected(hook, usual, 3);
}

void hook_target(char *text, size_t n_text, const struct hook_alternative *alternative) {
	if (alternative->kind == HOOK_SYSCALL)
		snprintf(text, n_text, "%s(2)", alternative->name);
	else if (alternative->kind == HOOK_RAW)
		snprintf(text, n_text, "%s", alternative->name);
	else
		snprintf(text, n_text, "%s:%s", alternative->place, alternative->name);
}

/* Adds to a text that may be full already. */
static void __attribute__((format(printf, 4, 5))) append(char *text, size_t size, size_t *n,
							 const char *format, ...) {
	va_list arguments;
	int r;

	if (*n >= size)
		return;
	va_start(arguments, format);
	r = vsnprintf(text + *n, size - *n, format, arguments);
	va_end(arguments);
	*n += r < 0 ? 0 : (size_t)r;
}

void hook_describe(char *text, size_t n_text, const struct hook *hook,
		   const struct hook_alternative *alternative,
		   const struct hook_type *const *tracepoint_types) {
	char target[HOOK_SPEC_MAX];
	size_t n = 0;

	if (alternative->kind == HOOK_SYSCALL)
		snprintf(target, sizeof(target), "%s", alternative->name);
	else
		hook_target(target, sizeof(target), alternative);
	append(text, n_text, &n, "%s %s(", hook->set, target);
	for (size_t i = 0; i < alternative->n_arguments; i++) {
		const struct hook_type *type = alternative->arguments[i].type;

		if (!type && tracepoint_types)
			type = tracepoint_types[i];
		append(text, n_text, &n, "%s%s:%s", i ? "," : "", alternative->arguments[i].name,
		       type ? type->name : "u64");
	}
	append(text, n_text, &n, ")");
	if (alternative->result && alternative->result->size)
		append(text, n_text, &n, "=%s", alternative->result->name);
}

static void alternative_deinit(struct hook_alternative *alternative) {
	free(alternative->place);
	free(alternative->name);
	free(alternative->until_place);
	free(alternative->until_name);
}

struct hook *hook_free(struct hook *hook) {
	if (!hook)
		return NULL;
	for (size_t i = 0; i < hook->n_alternatives; i++)
		alternative_deinit(&hook->alternatives[i]);
	free(hook->alternatives);
	free(hook->name);
	free(hook->set);
	free(hook->purpose);
	free(hook);
	return NULL;
}

/* ---- specs ---- */

struct parser {
	const char *spec, *at;
	char *error;
};

static int __attribute__((format(printf, 2, 3))) wrong(struct parser *parser, const char *format,
						       ...) {
	va_list arguments;
	int n;

	n = snprintf(parser->error, HOOK_ERROR_SIZE, "%.80s%s: character %zu: ", parser->spec,
		     strlen(parser->spec) > 80 ? "..." : "",
		     (size_t)(parser->at - parser->spec) + 1);
	va_start(arguments, format);
	vsnprintf(parser->error + n, HOOK_ERROR_SIZE - n, format, arguments);
	va_end(arguments);
	for (char *c = parser->error; *c; c++)
		if (is_control(*c))
			*c = '?';
	return 1;
}

/* A type's name, at the parser. */
static int parse_type(struct parser *parser, const struct hook_type **typep) {
	size_t n = identifier(parser->at, "");

	*typep = hook_type_find(parser->at, n);
	if (!*typep)
		return wrong(parser, "a type is one of u8, u16, u32, u64, s8, s16, s32, s64, hex, "
				     "bool, str, ptr");
	parser->at += n;
	return 0;
}

/* NAME=argN...:TYPE; of tracepoints [NAME=]FIELD[:TYPE]. */
static int parse_argument(struct parser *parser, struct hook_alternative *alternative) {
	struct hook_argument *argument = &alternative->arguments[alternative->n_arguments];
	bool tracepoint = alternative->kind == HOOK_TRACEPOINT;
	const char *name = parser->at;
	size_t n = identifier(name, ""), n_source;

	if (alternative->n_arguments == HOOK_WORDS_MAX)
		return wrong(parser, "more than %d arguments", HOOK_WORDS_MAX);
	if (!keep(argument->name, sizeof(argument->name), name, n))
		return wrong(parser, "an argument's name has 1 to %d letters, digits and _",
			     HOOK_NAME_SIZE - 1);
	parser->at += n;
	if (*parser->at == '=') {
		parser->at++;
		n_source = strcspn(parser->at, ":,)");
		if (tracepoint ? !keep(argument->field, sizeof(argument->field), parser->at,
				       identifier(parser->at, ""))
			       : !hook_source_parse(argument, parser->at, n_source))
			return wrong(
				parser,
				tracepoint
					? "a field's name is missing"
					: "not arg0 to arg%d, argN+OFFSET, or argN->STRUCT.MEMBER",
				HOOK_ARGUMENTS_MAX - 1);
		parser->at += tracepoint ? strlen(argument->field) : n_source;
	} else if (tracepoint) {
		memcpy(argument->field, argument->name, sizeof(argument->field));
	} else {
		return wrong(parser, "= and where the argument is (arg0, ...) are missing");
	}
	if (*parser->at == ':') {
		parser->at++;
		if (parse_type(parser, &argument->type))
			return 1;
		if (!argument->type->size)
			return wrong(parser, "an argument cannot be void");
	} else if (!tracepoint) {
		return wrong(parser, ": and a type are missing");
	}
	alternative->n_arguments++;
	return 0;
}

/* The part in parentheses, and what follows them. */
static int parse_rest(struct parser *parser, struct hook_alternative *alternative) {
	int r;

	if (!*parser->at)
		return 0;
	parser->at++;
	while (*parser->at != ')') {
		r = parse_argument(parser, alternative);
		if (r)
			return r;
		if (*parser->at == ',' && parser->at[1] != ')')
			parser->at++;
		else if (*parser->at != ')')
			return wrong(parser, ", or ) is missing");
	}
	parser->at++;
	if (!*parser->at)
		return 0;
	if (alternative->kind == HOOK_TRACEPOINT)
		return wrong(parser, "nothing comes behind a tracepoint's )");
	if (*parser->at != '=')
		return wrong(parser, "only =ret:TYPE or =void comes behind )");
	parser->at++;
	if (!strncmp(parser->at, "ret:", 4))
		parser->at += 4;
	else if (strcmp(parser->at, "void"))
		return wrong(parser, "ret:TYPE or void is missing");
	if (parse_type(parser, &alternative->result))
		return 1;
	if (alternative->result->flags & HOOK_WORD_TEXT)
		return wrong(parser, "a result cannot be a str");
	if (*parser->at)
		return wrong(parser, "nothing comes behind the type of the result");
	alternative->span = true;
	return 0;
}

/* Module or group, or path; then the name. */
static int parse_place(struct parser *parser, struct hook_alternative *alternative) {
	const char *end = parser->at + strcspn(parser->at, "("),
		   *colon = memrchr(parser->at, ':', (size_t)(end - parser->at));
	size_t n;

	if (!colon || colon == parser->at)
		return wrong(parser,
			     alternative->kind == HOOK_USER ? "PATH:SYMBOL is missing"
							    : "%s:NAME is missing",
			     alternative->kind == HOOK_FUNCTION ? "MODULE" : "GROUP");
	n = (size_t)(colon - parser->at);
	if (alternative->kind == HOOK_USER ? *parser->at != '/' : identifier(parser->at, "-") != n)
		return wrong(parser, alternative->kind == HOOK_USER
					     ? "the path of a file is absolute"
					     : "not a name of a module or group");
	alternative->place = strndup(parser->at, n);
	if (!alternative->place)
		return -ENOMEM;
	parser->at = colon + 1;
	n = (size_t)(end - parser->at);
	if (!n || identifier(parser->at, "@.$") < n)
		return wrong(parser, "not a name of a %s",
			     alternative->kind == HOOK_TRACEPOINT ? "tracepoint" : "function");
	alternative->name = strndup(parser->at, n);
	if (!alternative->name)
		return -ENOMEM;
	parser->at = end;
	return 0;
}

int hook_spec_parse(struct hook **hookp, const char *spec, char error[HOOK_ERROR_SIZE]) {
	struct parser parser = { .spec = spec, .at = spec, .error = error };
	struct hook *hook;
	int r;

	if (strlen(spec) >= HOOK_SPEC_MAX)
		return wrong(&parser, "more than %d characters", HOOK_SPEC_MAX - 1);
	if (!*spec || !strchr("kut", *spec) || spec[1] != ':')
		return wrong(&parser, "a probe begins with k:, u: or t:");
	hook = calloc(1, sizeof(*hook));
	if (!hook)
		return -ENOMEM;
	hook->name = strndup(spec, strcspn(spec, "("));
	hook->set = strdup("user");
	hook->purpose = strdup("a probe of the user");
	hook->alternatives = calloc(1, sizeof(*hook->alternatives));
	if (!hook->name || !hook->set || !hook->purpose || !hook->alternatives) {
		hook_free(hook);
		return -ENOMEM;
	}
	hook->n_alternatives = 1;
	hook->alternatives->kind = *spec == 'k'   ? HOOK_FUNCTION
				   : *spec == 'u' ? HOOK_USER
						  : HOOK_TRACEPOINT;
	parser.at += 2;
	r = parse_place(&parser, hook->alternatives);
	if (!r)
		r = parse_rest(&parser, hook->alternatives);
	if (r) {
		hook_free(hook);
		return r;
	}
	*hookp = hook;
	return 0;
}
