/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The memory that patches read: a struct patch_data (a cell) in device memory for each kernel to
 * which attachments apply, and what each context has of images and cells. All with the loader's
 * lock held.
 *
 * A cell is never freed while its module is loaded, and never used for another kernel or image. A
 * kernel that runs, or a graph that was made, with an older image finds its own cell. That cell has
 * no attachments, or those that still exist if the module could not be patched again yet. So memory
 * is bounded by kernels times images, and attaching the same again takes none.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"
#include "patch-module.h"
#include "patch-plan.h"

struct sass_engine;

struct patch_context {
	struct patch_context *next;
	driver_handle handle;
	uint64_t id, born; /* driver_context_id(), arm_born() */
	int device; /* ordinal, once it was filled in */
	bool ending; /* a call that ends it is on its way: not to be touched */
	bool skipped; /* it was to be touched meanwhile */
	struct patch_image *images; /* that were loaded into it */
	struct patch_spare *spare; /* device memory of modules that are gone */
	driver_pointer process; /* of its struct gpuprobe_process; 0: none yet */
	uint64_t process_epoch; /* of the daemon that said what is in it */
	uint64_t filled; /* serial of the set whose slots are in data; 0: none */
	bool incomplete; /* slots that need calls of the driver are 0 as yet */
	uint64_t data[PATCH_DATA_MAX / 8]; /* a struct patch_data with the slots of this context */
};

/* The context's record, or NULL; made if there is none. */
struct patch_context *patch_context_find(driver_handle handle);
struct patch_context *patch_context_get(driver_handle handle);
/* Forgets a context that is gone, and its device memory with it. now, until: arm_outlives(). */
void patch_context_forget(driver_handle handle, uint64_t now, uint64_t until);

/* Device memory, 16-byte aligned. Returns why there is none, or NULL. */
const char *patch_context_alloc(struct patch_context *context, const struct sass_engine *engine,
				size_t size, driver_pointer *address);

/* Loads the image, if the context has not got it. */
const char *patch_context_load(struct patch_context *context, const struct sass_engine *engine,
			       const struct patch_view *view);

/*
 * Writes the cells of a module for an image, as the module's attachments say, with the context's
 * slots. Returns why not, or NULL.
 */
const char *patch_cells_prepare(struct patch_context *context, const struct sass_engine *engine,
				struct patch_module_entry *entry, const struct patch_view *view);

/*
 * Writes no attachments into the cells for all other images (view NULL: for all); those of the
 * image that the module is patched with keep the ones that the view has, too.
 */
void patch_cells_finish(struct patch_context *context, const struct sass_engine *engine,
			struct patch_module_entry *entry, const struct patch_view *view);

/* Takes the data of a map from all cells of a module. False: it may still be in some. */
bool patch_cells_forget(const struct patch_context *context, const struct sass_engine *engine,
			struct patch_module_entry *entry, driver_pointer address);

/* The address of a kernel's cell, or 0: the kernel is not meant. */
driver_pointer patch_cells_find(const struct patch_module_entry *entry,
				const struct patch_view *view, uint32_t name);

/* The module is gone: its cells may be used for others. context: NULL: that is gone, too. */
void patch_cells_free(struct patch_context *context, struct patch_module_entry *entry);
