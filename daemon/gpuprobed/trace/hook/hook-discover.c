/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The hook set "discover" (hook-private.h).
 *
 * Which functions of the driver a workload hits: a count for each, told as an event (its hook's set
 * is "discover", its one word the calls since the last one). Functions of the core are kprobed
 * singly where there is no kprobe.multi for them, 512 at most.
 */

#include <bpf/bpf.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hook-private.h"
#include "lib/clock.h"
#include "hook-programs.h"

#define INTERVAL UINT64_C(200000000)

struct hook_discover {
	const struct hook_symbol **symbols;
	uint64_t *told; /* calls */
	size_t n;
	uint64_t next; /* time of the next look */
};

/* "module:function", or the function alone. */
static bool is_wanted(const struct hook_symbol *symbol, const char *const *patterns, size_t n) {
	char target[512];

	snprintf(target, sizeof(target), "%s:%s", symbol->module, symbol->name);
	for (size_t i = 0; i < n; i++) {
		const char *glob = patterns[i] + strlen(HOOK_DISCOVER);

		if (!strncmp(patterns[i], HOOK_DISCOVER, strlen(HOOK_DISCOVER)) &&
		    (!fnmatch(glob, symbol->name, 0) || !fnmatch(glob, target, 0)))
			return true;
	}
	return false;
}

static bool is_asked(const char *const *patterns, size_t n) {
	for (size_t i = 0; i < n; i++)
		if (!strncmp(patterns[i], HOOK_DISCOVER, strlen(HOOK_DISCOVER)))
			return true;
	return false;
}

/* Leaves those that are counted, at the index of their counter. */
static void attach(struct trace_hooks *hooks, struct hook_discover *discover, size_t n_traceable,
		   uint64_t *addresses, bool *counted) {
	size_t n;

	for (size_t i = 0; i < discover->n; i++)
		addresses[i] = discover->symbols[i]->address;
	n = discover->n ? hook_programs_count(hooks->programs, &hooks->kernel, addresses, counted,
					      n_traceable, discover->n)
			: 0;
	if (n < discover->n || !n)
		trace_session_missing(
			hooks->session, "discover: %zu of %zu functions can be counted%s", n,
			discover->n,
			!discover->n ? "; the driver is not loaded, or has no function of that name"
			: hooks->kernel.kprobe_type < 0 ? "; this kernel has no kprobes"
							: "; ftrace does not reach the others");
	for (size_t i = 0; i < discover->n; i++)
		if (!counted[i])
			discover->symbols[i] = NULL;
}

/* Those that ftrace reaches, or the others. */
static void add_symbols(const struct trace_hooks *hooks, struct hook_discover *discover,
			bool traceable, const char *const *patterns, size_t n) {
	for (size_t i = 0; i < hooks->kernel.n_symbols && discover->n < HOOK_COUNTS_MAX; i++) {
		const struct hook_symbol *symbol = &hooks->kernel.symbols[i];

		if (symbol->address &&
		    (symbol->traceable || !hooks->kernel.knows_traceable) == traceable &&
		    is_wanted(symbol, patterns, n))
			discover->symbols[discover->n++] = symbol;
	}
}

int hook_discover_new(struct trace_hooks *hooks, const char *const *patterns, size_t n) {
	struct hook_discover *discover;
	uint64_t *addresses;
	size_t n_traceable;
	bool *counted;

	if (!is_asked(patterns, n))
		return 0;
	if (!hooks->all_users) {
		trace_session_missing(hooks->session, "discover: only for callers who may attach");
		return 0;
	}
	discover = hooks->discover = calloc(1, sizeof(*discover));
	if (!discover)
		return -ENOMEM;
	discover->symbols = calloc(HOOK_COUNTS_MAX, sizeof(*discover->symbols));
	discover->told = calloc(HOOK_COUNTS_MAX, sizeof(*discover->told));
	addresses = calloc(HOOK_COUNTS_MAX, sizeof(*addresses));
	counted = calloc(HOOK_COUNTS_MAX, sizeof(*counted));
	if (discover->symbols && discover->told && addresses && counted) {
		add_symbols(hooks, discover, true, patterns, n);
		n_traceable = discover->n;
		add_symbols(hooks, discover, false, patterns, n);
		attach(hooks, discover, n_traceable, addresses, counted);
	}
	free(addresses);
	free(counted);
	return discover->symbols && discover->told ? 0 : -ENOMEM;
}

static void tell(struct trace_hooks *hooks, const struct hook_symbol *symbol, uint32_t hook,
		 bool first, uint64_t calls, uint64_t now) {
	union {
		struct trace_event event;
		char bytes[sizeof(struct trace_event) + sizeof(uint64_t)];
	} event = { .event = { .record = { .size = sizeof(event),
					   .type = TRACE_EVENT,
					   .source = TRACE_SOURCE_BPF,
					   .flags = TRACE_EVENT_INSTANT },
			       .start = now,
			       .end = now,
			       .hook = hook,
			       .n_words = 1 } };
	char name[256];

	if (first) {
		snprintf(name, sizeof(name), "discover %.60s:%.160s(calls:u64)", symbol->module,
			 symbol->name);
		trace_session_name(hooks->session, TRACE_SOURCE_DAEMON, TRACE_NAME_HOOK, 0, hook,
				   name, strlen(name));
	}
	memcpy(event.event.words, &calls, sizeof(calls));
	trace_session_emit(hooks->session, &event.event.record, 0, 0);
}

void hook_discover_drain(struct trace_hooks *hooks, bool last) {
	struct hook_discover *discover = hooks->discover;
	uint64_t now = monotonic_now();

	if (!discover || (now < discover->next && !last))
		return;
	discover->next = now + INTERVAL;
	for (size_t i = 0; i < discover->n; i++) {
		uint64_t calls =
			discover->symbols[i] ? hook_sum(hooks, HOOK_MAP_COUNTS, (uint32_t)i) : 0;

		if (calls > discover->told[i])
			tell(hooks, discover->symbols[i], (uint32_t)(HOOK_ROWS_MAX + i),
			     !discover->told[i], calls - discover->told[i], now);
		discover->told[i] = calls;
	}
}

void hook_discover_free(struct trace_hooks *hooks) {
	if (hooks->discover) {
		free(hooks->discover->symbols);
		free(hooks->discover->told);
	}
	free(hooks->discover);
	hooks->discover = NULL;
}
