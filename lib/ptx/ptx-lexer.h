/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tokens of PTX text.
 *
 * A token is a kind and a range of bytes in the source; nothing is copied. White space and comments
 * are what lies between one token and the next. The source is (pointer, length): no NUL is needed,
 * and a NUL byte inside is an error.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PTX_SOURCE_MAX (256u << 20) /* bytes of source that are accepted */

/* What the functions of ptx-*.h return when positive. */
enum {
	_PTX_E_SUCCESS,
	PTX_E_SYNTAX, /* not understood: struct ptx_error says where and why */
	PTX_E_LIMIT, /* larger, or nested deeper, than we accept; struct ptx_error says what */
};

/*
 * Where and why a text was not understood. line and column count from 1; message is one line of
 * ASCII.
 */
struct ptx_error {
	uint32_t offset;
	uint32_t line;
	uint32_t column;
	char message[232];
};

struct ptx_range {
	uint32_t offset;
	uint32_t length;
};

enum ptx_token_kind {
	PTX_TOKEN_END, /* of the source; length 0 */
	/* a name or mnemonic with all its parts: ld.L1::no_allocate.u32 %tid.x $L_1 _Z3kv %r1 _ */
	PTX_TOKEN_WORD,
	/* a dot and one word: .entry .b32 .debug_info; `.v4.f32` is two of them */
	PTX_TOKEN_DIRECTIVE,
	PTX_TOKEN_INTEGER, /* 12 0x1F 017 0b11 12U */
	PTX_TOKEN_FLOAT, /* 0f3F800000 0d3FF0000000000000 1.5 1e-3 */
	PTX_TOKEN_STRING, /* with its quotes */
	PTX_TOKEN_PUNCTUATION, /* one byte: { } ( ) [ ] < > , ; : @ ! = + - * / % & | ^ ~ ? */
};

struct ptx_token {
	uint32_t offset;
	uint32_t length;
	enum ptx_token_kind kind;
};

struct ptx_lexer {
	const char *text;
	uint32_t length;
	uint32_t position;
};

/* Starts at offset begin, ends before offset end; token offsets count from text. */
void ptx_lexer_init(struct ptx_lexer *lexer, const char *text, uint32_t begin, uint32_t end);

/* Reads the next token. Returns 0 (at the end again and again PTX_TOKEN_END) or PTX_E_SYNTAX. */
int ptx_lexer_next(struct ptx_lexer *lexer, struct ptx_token *token, struct ptx_error *error);

/* Fills in an error at an offset of text; computes line and column. */
void ptx_error_set(struct ptx_error *error, const char *text, uint32_t offset, const char *format,
		   ...) __attribute__((format(printf, 4, 5)));

/* The value of an integer token's text; false if it is not one or does not fit 64 bits. */
bool ptx_integer_value(const char *text, uint32_t length, uint64_t *value);

/*
 * The bits of a float token's text: 0f gives *bits a 32-bit pattern and *width 32; 0d and decimals
 * a 64-bit one and 64.
 */
bool ptx_float_bits(const char *text, uint32_t length, uint64_t *bits, unsigned int *width);

static inline bool ptx_token_is_char(const char *text, const struct ptx_token *token, char c) {
	return token->kind == PTX_TOKEN_PUNCTUATION && text[token->offset] == c;
}

static inline bool ptx_token_is(const char *text, const struct ptx_token *token, const char *word) {
	size_t length = strlen(word);

	return token->length == length && !memcmp(text + token->offset, word, length);
}

static inline bool ptx_range_is(const char *text, struct ptx_range range, const char *word) {
	size_t length = strlen(word);

	return range.length == length && !memcmp(text + range.offset, word, length);
}
