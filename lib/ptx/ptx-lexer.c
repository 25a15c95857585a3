/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Splits PTX text into tokens (ptx-lexer.h).
 *
 * The lexer follows what ptxas accepts rather than the manual alone: a string has no escapes and
 * ends at the next quote, a line that begins with `#` is skipped as the preprocessor's, `.5` and
 * `1.` are numbers, and `a.b::c` is one word while `a .b` is a word and a directive. Each byte is
 * classified once through a table; nothing looks further than the end that the lexer was given.
 */

#include "ptx-parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum byte_class {
	BYTE_OTHER = 0,
	BYTE_SPACE = 1,
	BYTE_LETTER = 2, /* also _ and $ */
	BYTE_DIGIT = 4,
	BYTE_PUNCTUATION = 8,
	BYTE_FOLLOW = BYTE_LETTER | BYTE_DIGIT,
};

static const uint8_t byte_classes[256] = {
	['\t'] = BYTE_SPACE,      ['\n'] = BYTE_SPACE,         ['\r'] = BYTE_SPACE,
	[' '] = BYTE_SPACE,       ['a' ... 'z'] = BYTE_LETTER, ['A' ... 'Z'] = BYTE_LETTER,
	['_'] = BYTE_LETTER,      ['$'] = BYTE_LETTER,         ['0' ... '9'] = BYTE_DIGIT,
	['{'] = BYTE_PUNCTUATION, ['}'] = BYTE_PUNCTUATION,    ['('] = BYTE_PUNCTUATION,
	[')'] = BYTE_PUNCTUATION, ['['] = BYTE_PUNCTUATION,    [']'] = BYTE_PUNCTUATION,
	['<'] = BYTE_PUNCTUATION, ['>'] = BYTE_PUNCTUATION,    [','] = BYTE_PUNCTUATION,
	[';'] = BYTE_PUNCTUATION, [':'] = BYTE_PUNCTUATION,    ['@'] = BYTE_PUNCTUATION,
	['!'] = BYTE_PUNCTUATION, ['='] = BYTE_PUNCTUATION,    ['+'] = BYTE_PUNCTUATION,
	['-'] = BYTE_PUNCTUATION, ['*'] = BYTE_PUNCTUATION,    ['/'] = BYTE_PUNCTUATION,
	['%'] = BYTE_PUNCTUATION, ['&'] = BYTE_PUNCTUATION,    ['|'] = BYTE_PUNCTUATION,
	['^'] = BYTE_PUNCTUATION, ['~'] = BYTE_PUNCTUATION,    ['?'] = BYTE_PUNCTUATION,
};

static bool byte_is(unsigned char byte, unsigned int classes) {
	return byte_classes[byte] & classes;
}

void ptx_error_set(struct ptx_error *error, const char *text, uint32_t offset, const char *format,
		   ...) {
	uint32_t line_start = 0;
	va_list arguments;

	error->offset = offset;
	error->line = 1;
	for (uint32_t i = 0; i < offset; i++) {
		if (text[i] == '\n') {
			error->line++;
			line_start = i + 1;
		}
	}
	error->column = offset - line_start + 1;
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	for (char *c = error->message; *c; c++)
		if (*c < ' ' || *c == 0x7f)
			*c = '?'; /* one line of ASCII, whatever was quoted */
}

void ptx_lexer_init(struct ptx_lexer *lexer, const char *text, uint32_t begin, uint32_t end) {
	*lexer = (struct ptx_lexer){ .text = text, .length = end, .position = begin };
}

/* Does the line have nothing but white space before offset? */
static bool at_line_start(const char *text, uint32_t offset) {
	while (offset > 0 && text[offset - 1] != '\n') {
		if (!byte_is(text[offset - 1], BYTE_SPACE))
			return false;
		offset--;
	}
	return true;
}

/*
 * If a comment or a preprocessor line begins at offset, returns the offset after it; offset itself
 * if none does, and UINT32_MAX if a comment does not end.
 */
uint32_t ptx_comment_end(const char *text, uint32_t offset, uint32_t end) {
	const char *at;

	if (text[offset] == '/' && offset + 1 < end && text[offset + 1] == '*') {
		for (uint32_t i = offset + 2; i + 1 < end; i++) {
			at = memchr(text + i, '*', end - 1 - i);
			if (!at)
				break;
			i = at - text;
			if (text[i + 1] == '/')
				return i + 2;
		}
		return UINT32_MAX;
	}
	if ((text[offset] == '/' && offset + 1 < end && text[offset + 1] == '/') ||
	    (text[offset] == '#' && at_line_start(text, offset))) {
		at = memchr(text + offset, '\n', end - offset);
		return at ? (uint32_t)(at - text) : end;
	}
	return offset;
}

/* Skips white space and comments. */
static int skip_blank(struct ptx_lexer *lexer, struct ptx_error *error) {
	uint32_t after;

	for (;;) {
		while (lexer->position < lexer->length &&
		       byte_is(lexer->text[lexer->position], BYTE_SPACE))
			lexer->position++;
		if (lexer->position == lexer->length)
			return 0;
		if (lexer->text[lexer->position] != '/' && lexer->text[lexer->position] != '#')
			return 0;
		after = ptx_comment_end(lexer->text, lexer->position, lexer->length);
		if (after == UINT32_MAX) {
			ptx_error_set(error, lexer->text, lexer->position, "comment without end");
			return PTX_E_SYNTAX;
		}
		if (after == lexer->position)
			return 0;
		lexer->position = after;
	}
}

static uint32_t follow_end(const struct ptx_lexer *lexer, uint32_t at) {
	while (at < lexer->length && byte_is(lexer->text[at], BYTE_FOLLOW))
		at++;
	return at;
}

/* A byte of the source, or NUL (which is no legal byte) past its end. */
static char byte_at(const struct ptx_lexer *lexer, uint32_t at) {
	return at < lexer->length ? lexer->text[at] : '\0';
}

/* The end of a dotted part whose first byte is at: `shared::cluster` is one part. */
static uint32_t part_end(const struct ptx_lexer *lexer, uint32_t at) {
	at = follow_end(lexer, at);
	while (byte_at(lexer, at) == ':' && byte_at(lexer, at + 1) == ':' &&
	       byte_is(byte_at(lexer, at + 2), BYTE_FOLLOW))
		at = follow_end(lexer, at + 2);
	return at;
}

static uint32_t word_end(const struct ptx_lexer *lexer, uint32_t at) {
	at = follow_end(lexer, at + 1);
	while (byte_at(lexer, at) == '.' && byte_is(byte_at(lexer, at + 1), BYTE_FOLLOW))
		at = part_end(lexer, at + 1);
	return at;
}

static uint32_t digits_end(const struct ptx_lexer *lexer, uint32_t at) {
	while (byte_is(byte_at(lexer, at), BYTE_DIGIT))
		at++;
	return at;
}

static bool is_hex(char c) {
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* After the digits of a decimal number: an exponent, if one is there. */
static uint32_t exponent_end(const struct ptx_lexer *lexer, uint32_t at) {
	uint32_t digits = at + 1;

	if (byte_at(lexer, at) != 'e' && byte_at(lexer, at) != 'E')
		return at;
	if (byte_at(lexer, digits) == '+' || byte_at(lexer, digits) == '-')
		digits++;
	return byte_is(byte_at(lexer, digits), BYTE_DIGIT) ? digits_end(lexer, digits) : at;
}

/* A number that begins with a digit. Returns its end, or the start if it is none. */
static uint32_t number_end(const struct ptx_lexer *lexer, uint32_t at, enum ptx_token_kind *kind) {
	char second = byte_at(lexer, at + 1) | 0x20;
	uint32_t start = at, end;

	*kind = PTX_TOKEN_INTEGER;
	if (byte_at(lexer, at) == '0' && (second == 'f' || second == 'd')) {
		*kind = PTX_TOKEN_FLOAT;
		end = at + 2 + (second == 'f' ? 8 : 16);
		for (at += 2; at < end; at++)
			if (!is_hex(byte_at(lexer, at)))
				return start;
	} else if (byte_at(lexer, at) == '0' && second == 'x') {
		for (at += 2; is_hex(byte_at(lexer, at));)
			at++;
		if (at == start + 2)
			return start;
	} else if (byte_at(lexer, at) == '0' && second == 'b') {
		for (at += 2; byte_at(lexer, at) == '0' || byte_at(lexer, at) == '1';)
			at++;
		if (at == start + 2)
			return start;
	} else {
		at = digits_end(lexer, at);
		end = at;
		if (byte_at(lexer, end) == '.')
			end = digits_end(lexer, end + 1);
		end = exponent_end(lexer, end);
		if (end > at)
			*kind = PTX_TOKEN_FLOAT;
		at = end;
	}
	if (*kind == PTX_TOKEN_INTEGER && (byte_at(lexer, at) | 0x20) == 'u')
		at++;
	return byte_is(byte_at(lexer, at), BYTE_FOLLOW) ? start : at;
}

/* A token that begins with a dot: `.entry`, `.2d`, `.debug_info`, or the number `.5`. */
static uint32_t dot_end(const struct ptx_lexer *lexer, uint32_t at, enum ptx_token_kind *kind) {
	uint32_t end = digits_end(lexer, at + 1);

	if (end > at + 1) {
		end = exponent_end(lexer, end);
		if (!byte_is(byte_at(lexer, end), BYTE_FOLLOW)) {
			*kind = PTX_TOKEN_FLOAT;
			return end;
		}
	}
	*kind = PTX_TOKEN_DIRECTIVE;
	end = part_end(lexer, at + 1);
	return end > at + 1 ? end : at;
}

static int fail(const struct ptx_lexer *lexer, struct ptx_error *error, const char *what) {
	unsigned char byte = lexer->text[lexer->position];

	if (byte > ' ' && byte < 0x7f)
		ptx_error_set(error, lexer->text, lexer->position, "%s at '%c'", what, byte);
	else
		ptx_error_set(error, lexer->text, lexer->position, "%s at byte 0x%02x", what, byte);
	return PTX_E_SYNTAX;
}

int ptx_lexer_next(struct ptx_lexer *lexer, struct ptx_token *token, struct ptx_error *error) {
	enum ptx_token_kind kind = PTX_TOKEN_PUNCTUATION;
	uint32_t at, end;
	const char *quote;
	unsigned char byte;
	int r;

	r = skip_blank(lexer, error);
	if (r)
		return r;
	at = lexer->position;
	if (at >= lexer->length) {
		*token = (struct ptx_token){ .offset = at, .kind = PTX_TOKEN_END };
		return 0;
	}
	byte = lexer->text[at];
	if (byte_is(byte, BYTE_LETTER) ||
	    (byte == '%' && byte_is(byte_at(lexer, at + 1), BYTE_FOLLOW))) {
		kind = PTX_TOKEN_WORD;
		end = word_end(lexer, at);
	} else if (byte_is(byte, BYTE_PUNCTUATION)) {
		end = at + 1;
	} else if (byte == '.') {
		end = dot_end(lexer, at, &kind);
		if (end == at)
			return fail(lexer, error, "no directive after the dot");
	} else if (byte_is(byte, BYTE_DIGIT)) {
		end = number_end(lexer, at, &kind);
		if (end == at)
			return fail(lexer, error, "malformed number");
	} else if (byte == '"') {
		kind = PTX_TOKEN_STRING;
		quote = memchr(lexer->text + at + 1, '"', lexer->length - at - 1);
		if (!quote)
			return fail(lexer, error, "string without end");
		end = quote - lexer->text + 1;
	} else {
		return fail(lexer, error, "unexpected character");
	}
	*token = (struct ptx_token){ .offset = at, .length = end - at, .kind = kind };
	lexer->position = end;
	return 0;
}

bool ptx_integer_value(const char *text, uint32_t length, uint64_t *value) {
	unsigned int base = 10, digit;
	uint64_t result = 0;
	uint32_t i = 0;

	if (length && (text[length - 1] | 0x20) == 'u')
		length--;
	if (length > 2 && text[0] == '0' && (text[1] | 0x20) == 'x') {
		base = 16;
		i = 2;
	} else if (length > 2 && text[0] == '0' && (text[1] | 0x20) == 'b') {
		base = 2;
		i = 2;
	} else if (length > 1 && text[0] == '0') {
		base = 8;
		i = 1;
	}
	if (i == length)
		return false;
	for (; i < length; i++) {
		if (!is_hex(text[i]))
			return false;
		digit = text[i] <= '9' ? text[i] - '0' : (text[i] | 0x20) - 'a' + 10;
		if (digit >= base || __builtin_mul_overflow(result, base, &result) ||
		    __builtin_add_overflow(result, digit, &result))
			return false;
	}
	*value = result;
	return true;
}

bool ptx_float_bits(const char *text, uint32_t length, uint64_t *bits, unsigned int *width) {
	char copy[512], *end;
	uint64_t pattern = 0;
	double value;

	if (length > 2 && text[0] == '0' && ((text[1] | 0x20) == 'f' || (text[1] | 0x20) == 'd')) {
		if (length != ((text[1] | 0x20) == 'f' ? 10 : 18))
			return false;
		for (uint32_t i = 2; i < length; i++) {
			if (!is_hex(text[i]))
				return false;
			pattern = pattern << 4 |
				  (text[i] <= '9' ? text[i] - '0' : (text[i] | 0x20) - 'a' + 10);
		}
		*bits = pattern;
		*width = length == 10 ? 32 : 64;
		return true;
	}
	if (!length || length >= sizeof(copy))
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	for (uint32_t i = 0; i < length; i++)
		if (!byte_is(copy[i], BYTE_DIGIT) && !strchr(".eE+-", copy[i]))
			return false;
	value = strtod(copy, &end);
	if (*end)
		return false;
	memcpy(bits, &value, sizeof(value));
	*width = 64;
	return true;
}
