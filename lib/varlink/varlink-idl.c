/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parser of varlink interface descriptions.
 *
 * Recursive descent without a token buffer: each function skips blanks and comments itself and
 * consumes what it knows. All nodes and names live in one arena that belongs to the interface, as
 * does a copy of the text for GetInterfaceDescription, so there is one free for everything and
 * half-built trees need no care. Names of types are resolved after the last member, since a type
 * may be used above the place where it is defined.
 *
 * The first problem is kept as line and reason; every function returns 0, VARLINK_IDL_E_SYNTAX or
 * -ENOMEM.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "varlink-idl.h"
#include "varlink-json.h"
#include "lib/base/utf8.h"

struct chunk {
	struct chunk *next;
	max_align_t data[];
};

struct varlink_interface {
	struct chunk *chunks;
	char *text;
	const char *name;
	struct varlink_member *members;
};

struct parser {
	struct varlink_interface *interface;
	const char *p;
	struct varlink_fault *fault;
};

/* Zeroed memory that lives as long as the interface. */
static void *interface_alloc(struct varlink_interface *interface, size_t size) {
	struct chunk *chunk = calloc(1, sizeof(*chunk) + size);

	if (!chunk)
		return NULL;
	chunk->next = interface->chunks;
	interface->chunks = chunk;
	return chunk->data;
}

/* Notes what is wrong at the present place. */
static int fail(struct parser *parser, const char *reason) {
	unsigned int line = 1;

	for (const char *p = parser->interface->text; p < parser->p; p++)
		line += *p == '\n';
	parser->fault->line = line;
	parser->fault->reason = reason;
	return VARLINK_IDL_E_SYNTAX;
}

/* Skips blanks, line ends and comments. */
static void skip(struct parser *parser) {
	for (;;) {
		parser->p += strspn(parser->p, " \t\r\n");
		if (*parser->p != '#')
			return;
		parser->p += strcspn(parser->p, "\n");
	}
}

/* Consumes @token if it is next. */
static bool accept(struct parser *parser, const char *token) {
	size_t n = strlen(token);

	skip(parser);
	if (strncmp(parser->p, token, n))
		return false;
	parser->p += n;
	return true;
}

static bool is_upper(char c) {
	return c >= 'A' && c <= 'Z';
}

static bool is_alpha(char c) {
	return is_upper(c) || (c >= 'a' && c <= 'z');
}

static bool is_alnum(char c) {
	return is_alpha(c) || (c >= '0' && c <= '9');
}

/* Consumes @n bytes as a name. */
static int take(struct parser *parser, size_t n, const char **namep) {
	char *name = interface_alloc(parser->interface, n + 1);

	if (!name)
		return -ENOMEM;
	memcpy(name, parser->p, n);
	parser->p += n;
	*namep = name;
	return 0;
}

/*
 * A name of two or more parts, joined by dots; a part has letters, digits and, not at its ends,
 * dashes.
 */
static int parse_interface_name(struct parser *parser, const char **namep) {
	size_t n = 0, dots = 0;

	skip(parser);
	if (!is_alpha(*parser->p))
		return fail(parser, "expected the name of the interface");
	for (;;) {
		if (!is_alnum(parser->p[n]))
			return fail(parser, "invalid name of an interface");
		while (is_alnum(parser->p[n]) ||
		       (parser->p[n] == '-' && parser->p[n + strspn(parser->p + n, "-")] != '.'))
			n++;
		if (parser->p[n - 1] == '-')
			return fail(parser, "invalid name of an interface");
		if (parser->p[n] != '.')
			break;
		dots++;
		n++;
	}
	if (!dots)
		return fail(parser, "the name of an interface has at least one dot");
	return take(parser, n, namep);
}

/* The name of a type, method or error. */
static int parse_member_name(struct parser *parser, const char **namep) {
	size_t n = 0;

	skip(parser);
	if (!is_upper(*parser->p))
		return fail(parser, "expected a name with a capital first letter");
	while (is_alnum(parser->p[n]))
		n++;
	return take(parser, n, namep);
}

/* The name of a field: letters, digits and single underscores inside. */
static int parse_field_name(struct parser *parser, const char **namep) {
	size_t n = 0;

	skip(parser);
	if (!is_alpha(*parser->p))
		return fail(parser, "expected the name of a field");
	while (is_alnum(parser->p[n]) || (parser->p[n] == '_' && is_alnum(parser->p[n + 1])))
		n++;
	return take(parser, n, namep);
}

static int parse_type(struct parser *parser, unsigned int depth, struct varlink_type **typep);

/*
 * After "(": fields up to ")". Fields with types make a struct, without an enum; none make an empty
 * struct.
 */
static int parse_fields(struct parser *parser, unsigned int depth, struct varlink_type *type) {
	struct varlink_field **nextp = &type->fields;
	bool first = true, has_types = true;
	int r;

	type->kind = VARLINK_STRUCT;
	if (accept(parser, ")"))
		return 0;
	do {
		struct varlink_field *field = interface_alloc(parser->interface, sizeof(*field));

		if (!field)
			return -ENOMEM;
		r = parse_field_name(parser, &field->name);
		if (r)
			return r;
		for (struct varlink_field *other = type->fields; other; other = other->next)
			if (!strcmp(other->name, field->name))
				return fail(parser, "a field of this name is there already");

		if (accept(parser, ":") != has_types) {
			if (!first)
				return fail(parser, "either all fields have a type or none");
			has_types = false;
			type->kind = VARLINK_ENUM;
		}
		first = false;
		if (has_types) {
			r = parse_type(parser, depth + 1, &field->type);
			if (r)
				return r;
		}
		*nextp = field;
		nextp = &field->next;
	} while (accept(parser, ","));

	return accept(parser, ")") ? 0 : fail(parser, "expected , or )");
}

/* Consumes a keyword that is not the beginning of a longer word. */
static bool accept_word(struct parser *parser, const char *word) {
	const char *p;

	skip(parser);
	p = parser->p;
	if (!accept(parser, word))
		return false;
	if (is_alnum(*parser->p) || *parser->p == '_') {
		parser->p = p;
		return false;
	}
	return true;
}

static int parse_type(struct parser *parser, unsigned int depth, struct varlink_type **typep) {
	static const struct {
		const char *word;
		enum varlink_kind kind;
	} basic[] = {
		{ "bool", VARLINK_BOOL },     { "int", VARLINK_INT },
		{ "float", VARLINK_FLOAT },   { "string", VARLINK_STRING },
		{ "object", VARLINK_OBJECT },
	};
	struct varlink_type *type;

	if (depth > VARLINK_IDL_DEPTH)
		return fail(parser, "types are nested too deep");
	type = *typep = interface_alloc(parser->interface, sizeof(*type));
	if (!type)
		return -ENOMEM;

	type->nullable = accept(parser, "?");
	if (type->nullable && accept(parser, "?"))
		return fail(parser, "?? is no type");
	if (accept(parser, "[]")) {
		type->kind = VARLINK_ARRAY;
		return parse_type(parser, depth + 1, &type->element);
	}
	if (accept(parser, "[string]")) {
		type->kind = VARLINK_MAP;
		return parse_type(parser, depth + 1, &type->element);
	}
	if (accept(parser, "("))
		return parse_fields(parser, depth, type);
	for (size_t i = 0; i < sizeof(basic) / sizeof(*basic); i++)
		if (accept_word(parser, basic[i].word)) {
			type->kind = basic[i].kind;
			return 0;
		}
	if (!is_upper(*parser->p))
		return fail(parser, "expected a type");
	type->kind = VARLINK_NAMED;
	return parse_member_name(parser, &type->name);
}

/* The parameters of a method or an error, or a whole struct or enum. */
static int parse_struct(struct parser *parser, struct varlink_type **typep) {
	if (!accept(parser, "("))
		return fail(parser, "expected (");
	*typep = interface_alloc(parser->interface, sizeof(**typep));
	return *typep ? parse_fields(parser, 0, *typep) : -ENOMEM;
}

static int parse_member(struct parser *parser, struct varlink_member *member) {
	int r;

	if (accept_word(parser, "type"))
		member->kind = VARLINK_MEMBER_TYPE;
	else if (accept_word(parser, "method"))
		member->kind = VARLINK_MEMBER_METHOD;
	else if (accept_word(parser, "error"))
		member->kind = VARLINK_MEMBER_ERROR;
	else
		return fail(parser, "expected type, method or error");

	r = parse_member_name(parser, &member->name);
	if (r)
		return r;
	for (struct varlink_member *other = parser->interface->members; other; other = other->next)
		if (!strcmp(other->name, member->name))
			return fail(parser, "a member of this name is there already");
	r = parse_struct(parser, &member->type);
	if (r)
		return r;
	if (member->kind == VARLINK_MEMBER_TYPE && !member->type->fields)
		return fail(parser, "a type has at least one field");
	if (member->kind != VARLINK_MEMBER_TYPE && member->type->kind == VARLINK_ENUM)
		return fail(parser, "parameters have types");
	if (member->kind != VARLINK_MEMBER_METHOD)
		return 0;
	if (!accept(parser, "->"))
		return fail(parser, "expected ->");
	r = parse_struct(parser, &member->reply);
	if (r)
		return r;
	if (member->reply->kind == VARLINK_ENUM)
		return fail(parser, "parameters have types");
	return 0;
}

/* Gives each named type in @type its definition. */
static int resolve(struct parser *parser, struct varlink_type *type) {
	const struct varlink_member *member;
	int r;

	for (; type->element; type = type->element)
		;
	if (type->kind == VARLINK_NAMED) {
		member = varlink_interface_find(parser->interface, VARLINK_MEMBER_TYPE, type->name);
		if (!member)
			return fail(parser, "a type is used but not defined");
		type->resolved = member->type;
	}
	for (struct varlink_field *field = type->fields; field; field = field->next) {
		r = field->type ? resolve(parser, field->type) : 0;
		if (r)
			return r;
	}
	return 0;
}

static int parse_interface(struct parser *parser) {
	struct varlink_member **nextp = &parser->interface->members;
	int r;

	if (!accept_word(parser, "interface"))
		return fail(parser, "expected interface");
	r = parse_interface_name(parser, &parser->interface->name);
	if (r)
		return r;
	for (skip(parser); *parser->p; skip(parser)) {
		struct varlink_member *member = interface_alloc(parser->interface, sizeof(*member));

		if (!member)
			return -ENOMEM;
		r = parse_member(parser, member);
		if (r)
			return r;
		*nextp = member;
		nextp = &member->next;
	}
	if (!parser->interface->members)
		return fail(parser, "an interface has at least one member");

	for (struct varlink_member *member = parser->interface->members; member;
	     member = member->next) {
		r = resolve(parser, member->type);
		if (!r && member->reply)
			r = resolve(parser, member->reply);
		if (r)
			return r;
	}
	return 0;
}

/*
 * Parses a description; the text is copied. Returns 0, VARLINK_IDL_E_SYNTAX with *@fault filled in,
 * or -ENOMEM.
 */
int varlink_interface_new(struct varlink_interface **interfacep, const char *text,
			  struct varlink_fault *fault) {
	struct varlink_interface *interface;
	struct parser parser;
	int r;

	*fault = (struct varlink_fault){};
	interface = calloc(1, sizeof(*interface));
	if (!interface)
		return -ENOMEM;
	interface->text = strndup(text, VARLINK_IDL_TEXT_MAX + 1);
	if (!interface->text) {
		varlink_interface_free(interface);
		return -ENOMEM;
	}
	parser = (struct parser){ .interface = interface, .p = interface->text, .fault = fault };
	if (strlen(interface->text) > VARLINK_IDL_TEXT_MAX ||
	    !utf8_valid(interface->text, strlen(interface->text)))
		r = fail(&parser, "too long, or not UTF-8");
	else
		r = parse_interface(&parser);
	if (r) {
		varlink_interface_free(interface);
		return r;
	}
	*interfacep = interface;
	return 0;
}

/* Frees an interface and all that was got from it; takes NULL. Returns NULL. */
struct varlink_interface *varlink_interface_free(struct varlink_interface *interface) {
	if (!interface)
		return NULL;
	for (struct chunk *chunk = interface->chunks, *next; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	free(interface->text);
	free(interface);
	return NULL;
}

const char *varlink_interface_name(const struct varlink_interface *interface) {
	return interface->name;
}

/* The text as it was given. */
const char *varlink_interface_text(const struct varlink_interface *interface) {
	return interface->text;
}

/* The members in the order of the text. */
const struct varlink_member *varlink_interface_members(const struct varlink_interface *interface) {
	return interface->members;
}

/* The member of this kind and name, or NULL. */
const struct varlink_member *varlink_interface_find(const struct varlink_interface *interface,
						    enum varlink_member_kind kind,
						    const char *name) {
	for (const struct varlink_member *member = interface->members; member;
	     member = member->next)
		if (member->kind == kind && !strcmp(member->name, name))
			return member;
	return NULL;
}
