/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Demangles kernel names, and matches them with the patterns that operators write (kernel-name.h).
 *
 * Demangling is libstdc++'s; what is cut off its result is done here. It is dear for modules with
 * thousands of kernels, so it is done when a pattern needs it: a pattern that is one identifier can
 * only mean mangled names that contain it, as mangling keeps identifiers.
 */

#include "kernel-name.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kernel-plain.h"
#include "rust-name.h"

/* Names that are longer were made to hurt the demangler. nvcc's are cut at 4 KiB or so. */
#define MANGLED_MAX (16 * 1024)
#define RUST_MAX (16 * 1024) /* of a demangled name of Rust */

/* libstdc++: status 0 fine, -1 out of memory, -2 not a mangled name. The result is malloc()ed. */
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

void kernel_name_init(struct kernel_name *name, const char *mangled) {
	*name = (struct kernel_name){ .mangled = mangled };
}

void kernel_name_deinit(struct kernel_name *name) {
	free(name->demangled);
	free(name->untagged);
	free(name->qualified);
	free(name->plain);
	*name = (struct kernel_name){};
}

static bool is_open(char c) {
	return c == '(' || c == '<' || c == '[' || c == '{';
}

static bool is_close(char c) {
	return c == ')' || c == '>' || c == ']' || c == '}';
}

/* The `(` of the parameters: the partner of the last `)`; NULL if the name has none (or is a
 * variable's). */
static const char *find_parameters(const char *demangled) {
	const char *end = strrchr(demangled, ')');
	unsigned int depth = 0;

	for (const char *c = end; c && c >= demangled; c--) {
		if (*c == ')')
			depth++;
		else if (*c == '(' && !--depth)
			return c;
	}
	return NULL;
}

/* Where the name begins that ends before `end`: behind the return type, which a space outside
 * brackets ends. */
static const char *find_name(const char *demangled, const char *end) {
	unsigned int depth = 0;

	for (const char *c = end; c > demangled; c--) {
		if (is_close(c[-1]))
			depth++;
		else if (is_open(c[-1]) && depth)
			depth--;
		else if (c[-1] == ' ' && !depth)
			return c;
	}
	return demangled;
}

/* A copy of `name` without what stands in <>. */
static char *without_arguments(const char *name) {
	char *plain = malloc(strlen(name) + 1), *to = plain;
	unsigned int depth = 0;

	if (!plain)
		return NULL;
	for (; *name; name++) {
		if (*name == '<')
			depth++;
		if (!depth)
			*to++ = *name;
		if (*name == '>' && depth)
			depth--;
	}
	*to = '\0';
	return plain;
}

static bool is_rust(const char *mangled) {
	return !strncmp(mangled, "_R", 2);
}

/* Rust's names have no parameters, and types of impls in front: what is plain is another way to
 * write them. 0 or -ENOMEM. */
static int demangle_rust(struct kernel_name *name) {
	char *text = malloc(RUST_MAX);
	int r = text ? 0 : -ENOMEM;

	if (text && rust_name(name->mangled, RUST_NAME_FULL, text, RUST_MAX)) {
		name->demangled = strdup(text);
		name->qualified = strdup(text);
		if (rust_name(name->mangled, RUST_NAME_PLAIN, text, RUST_MAX))
			name->plain = strdup(text);
		if (!name->demangled || !name->qualified || !name->plain)
			r = -ENOMEM;
	}
	free(text);
	name->tried = !r;
	return r;
}

int kernel_name_demangle(struct kernel_name *name) {
	const char *parameters, *begin, *text;
	int status;

	if (name->tried)
		return 0;
	if (is_rust(name->mangled))
		return demangle_rust(name);
	if (strncmp(name->mangled, "_Z", 2) || strlen(name->mangled) > MANGLED_MAX) {
		name->tried = true;
		return 0;
	}
	name->demangled = __cxa_demangle(name->mangled, NULL, NULL, &status);
	if (!name->demangled) {
		if (status == -1)
			return -ENOMEM;
		name->tried = true;
		return 0;
	}
	if (strstr(name->demangled, "[abi:")) {
		name->untagged = strdup(name->demangled);
		if (!name->untagged)
			return -ENOMEM;
		kernel_plain_untag(name->untagged);
	}
	text = name->untagged ? name->untagged : name->demangled;
	parameters = find_parameters(text);
	if (!parameters)
		parameters = text + strlen(text);
	begin = find_name(text, parameters);
	name->qualified = strndup(begin, (size_t)(parameters - begin));
	if (name->qualified)
		kernel_plain_unhash(name->qualified);
	name->plain = name->qualified ? without_arguments(name->qualified) : NULL;
	if (!name->plain)
		return -ENOMEM;
	name->tried = true;
	return 0;
}

/* Reads <length><identifier> at *at. False: there is none. */
static bool read_identifier(const char **at, const char **identifier, size_t *length) {
	char *end;

	*at += **at == 'L'; /* static */
	if (**at < '1' || **at > '9')
		return false;
	*length = strtoul(*at, &end, 10);
	if (*length > strlen(end))
		return false;
	*identifier = end;
	*at = end + *length;
	return true;
}

/* Goes over ABI tags behind a name. */
static bool skip_tags(const char **at) {
	const char *tag;
	size_t length;

	while (**at == 'B') {
		++*at;
		if (!read_identifier(at, &tag, &length))
			return false;
	}
	return true;
}

bool kernel_name_short(const char *mangled, char *text, size_t size) {
	const char *at = mangled + 2, *identifier;
	size_t used = 0, length;
	bool nested;
	int n;

	if (is_rust(mangled) && rust_name(mangled, RUST_NAME_PLAIN, text, size))
		return true;
	if (strncmp(mangled, "_Z", 2)) {
		n = snprintf(text, size, "%s", mangled);
		return n > 0 && (size_t)n < size;
	}
	nested = *at == 'N';
	at += nested;
	do {
		if (!read_identifier(&at, &identifier, &length) || !skip_tags(&at))
			return false;
		if (used && length == 17 && *identifier == 'h' && *at == 'E' &&
		    strspn(identifier + 1, "0123456789abcdef") >= 16)
			break; /* the hash of a Rust name */
		if (length > 10 && !strncmp(identifier, "_GLOBAL__N", 10)) {
			identifier = "(anonymous namespace)";
			length = strlen(identifier);
		}
		n = snprintf(text + used, size - used, "%s%.*s", used ? "::" : "", (int)length,
			     identifier);
		if (n < 0 || (size_t)n >= size - used)
			return false;
		used += (size_t)n;
	} while (nested && *at != 'E' &&
		 *at != 'I'); /* the end, or arguments of the template that it is */
	return true;
}

static bool match_one(const char *pattern, const char *text) {
	return text && (!strcmp(pattern, text) || !fnmatch(pattern, text, 0));
}

/*
 * Could the demangler have written the piece by itself: a type, a keyword, the suffix of a number,
 * a name with a short form?
 */
static bool is_demanglers(const char *piece, size_t length) {
	static const char words[] =
		"void wchar_t bool char signed unsigned short int long __int128 float double "
		"__float128 "
		"_Float16 _Float32 _Float32x _Float64 _Float64x _Float128 _Accum _Fract _Sat "
		"bfloat16_t half decimal32 decimal64 decimal128 char8_t "
		"char16_t char32_t nullptr_t decltype auto const volatile restrict __restrict true "
		"false "
		"_Complex _Imaginary __complex__ __imaginary__ __vector std string basic_string "
		"char_traits allocator basic_istream basic_ostream basic_iostream istream ostream "
		"iostream "
		"operator new delete sizeof alignof typeid throw noexcept requires cast const_cast "
		"dynamic_cast reinterpret_cast static_cast co_await vtable VTT for construction in "
		"typeinfo name fn non virtual thunk covariant return guard variable reference "
		"temporary "
		"hidden alias transaction_safe java Class resource initializer init "
		"function TLS wrapper template parameter object anonymous namespace lambda unnamed "
		"type "
		"default arg abi clone global constructors destructors keyed to literal ull "
		"enum class typename concept struct union this parm pack expansion gs sr";

	/* these it puts before a function's type, without a space behind them */
	static const char *const glued[] = { "const", "volatile", "restrict", "_Complex",
					     "_Imaginary" };

	for (size_t i = 0; i < sizeof(glued) / sizeof(glued[0]); i++)
		if (!strncmp(piece, glued[i], strlen(glued[i])))
			return true;
	return memmem(words, sizeof(words) - 1, piece, length);
}

/* The length without what the demangler puts behind a literal: `ull` at most. A mangled name may
 * have anything for a literal's digits. */
static size_t without_suffix(const char *piece, size_t length) {
	for (int i = 0; i < 3 && length && (piece[length - 1] == 'u' || piece[length - 1] == 'l');
	     i++)
		length--;
	return length;
}

/*
 * Demangling costs 50 us of a long name, and most patterns mean few of many. What a pattern has
 * between its wildcards is part of the demangled name, hence of an identifier there, which stands
 * in the mangled name letter for letter, unless the demangler wrote it. A pattern that is one
 * identifier is a whole name, which the demangler never wrote.
 */
static bool cannot_match(const struct kernel_name *name, const char *pattern) {
	static const char identifier[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
	size_t length;

	if (!pattern[strspn(pattern, identifier)])
		return !strstr(name->mangled, pattern);
	if (strchr(pattern, '\\'))
		return false;
	for (; *pattern && *pattern != '['; pattern += length) {
		length = strspn(pattern, identifier);
		if (!length) {
			length = 1;
			continue;
		}
		if (!(*pattern >= '0' && *pattern <= '9') && !is_demanglers(pattern, length) &&
		    !memmem(name->mangled, strlen(name->mangled), pattern,
			    without_suffix(pattern, length)))
			return true;
	}
	return false;
}

int kernel_name_match(struct kernel_name *name, const char *pattern) {
	int r;

	if (match_one(pattern, name->mangled))
		return 1;
	if (!is_rust(name->mangled) && cannot_match(name, pattern))
		return 0;
	r = kernel_name_demangle(name);
	if (r)
		return r;
	return match_one(pattern, name->demangled) || match_one(pattern, name->untagged) ||
	       match_one(pattern, name->qualified) || match_one(pattern, name->plain);
}
