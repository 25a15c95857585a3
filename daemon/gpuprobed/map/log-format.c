/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Formats records of a log as lines of text (log-format.h). First it makes the bytes, whatever they
 * are; then it makes them printable.
 */

#include "log-format.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/text.h"
#include "proto/log-record.h"

#define LOG_WIDTH_MAX 128
#define LOG_RAW_SIZE (LOG_FORMAT_MAX + LOG_ARGS_MAX * (LOG_WIDTH_MAX + 4)) /* nothing is longer */

struct raw {
	size_t n;
	char bytes[LOG_RAW_SIZE];
};

/* %[flags][width][.precision][size]conversion */
struct conversion {
	bool left, plus, space, hash, zero;
	unsigned int width;
	int precision; /* -1: none */
	unsigned int bits; /* of the argument */
	char letter; /* P: an address as digits; s: what would be behind it */
	size_t n; /* bytes of the format */
};

static void raw_add(struct raw *raw, const char *bytes, size_t n) {
	if (n > sizeof(raw->bytes) - raw->n)
		n = sizeof(raw->bytes) - raw->n;
	memcpy(raw->bytes + raw->n, bytes, n);
	raw->n += n;
}

static void raw_fill(struct raw *raw, char byte, size_t n) {
	while (n--)
		raw_add(raw, &byte, 1);
}

/* Adds text in a field of the conversion's width. */
static void raw_add_field(struct raw *raw, const struct conversion *conversion, const char *text,
			  size_t n) {
	size_t pad = conversion->width > n ? conversion->width - n : 0;

	raw_fill(raw, ' ', conversion->left ? 0 : pad);
	raw_add(raw, text, n);
	raw_fill(raw, ' ', conversion->left ? pad : 0);
}

/* ---- the text of a conversion ---- */

/* A decimal number of the format, at most LOG_WIDTH_MAX. */
static unsigned int parse_number(const char *format, size_t n_format, size_t *atp) {
	unsigned int number = 0;

	for (; *atp < n_format && isdigit((unsigned char)format[*atp]); ++*atp) {
		number = number * 10 + (unsigned int)(format[*atp] - '0');
		if (number > LOG_WIDTH_MAX)
			number = LOG_WIDTH_MAX;
	}
	return number;
}

static void parse_flags(struct conversion *conversion, const char *format, size_t n_format,
			size_t *atp) {
	for (; *atp < n_format; ++*atp)
		switch (format[*atp]) {
		case '-':
			conversion->left = true;
			break;
		case '+':
			conversion->plus = true;
			break;
		case ' ':
			conversion->space = true;
			break;
		case '#':
			conversion->hash = true;
			break;
		case '0':
			conversion->zero = true;
			break;
		default:
			return;
		}
}

static void parse_size(struct conversion *conversion, const char *format, size_t n_format,
		       size_t *atp) {
	static const struct {
		const char *text;
		unsigned int bits;
	} sizes[] = { { "hh", 8 }, { "h", 16 }, { "ll", 64 }, { "l", 64 }, { "z", 64 } };

	conversion->bits = 32;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = strlen(sizes[i].text);

		if (n <= n_format - *atp && !memcmp(format + *atp, sizes[i].text, n)) {
			conversion->bits = sizes[i].bits;
			*atp += n;
			return;
		}
	}
}

/* What follows %p. False: the kernel does not know it either. */
static bool parse_pointer(struct conversion *conversion, const char *format, size_t n_format,
			  size_t *atp) {
	static const struct {
		const char *text;
		char letter;
	} kinds[] = { { "ks", 's' }, { "us", 's' }, { "i4", 's' }, { "I4", 's' },
		      { "i6", 's' }, { "I6", 's' }, { "K", 'P' },  { "x", 'P' },
		      { "s", 'P' },  { "S", 'P' },  { "B", 'P' } };

	conversion->letter = 'P';
	if (*atp == n_format || !isalnum((unsigned char)format[*atp]))
		return true;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t n = strlen(kinds[i].text);

		if (n <= n_format - *atp && !memcmp(format + *atp, kinds[i].text, n)) {
			conversion->letter = kinds[i].letter;
			*atp += n;
			return true;
		}
	}
	return false;
}

/* The conversion that begins with the % at format. False: it is none. */
static bool conversion_parse(struct conversion *conversion, const char *format, size_t n_format) {
	size_t at = 1;

	*conversion = (struct conversion){ .precision = -1 };
	parse_flags(conversion, format, n_format, &at);
	conversion->width = parse_number(format, n_format, &at);
	if (at < n_format && format[at] == '.') {
		at++;
		conversion->precision = (int)parse_number(format, n_format, &at);
	}
	parse_size(conversion, format, n_format, &at);
	if (at == n_format || !format[at] || !strchr("diuxXocps%", format[at]))
		return false;
	conversion->letter = format[at++];
	if (conversion->letter == '%' && at != 2)
		return false;
	if (conversion->letter == 'p' && !parse_pointer(conversion, format, n_format, &at))
		return false;
	conversion->n = at;
	return true;
}

/* ---- what it stands for ---- */

/* Puts the digits of value before digits[*np]; none for 0. */
static void digits_make(char *digits, size_t *np, uint64_t value, unsigned int base, bool upper) {
	const char *alphabet = upper ? "0123456789ABCDEF" : "0123456789abcdef";

	for (; value; value /= base)
		digits[--*np] = alphabet[value % base];
}

/* An integer as printf() has it. */
static void raw_add_integer(struct raw *raw, const struct conversion *conversion, uint64_t value) {
	const bool is_signed = conversion->letter == 'd' || conversion->letter == 'i';
	const unsigned int base = conversion->letter == 'o'                           ? 8
				  : tolower((unsigned char)conversion->letter) == 'x' ? 16
										      : 10;
	const unsigned int shift = 64 - conversion->bits;
	const bool negative = is_signed && (int64_t)(value << shift) < 0;
	char digits[64], prefix[3] = "";
	size_t first = sizeof(digits), n_prefix, n_digits, zeros, width = conversion->width;

	value = value << shift >> shift;
	if (negative)
		value = -value << shift >> shift;
	digits_make(digits, &first, value, base, conversion->letter == 'X');
	n_digits = sizeof(digits) - first;
	if (is_signed && (negative || conversion->plus || conversion->space))
		prefix[0] = negative ? '-' : conversion->plus ? '+' : ' ';
	else if (conversion->hash && base == 16 && value)
		memcpy(prefix, conversion->letter == 'X' ? "0X" : "0x", 2);
	n_prefix = strlen(prefix);
	zeros = conversion->precision < 0 ? 1 : (size_t)conversion->precision;
	zeros = zeros > n_digits ? zeros - n_digits : 0;
	if (conversion->hash && base == 8 && !zeros)
		zeros = 1;
	if (conversion->zero && !conversion->left && conversion->precision < 0 &&
	    width > n_prefix + zeros + n_digits)
		zeros = width - n_prefix - n_digits;
	width -= width > n_prefix + zeros + n_digits ? n_prefix + zeros + n_digits : width;
	raw_fill(raw, ' ', conversion->left ? 0 : width);
	raw_add(raw, prefix, n_prefix);
	raw_fill(raw, '0', zeros);
	raw_add(raw, digits + first, n_digits);
	raw_fill(raw, ' ', conversion->left ? width : 0);
}

static void raw_add_conversion(struct raw *raw, struct conversion *conversion, uint64_t value) {
	char text[32];
	size_t first = sizeof(text);

	switch (conversion->letter) {
	case 'c':
		text[0] = (char)value;
		raw_add_field(raw, conversion, text, 1);
		break;
	case 'P':
		digits_make(text, &first, value, 16, false);
		while (first > sizeof(text) - 16)
			text[--first] = '0';
		raw_add_field(raw, conversion, text + first, 16);
		break;
	case 's':
		text[--first] = '>';
		digits_make(text, &first, value, 16, false);
		if (!value)
			text[--first] = '0';
		first -= 3;
		memcpy(text + first, "<0x", 3);
		raw_add_field(raw, conversion, text + first, sizeof(text) - first);
		break;
	default:
		raw_add_integer(raw, conversion, value);
	}
}

static void raw_format(struct raw *raw, const char *format, size_t n_format,
		       const uint64_t *arguments, size_t n_arguments) {
	struct conversion conversion;

	for (size_t at = 0; at < n_format; at += conversion.n) {
		conversion.n = 1;
		if (format[at] != '%' ||
		    !conversion_parse(&conversion, format + at, n_format - at)) {
			conversion.n = 1;
			raw_add(raw, format + at, 1);
		} else if (conversion.letter == '%') {
			raw_add(raw, "%", 1);
		} else if (n_arguments) {
			raw_add_conversion(raw, &conversion, *arguments);
			arguments++;
			n_arguments--;
		} else {
			raw_add(raw, format + at, conversion.n);
		}
	}
}

/* ---- printable ---- */

static void make_printable(char text[static LOG_TEXT_SIZE], const char *raw, size_t n_raw) {
	size_t out = 0, column = 0;

	while (n_raw && raw[n_raw - 1] == '\n')
		n_raw--;
	for (size_t at = 0; at < n_raw && out < LOG_TEXT_SIZE - 8;) {
		size_t n = text_printable_length(raw + at, n_raw - at);
		unsigned char byte = (unsigned char)raw[at];

		if (n) {
			memcpy(text + out, raw + at, n);
			column++;
		} else if (byte == '\t') {
			n = 8 - column % 8;
			memset(text + out, ' ', n);
			column += n;
		} else if (byte == '\n') {
			n = 2;
			memcpy(text + out, "\\n", n);
			column += n;
		} else {
			n = 4;
			text[out] = '\\';
			text[out + 1] = 'x';
			text[out + 2] = "0123456789abcdef"[byte >> 4];
			text[out + 3] = "0123456789abcdef"[byte & 15];
			column += n;
		}
		out += n;
		at += text_printable_length(raw + at, n_raw - at) ?: 1;
	}
	text[out] = '\0';
}

void log_format(char text[static LOG_TEXT_SIZE], const char *format, size_t n_format,
		const uint64_t *arguments, size_t n_arguments) {
	struct raw raw = {};

	raw_format(&raw, format, n_format, arguments, n_arguments);
	make_printable(text, raw.bytes, raw.n);
}

int log_line_read(struct log_line *line, const void *record, size_t size) {
	uint64_t arguments[LOG_ARGS_MAX];
	struct log_record header;
	const char *text;
	size_t n_arguments;

	if (size < sizeof(header))
		return LOG_E_INVALID;
	memcpy(&header, record, sizeof(header));
	if ((header.kind != LOG_PRINTK && header.kind != LOG_PUTS) ||
	    header.arg_count > LOG_ARGS_MAX || header.format_length > LOG_FORMAT_MAX)
		return LOG_E_INVALID;
	n_arguments = header.arg_count * sizeof(arguments[0]);
	if (n_arguments + header.format_length > size - sizeof(header))
		return LOG_E_INVALID;
	memcpy(arguments, (const char *)record + sizeof(header), n_arguments);
	text = (const char *)record + sizeof(header) + n_arguments;
	if (header.kind == LOG_PRINTK)
		log_format(line->text, text, header.format_length, arguments, header.arg_count);
	else
		make_printable(line->text, text, header.format_length);
	line->time = header.time;
	line->program = header.program;
	return 0;
}
