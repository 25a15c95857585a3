/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device memory that patches read (patch-data.h): allocates it for each context and fills it in
 * from the plans. Runs with the loader's lock held.
 */

#include "patch-data.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "shim/module/arm.h"
#include "shim/engine/sass.h"

#define CHUNK_SIZE 65536

struct patch_image {
	struct patch_image *next;
	uint64_t image_id;
};

struct patch_spare {
	struct patch_spare *next;
	driver_pointer address;
	size_t size;
};

/* Cells of one module for one image, one behind the other. */
struct patch_cells {
	struct patch_cells *next;
	uint64_t image_id;
	uint64_t epoch, ids[PATCH_ATTACHMENTS_MAX]; /* patch_view's, of who filled them in last */
	driver_pointer address;
	size_t size; /* of the memory */
	uint32_t cell_size, count;
	bool live; /* some have attachments, or may have */
	bool unsent; /* what was to be written last was not, or not for sure */
	char *bytes; /* what is in them */
	uint32_t names[]; /* of the kernels, ascending */
};

_Static_assert(!offsetof(struct patch_data, attachments), "write_cells() takes it for that");

static struct patch_context *contexts;

struct patch_context *patch_context_find(driver_handle handle) {
	struct patch_context *context = contexts;

	while (context && context->handle != handle)
		context = context->next;
	return context;
}

struct patch_context *patch_context_get(driver_handle handle) {
	struct patch_context *context = patch_context_find(handle);

	if (context)
		return context;
	context = calloc(1, sizeof(*context));
	if (!context)
		return NULL;
	context->handle = handle;
	context->id = driver_context_id(handle);
	context->born = arm_born();
	context->next = contexts;
	contexts = context;
	return context;
}

void patch_context_forget(driver_handle handle, uint64_t now, uint64_t until) {
	for (struct patch_context **link = &contexts; *link; link = &(*link)->next) {
		struct patch_context *context = *link;

		if (context->handle != handle)
			continue;
		if (arm_outlives(context->id, context->born, now, until))
			return;
		*link = context->next;
		for (struct patch_image *image; (image = context->images) != NULL;) {
			context->images = image->next;
			free(image);
		}
		for (struct patch_spare *spare; (spare = context->spare) != NULL;) {
			context->spare = spare->next;
			free(spare);
		}
		free(context);
		return;
	}
}

/* Keeps memory for later; without memory for a note of it, it is lost. */
static void keep_spare(struct patch_context *context, driver_pointer address, size_t size) {
	struct patch_spare *spare = malloc(sizeof(*spare));

	if (!spare)
		return;
	*spare = (struct patch_spare){ context->spare, address, size };
	context->spare = spare;
}

/* Takes from the smallest piece that is large enough, so that the same again finds its own. */
static bool take_spare(struct patch_context *context, size_t size, driver_pointer *address) {
	struct patch_spare **best = NULL, *spare;

	for (struct patch_spare **link = &context->spare; *link; link = &(*link)->next)
		if ((*link)->size >= size && (!best || (*link)->size < (*best)->size))
			best = link;
	if (!best)
		return false;
	spare = *best;
	*address = spare->address;
	spare->address += size;
	spare->size -= size;
	if (!spare->size) {
		*best = spare->next;
		free(spare);
	}
	return true;
}

const char *patch_context_alloc(struct patch_context *context, const struct sass_engine *engine,
				size_t size, driver_pointer *address) {
	size_t chunk = size > CHUNK_SIZE ? size : CHUNK_SIZE;
	const char *reason;

	size = (size + 15) & ~(size_t)15;
	if (take_spare(context, size, address))
		return NULL;
	chunk = (chunk + 15) & ~(size_t)15;
	reason = engine->alloc(context->handle, address, chunk);
	if (!reason && chunk > size)
		keep_spare(context, *address + size, chunk - size);
	return reason;
}

const char *patch_context_load(struct patch_context *context, const struct sass_engine *engine,
			       const struct patch_view *view) {
	struct patch_image *image = context->images;
	const char *reason;

	while (image && image->image_id != view->image_id)
		image = image->next;
	if (image)
		return NULL;
	image = malloc(sizeof(*image));
	if (!image)
		return "no memory for a patch image: the process has none";
	reason = engine->load_image(context->handle, view->image);
	if (reason) {
		free(image);
		return reason;
	}
	*image = (struct patch_image){ context->images, view->image_id };
	context->images = image;
	return NULL;
}

/* ---- cells -------------------------------------------------------------------------- */

static bool is_meant(const struct patch_module_entry *entry, uint32_t name) {
	return entry->attachments && entry->attachments[name];
}

static bool is_for(const struct patch_cells *cells, const struct patch_view *view) {
	return view && cells->image_id == view->image_id && cells->cell_size == view->data_size;
}

/* The place of a name among the cells, or -1. */
static int64_t place_of(const struct patch_cells *cells, uint32_t name) {
	uint32_t low = 0, high = cells->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (cells->names[middle] == name)
			return middle;
		if (name < cells->names[middle])
			high = middle;
		else
			low = middle + 1;
	}
	return -1;
}

static driver_pointer find_cell(const struct patch_module_entry *entry,
				const struct patch_view *view, uint32_t name) {
	for (const struct patch_cells *cells = entry->cells; cells; cells = cells->next) {
		int64_t place = is_for(cells, view) ? place_of(cells, name) : -1;

		if (place >= 0)
			return cells->address + (uint64_t)place * cells->cell_size;
	}
	return 0;
}

driver_pointer patch_cells_find(const struct patch_module_entry *entry,
				const struct patch_view *view, uint32_t name) {
	return is_meant(entry, name) ? find_cell(entry, view, name) : 0;
}

/* Makes cells for the kernels that are meant and have none. */
static const char *add_cells(struct patch_context *context, const struct sass_engine *engine,
			     struct patch_module_entry *entry, const struct patch_view *view) {
	struct patch_cells *cells;
	const char *reason;
	uint32_t count = 0;

	for (uint32_t name = 0; name < entry->names.count; name++)
		count += is_meant(entry, name) && !find_cell(entry, view, name);
	if (!count)
		return NULL;
	cells = calloc(1, sizeof(*cells) + count * sizeof(cells->names[0]));
	if (cells)
		cells->bytes = calloc(count, view->data_size);
	if (!cells || !cells->bytes) {
		free(cells);
		return "no memory for the data of patches: the process has none";
	}
	cells->image_id = view->image_id;
	cells->cell_size = view->data_size;
	cells->size = (size_t)count * view->data_size;
	reason = patch_context_alloc(context, engine, cells->size, &cells->address);
	if (reason) {
		free(cells->bytes);
		free(cells);
		return reason;
	}
	for (uint32_t name = 0; name < entry->names.count; name++)
		if (is_meant(entry, name) && !find_cell(entry, view, name))
			cells->names[cells->count++] = name;
	cells->next = entry->cells;
	entry->cells = cells;
	return NULL;
}

static char *cell_at(const struct patch_cells *cells, uint32_t place) {
	return cells->bytes + (size_t)place * cells->cell_size;
}

/* Leaves a cell these of its attachments; the rest stays: a kernel that runs may have seen others.
 */
static bool keep_attachments(char *cell, uint64_t keep) {
	uint64_t attachments;

	memcpy(&attachments, cell, sizeof(attachments));
	attachments &= keep;
	memcpy(cell, &attachments, sizeof(attachments));
	return attachments;
}

static const char *send_cells(const struct patch_context *context, const struct sass_engine *engine,
			      struct patch_cells *cells) {
	const char *reason =
		engine->write(context->handle, cells->address, cells->bytes, cells->size);

	cells->unsent = reason;
	return reason;
}

/* Fills in one block of cells. */
static const char *write_cells(const struct patch_context *context,
			       const struct sass_engine *engine,
			       const struct patch_module_entry *entry, struct patch_cells *cells,
			       const struct patch_view *view) {
	bool live = false;
	const char *reason;

	for (uint32_t i = 0; i < cells->count; i++) {
		struct patch_data data = { .process = context->process };
		char *cell = cell_at(cells, i);

		if (!is_meant(entry, cells->names[i])) {
			keep_attachments(cell, 0);
			continue;
		}
		data.attachments = entry->attachments[cells->names[i]];
		data.kernel_id = entry->kernel_ids[cells->names[i]];
		memcpy(cell, context->data, cells->cell_size);
		memcpy(cell, &data, sizeof(data));
		live = true;
	}
	cells->epoch = view->epoch;
	memcpy(cells->ids, view->ids, sizeof(cells->ids));
	reason = send_cells(context, engine, cells);
	if (!reason || live)
		cells->live = live;
	return reason;
}

/* The bits of cells for an older image whose attachments the view has, too. */
static uint64_t still_meant(const struct patch_cells *cells, const struct patch_view *view) {
	uint64_t bits = 0;

	for (unsigned i = 0; i < PATCH_ATTACHMENTS_MAX && cells->epoch == view->epoch; i++)
		for (unsigned k = 0; k < PATCH_ATTACHMENTS_MAX && cells->ids[i]; k++)
			if (cells->ids[i] == view->ids[k])
				bits |= UINT64_C(1) << i;
	return bits;
}

static void narrow_cells(const struct patch_context *context, const struct sass_engine *engine,
			 struct patch_cells *cells, uint64_t keep) {
	bool live = false;

	for (uint32_t i = 0; i < cells->count; i++)
		live = keep_attachments(cell_at(cells, i), keep) || live;
	if (!send_cells(context, engine, cells))
		cells->live = live;
}

const char *patch_cells_prepare(struct patch_context *context, const struct sass_engine *engine,
				struct patch_module_entry *entry, const struct patch_view *view) {
	const char *reason = add_cells(context, engine, entry, view);

	for (struct patch_cells *cells = entry->cells; cells && !reason; cells = cells->next)
		if (is_for(cells, view))
			reason = write_cells(context, engine, entry, cells, view);
	return reason;
}

void patch_cells_finish(struct patch_context *context, const struct sass_engine *engine,
			struct patch_module_entry *entry, const struct patch_view *view) {
	for (struct patch_cells *cells = entry->cells; cells; cells = cells->next) {
		bool patched = view && entry->patched != view->image_id &&
			       cells->image_id == entry->patched;

		if (cells->live && !is_for(cells, view))
			narrow_cells(context, engine, cells,
				     patched ? still_meant(cells, view) : 0);
	}
}

bool patch_cells_forget(const struct patch_context *context, const struct sass_engine *engine,
			struct patch_module_entry *entry, driver_pointer address) {
	bool done = true;

	for (struct patch_cells *cells = entry->cells; cells; cells = cells->next) {
		bool found = cells->unsent; /* what is in the memory is not known */

		if (!cells->live)
			continue;
		for (uint32_t i = 0; i < cells->count; i++) {
			uint64_t *words = (uint64_t *)cell_at(cells, i);

			for (uint32_t k = sizeof(struct patch_data) / 8; k < cells->cell_size / 8;
			     k++)
				if (words[k] == address) {
					words[k] = 0;
					found = true;
				}
		}
		if (found && send_cells(context, engine, cells))
			done = false;
	}
	return done;
}

void patch_cells_free(struct patch_context *context, struct patch_module_entry *entry) {
	while (entry->cells) {
		struct patch_cells *cells = entry->cells;

		entry->cells = cells->next;
		if (context)
			keep_spare(context, cells->address, cells->size);
		free(cells->bytes);
		free(cells);
	}
}
