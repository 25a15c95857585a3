/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How probes get into kernels: by twins from PTX, by patched machine code, or not at all; and which
 * processes get which (--engine). As a rule, auto makes twins: as ptx does. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "filter.h"
#include "proto/interest.h"

enum engine {
	ENGINE_AUTO,
	ENGINE_PTX,
	ENGINE_SANITIZER,
	ENGINE_OFF,
};

enum {
	_ENGINE_E_SUCCESS,
	ENGINE_E_INVALID,
};

#define ENGINE_RULES_MAX (INTEREST_SASS_RULES_MAX - 1) /* with a match: the default takes one */
#define ENGINE_ERROR_SIZE 256

struct engine_rule {
	enum engine engine;
	struct filter filter;
};

/* All zeros: auto for everybody. What gpuprobed begins with is ENGINE_DEFAULT. */
#define ENGINE_DEFAULT ENGINE_PTX
struct engine_rules {
	size_t n;
	struct engine_rule rules[ENGINE_RULES_MAX]; /* the first that matches decides */
	bool has_fallback;
	enum engine fallback; /* for processes that match no rule */
};

/* "auto", "ptx", "sanitizer", "off". */
const char *engine_name(enum engine engine);
/* The engine of that name, or of one that it had before; off only if may_be_off. False: no engine
 * has that name. */
bool engine_from_name(const char *name, bool may_be_off, enum engine *enginep);

/* Adds ENGINE[:MATCH]. 0, or ENGINE_E_INVALID with one line in error. */
int engine_rules_add(struct engine_rules *rules, const char *text,
		     char error[static ENGINE_ERROR_SIZE]);

enum engine engine_rules_find(const struct engine_rules *rules, const struct process_facts *facts);

/* Whether any rule gives the sanitizer engine. */
bool engine_rules_any_sanitizer(const struct engine_rules *rules);

/* The rules for the interest page; how many. */
size_t engine_rules_to_page(const struct engine_rules *rules,
			    struct interest_rule page[static INTEREST_SASS_RULES_MAX]);
