/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The ptxas command line that a fatbin records beside its PTX, as options in their long form
 * ("--maxrregcount=40"). The line comes from a foreign image: options that change the code that is
 * made are known one by one and passed on; all others (output, warnings, files) are left out.
 */

#include <stddef.h>

#define PTXAS_OPTIONS_MAX 16
#define PTXAS_OPTION_SIZE 64

struct ptxas_options {
	char text[PTXAS_OPTIONS_MAX][PTXAS_OPTION_SIZE];
	const char *options[PTXAS_OPTIONS_MAX]; /* pointers into text */
	size_t n;
};

/* `line` of `length` bytes need not be terminated; NULL is an empty one. */
void ptxas_options_read(struct ptxas_options *options, const char *line, size_t length);

/* One more, if there is room and it is not there yet. */
void ptxas_options_add(struct ptxas_options *options, const char *option);
