/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Arming: gives the probes of twins the memory that they write to, in each context where
 * they run. Before a context ends, it saves what is in that memory.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"

struct instance;
struct load;
struct mirror_context;

/* How many twins the process has; 0 in all but probed processes. Read by every launch.
 */
extern unsigned arm_load_count __attribute__((visibility("hidden")));

/* Set in arm_load_count while the sanitizer engine is in the process (patching.h). */
#define ARM_ENGINE 0x80000000u

/* Set in arm_load_count once the process has a module that twins can be made of (twin.h). */
#define ARM_TWINS 0x40000000u

/* How many twins, in these bits; ARM_ENGINE; and ARM_TWINS. */
#define ARM_LOADS 0x3fffffffu
static inline unsigned arm_work(void) {
	return __atomic_load_n(&arm_load_count, __ATOMIC_RELAXED);
}

/* Is there anything at all that launches and ends of contexts have to do with? */
static inline bool arm_needed(void) {
	return __atomic_load_n(&arm_load_count, __ATOMIC_RELAXED) != 0;
}

/*
 * A number for what comes now, larger than all before; and the last one. For what may have a handle
 * that something else had, too.
 */
uint64_t arm_born(void);
uint64_t arm_now(void);

/*
 * A context is gone: does this, which was born so and is of a context with that id
 * (driver_context_id()), belong to another one that has its handle? now: the id of that, or 0;
 * until: what was born behind it is of that, too.
 */
static inline bool arm_outlives(uint64_t id, uint64_t born, uint64_t now, uint64_t until) {
	return (now && id == now) || born > until;
}

/*
 * Arms every twin in the calling thread's context, where that is not done. Cheap when it
 * is. until_ms: or 0.
 */
void arm_current(uint64_t until_ms);

/*
 * A twin came, or goes; with the loader's lock held. keep: what it has counted, it can
 * still be read.
 */
void arm_load_added(struct load *load);
void arm_load_removed(struct load *load, bool keep);

/*
 * The instance of a map in a context. If this process has none there, the daemon is asked. Both
 * locks are held. Returns why there is none, or NULL.
 */
const char *arm_get_instance(struct mirror_context *context, uint64_t map_id,
			     struct instance **instance);

/*
 * A context in which kernels of a module that will be unloaded may still count, each context once,
 * for arm_await(). NULL: all were waited for. With the loader's lock held.
 */
driver_handle arm_next_awaited(const struct load *load);

/* Waits for the kernels of a context as unloading does, and ends no capture. No lock is held. */
void arm_await(driver_handle context);

/* Is a module armed in some context, or was it tried? With the loader's lock held. */
bool arm_is_armed(const struct load *load);

/* The next launch arms what could not be armed because there was no daemon. */
void arm_again(void);

/* Tells the daemon that a module or plan is armed on a device, or (reason) why it is not. */
void arm_report(const struct load *load, int device, const char *reason);

/*
 * Stops all probes of this process from using a map. For the mirror's thread: leaves no context
 * current.
 */
void arm_disarm(uint64_t map_id);

/*
 * Before a call that may end a context, or surely does: its instances are copied out a last time,
 * and other threads of ours leave it alone. Where it ends surely its kernels are waited for; one
 * that lives on may run them for as long as it likes. What is returned, perhaps NULL, goes to
 * arm_context_ended() after that call. gone: it has ended. before: arm_now() before that call;
 * another one may have the handle since.
 */
struct mirror_context *arm_context_ending(driver_handle handle, bool surely);
void arm_context_ended(struct mirror_context *context, driver_handle handle, uint64_t before,
		       bool gone);

/*
 * The same for the primary context of a device, which lives on while others hold it. It is NULL
 * before the call, and that is all, if it is not active or we have nothing to do with contexts.
 */
driver_handle arm_primary(int device, uint64_t *id);
void arm_primary_ended(struct mirror_context *context, driver_handle handle, int device,
		       uint64_t id, bool gone);

/* The kernels of a context (NULL: the current one) that began before that (arm_now()) have ended.
 */
void arm_synchronized(driver_handle context, uint64_t before);

/* After a cuCtxDetach(), for which it had to be current: it still is if it lives on. */
bool arm_is_current(driver_handle context);

/*
 * In a forked child, where CUDA does not work: calls go to the driver at once, and take no lock
 * that another thread may have had.
 */
void arm_forked(void);
