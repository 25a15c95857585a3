/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Selects the entries of a fatbin that matter for a device (image-select.h).
 *
 * The rules of the driver, as NVIDIA documents them: machine code runs on its own and later minor
 * versions of the same major one; plain PTX can be compiled for everything later; `a` is for one
 * capability exactly, `f` for one major version. Of several the nearest wins, the more special one
 * of equals.
 */

#include "image-select.h"

#include <string.h>

const char *image_entry_suffix(const struct fatbin_entry *entry) {
	if (entry->flags & FATBIN_FLAG_ARCH_SPECIFIC)
		return "a";
	return entry->flags & FATBIN_FLAG_FAMILY ? "f" : "";
}

/* Would the driver consider the entry on this device? */
static bool is_for(const struct fatbin_entry *entry, unsigned int capability) {
	if (!(entry->flags & FATBIN_FLAG_64BIT) ||
	    (entry->kind != FATBIN_KIND_ELF && entry->kind != FATBIN_KIND_PTX))
		return false;
	if (entry->flags & FATBIN_FLAG_ARCH_SPECIFIC)
		return entry->sm == capability;
	if (entry->kind == FATBIN_KIND_PTX && !(entry->flags & FATBIN_FLAG_FAMILY))
		return entry->sm <= capability;
	return entry->sm <= capability && entry->sm / 10 == capability / 10;
}

/* Is `a` nearer to the device than `b`? Both are for it. */
static bool nearer(const struct fatbin_entry *a, const struct fatbin_entry *b) {
	const uint64_t special = FATBIN_FLAG_ARCH_SPECIFIC | FATBIN_FLAG_FAMILY;

	if (a->sm != b->sm)
		return a->sm > b->sm;
	return (a->flags & special) && !(b->flags & special);
}

static const struct fatbin_entry *select_kind(const struct fatbin *fatbin, unsigned int capability,
					      uint16_t kind) {
	const struct fatbin_entry *best = NULL;

	for (size_t i = 0; i < fatbin->n_entries; i++) {
		const struct fatbin_entry *entry = &fatbin->entries[i];

		if (entry->kind == kind && is_for(entry, capability) &&
		    (!best || nearer(entry, best)))
			best = entry;
	}
	return best;
}

const struct fatbin_entry *image_select_code(const struct fatbin *fatbin, unsigned int capability) {
	return select_kind(fatbin, capability, FATBIN_KIND_ELF);
}

const struct fatbin_entry *image_select_ptx(const struct fatbin *fatbin, unsigned int capability) {
	return select_kind(fatbin, capability, FATBIN_KIND_PTX);
}

const struct fatbin_entry *image_select_source(const struct fatbin *fatbin, unsigned int capability,
					       const struct fatbin_entry *code,
					       uint32_t virtual_sm) {
	if (!virtual_sm)
		virtual_sm = code->sm;
	for (size_t i = 0; i < fatbin->n_entries; i++) {
		const struct fatbin_entry *entry = &fatbin->entries[i];

		if (entry->kind == FATBIN_KIND_PTX && is_for(entry, capability) &&
		    entry->container == code->container && entry->sm == virtual_sm &&
		    !strcmp(image_entry_suffix(entry), image_entry_suffix(code)) &&
		    entry->name_size == code->name_size &&
		    (!code->name_size || !memcmp(entry->name, code->name, code->name_size)))
			return entry;
	}
	return NULL;
}
