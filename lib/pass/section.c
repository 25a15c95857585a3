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
#include "proto/patch.h"

static const char *const point_names[] = { "entry", "return", "memory", "line", "block" };
static const struct {
	const char *name;
	enum patch_instruction instruction;
} classes[] = {
	{ "call", PATCH_CALL },         { "ret", PATCH_RET },   { "barrier", PATCH_BARRIER },
	{ "syncwarp", PATCH_SYNCWARP }, { "shfl", PATCH_SHFL }, { "malloc", PATCH_MALLOC },
	{ "free", PATCH_FREE },
};
static const char *const space_names[] = {
	"generic", "global", "shared", "local", "const", "param"
};

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
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (strcmp(place, classes[i].name) == 0) {
			section->point = SECTION_CLASS;
			section->instruction = classes[i].instruction;
			return true;
		}
	return false;
}

/* What stands behind the '@'. */
static int parse_place(struct section *section, const char *text, const char *place, char *error) {
	const char *colon = strrchr(place, ':');
	size_t n = colon ? (size_t)(colon - place) : 0;

	if (section->point != SECTION_ENTRY)
		return wrong(error, text,
			     "a source line, block or class of instructions has one point, that of "
			     "kprobe/: no @ here");
	if (parse_class(section, place))
		return section->device_function
			       ? wrong(error, text,
				       "classes of instructions are those of kernels: no dev: here")
			       : 0;
	if (!n || !colon[1])
		return wrong(error, text,
			     "expected FILE:LINE, block:N, or one of call, ret, barrier, syncwarp, "
			     "shfl, malloc, free after @");
	if (n == 5 && strncmp(place, "block", 5) == 0) {
		if (!number(colon + 1, 0, &section->block))
			return wrong(error, text, "expected a number after block:");
		section->point = SECTION_BLOCK;
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
	section->point = SECTION_LINE;
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
	    section->point != SECTION_RETURN) {
		section->point = SECTION_MEMORY;
		strcpy(section->kernel, "*");
	} else if (strcmp(rest, "__directly_run") == 0 && section->point == SECTION_ENTRY) {
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
	static const struct {
		const char *name;
		enum section_point point;
	} kinds[] = {
		{ "kprobe", SECTION_ENTRY },
		{ "kretprobe", SECTION_RETURN },
		{ "memcapture", SECTION_MEMORY },
	};
	int r = 0;

	memset(section, 0, sizeof(*section));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t n = strlen(kinds[i].name);

		if (strncmp(text, kinds[i].name, n) != 0 || (text[n] && text[n] != '/'))
			continue;
		section->known = true;
		section->point = kinds[i].point;
		if (text[n])
			r = parse_rest(section, text, text + n + 1, error);
	}
	if (r == 0 && kernel)
		r = parse_kernel(section, kernel, kernel, strlen(kernel), error);
	return r;
}

const char *section_point_name(const struct section *section) {
	for (size_t i = 0;
	     section->point == SECTION_CLASS && i < sizeof(classes) / sizeof(classes[0]); i++)
		if (classes[i].instruction == section->instruction)
			return classes[i].name;
	return point_names[section->point];
}

const char *section_context(const struct section *section) {
	switch (section->point) {
	case SECTION_MEMORY:
		return "gpuprobe_memory_ctx";
	case SECTION_CLASS:
		return "gpuprobe_event_ctx";
	default:
		return "gpuprobe_kernel_ctx";
	}
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
	if (section->point == SECTION_LINE)
		return "source lines are points of PTX: the SASS engine has none";
	if (section->point == SECTION_BLOCK)
		return "basic blocks are points of PTX: the SASS engine has none";
	if (section->device_function)
		return "device functions are functions of PTX: the SASS engine sees kernels";
	if (strcmp(section->kernel, SECTION_DIRECTLY_RUN) == 0)
		return "__directly_run is launched from PTX";
	return NULL;
}

bool section_needs_sass(const struct section *section) {
	return section->point == SECTION_CLASS;
}

uint32_t section_space(const char *name) {
	for (unsigned int i = 0; i < sizeof(space_names) / sizeof(space_names[0]); i++)
		if (strcmp(name, space_names[i]) == 0)
			return UINT32_C(1) << i;
	return 0;
}

const char *section_space_name(unsigned int number) {
	return number < sizeof(space_names) / sizeof(space_names[0]) ? space_names[number] : NULL;
}
