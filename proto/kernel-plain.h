/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Removes, in place, the parts of a demangled kernel name that people do not write. The image
 * worker (to match names) and the daemon use it.
 */

#include <stdbool.h>
#include <string.h>

/* Removes ABI tags such as [abi:cxx11]. Returns whether there was one. */
static inline bool kernel_plain_untag(char *text) {
	bool found = false;

	for (char *tag = text, *end; (tag = strstr(tag, "[abi:")) && (end = strchr(tag, ']'));
	     found = true)
		memmove(tag, end + 1, strlen(end + 1) + 1);
	return found;
}

/*
 * Removes the hash at the end of a Rust name that is mangled like a C++ name: ::h and 16
 * hexadecimal digits.
 */
static inline void kernel_plain_unhash(char *text) {
	const size_t n = strlen(text);

	if (n > 19 && !strncmp(text + n - 19, "::h", 3) &&
	    strspn(text + n - 16, "0123456789abcdef") == 16)
		text[n - 19] = '\0';
}
