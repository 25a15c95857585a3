/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The instances of this process and the thread that copies them to the daemon's memory. The thread
 * exists while there are instances and a daemon.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"

struct wire_client;
struct instance;
struct load;

/* One context that a probed module runs in. */
struct mirror_context {
	struct mirror_context *next;
	driver_handle handle;
	uint64_t id; /* driver_context_id() */
	uint64_t born; /* arm_born() */
	int device;
	bool ending; /* a call may end it just now: it is not spoken of to the driver, nor found */
	driver_handle stream; /* ours, not blocking; NULL until mirror_has_stream() */
	struct instance *instances;
};

/* All that follows is called with the lock of the instances held, but for mirror_lock itself. */
void mirror_lock(void);
bool mirror_lock_until(uint64_t until_ms);
void mirror_unlock(void);

struct mirror_context *mirror_find_context(driver_handle handle);
struct mirror_context *mirror_add_context(driver_handle handle);
/* Sees to it that a context, which is current, has its stream. */
bool mirror_has_stream(struct mirror_context *context);
struct instance *mirror_find_instance(struct mirror_context *context, uint64_t map_id);
void mirror_add_instance(struct mirror_context *context, struct instance *instance);

/*
 * Before a module is unloaded from the current context, when its kernels have ended: keeps what its
 * regions hold. What they hold in a context that is ending is lost, if that lives on.
 */
void mirror_end_regions(struct mirror_context *context, const struct load *load);

/* It is unloaded already, from all contexts: what has not been copied is lost. */
void mirror_drop_regions(const struct load *load);

/*
 * Copies every instance of a context to its memfd; the context must be current. wait: for the
 * kernels first.
 */
void mirror_copy(struct mirror_context *context, bool wait, bool final);

/*
 * A context begins to be `ending`. Then it is kept, joined with the one that was made for the same
 * meanwhile, which gets what it has, or freed when it is gone.
 */
void mirror_end_context(struct mirror_context *context);
void mirror_keep_context(struct mirror_context *context);
void mirror_join_context(struct mirror_context *to, struct mirror_context *context);
void mirror_free_context(struct mirror_context *context);
/* All of them, also those that are ending. */
struct mirror_context *mirror_first_context(void);

/* Writes to device memory on the context's stream and waits for it; the context must be current. */
bool mirror_write(struct mirror_context *context, driver_pointer where, const void *bytes,
		  size_t size);

/*
 * The current context is idle: frees its instances that are disarmed, if nothing points to them.
 * Takes the lock; with the loader's lock held.
 */
void mirror_drop_disarmed(driver_handle handle);

/* How many it would free. Takes the lock. */
unsigned mirror_count_disarmed(driver_handle handle);

/*
 * Nothing points to the memory of an instance any more. It is another one's once the kernels that
 * run now have ended: giving it back would wait for all that there are then.
 */
void mirror_unuse(struct instance *instance);
/* Kernels that began in the context before that (arm_now()) have ended. Takes the lock if it can be
 * had at once. */
void mirror_synchronized(driver_handle handle, uint64_t before);
/* Is there anything of which that must be known? Needs no lock. */
bool mirror_awaits_kernels(void);
/* Gives an instance the buffer of one that is used no more, if there is one that fits. */
void mirror_reuse(struct mirror_context *context, struct instance *instance);

/* The calls that follow need no lock. */

bool mirror_has_contexts(void);

/*
 * Starts the thread if it does not run, or sends it to the new daemon, whose folder is `folder`.
 * NULL, or why it could not be started: then launches try again.
 */
const char *mirror_start(const char *folder, uint32_t deadline_ms, uint64_t epoch);

/* Could no thread be made, and is it time to try again? Asked by each launch; one of them a second
 * is told so, and tries. */
bool mirror_is_due(void);
/* With the locks of the loader and of the instances held. */
void mirror_try_again(void);

/* Is the thread connected with the daemon? */
bool mirror_is_connected(void);

/*
 * Tells a daemon that continues with an earlier one's state which instances there are. Those that
 * it does not know are forgotten. Takes the lock of the instances. False: the connection is broken.
 */
bool mirror_keep_instances(struct wire_client *client, uint64_t deadline_ms);

/* The instances so far are of a daemon that is gone. Takes the lock of the instances. */
void mirror_forget_daemon(void);

/*
 * Around a fork: keeps the mirror's thread out of the driver meanwhile, or the child would find a
 * lock of the driver's held for good. Waits for it a moment only. No other thread is kept waiting,
 * because one that holds a lock which another fork handler takes may be launching. In the child,
 * the connection's descriptor is closed, also one that is just being made.
 */
void mirror_forking(void);
void mirror_forked(bool in_child);
