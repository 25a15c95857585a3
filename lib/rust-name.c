/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Demangles names in Rust's own mangling, version 0 (rust-name.h).
 *
 * A parser that goes down the grammar of RFC 2603 and writes as it goes. A name comes from a
 * stranger, and a back reference in it may stand for any part before it, again and again: steps,
 * depth and output have bounds. What is not written (muted) is parsed all the same, to find out
 * where it ends.
 */

#include "rust-name.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX 20000
#define DEPTH_MAX 100
#define LIFETIMES_MAX 64

struct rust {
	const char *begin; /* behind _R: back references count from here */
	const char *at;
	char *text;
	size_t used, size;
	unsigned int muted, steps, depth;
	uint64_t lifetimes; /* bound by binders around */
	bool plain;
};

static bool path(struct rust *rust, bool in_value);
static bool type(struct rust *rust);

/* ---- output ---- */

static bool put(struct rust *rust, const char *text, size_t n) {
	if (rust->muted)
		return true;
	if (n >= rust->size - rust->used)
		return false;
	memcpy(rust->text + rust->used, text, n);
	rust->used += n;
	rust->text[rust->used] = '\0';
	return true;
}

__attribute__((format(printf, 2, 3))) static bool print(struct rust *rust, const char *format,
							...) {
	char text[64];
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return n >= 0 && (size_t)n < sizeof(text) && put(rust, text, (size_t)n);
}

/* ---- the smallest parts ---- */

static bool next_is(struct rust *rust, char c) {
	if (*rust->at != c)
		return false;
	rust->at++;
	return true;
}

/* One more step down. Each that succeeds has its rust->depth--. */
static bool enter(struct rust *rust) {
	if (rust->steps++ >= STEPS_MAX || rust->depth >= DEPTH_MAX)
		return false;
	rust->depth++;
	return true;
}

/* base-62-number: "_" is 0, "0_" is 1. */
static bool base62(struct rust *rust, uint64_t *value) {
	static const char digits[] =
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	uint64_t n = 0;

	if (next_is(rust, '_')) {
		*value = 0;
		return true;
	}
	for (; *rust->at != '_'; rust->at++) {
		const char *digit = *rust->at ? strchr(digits, *rust->at) : NULL;

		if (!digit || n > (UINT64_MAX - 62) / 62)
			return false;
		n = n * 62 + (uint64_t)(digit - digits);
	}
	rust->at++;
	*value = n + 1;
	return true;
}

/* A base-62-number behind a tag: 0 without the tag, else one more than it says. */
static bool tagged(struct rust *rust, char tag, uint64_t *value) {
	*value = 0;
	if (!next_is(rust, tag))
		return true;
	if (!base62(rust, value))
		return false;
	++*value;
	return true;
}

/* undisambiguated-identifier. */
struct identifier {
	const char *bytes;
	size_t n;
	bool punycode;
};

static bool identifier(struct rust *rust, struct identifier *id) {
	size_t n = 0;

	id->punycode = next_is(rust, 'u');
	if (*rust->at < '0' || *rust->at > '9')
		return false;
	if (!next_is(rust, '0'))
		for (; *rust->at >= '0' && *rust->at <= '9'; rust->at++) {
			n = n * 10 + (size_t)(*rust->at - '0');
			if (n > UINT16_MAX)
				return false;
		}
	next_is(rust, '_'); /* where the name begins with a digit or _ */
	if (strnlen(rust->at, n) < n)
		return false;
	id->bytes = rust->at;
	id->n = n;
	rust->at += n;
	return true;
}

static bool put_identifier(struct rust *rust, const struct identifier *id) {
	if (!id->punycode)
		return put(rust, id->bytes, id->n);
	return put(rust, "punycode{", 9) && put(rust, id->bytes, id->n) && put(rust, "}", 1);
}

/* Goes on at an earlier place of the name with fn, and comes back. */
static bool back_reference(struct rust *rust, bool (*fn)(struct rust *rust, bool in_value),
			   bool in_value) {
	const char *tag = rust->at - 1, *behind; /* at the B */
	uint64_t offset;
	bool good;

	if (!base62(rust, &offset) || offset >= (uint64_t)(tag - rust->begin))
		return false;
	if (rust->muted)
		return true;
	behind = rust->at;
	rust->at = rust->begin + offset;
	good = fn(rust, in_value);
	rust->at = behind;
	return good;
}

/* ---- lifetimes ---- */

static bool lifetime(struct rust *rust, uint64_t number) {
	const uint64_t index = rust->lifetimes - number;

	if (!number)
		return put(rust, "'_", 2);
	if (number > rust->lifetimes)
		return false;
	return index < 26 ? print(rust, "'%c", (char)('a' + index))
			  : print(rust, "'_%" PRIu64, index);
}

/* binder: for<'a, 'b>. What it binds is to be taken off rust->lifetimes again. */
static bool binder(struct rust *rust, uint64_t *bound) {
	if (!tagged(rust, 'G', bound) || *bound > LIFETIMES_MAX - rust->lifetimes)
		return false;
	if (!*bound)
		return true;
	if (!put(rust, "for<", 4))
		return false;
	for (uint64_t i = 0; i < *bound; i++) {
		rust->lifetimes++;
		if ((i && !put(rust, ", ", 2)) || !lifetime(rust, 1))
			return false;
	}
	return put(rust, "> ", 2);
}

/* ---- constants ---- */

/* const-data: hexadecimal digits. */
static bool digits(struct rust *rust, const char **hex, size_t *n) {
	*hex = rust->at;
	*n = strspn(rust->at, "0123456789abcdef");
	rust->at += *n;
	return next_is(rust, '_');
}

static bool constant(struct rust *rust, bool in_value) {
	const char kind = *rust->at, *hex;
	uint64_t value = 0;
	bool negative;
	size_t n;

	(void)in_value;
	if (next_is(rust, 'p'))
		return put(rust, "_", 1);
	if (next_is(rust, 'B'))
		return back_reference(rust, constant, false);
	if (!kind ||
	    !strchr("hijlmnostxyabc",
		    kind)) /* integers, bool and char: what else there may be is rare in kernels */
		return false;
	rust->at++;
	negative = strchr("asxlni", kind) && next_is(rust, 'n');
	if (!digits(rust, &hex, &n))
		return false;
	for (; n > 1 && *hex == '0'; n--)
		hex++;
	if (n > 16)
		return put(rust, negative ? "-0x" : "0x", negative ? 3 : 2) && put(rust, hex, n);
	for (size_t i = 0; i < n; i++)
		value = value << 4 | (uint64_t)(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
	if (kind == 'b')
		return value <= 1 && print(rust, "%s", value ? "true" : "false");
	if (kind == 'c')
		return value >= ' ' && value < 0x7f ? print(rust, "'%c'", (char)value)
						    : print(rust, "'\\u{%" PRIx64 "}'", value);
	return print(rust, "%s%" PRIu64, negative ? "-" : "", value);
}

/* ---- types ---- */

static const char *basic_type(char c) {
	static const char *const names[26] = {
		"i8",    "bool", "char", "f64", "str",  "f32",  NULL,  "u8", "isize",
		"usize", NULL,   "i32",  "u32", "i128", "u128", "_",   NULL, NULL,
		"i16",   "u16",  "()",   "...", NULL,   "i64",  "u64", "!",
	};

	return c >= 'a' && c <= 'z' ? names[c - 'a'] : NULL;
}

/* fn-sig. */
static bool function_type(struct rust *rust) {
	struct identifier abi;
	uint64_t bound;

	if (!binder(rust, &bound))
		return false;
	if (next_is(rust, 'U') && !put(rust, "unsafe ", 7))
		return false;
	if (next_is(rust, 'K')) {
		abi = (struct identifier){ .bytes = "C", .n = 1 };
		if ((!next_is(rust, 'C') && !identifier(rust, &abi)) ||
		    !put(rust, "extern \"", 8) || !put_identifier(rust, &abi) ||
		    !put(rust, "\" ", 2))
			return false;
	}
	if (!put(rust, "fn(", 3))
		return false;
	for (bool first = true; !next_is(rust, 'E'); first = false)
		if ((!first && !put(rust, ", ", 2)) || !type(rust))
			return false;
	if (!put(rust, ")", 1))
		return false;
	if (!next_is(rust, 'u') && (!put(rust, " -> ", 4) || !type(rust)))
		return false;
	rust->lifetimes -= bound;
	return true;
}

/* dyn-trait: a path, and types that it is bound to. */
static bool dyn_trait(struct rust *rust) {
	bool open = *rust->at == 'I' && !rust->plain && !rust->muted; /* its <> are open for more */

	if (!path(rust, false))
		return false;
	if (*rust->at == 'p')
		rust->used -= open;
	else
		open = false;
	for (; next_is(rust, 'p'); open = true) {
		struct identifier id;

		if (!put(rust, open ? ", " : "<", open ? 2 : 1) || !identifier(rust, &id) ||
		    !put_identifier(rust, &id) || !put(rust, " = ", 3) || !type(rust))
			return false;
		if (*rust->at != 'p' && !put(rust, ">", 1))
			return false;
	}
	return true;
}

static bool dyn_type(struct rust *rust) {
	uint64_t bound, number;

	if (!put(rust, "dyn ", 4) || !binder(rust, &bound))
		return false;
	for (bool first = true; !next_is(rust, 'E'); first = false)
		if ((!first && !put(rust, " + ", 3)) || !dyn_trait(rust))
			return false;
	rust->lifetimes -= bound;
	if (!next_is(rust, 'L') || !base62(rust, &number))
		return false;
	return !number || (put(rust, " + ", 3) && lifetime(rust, number));
}

static bool tuple_type(struct rust *rust) {
	size_t n = 0;

	if (!put(rust, "(", 1))
		return false;
	for (; !next_is(rust, 'E'); n++)
		if ((n && !put(rust, ", ", 2)) || !type(rust))
			return false;
	return put(rust, n == 1 ? ",)" : ")", n == 1 ? 2 : 1);
}

static bool reference_type(struct rust *rust, bool is_mutable) {
	uint64_t number = 0;

	if (!put(rust, "&", 1) || (next_is(rust, 'L') && !base62(rust, &number)))
		return false;
	if (number && (!lifetime(rust, number) || !put(rust, " ", 1)))
		return false;
	return (!is_mutable || put(rust, "mut ", 4)) && type(rust);
}

static bool type_inside(struct rust *rust, bool in_value) {
	const char c = *rust->at;
	const char *basic = basic_type(c);

	(void)in_value;
	if (!c)
		return false;
	rust->at++;
	if (basic)
		return put(rust, basic, strlen(basic));
	switch (c) {
	case 'A':
		return put(rust, "[", 1) && type(rust) && put(rust, "; ", 2) &&
		       constant(rust, false) && put(rust, "]", 1);
	case 'S':
		return put(rust, "[", 1) && type(rust) && put(rust, "]", 1);
	case 'T':
		return tuple_type(rust);
	case 'R':
	case 'Q':
		return reference_type(rust, c == 'Q');
	case 'P':
		return put(rust, "*const ", 7) && type(rust);
	case 'O':
		return put(rust, "*mut ", 5) && type(rust);
	case 'F':
		return function_type(rust);
	case 'D':
		return dyn_type(rust);
	case 'B':
		return back_reference(rust, type_inside, false);
	default:
		rust->at--;
		return path(rust, false);
	}
}

static bool type(struct rust *rust) {
	bool good = enter(rust) && type_inside(rust, false);

	rust->depth -= good;
	return good;
}

/* ---- paths ---- */

/* Parses without writing. */
static bool skip_path(struct rust *rust) {
	bool good;

	rust->muted++;
	good = path(rust, false);
	rust->muted--;
	return good;
}

/* "M", "X" (both with the path of the impl, which nobody needs) and "Y": a type, and the trait that
 * it has. */
static bool impl_path(struct rust *rust, bool has_impl, bool has_trait) {
	uint64_t number;

	if (has_impl && (!tagged(rust, 's', &number) || !skip_path(rust)))
		return false;
	if ((!rust->plain && !put(rust, "<", 1)) || !type(rust))
		return false;
	if (!has_trait)
		return rust->plain || put(rust, ">", 1);
	if (rust->plain)
		return skip_path(rust);
	return put(rust, " as ", 4) && path(rust, false) && put(rust, ">", 1);
}

/* "N": a name in a path. */
static bool nested_path(struct rust *rust, bool in_value) {
	const char namespace = *rust->at;
	struct identifier id;
	uint64_t number;

	if (!((namespace >= 'a' && namespace <= 'z') || (namespace >= 'A' && namespace <= 'Z')))
		return false;
	rust->at++;
	if (!path(rust, in_value) || !tagged(rust, 's', &number) || !identifier(rust, &id))
		return false;
	if (namespace >= 'a')
		return !id.n || (put(rust, "::", 2) && put_identifier(rust, &id));
	if (!(namespace == 'C'   ? put(rust, "::{closure", 10)
	      : namespace == 'S' ? put(rust, "::{shim", 7)
				 : print(rust, "::{%c", namespace)))
		return false;
	return (!id.n || (put(rust, ":", 1) && put_identifier(rust, &id))) &&
	       print(rust, "#%" PRIu64 "}", number);
}

/* generic-arg. */
static bool argument(struct rust *rust) {
	uint64_t number;

	if (next_is(rust, 'L'))
		return base62(rust, &number) && lifetime(rust, number);
	return next_is(rust, 'K') ? constant(rust, false) : type(rust);
}

/* "I": a path with arguments. */
static bool generic_path(struct rust *rust, bool in_value) {
	bool good = true;

	if (!path(rust, in_value))
		return false;
	rust->muted += rust->plain;
	good = !in_value || put(rust, "::", 2);
	good = good && put(rust, "<", 1);
	for (bool first = true; good && !next_is(rust, 'E'); first = false)
		good = (first || put(rust, ", ", 2)) && argument(rust);
	good = good && put(rust, ">", 1);
	rust->muted -= rust->plain;
	return good;
}

static bool path_inside(struct rust *rust, bool in_value) {
	struct identifier id;
	uint64_t number;
	char c = *rust->at;

	if (!c)
		return false;
	rust->at++;
	switch (c) {
	case 'C':
		return tagged(rust, 's', &number) && identifier(rust, &id) &&
		       put_identifier(rust, &id);
	case 'M':
	case 'X':
	case 'Y':
		return impl_path(rust, c != 'Y', c != 'M');
	case 'N':
		return nested_path(rust, in_value);
	case 'I':
		return generic_path(rust, in_value);
	case 'B':
		return back_reference(rust, path_inside, in_value);
	default:
		return false;
	}
}

static bool path(struct rust *rust, bool in_value) {
	bool good = enter(rust) && path_inside(rust, in_value);

	rust->depth -= good;
	return good;
}

bool rust_name(const char *mangled, enum rust_name_style style, char *text, size_t size) {
	struct rust rust = { .text = text, .size = size, .plain = style == RUST_NAME_PLAIN };

	if (strncmp(mangled, "_R", 2) || !size)
		return false;
	*text = '\0';
	rust.begin = rust.at = mangled + 2;
	rust.at += strspn(rust.at, "0123456789"); /* a version of the mangling */
	if (rust.at != rust.begin || !path(&rust, true))
		return false;
	if (*rust.at >= 'A' && *rust.at <= 'Z' &&
	    !skip_path(&rust)) /* the crate that it was made for */
		return false;
	/* what compilers put behind it */
	return rust.used && (!*rust.at || *rust.at == '.' || *rust.at == '$');
}
