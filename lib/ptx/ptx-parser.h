/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to ptx-module.c, ptx-body.c and ptx-declaration.c: a cursor over tokens, which either
 * come from the lexer one by one (module scope) or were collected before (a body), and what both
 * places parse alike.
 */

#include "ptx-module.h"

struct ptx_parser {
	const char *text;
	struct ptx_lexer lexer; /* used if tokens is NULL */
	const struct ptx_token *tokens; /* ends with PTX_TOKEN_END */
	uint32_t position; /* of token in tokens */
	struct ptx_token token; /* the current one */
	uint32_t last_end; /* offset after the token before it */
	struct ptx_error *error;
};

/*
 * The next token becomes the current one. All functions here return 0, PTX_E_SYNTAX, PTX_E_LIMIT or
 * -ENOMEM.
 */
int ptx_parser_next(struct ptx_parser *parser);

/* Fills in the error at the current token: "expected <what>, not '...'". Returns PTX_E_SYNTAX. */
int ptx_parser_fail(struct ptx_parser *parser, const char *what);

static inline bool ptx_parser_at(const struct ptx_parser *parser, char c) {
	return ptx_token_is_char(parser->text, &parser->token, c);
}

static inline bool ptx_parser_at_word(const struct ptx_parser *parser, const char *word) {
	return ptx_token_is(parser->text, &parser->token, word);
}

/* Takes the punctuation c, or fails. */
int ptx_parser_expect(struct ptx_parser *parser, char c);

/* Is the current token a number: an integer, or WARP_SZ, which is 32? It is not taken. */
bool ptx_parser_at_number(const struct ptx_parser *parser, uint64_t *value);

/* The parser stands at the `<` of x<4>: takes it all. x<0> is nothing: it gets no name. */
int ptx_parser_count(struct ptx_parser *parser, struct ptx_range *name, uint32_t *count);

/* From the current token, an opening bracket, to behind the one that closes it. */
int ptx_parser_skip_brackets(struct ptx_parser *parser);

/* Up to (not including) a `;` outside brackets, or a `,` if comma is set. */
int ptx_parser_skip_to_end(struct ptx_parser *parser, bool comma);

/* .file 1 "name", 12, 34 and .loc 1 2 3, function_name L+4, inlined_at 5 6 7: without `;` */
int ptx_parser_file(struct ptx_parser *parser);
int ptx_parser_loc(struct ptx_parser *parser);

/* Makes room for one more than count elements; *capacity is updated. 0 or -ENOMEM. */
int ptx_array_grow(void **array, uint32_t *capacity, uint32_t count, size_t size);

#define PTX_ARRAY_ADD(array, capacity, count, value)                                               \
	({                                                                                         \
		int _r =                                                                           \
			ptx_array_grow((void **)&(array), &(capacity), (count), sizeof(*(array))); \
		if (!_r)                                                                           \
			(array)[(count)++] = (value);                                              \
		_r;                                                                                \
	})

/* What the directives before a name say. */
struct ptx_declaration {
	struct ptx_variable base; /* without name, text and array */
	uint32_t start; /* offset of the first directive */
};

/* Reads linkage, space, alignment, attributes, vector and type, up to the name. */
int ptx_declaration_prefix(struct ptx_parser *parser, struct ptx_declaration *declaration);

/* Reads a name and its array bounds. */
int ptx_declaration_name(struct ptx_parser *parser, const struct ptx_declaration *declaration,
			 struct ptx_variable *out);

/* Reads name[bounds] = initializer, ... up to and with `;`, appending to an array. */
int ptx_declaration_variables(struct ptx_parser *parser, const struct ptx_declaration *declaration,
			      struct ptx_variable **variables, uint32_t *capacity, uint32_t *count,
			      uint32_t statement);

/* Is the directive at the current token a linkage (.visible ...)? */
bool ptx_parser_at_linkage(const struct ptx_parser *parser, enum ptx_linkage *linkage);

/* Does a declaration begin here: with a state space, or with what may stand before one? */
bool ptx_parser_at_declaration(const struct ptx_parser *parser);

/*
 * ptx-lexer.c: the end of a comment that begins at offset; offset if there is none; UINT32_MAX if
 * it has no end.
 */
uint32_t ptx_comment_end(const char *text, uint32_t offset, uint32_t end);
