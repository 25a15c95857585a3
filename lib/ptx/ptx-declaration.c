/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses declarations of PTX, and has the cursor over tokens that all parsers use (ptx-parser.h).
 *
 * The cursor, and declarations: `.visible .global .align 4 .v2 .f32 x[3][4] = {...}, y;` reads the
 * same at module scope, in a body and (without linkage and initializer) in a parameter list. The
 * directives before the name are taken in any order; ptxas lets .align and .attribute stand before
 * the state space, too. Where PTX has a number, WARP_SZ may stand. Bounds that do not multiply to
 * 64 bits are an error.
 */

#include "ptx-parser.h"

#include <errno.h>
#include <stdlib.h>

static const struct {
	const char *name;
	uint8_t type;
	uint8_t size;
} types[] = {
	{ "b32", PTX_TYPE_B32, 4 },         { "b64", PTX_TYPE_B64, 8 },
	{ "u32", PTX_TYPE_U32, 4 },         { "u64", PTX_TYPE_U64, 8 },
	{ "f32", PTX_TYPE_F32, 4 },         { "f64", PTX_TYPE_F64, 8 },
	{ "s32", PTX_TYPE_S32, 4 },         { "s64", PTX_TYPE_S64, 8 },
	{ "b8", PTX_TYPE_B8, 1 },           { "b16", PTX_TYPE_B16, 2 },
	{ "b128", PTX_TYPE_B128, 16 },      { "u8", PTX_TYPE_U8, 1 },
	{ "u16", PTX_TYPE_U16, 2 },         { "s8", PTX_TYPE_S8, 1 },
	{ "s16", PTX_TYPE_S16, 2 },         { "pred", PTX_TYPE_PRED, 1 },
	{ "f16", PTX_TYPE_F16, 2 },         { "f16x2", PTX_TYPE_F16X2, 4 },
	{ "bf16", PTX_TYPE_BF16, 2 },       { "bf16x2", PTX_TYPE_BF16X2, 4 },
	{ "texref", PTX_TYPE_TEXREF, 8 },   { "samplerref", PTX_TYPE_SAMPLERREF, 8 },
	{ "surfref", PTX_TYPE_SURFREF, 8 }, { "tf32", PTX_TYPE_OTHER, 0 },
	{ "e4m3", PTX_TYPE_OTHER, 0 },      { "e5m2", PTX_TYPE_OTHER, 0 },
	{ "e4m3x2", PTX_TYPE_OTHER, 0 },    { "e5m2x2", PTX_TYPE_OTHER, 0 },
};

static const struct {
	const char *name;
	enum ptx_space space;
} spaces[] = {
	{ ".reg", PTX_SPACE_REG },       { ".param", PTX_SPACE_PARAM },
	{ ".global", PTX_SPACE_GLOBAL }, { ".const", PTX_SPACE_CONST },
	{ ".shared", PTX_SPACE_SHARED }, { ".local", PTX_SPACE_LOCAL },
	{ ".tex", PTX_SPACE_TEX },       { ".sreg", PTX_SPACE_SREG },
};

static const struct {
	const char *name;
	enum ptx_linkage linkage;
} linkages[] = {
	{ ".visible", PTX_LINKAGE_VISIBLE },
	{ ".extern", PTX_LINKAGE_EXTERN },
	{ ".weak", PTX_LINKAGE_WEAK },
	{ ".common", PTX_LINKAGE_COMMON },
};

#define ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

enum ptx_type ptx_type_from_name(const char *name, size_t length) {
	if (length && *name == '.') {
		name++;
		length--;
	}
	for (size_t i = 0; i < ELEMENTS(types); i++)
		if (strlen(types[i].name) == length && !memcmp(types[i].name, name, length))
			return types[i].type;
	return PTX_TYPE_NONE;
}

unsigned int ptx_type_size(enum ptx_type type) {
	for (size_t i = 0; i < ELEMENTS(types); i++)
		if (types[i].type == type)
			return types[i].size;
	return 0;
}

int ptx_array_grow(void **array, uint32_t *capacity, uint32_t count, size_t size) {
	uint32_t larger;
	void *moved;

	if (count < *capacity)
		return 0;
	larger = *capacity ? *capacity * 2 : 16;
	if (larger <= *capacity)
		return -ENOMEM;
	moved = reallocarray(*array, larger, size);
	if (!moved)
		return -ENOMEM;
	*array = moved;
	*capacity = larger;
	return 0;
}

int ptx_parser_next(struct ptx_parser *parser) {
	parser->last_end = parser->token.offset + parser->token.length;
	if (!parser->tokens)
		return ptx_lexer_next(&parser->lexer, &parser->token, parser->error);
	if (parser->tokens[parser->position].kind != PTX_TOKEN_END)
		parser->position++;
	parser->token = parser->tokens[parser->position];
	return 0;
}

int ptx_parser_fail(struct ptx_parser *parser, const char *what) {
	const struct ptx_token *token = &parser->token;

	if (token->kind == PTX_TOKEN_END)
		ptx_error_set(parser->error, parser->text, token->offset,
			      "expected %s, not the end", what);
	else
		ptx_error_set(parser->error, parser->text, token->offset,
			      "expected %s, not '%.*s%s'", what,
			      (int)(token->length > 64 ? 64 : token->length),
			      parser->text + token->offset, token->length > 64 ? "..." : "");
	return PTX_E_SYNTAX;
}

int ptx_parser_expect(struct ptx_parser *parser, char c) {
	char what[] = { '\'', c, '\'', '\0' };

	if (!ptx_parser_at(parser, c))
		return ptx_parser_fail(parser, what);
	return ptx_parser_next(parser);
}

bool ptx_parser_at_number(const struct ptx_parser *parser, uint64_t *value) {
	*value = 32;
	return ptx_parser_at_word(parser, "WARP_SZ") ||
	       (parser->token.kind == PTX_TOKEN_INTEGER &&
		ptx_integer_value(parser->text + parser->token.offset, parser->token.length,
				  value));
}

int ptx_parser_count(struct ptx_parser *parser, struct ptx_range *name, uint32_t *count) {
	uint64_t value;
	int r;

	r = ptx_parser_next(parser);
	if (r)
		return r;
	if (!ptx_parser_at_number(parser, &value) || value >= PTX_NONE)
		return ptx_parser_fail(parser, "how many there are");
	*count = value;
	if (!value)
		name->length = 0;
	r = ptx_parser_next(parser);
	return r ? r : ptx_parser_expect(parser, '>');
}

/* What a bracket does to the depth: 1, -1 or 0. */
static int bracket(const char *text, const struct ptx_token *token) {
	if (token->kind != PTX_TOKEN_PUNCTUATION)
		return 0;
	switch (text[token->offset]) {
	case '(':
	case '[':
	case '{':
		return 1;
	case ')':
	case ']':
	case '}':
		return -1;
	default:
		return 0;
	}
}

static char closing(char opening) {
	return opening == '(' ? ')' : opening == '[' ? ']' : '}';
}

int ptx_parser_skip_brackets(struct ptx_parser *parser) {
	char open[PTX_NESTING_MAX];
	unsigned int depth = 0;
	int r, change;

	do {
		change = bracket(parser->text, &parser->token);
		if (parser->token.kind == PTX_TOKEN_END)
			return ptx_parser_fail(parser, "a closing bracket");
		if (change > 0) {
			if (depth == PTX_NESTING_MAX) {
				ptx_error_set(parser->error, parser->text, parser->token.offset,
					      "more than %d brackets in brackets", PTX_NESTING_MAX);
				return PTX_E_LIMIT;
			}
			open[depth++] = closing(parser->text[parser->token.offset]);
		} else if (change < 0 && open[--depth] != parser->text[parser->token.offset]) {
			return ptx_parser_fail(parser, "another closing bracket");
		}
		r = ptx_parser_next(parser);
		if (r)
			return r;
	} while (depth);
	return 0;
}

int ptx_parser_skip_to_end(struct ptx_parser *parser, bool comma) {
	int r = 0, change;

	while (!r) {
		if (ptx_parser_at(parser, ';') || (comma && ptx_parser_at(parser, ',')))
			return 0;
		change = bracket(parser->text, &parser->token);
		if (parser->token.kind == PTX_TOKEN_END || change < 0)
			return ptx_parser_fail(parser, "';'");
		r = change > 0 ? ptx_parser_skip_brackets(parser) : ptx_parser_next(parser);
	}
	return r;
}

static int expect_kind(struct ptx_parser *parser, enum ptx_token_kind kind, const char *what) {
	return parser->token.kind == kind ? ptx_parser_next(parser) : ptx_parser_fail(parser, what);
}

int ptx_parser_file(struct ptx_parser *parser) {
	int r;

	r = ptx_parser_next(parser);
	if (!r)
		r = expect_kind(parser, PTX_TOKEN_INTEGER, "the number of the file");
	if (!r)
		r = expect_kind(parser, PTX_TOKEN_STRING, "the name of the file");
	while (!r && ptx_parser_at(parser, ',')) {
		r = ptx_parser_next(parser);
		if (!r)
			r = expect_kind(parser, PTX_TOKEN_INTEGER, "a number");
	}
	return r;
}

/* file line column: the column may be missing */
static int position(struct ptx_parser *parser) {
	int r;

	r = expect_kind(parser, PTX_TOKEN_INTEGER, "the number of a file");
	if (!r)
		r = expect_kind(parser, PTX_TOKEN_INTEGER, "the number of a line");
	if (!r && parser->token.kind == PTX_TOKEN_INTEGER)
		r = ptx_parser_next(parser);
	return r;
}

int ptx_parser_loc(struct ptx_parser *parser) {
	int r;

	r = ptx_parser_next(parser);
	if (!r)
		r = position(parser);
	while (!r && ptx_parser_at(parser, ',')) {
		r = ptx_parser_next(parser);
		if (r)
			return r;
		if (ptx_parser_at_word(parser, "inlined_at")) {
			r = ptx_parser_next(parser);
			if (!r)
				r = position(parser);
		} else if (ptx_parser_at_word(parser, "function_name")) {
			r = ptx_parser_next(parser);
			if (!r && parser->token.kind != PTX_TOKEN_DIRECTIVE)
				r = expect_kind(parser, PTX_TOKEN_WORD, "a label");
			else if (!r)
				r = ptx_parser_next(parser);
			if (!r && ptx_parser_at(parser, '+')) {
				r = ptx_parser_next(parser);
				if (!r)
					r = expect_kind(parser, PTX_TOKEN_INTEGER, "an offset");
			}
		} else {
			return ptx_parser_fail(parser, "'function_name' or 'inlined_at'");
		}
	}
	return r;
}

bool ptx_parser_at_linkage(const struct ptx_parser *parser, enum ptx_linkage *linkage) {
	for (size_t i = 0; i < ELEMENTS(linkages); i++) {
		if (ptx_parser_at_word(parser, linkages[i].name)) {
			*linkage = linkages[i].linkage;
			return true;
		}
	}
	return false;
}

static bool at_space(const struct ptx_parser *parser, enum ptx_space *space) {
	for (size_t i = 0; i < ELEMENTS(spaces); i++) {
		if (ptx_parser_at_word(parser, spaces[i].name)) {
			*space = spaces[i].space;
			return true;
		}
	}
	return false;
}

bool ptx_parser_at_declaration(const struct ptx_parser *parser) {
	enum ptx_space space;

	return at_space(parser, &space) || ptx_parser_at_word(parser, ".align") ||
	       ptx_parser_at_word(parser, ".attribute");
}

/* .align 16 */
static int alignment(struct ptx_parser *parser, uint32_t *out) {
	uint64_t value;
	int r;

	r = ptx_parser_next(parser);
	if (r)
		return r;
	if (!ptx_parser_at_number(parser, &value) || !value || value > 1 << 30 ||
	    (value & (value - 1)))
		return ptx_parser_fail(parser, "an alignment (a power of two)");
	*out = value;
	return ptx_parser_next(parser);
}

/*
 * One directive of a declaration. pointer: after `.ptr`, where space and alignment are those of
 * what is pointed to.
 */
static int prefix_part(struct ptx_parser *parser, struct ptx_variable *base, bool *pointer) {
	enum ptx_linkage linkage;
	enum ptx_space space;
	enum ptx_type type;
	uint32_t align = 0;
	int r;

	if (ptx_parser_at_word(parser, ".align")) {
		r = alignment(parser, &align);
		if (!r && !*pointer)
			base->alignment = align;
		return r;
	}
	if (ptx_parser_at_word(parser, ".attribute")) {
		r = ptx_parser_next(parser);
		if (r)
			return r;
		return ptx_parser_at(parser, '(') ? ptx_parser_skip_brackets(parser)
						  : ptx_parser_fail(parser, "'('");
	}
	if (ptx_parser_at_linkage(parser, &linkage)) {
		base->linkage = linkage;
	} else if (at_space(parser, &space)) {
		if (!*pointer)
			base->space = space;
		r = ptx_parser_next(parser);
		if (!r && space == PTX_SPACE_CONST &&
		    ptx_parser_at(parser, '[')) /* .const[3], of PTX 2 */
			r = ptx_parser_skip_brackets(parser);
		return r;
	} else if (ptx_parser_at_word(parser, ".ptr")) {
		*pointer = true;
	} else if (parser->token.length == 3 && parser->text[parser->token.offset + 1] == 'v' &&
		   strchr("248", parser->text[parser->token.offset + 2])) {
		base->vector = parser->text[parser->token.offset + 2] - '0';
	} else {
		type = ptx_type_from_name(parser->text + parser->token.offset,
					  parser->token.length);
		if (type == PTX_TYPE_NONE)
			return ptx_parser_fail(parser, "a type, a state space or an attribute");
		base->type = type;
	}
	return ptx_parser_next(parser);
}

int ptx_declaration_prefix(struct ptx_parser *parser, struct ptx_declaration *declaration) {
	bool pointer = false;
	int r;

	*declaration = (struct ptx_declaration){
		.base = { .vector = 1, .elements = 1, .statement = PTX_NONE },
		.start = parser->token.offset,
	};
	while (parser->token.kind == PTX_TOKEN_DIRECTIVE) {
		r = prefix_part(parser, &declaration->base, &pointer);
		if (r)
			return r;
	}
	if (declaration->base.type == PTX_TYPE_NONE)
		return ptx_parser_fail(parser, "a type");
	return 0;
}

/* [3]: multiplies it in; or []: *open. */
static int bound(struct ptx_parser *parser, uint64_t *elements, bool *open) {
	uint64_t value = 1;
	int r;

	r = ptx_parser_next(parser);
	if (r)
		return r;
	if (ptx_parser_at(parser, ']')) {
		*open = true;
	} else {
		if (!ptx_parser_at_number(parser, &value))
			return ptx_parser_fail(parser, "an array bound");
		r = ptx_parser_next(parser);
		if (r)
			return r;
	}
	if (__builtin_mul_overflow(*elements, value, elements))
		return ptx_parser_fail(parser, "a smaller array bound");
	return ptx_parser_expect(parser, ']');
}

/* Reads a name and its bounds; *open if one is, which elements does not count then. */
static int read_name(struct ptx_parser *parser, const struct ptx_declaration *declaration,
		     struct ptx_variable *out, bool *open) {
	int r;

	*open = false;
	*out = declaration->base;
	if (parser->token.kind != PTX_TOKEN_WORD)
		return ptx_parser_fail(parser, "a name");
	out->name = (struct ptx_range){ parser->token.offset, parser->token.length };
	r = ptx_parser_next(parser);
	while (!r && ptx_parser_at(parser, '[')) {
		out->array = true;
		r = bound(parser, &out->elements, open);
	}
	out->text = (struct ptx_range){ declaration->start, parser->last_end - declaration->start };
	return r;
}

/* Of an array of `repeated` times as many elements as there are. */
static int set_size(struct ptx_parser *parser, struct ptx_variable *out, uint64_t repeated) {
	if (__builtin_mul_overflow(out->elements, repeated, &out->elements) ||
	    __builtin_mul_overflow(out->elements, (uint64_t)out->vector * ptx_type_size(out->type),
				   &out->size))
		return ptx_parser_fail(parser, "a smaller array bound");
	return 0;
}

int ptx_declaration_name(struct ptx_parser *parser, const struct ptx_declaration *declaration,
			 struct ptx_variable *out) {
	bool open;
	int r;

	r = read_name(parser, declaration, out, &open);
	return r ? r : set_size(parser, out, !open);
}

/*
 * The first bound of an open array that is initialized: how many values the outermost braces have,
 * of which several make an element if they have no braces of their own.
 */
static uint64_t first_bound(struct ptx_parser *parser, const struct ptx_variable *variable) {
	uint64_t count = 0, element = variable->elements * variable->vector;
	struct ptx_range range = variable->initializer;
	struct ptx_lexer lexer;
	struct ptx_token token;
	int depth = 0;

	ptx_lexer_init(&lexer, parser->text, range.offset, range.offset + range.length);
	while (!ptx_lexer_next(&lexer, &token, parser->error) && token.kind != PTX_TOKEN_END) {
		int change = bracket(parser->text, &token);

		if (depth == 1 && !count && change >= 0)
			count = 1;
		if (depth == 1 && ptx_token_is_char(parser->text, &token, '{'))
			element = 1;
		if (depth == 1 && ptx_token_is_char(parser->text, &token, ','))
			count++;
		depth += change;
	}
	return element ? count / element + !!(count % element) : 0;
}

/* name[bounds] = initializer, or name<count> */
static int declarator(struct ptx_parser *parser, const struct ptx_declaration *declaration,
		      struct ptx_variable *out) {
	uint32_t start;
	bool open;
	int r;

	r = read_name(parser, declaration, out, &open);
	if (r)
		return r;
	if (!ptx_parser_at(parser, '=')) {
		r = set_size(parser, out, !open);
		if (!r && ptx_parser_at(parser, '<') && !out->array)
			r = ptx_parser_count(parser, &out->name, &out->count);
		return r;
	}
	r = ptx_parser_next(parser);
	start = parser->token.offset;
	if (!r && (ptx_parser_at(parser, ';') || ptx_parser_at(parser, ',')))
		return ptx_parser_fail(parser, "an initial value");
	if (!r)
		r = ptx_parser_skip_to_end(parser, true);
	if (r)
		return r;
	out->initializer = (struct ptx_range){ start, parser->last_end - start };
	return set_size(parser, out, open ? first_bound(parser, out) : 1);
}

int ptx_declaration_variables(struct ptx_parser *parser, const struct ptx_declaration *declaration,
			      struct ptx_variable **variables, uint32_t *capacity, uint32_t *count,
			      uint32_t statement) {
	struct ptx_variable variable;
	uint32_t first = *count;
	int r;

	for (;;) {
		r = declarator(parser, declaration, &variable);
		if (r)
			return r;
		variable.statement = statement;
		if (variable.name.length)
			r = PTX_ARRAY_ADD(*variables, *capacity, *count, variable);
		if (r)
			return r;
		if (ptx_parser_at(parser, ';'))
			break;
		r = ptx_parser_expect(parser, ',');
		if (r)
			return r;
	}
	r = ptx_parser_next(parser);
	for (uint32_t i = first; !r && i < *count; i++)
		(*variables)[i].text.length = parser->last_end - declaration->start;
	return r;
}
