/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One instance of a map (proto/map-layout.h): the memory that the daemon hands out for one context,
 * and where kernels find it. Instances are used with the lock of mirror.h held. Code that calls the
 * driver through them has the context current and the capture mode relaxed.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"
#include "proto/map-layout.h"
#include "proto/wire.h"

struct load;
struct sass_engine;

/*
 * Data of an instance that a module holds itself (load NULL: that patches of the sanitizer engine
 * use).
 */
struct instance_region {
	struct instance_region *next;
	const struct load *load;
	driver_pointer address;
};

struct instance {
	struct instance *next;
	uint64_t map_id;
	uint64_t id; /* the daemon's */
	void *mapping; /* of the daemon's descriptor */
	uint64_t size; /* of the mapping */
	uint64_t data_size;
	struct map_layout
		layout; /* as the header had it, checked; of KERNEL place and kind alone */
	driver_pointer address; /* of the data, as kernels see it; 0 until instance_prepare() */
	driver_pointer spare; /* buffer for it, of one that is used no more; 0: none */
	void *registered; /* the part of the mapping that the driver knows; NULL: none */
	struct instance_region *regions;
	unsigned char *sum, *total, *past; /* with regions: room for one's bytes and for the sum;
					      what unloaded modules had counted */
	bool stale; /* the last copy has what cannot be read any more: it stays as it is */
	bool forgotten; /* of a daemon that is gone: never found again */
	bool disarmed; /* its map or its daemon is gone; its memory stays, kernels may still write
			  to it */
	bool unwanted; /* its map is gone, and it is to be disarmed if its context, which is ending,
			  lives on */
	bool held; /* disarmed, but something may still point to its memory: that goes with the
		      context */
	uint64_t unused_since; /* arm_born(): no kernel that begins later does; 0: they may */
	bool unused; /* no kernel does */
};

/*
 * Maps what the daemon sent. Consumes fd. NULL: it is not what map-layout.h says, or there is no
 * memory.
 */
struct instance *instance_new(const struct wire_instance_reply *reply, int fd);

/*
 * Its device memory went with the context, or was never there; host memory is unregistered, if
 * the driver has not done so. NULL is fine.
 */
void instance_free(struct instance *instance);

/*
 * Sees to it that kernels of the current context can use the data: with its initial values in a
 * buffer, or where the daemon reads it. Returns why not (address is 0 then), or NULL.
 */
const char *instance_prepare(struct instance *instance, driver_handle stream);

/* The engine that writes to device memory when the driver has called us. */
struct instance_engine {
	const struct sass_engine *engine;
	driver_handle context;
};

/*
 * The same from within the driver; *later: it cannot be done there, and is not an error.
 */
const char *instance_prepare_inside(struct instance *instance, const struct instance_engine *inside,
				    bool *later);

/*
 * Sees to it that the instance has a region that belongs to no module: zeros, which patches use.
 * inside: NULL, or as above. Returns why not, or NULL and its address.
 */
const char *instance_prepare_region(struct instance *instance, driver_handle stream,
				    const struct instance_engine *inside, driver_pointer *address);

/*
 * Gives the device memory back that nothing points to any more, before instance_free(); its context
 * is current and idle. False: modules hold data of it.
 */
bool instance_release(struct instance *instance);

/* Its map is gone: the daemon's memory is not needed any more, but where the GPU writes to it. */
void instance_disarm(struct instance *instance);

/* Takes the buffer of one that is used no more, if that fits. */
bool instance_follow(struct instance *instance, struct instance *before);

/* Is there anything that has to be copied for the daemon to see it? */
bool instance_is_copied(const struct instance *instance);

/* Copies it to the daemon's memory. final: for the last time. */
void instance_copy(struct instance *instance, driver_handle stream, bool final);

/* The context ended in good order. */
void instance_mark_final(struct instance *instance);

/* Makes a module's own data part of the instance, unless it is that already. */
bool instance_add_region(struct instance *instance, const struct load *load,
			 driver_pointer address);

/* Does a module hold data of it? */
bool instance_has_region(const struct instance *instance, const struct load *load);

/*
 * Before the module is unloaded, when its kernels have ended: keeps what its regions hold, or where
 * that cannot be read, as in a context with an error, what was copied last.
 */
void instance_end_regions(struct instance *instance, const struct load *load, driver_handle stream);

/* It is unloaded already. */
void instance_drop_regions(struct instance *instance, const struct load *load);
