/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses the section of a program, or --point, into a kernel and a point (section.h). The grammar:
 *
 *     kprobe | kretprobe | memcapture  [ / [dev:] KERNEL [ @ FILE:LINE | @ block:N | @ CLASS ] ]
 *
 * PTX has no '@' in names and C++ none in demangled ones, so the first one ends the kernel; the
 * last ':' ends the file. A name that only looks like a number of ours ("block:x") is an error, not
 * a file.
 */

#include "section.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/text.h"

/* Says what is wrong with the section, in one line; returns SECTION_E_INVALID. */
__attribute__((format(printf, 3, 4))) static int wrong(char *error, const char *text,
						       const char *format, ...) {
	va_list arguments;
	int n;

	n = snprintf(error, SECTION_ERROR_SIZE, "%.100s%s: ", text,
		     strlen(text) > 100 ? "..." : "");
	va_start(arguments, format);
	vsnprintf(error + n, SECTION_ERROR_SIZE - (size_t)n, format, arguments);
	va_end(arguments);
	for (; *error; error++)
		if (is_control(*error))
			*error = '?';
	return SECTION_E_INVALID;
}

/* All of text is one decimal number of at least min and less than UINT32_MAX, which workers keep
 * for themselves. */
static bool number(const char *text, uint32_t min, uint32_t *value) {
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < min || n >= UINT32_MAX)
		return false;
	*value = (uint32_t)n;
	return true;
}

/* A class of instructions behind the '@'. False: it is none. */
static bool parse_class(struct section *section, const char *place) {
	const struct point *point = point_find(place);

	if (!point || point->kind != POINT_CLASS)
		return false;
	section->point = POINT_CLASS;
	section->instruction = (uint32_t)__builtin_ctz(point->instructions);
	return true;
}

/* Names of all classes: "call, ret". */
static const char *class_names(char text[static 128]) {
	size_t n = 0;

	for (size_t i = 0; i < POINT_COUNT; i++)
		if (point_table[i].kind == POINT_CLASS)
			n += (size_t)snprintf(text + n, 128 - n, "%s%s", n ? ", " : "",
					      point_table[i].name);
	return text;
}

/* What stands behind the '@'. */
static int parse_place(struct section *section, const char *text, const char *place, char *error) {
	const char *colon = strrchr(place, ':');
	size_t n = colon ? (size_t)(colon - place) : 0;
	char names[128];

	if (section->point != POINT_ENTRY)
		return wrong(error, text,
			     "a source line, block or class of instructions has one point, that of "
			     "kprobe/: no @ here");
	if (parse_class(section, place))
		return section->device_function
			       ? wrong(error, text,
				       "classes of instructions are those of kernels: no dev: here")
			       : 0;
	if (!n || !colon[1])
		return wrong(error, text, "expected FILE:LINE, block:N, or one of %s after @",
			     class_names(names));
	if (n == 5 && strncmp(place, "block", 5) == 0) {
		if (!number(colon + 1, 0, &section->block))
			return wrong(error, text, "expected a number after block:");
		section->point = POINT_BLOCK;
		return 0;
	}
	if (!number(colon + 1, 1, &section->line))
		return wrong(error, text,
			     "expected the number of a line after the file: FILE:LINE");
	if (n >= sizeof(section->file))
		return wrong(error, text, "the name of the file has more than %d bytes",
			     SECTION_FILE_SIZE - 1);
	memcpy(section->file, place, n);
	section->file[n] = '\0';
	section->point = POINT_LINE;
	return 0;
}

/* The name of a kernel, which may have dev: before it. */
static int parse_kernel(struct section *section, const char *text, const char *name, size_t n,
			char *error) {
	if (n >= 4 && strncmp(name, "dev:", 4) == 0) {
		section->device_function = true;
		name += 4;
		n -= 4;
		if (!n)
			return wrong(error, text,
				     "expected the name of a device function after dev:");
	}
	if (n >= sizeof(section->kernel))
		return wrong(error, text, "a name has at most %d bytes", SECTION_KERNEL_SIZE - 1);
	for (size_t i = 0; i < n; i++)
		if (is_control(name[i]))
			return wrong(error, text, "strange character in the name");
	memcpy(section->kernel, name, n);
	section->kernel[n] = '\0';
	return 0;
}

/* What stands behind the '/'. */
static int parse_rest(struct section *section, const char *text, const char *rest, char *error) {
	const char *at = strchr(rest, '@');
	int r;

	if (strncmp(rest, "__memcapture", 12) == 0 && (!rest[12] || rest[12] == '@') &&
	    section->point != POINT_RETURN) {
		section->point = POINT_MEMORY;
		strcpy(section->kernel, "*");
	} else if (strcmp(rest, "__directly_run") == 0 && section->point == POINT_ENTRY) {
		strcpy(section->kernel, SECTION_DIRECTLY_RUN);
	} else {
		r = parse_kernel(section, text, rest, at ? (size_t)(at - rest) : strlen(rest),
				 error);
		if (r)
			return r;
	}
	return at ? parse_place(section, text, at + 1, error) : 0;
}

int section_parse(struct section *section, const char *text, const char *kernel,
		  char error[static SECTION_ERROR_SIZE]) {
	int r = 0;

	memset(section, 0, sizeof(*section));
	for (size_t i = 0; i <= POINT_MEMORY && !section->known; i++) {
		size_t n = strlen(point_table[i].section);

		if (strncmp(text, point_table[i].section, n) != 0 || (text[n] && text[n] != '/'))
			continue;
		section->known = true;
		section->point = point_table[i].kind;
		if (text[n])
			r = parse_rest(section, text, text + n + 1, error);
	}
	if (r == 0 && kernel)
		r = parse_kernel(section, kernel, kernel, strlen(kernel), error);
	return r;
}

const struct point *section_point(const struct section *section) {
	return point_of(section->point, section->instruction);
}

bool section_prefixed(const struct section *section, const char *text) {
	static const size_t prefix = sizeof(SECTION_PREFIX) - 1;
	const char *name = strchr(text, '/');
	const size_t n = strlen(section->kernel);

	return name && !section->device_function && !strpbrk(section->kernel, "*?[") &&
	       n > prefix && strncmp(section->kernel, SECTION_PREFIX, prefix) == 0 &&
	       strncmp(name + 1, section->kernel, n) == 0 && (!name[1 + n] || name[1 + n] == '@');
}

const char *section_needs_ptx(const struct section *section) {
	if (section->point == POINT_LINE)
		return "source lines are points of PTX: the sanitizer engine has none";
	if (section->point == POINT_BLOCK)
		return "basic blocks are points of PTX: the sanitizer engine has none";
	if (section->device_function)
		return "device functions are functions of PTX: the sanitizer engine sees kernels";
	if (strcmp(section->kernel, SECTION_DIRECTLY_RUN) == 0)
		return "__directly_run is launched from PTX";
	return NULL;
}

bool section_needs_sass(const struct section *section) {
	return section->point == POINT_CLASS;
}
