/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loads the sanitizer engine, libgpuprobe-sass.so, if a daemon wants it (sass-start.h). Happens at
 * most once in a process, before its first cuInit().
 */

#include "sass-start.h"

#include <string.h>

#include "shim/base/beside.h"
#include "shim/interest/interest-lock.h"
#include "proto/wire.h"
#include "sass.h"

static bool tried, started;
static const char *why_not;

/* Loads the library; returns why not, or NULL. */
static const char *load_engine(const struct sass_engine **engine) {
	const void *table = NULL;

	switch (beside_load(SASS_LIBRARY, SASS_ENTRY, SASS_ABI, &table)) {
	case BESIDE_OK:
		*engine = table;
		return NULL;
	case BESIDE_NO_PLACE:
		return "the sanitizer engine is not found: the shim does not know where it lies";
	case BESIDE_MISSING:
		return "the sanitizer engine cannot be loaded: no " SASS_LIBRARY " beside the shim";
	default:
		return "the sanitizer engine cannot be used: " SASS_LIBRARY
		       " is of another version";
	}
}

static bool is_wanted(char sanitizer[INTEREST_SANITIZER_MAX]) {
	bool wanted;

	if (!interest_allows_sass() || !interest_lock())
		return false;
	wanted = interest_wants_sass(sanitizer);
	interest_unlock();
	return wanted;
}

bool sass_claims_process(void) {
	char sanitizer[INTEREST_SANITIZER_MAX];

	return __atomic_load_n(&started, __ATOMIC_RELAXED) ||
	       (!__atomic_load_n(&tried, __ATOMIC_RELAXED) && is_wanted(sanitizer));
}

const struct sass_engine *sass_start(const struct sass_events *events) {
	char sanitizer[INTEREST_SANITIZER_MAX];
	static char line[WIRE_REASON_MAX];
	const struct sass_engine *engine = NULL;
	const char *reason;

	if (__atomic_exchange_n(&tried, true, __ATOMIC_RELAXED) || !is_wanted(sanitizer))
		return NULL;
	reason = load_engine(&engine);
	if (!reason)
		reason = engine->start(sanitizer, events);
	if (!reason) {
		__atomic_store_n(&started, true, __ATOMIC_RELAXED);
		return engine;
	}
	strncpy(line, reason, sizeof(line) - 1); /* it may be of this thread alone */
	__atomic_store_n(&why_not, line, __ATOMIC_RELEASE);
	return NULL;
}

const char *sass_why_not(void) {
	return __atomic_load_n(&why_not, __ATOMIC_ACQUIRE);
}
