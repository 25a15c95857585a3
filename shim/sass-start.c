/* SPDX-License-Identifier: Apache-2.0 */

#include "sass-start.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "interest-page.h"
#include "load.h"
#include "sass.h"

static bool tried;
static const char *why_not;

/* Loads the library from the folder of the shim; returns why not, or NULL. */
static const char *load_engine(const struct sass_engine **engine)
{
	char path[4096];
	sass_entry entry;
	const char *slash;
	Dl_info self;
	void *library;

	if (!dladdr((const void *)sass_start, &self) || !self.dli_fname)
		return "the SASS engine is not found: the shim does not know where it lies";
	slash = strrchr(self.dli_fname, '/');
	if ((size_t)snprintf(path, sizeof(path), "%.*s%s",
			     slash ? (int)(slash + 1 - self.dli_fname) : 0, self.dli_fname,
			     SASS_LIBRARY) >= sizeof(path))
		return "the SASS engine is not found: the shim's path is too long";
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library) {
		dlerror();
		return "the SASS engine cannot be loaded: no " SASS_LIBRARY " beside the shim";
	}
	entry = (sass_entry)dlsym(library, SASS_ENTRY);
	*engine = entry ? entry() : NULL;
	if (!*engine || (*engine)->abi != SASS_ABI) {
		dlerror();
		return "the SASS engine cannot be used: " SASS_LIBRARY " is of another version";
	}
	return NULL;
}

const struct sass_engine *sass_start(const struct sass_events *events)
{
	char sanitizer[INTEREST_SANITIZER_MAX];
	static char line[WIRE_REASON_MAX];
	const struct sass_engine *engine = NULL;
	const char *reason;
	bool wanted;

	if (__atomic_exchange_n(&tried, true, __ATOMIC_RELAXED) || !load_allowed() ||
	    !load_lock_pages())
		return NULL;
	wanted = interest_wants_sass(sanitizer);
	load_unlock_pages();
	if (!wanted)
		return NULL;
	reason = load_engine(&engine);
	if (!reason)
		reason = engine->start(sanitizer, events);
	if (!reason)
		return engine;
	strncpy(line, reason, sizeof(line) - 1); /* it may be of this thread alone */
	why_not = line;
	return NULL;
}

const char *sass_why_not(void)
{
	return why_not;
}
