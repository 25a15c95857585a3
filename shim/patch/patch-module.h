/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The modules that the process has loaded, as the sanitizer engine reports them. Code within the
 * driver adds and marks them, under a lock of their own that is held across no call. Everything
 * else here, also freeing, needs the loader's lock.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"
#include "patch-names.h"

struct load;
struct patch_cells;

enum patch_module_state {
	PATCH_MODULE_LOADED,
	PATCH_MODULE_ENDING, /* a call that unloads it is on its way: not to be touched */
	PATCH_MODULE_GONE,
};

struct patch_module_entry {
	struct patch_module_entry *next;
	driver_handle context, module, library;
	uint32_t number; /* patch_module.number */
	int state; /* enum patch_module_state; atomic */
	struct patch_names names;
	uint64_t plan; /* id of the one that is for it alone; 0: none */
	bool asked; /* it was in a list that a plan, or OWN, was got for; of one that is left alone:
		       why was said */
	uint64_t patched; /* id of the image that it is patched with; 0: bare */
	uint64_t *attachments, *kernel_ids; /* of each name, from the plan; NULL: none is meant */
	struct patch_cells *cells;
};

/* Adds a module, and forgets what was loaded under its handle before. NULL: it has no kernels. */
struct patch_module_entry *patch_module_add(driver_handle context, driver_handle module,
					    driver_handle library, const void *cubin, size_t size);

/* Marks the modules with one of these handles (NULL: any). Needs no lock. */
void patch_module_mark(driver_handle context, driver_handle module, driver_handle library,
		       enum patch_module_state from, enum patch_module_state to);

/* With the loader's lock held: */

struct patch_module_entry *patch_module_first(void);
struct patch_module_entry *patch_module_by_number(uint32_t number);
bool patch_module_is_loaded(const struct patch_module_entry *entry);
/* Takes a module that is gone off the list, or returns NULL; for patch_module_free(). */
struct patch_module_entry *patch_module_take_gone(void);
void patch_module_free(struct patch_module_entry *entry);

/*
 * Makes a list of names (proto/patch.h) of one module, or (NULL) of all that were not asked about.
 * Modules that are left alone (patch_names.left) are in none. Freed with free(); NULL: there are
 * none (*size is 0), or no memory. *left: some do not fit.
 */
void *patch_module_list(const struct patch_module_entry *only, size_t *size, bool *left);
