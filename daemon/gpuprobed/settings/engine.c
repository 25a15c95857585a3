/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which engine a process gets, by the rules of --engine (engine.h): a process has one.
 *
 * A process has to load the sanitizer engine before its first CUDA call, long before an attachment
 * may mean it: so the rules are on the interest page, where a shim applies them to itself. The
 * daemon applies them again to what it has read about the process, and believes that. By default
 * nobody gets the sanitizer engine, because NVIDIA's profilers do not work in a process that has
 * it.
 */

#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const engine_names[] = { "auto", "ptx", "sanitizer", "off" };

const char *engine_name(enum engine engine) {
	return engine_names[engine];
}

bool engine_from_name(const char *name, bool may_be_off, enum engine *enginep) {
	if (strcmp(name, "sass") == 0) /* until twins from machine code take the name */
		name = engine_name(ENGINE_SANITIZER);
	for (unsigned int i = 0; i < (may_be_off ? 4 : 3); i++)
		if (strcmp(name, engine_names[i]) == 0) {
			*enginep = (enum engine)i;
			return true;
		}
	return false;
}

/* Says what is wrong; returns ENGINE_E_INVALID. */
__attribute__((format(printf, 2, 3))) static int engine_wrong(char *error, const char *format,
							      ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, ENGINE_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return ENGINE_E_INVALID;
}

int engine_rules_add(struct engine_rules *rules, const char *text,
		     char error[static ENGINE_ERROR_SIZE]) {
	const char *colon = strchr(text, ':');
	const size_t length = colon ? (size_t)(colon - text) : strlen(text);
	struct engine_rule rule = {};
	char name[16] = "";
	const char *why;

	if (length < sizeof(name))
		memcpy(name, text, length);
	if (!engine_from_name(name, true, &rule.engine))
		return engine_wrong(error,
				    "expected auto, ptx, sanitizer or off, perhaps with a match: "
				    "sanitizer:uid=1000");
	if (!colon && rules->has_fallback)
		return engine_wrong(error, "there is a rule for everybody else already (%s)",
				    engine_name(rules->fallback));
	if (!colon) {
		rules->has_fallback = true;
		rules->fallback = rule.engine;
		return 0;
	}
	why = filter_set_match(&rule.filter, colon + 1, false);
	if (why)
		return engine_wrong(error, "%s", why);
	if (rules->n == ENGINE_RULES_MAX)
		return engine_wrong(error, "at most %d rules, beside one for everybody else",
				    ENGINE_RULES_MAX);
	rules->rules[rules->n++] = rule;
	return 0;
}

enum engine engine_rules_find(const struct engine_rules *rules, const struct process_facts *facts) {
	for (size_t i = 0; i < rules->n; i++)
		if (filter_matches(&rules->rules[i].filter, facts))
			return rules->rules[i].engine;
	return rules->fallback;
}

bool engine_rules_any_sanitizer(const struct engine_rules *rules) {
	for (size_t i = 0; i < rules->n; i++)
		if (rules->rules[i].engine == ENGINE_SANITIZER)
			return true;
	return rules->fallback == ENGINE_SANITIZER;
}

size_t engine_rules_to_page(const struct engine_rules *rules,
			    struct interest_rule page[static INTEREST_SASS_RULES_MAX]) {
	const struct filter everybody = {};

	for (size_t i = 0; i <= rules->n; i++) {
		const bool last = i == rules->n;
		const enum engine engine = last ? rules->fallback : rules->rules[i].engine;

		filter_to_rule(last ? &everybody : &rules->rules[i].filter, &page[i]);
		if (engine != ENGINE_SANITIZER)
			page[i].flags |= INTEREST_RULE_NOT;
	}
	return rules->n + 1;
}
