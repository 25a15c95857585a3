/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A guard around json-c.
 *
 * json-c builds the tree, but some things it changes without a word: of two equal keys the last one
 * stays, an integer that does not fit saturates, 1e999 is infinite, a string with \u0000 in it ends
 * early for everybody who reads it as a C string; and NaN, Infinity, leading zeros and control
 * characters pass. So the text is first walked once by a small scanner, which looks at tokens only
 * (structure is json-c's matter) and counts the colons outside of strings. If the tree has fewer
 * members than the text has colons, a key was there twice.
 *
 * An integer above INT64_MAX is let through: json-c keeps it as unsigned, and validation refuses it
 * by the name of its field. One below INT64_MIN is refused here, as it could not be told from
 * INT64_MIN.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "varlink-json.h"
#include "lib/base/utf8.h"

/*
 * Passes the string whose opening quote is before @p. Returns what follows the closing quote, or
 * NULL.
 */
static const char *scan_string(const char *p, const char *end) {
	for (; p < end; p++) {
		if ((unsigned char)*p < 0x20)
			return NULL;
		if (*p == '"')
			return p + 1;
		if (*p == '\\') {
			if (++p == end)
				return NULL;
			if (*p == 'u' && end - p > 4 && !memcmp(p + 1, "0000", 4))
				return NULL;
		}
	}
	return NULL;
}

static const char *scan_digits(const char *p, const char *end) {
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

/* Passes a number by the grammar of JSON. Returns what follows, or NULL. */
static const char *scan_number(const char *p, const char *end) {
	const char *digits, *next;
	bool negative = false, integer = true;
	size_t n;

	if (*p == '-') {
		negative = true;
		p++;
	}
	digits = p;
	p = scan_digits(p, end);
	n = p - digits;
	if (!n || (n > 1 && *digits == '0'))
		return NULL;
	if (p < end && *p == '.') {
		integer = false;
		next = scan_digits(p + 1, end);
		if (next == p + 1)
			return NULL;
		p = next;
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		integer = false;
		p++;
		if (p < end && (*p == '+' || *p == '-'))
			p++;
		next = scan_digits(p, end);
		if (next == p)
			return NULL;
		p = next;
	}
	if (integer && negative &&
	    (n > 19 || (n == 19 && memcmp(digits, "9223372036854775808", 19) > 0)))
		return NULL;
	return p;
}

/* Passes true, false or null. Returns what follows, or NULL. */
static const char *scan_word(const char *p, const char *end) {
	static const char *const words[] = { "true", "false", "null" };

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		size_t n = strlen(words[i]);

		if ((size_t)(end - p) >= n && !memcmp(p, words[i], n))
			return p + n;
	}
	return NULL;
}

/*
 * Walks over the tokens of @text; counts the members of all objects. False if there is a token that
 * is not JSON's, or if there may be more than @values_max values.
 */
static bool scan(const char *text, size_t n_text, size_t values_max, size_t *n_membersp) {
	const char *p = text, *end = text + n_text;
	size_t n_members = 0, n_values = 1;

	while (p && p < end) {
		switch (*p) {
		case '{':
		case '[':
		case ',':
			/* each value but the first comes behind one of these */
			if (++n_values > values_max)
				return false;
			p++;
			break;
		case ' ':
		case '\t':
		case '\r':
		case '\n':
		case '}':
		case ']':
			p++;
			break;
		case ':':
			n_members++;
			p++;
			break;
		case '"':
			p = scan_string(p + 1, end);
			break;
		case '-':
		case '0':
		case '1':
		case '2':
		case '3':
		case '4':
		case '5':
		case '6':
		case '7':
		case '8':
		case '9':
			p = scan_number(p, end);
			break;
		default:
			p = scan_word(p, end);
			break;
		}
	}
	*n_membersp = n_members;
	return p;
}

/*
 * Counts the members of all objects in @value. False if a number is infinite. The depth is bounded
 * by that of the parser.
 */
static bool inspect(json_object *value, size_t *n_membersp) {
	if (json_object_is_type(value, json_type_object)) {
		json_object_object_foreach(value, key, member) {
			(void)key;
			++*n_membersp;
			if (!inspect(member, n_membersp))
				return false;
		}
	} else if (json_object_is_type(value, json_type_array)) {
		for (size_t i = 0; i < json_object_array_length(value); i++)
			if (!inspect(json_object_array_get_idx(value, i), n_membersp))
				return false;
	} else if (json_object_is_type(value, json_type_double)) {
		return __builtin_isfinite(json_object_get_double(value));
	}
	return true;
}

/*
 * Parses one JSON value that fills @text. Returns 0 and the value (the caller's; NULL is JSON's
 * null), VARLINK_JSON_E_INVALID, or -ENOMEM.
 */
int varlink_json_parse(json_object **valuep, const char *text, size_t n_text) {
	return varlink_json_parse_bounded(valuep, text, n_text, SIZE_MAX);
}

/*
 * The same for what comes from strangers: two bytes of text can make 64 of memory, so the number of
 * values in it is bounded before anything is made of it.
 */
int varlink_json_parse_bounded(json_object **valuep, const char *text, size_t n_text,
			       size_t values_max) {
	json_tokener *tokener;
	json_object *value;
	enum json_tokener_error error;
	size_t n_members, n_found = 0, end;

	if (n_text == 0 || n_text > INT32_MAX || !utf8_valid(text, n_text) ||
	    !scan(text, n_text, values_max, &n_members))
		return VARLINK_JSON_E_INVALID;

	tokener = json_tokener_new_ex(VARLINK_JSON_DEPTH);
	if (!tokener)
		return -ENOMEM;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	value = json_tokener_parse_ex(tokener, text, (int)n_text);
	error = json_tokener_get_error(tokener);
	if (error == json_tokener_continue) {
		/* a number at the end of the text could go on: a space tells that it does not */
		value = json_tokener_parse_ex(tokener, " ", 1);
		error = json_tokener_get_error(tokener);
		end = n_text;
	} else {
		end = json_tokener_get_parse_end(tokener);
	}
	json_tokener_free(tokener);

	while (end < n_text && strchr(" \t\r\n", text[end]))
		end++;
	if (error != json_tokener_success || end != n_text || !inspect(value, &n_found) ||
	    n_found != n_members) {
		json_object_put(value);
		return VARLINK_JSON_E_INVALID;
	}
	*valuep = value;
	return 0;
}

/*
 * The text of @value, which keeps it. Returns 0, -ENOMEM, or -EILSEQ if a string in it is not
 * UTF-8.
 */
int varlink_json_print(json_object *value, const char **textp, size_t *n_textp) {
	const char *text;
	size_t n_text;

	text = json_object_to_json_string_length(
		value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n_text);
	if (!text)
		return -ENOMEM;
	if (!utf8_valid(text, n_text))
		return -EILSEQ;
	*textp = text;
	*n_textp = n_text;
	return 0;
}

/*
 * An object of pairs (const char *key, json_object *value), ended by NULL. Takes the values, in any
 * case. Returns NULL without memory. A value that is NULL is JSON's null.
 */
json_object *varlink_json_pack(const char *first_key, ...) {
	json_object *object = json_object_new_object();
	va_list arguments;

	va_start(arguments, first_key);
	for (const char *key = first_key; key; key = va_arg(arguments, const char *)) {
		json_object *value = va_arg(arguments, json_object *);

		if (!object || json_object_object_add(object, key, value) < 0) {
			json_object_put(value);
			json_object_put(object);
			object = NULL;
		}
	}
	va_end(arguments);
	return object;
}

/* Returns 0, -ENOMEM or -EILSEQ. */
int varlink_json_list_add(struct varlink_json_list *list, json_object *consume_item) {
	const char *text;
	char *grown;
	size_t n;
	int r;

	r = consume_item ? varlink_json_print(consume_item, &text, &n) : -ENOMEM;
	if (!r && list->n_max - list->n < n + 3) {
		grown = realloc(list->text, 2 * list->n_max + n + 3);
		if (grown) {
			list->text = grown;
			list->n_max = 2 * list->n_max + n + 3;
		} else {
			r = -ENOMEM;
		}
	}
	if (!r) {
		list->text[list->n] = list->n ? ',' : '[';
		memcpy(list->text + list->n + 1, text, n);
		list->n += 1 + n;
	}
	json_object_put(consume_item);
	return r;
}

/* NULL without memory. */
json_object *varlink_json_list_steal(struct varlink_json_list *list) {
	json_object *array = json_object_new_array();

	if (!array || !list->n)
		return array;
	strcpy(list->text + list->n, "]");
	json_object_set_serializer(array, json_object_userdata_to_json_string, list->text,
				   json_object_free_userdata);
	*list = (struct varlink_json_list){};
	return array;
}

void varlink_json_list_deinit(struct varlink_json_list *list) {
	free(list->text);
}
