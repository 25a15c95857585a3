/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a demangled name of a kernel has beside the name that people write: left out in place. For
 * the image worker, which matches names, and the daemon. */

#include <stdbool.h>
#include <string.h>

/* ABI tags, [abi:cxx11]. False: there was none. */
static inline bool kernel_plain_untag(char *text) {
	bool found = false;

	for (char *tag = text, *end; (tag = strstr(tag, "[abi:")) && (end = strchr(tag, ']'));
	     found = true)
		memmove(tag, end + 1, strlen(end + 1) + 1);
	return found;
}

/* The hash at the end of a Rust name that is mangled like one of C++: ::h and 16 hexadecimal
 * digits. */
static inline void kernel_plain_unhash(char *text) {
	const size_t n = strlen(text);

	if (n > 19 && !strncmp(text + n - 19, "::h", 3) &&
	    strspn(text + n - 16, "0123456789abcdef") == 16)
		text[n - 19] = '\0';
}
