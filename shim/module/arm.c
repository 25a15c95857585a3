/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Arming (arm.h): gives the probes of twins their memory in each context, and brings the
 * data home before the context ends.
 *
 * A twin has one variable per map: a pointer, 0 until it is armed, and probes do nothing
 * till then; or, for counters, the data itself, which is then only found here; and one for the
 * facts of the process. Arming happens where a context is current anyway: right after the load if
 * there is one, and before launches. Each thread remembers the context and the generation of loads
 * for which it last found everything armed, so that a launch of a probed process costs a
 * comparison.
 *
 * Locks: the loader's first, then the instances'.
 */

#include "arm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handles.h"
#include "instance.h"
#include "load.h"
#include "mirror.h"
#include "twin.h"
#include "shim/patch/patching.h"

#define SCRATCH_SIZE (1 << 20) /* [H100]: less was not tried */

unsigned arm_load_count;
static uint64_t generation =
	1; /* of the loads and contexts; changes when anything may have to be armed anew */
static uint64_t births; /* how many loads and contexts there were: arm_born() */

static __thread struct {
	driver_handle context;
	uint64_t generation;
} here;

/* Where a module is armed, or failed to be: that is not tried again, unless it was for want of a
 * daemon. */
struct armed {
	struct armed *next;
	driver_handle context;
	bool partly; /* when there is another daemon, it is tried again */
	bool awaited; /* the module is being unloaded, and its kernels there were waited for */
};

static struct armed *find_armed(const struct load *load, driver_handle context) {
	for (struct armed *one = load->armed; one; one = one->next)
		if (one->context == context)
			return one;
	return NULL;
}

bool arm_is_armed(const struct load *load) {
	for (const struct armed *one = load->armed; one; one = one->next)
		if (!one->partly)
			return true;
	return false;
}

void arm_again(void) {
	__atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
}

static struct armed *note_armed(struct load *load, driver_handle context) {
	struct armed *one = calloc(1, sizeof(*one));

	if (one) {
		*one = (struct armed){ .next = load->armed, .context = context };
		load->armed = one;
	}
	return one;
}

/* Forgets that a load was armed, in one context or (NULL) in all. */
static void forget_armed(struct load *load, driver_handle context) {
	for (struct armed **link = &load->armed; *link;) {
		struct armed *one = *link;

		if (!context || one->context == context) {
			*link = one->next;
			free(one);
		} else {
			link = &one->next;
		}
	}
}

uint64_t arm_born(void) {
	return __atomic_add_fetch(&births, 1, __ATOMIC_RELEASE);
}

uint64_t arm_now(void) {
	return __atomic_load_n(&births, __ATOMIC_ACQUIRE);
}

void arm_load_added(struct load *load) {
	__atomic_add_fetch(&arm_load_count, 1, __ATOMIC_RELAXED);
	load->born = arm_born();
	arm_again();
}

driver_handle arm_next_awaited(const struct load *load) {
	bool counts = false;

	for (uint32_t i = 0; i < load->slot_count; i++)
		counts |= load->slots[i].kind == WIRE_SLOT_DATA;
	for (struct armed *one = load->armed; counts && one; one = one->next) {
		if (one->awaited)
			continue;
		one->awaited = true;
		return one->context;
	}
	return NULL;
}

/*
 * Giving device memory back waits for kernels as cuCtxSynchronize() does, which would end captures
 * of other threads, whatever their mode and ours [H100]. Where no memory can be had, nobody waits.
 */
static void give_scratch_back(void) {
	const struct driver *driver = driver_own();
	driver_pointer scratch;

	if (driver->mem_alloc(&scratch, SCRATCH_SIZE) == 0)
		driver->mem_free(scratch);
}

/* Waits for the kernels of a context. ends: it is about to end, and its captures with it. */
static void await(driver_handle context, bool ends) {
	const struct driver *driver = driver_own();
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle before = NULL;

	if (driver->ctx_get_current(&before) != 0)
		return;
	driver->exchange_capture_mode(&mode);
	if (driver->ctx_set_current(context) == 0) {
		if (ends)
			driver->ctx_synchronize();
		else
			give_scratch_back();
		driver->ctx_set_current(before);
	}
	driver->exchange_capture_mode(&mode);
}

void arm_await(driver_handle context) {
	await(context, false);
}

/* Keeps what a module that is about to be unloaded has counted, in every context. */
static void end_regions(const struct load *load) {
	const struct driver *driver = driver_own();
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle before = NULL;

	if (driver->ctx_get_current(&before) != 0)
		return;
	driver->exchange_capture_mode(&mode);
	mirror_lock();
	for (struct mirror_context *context = mirror_first_context(); context;
	     context = context->next)
		if (context->ending || driver->ctx_set_current(context->handle) == 0)
			mirror_end_regions(context, load);
	mirror_unlock();
	driver->ctx_set_current(before);
	driver->exchange_capture_mode(&mode);
}

void arm_load_removed(struct load *load, bool keep) {
	__atomic_sub_fetch(&arm_load_count, 1, __ATOMIC_RELAXED);
	if (keep)
		end_regions(load);
	forget_armed(load, NULL);
	arm_again();
}

const char *arm_get_instance(struct mirror_context *context, uint64_t map_id,
			     struct instance **instance) {
	union wire_message message;
	struct wire_client *client;
	uint64_t deadline_ms;
	int fd;

	*instance = mirror_find_instance(context, map_id);
	if (*instance)
		return NULL;
	client = load_client(&deadline_ms);
	if (!client)
		return "no memory for a map: the daemon is gone";
	memset(&message, 0, sizeof(message));
	wire_client_prepare(client, &message, WIRE_INSTANCE, 0);
	message.instance.map_id = map_id;
	message.instance.device = (uint32_t)context->device;
	if (!wire_client_call(client, &message, -1, WIRE_INSTANCE_REPLY, &fd, deadline_ms)) {
		load_give_up();
		return "no memory for a map: the daemon did not answer";
	}
	if (fd < 0) /* a quota, or the map is gone */
		return "no memory for a map: the daemon refused it";
	if (message.instance_reply.map_id != map_id) {
		close(fd);
		return "no memory for a map: the daemon gave that of another one";
	}
	*instance = instance_new(&message.instance_reply, fd);
	if (!*instance)
		return "no memory for a map: what the daemon gave is none";
	mirror_add_instance(context, *instance);
	return NULL;
}

/* Where a slot's variable lies in the current context, and its size; 0 if it is not there. */
static driver_pointer find_slot(const struct load *load, const char *symbol, size_t *size) {
	const struct driver *driver = driver_own();
	driver_pointer where = 0;
	driver_result result;

	*size = 0;
	if (load->kind == LOAD_LIBRARY)
		result = driver->library_get_global
				 ? driver->library_get_global(&where, size, load->handle, symbol)
				 : -1;
	else
		result = driver->module_get_global(&where, size, load->handle, symbol);
	return result ? 0 : where;
}

/* Tells the module which process it is in. */
static const char *arm_process(struct mirror_context *context, driver_pointer where, size_t size) {
	struct gpuprobe_process process;

	if (size != sizeof(process))
		return "a probe's process variable in the module has a wrong size";
	load_process(context->device, &process);
	return mirror_write(context, where, &process, sizeof(process))
		       ? NULL
		       : "writing a probe's process variable failed";
}

/* Gives a probe the address of its map. */
static const char *arm_pointer(struct mirror_context *context, struct instance *instance,
			       driver_pointer where) {
	const char *reason;

	mirror_reuse(context, instance);
	reason = instance_prepare(instance, context->stream);
	if (reason)
		return reason;
	return mirror_write(context, where, &instance->address, sizeof(instance->address))
		       ? NULL
		       : "writing a probe's map pointer failed";
}

static const char *arm_slot(const struct load *load, struct mirror_context *context,
			    const struct load_slot *slot) {
	struct instance *instance;
	const char *reason;
	size_t size;
	driver_pointer where = find_slot(load, slot->symbol, &size);

	if (!where)
		return "the driver does not find a probe's map in the module";
	if (slot->kind == WIRE_SLOT_PROCESS)
		return arm_process(context, where, size);
	reason = arm_get_instance(context, slot->map_id, &instance);
	if (reason || instance->disarmed)
		return reason;
	if (size != (slot->kind == WIRE_SLOT_DATA ? instance->data_size : sizeof(driver_pointer)))
		return "a probe's map in the module has another size than the map";
	if (slot->kind == WIRE_SLOT_POINTER)
		return arm_pointer(context, instance, where);
	return instance_add_region(instance, load, where)
		       ? NULL
		       : "no memory for a map: the process has none, or it cannot be summed up";
}

/* Arms one module in the current context: a probe whose map is not to be had does nothing, the
 * others work. Returns how many slots have nothing. */
static uint32_t arm_load(const struct load *load, struct mirror_context *context) {
	uint32_t failed = 0;

	for (uint32_t i = 0; i < load->slot_count; i++) {
		const struct load_slot *slot = &load->slots[i];
		const char *reason = arm_slot(load, context, slot);

		failed += reason != NULL;
		if (reason && slot->kind == WIRE_SLOT_PROCESS)
			load_report(load->module_id, reason);
		else if (reason)
			load_report_map(load->module_id, slot->map_id, reason);
	}
	return failed;
}

void arm_report(const struct load *load, int device, const char *reason) {
	union wire_message message;
	struct wire_client *client;
	uint64_t deadline_ms;

	if (reason) {
		load_report(load->module_id, reason);
		return;
	}
	client = load_client(&deadline_ms);
	if (!client)
		return;
	memset(&message, 0, sizeof(message));
	wire_client_prepare(client, &message, WIRE_ARMED, 0);
	message.armed.module_id = load->module_id;
	message.armed.device = (uint32_t)device;
	if (!wire_client_send(client, &message, -1, deadline_ms))
		load_give_up();
}

/* Arms what is not armed in this context; both locks are held. */
static void arm_context(driver_handle handle) {
	struct mirror_context *context = mirror_find_context(handle);
	uint64_t deadline_ms;

	for (struct load *load = load_first(); load; load = load->next) {
		struct armed *one = find_armed(load, handle);
		const char *reason;
		uint32_t failed;

		if ((load->context && load->context != handle) || !load_is_current(load) ||
		    (one && !one->partly))
			continue;
		if (!context)
			context = mirror_add_context(handle);
		if (!context || !mirror_has_stream(context))
			return;
		if (!one)
			one = note_armed(load, handle);
		if (!one)
			return;
		failed = arm_load(load, context);
		/* what could not be armed may be retired, and that is said on the mirror's
		 * connection */
		reason = mirror_start(load_folder(), load_deadline_ms(), load->epoch);
		if (reason)
			load_report(load->module_id, reason);
		one->partly = failed && !load_client(&deadline_ms); /* the daemon is gone */
		if (!one->partly && (!failed || failed < load->slot_count))
			arm_report(load, context->device, NULL);
	}
}

/* The slow path of a launch; due: mirror_is_due(); until_ms: how long it may take, 0: as long as a
 * load. */
static __attribute__((noinline)) void arm_slowly(driver_handle context, uint64_t seen, bool due,
						 uint64_t until_ms) {
	const struct driver *driver = driver_own();
	int mode = DRIVER_CAPTURE_MODE_RELAXED;

	if (!(until_ms ? load_lock_until(until_ms) : load_lock()))
		return;
	driver->exchange_capture_mode(&mode);
	mirror_lock();
	arm_context(context);
	if (due)
		mirror_try_again();
	mirror_unlock();
	driver->exchange_capture_mode(&mode);
	here.context = context;
	here.generation = seen;
	load_unlock();
}

void arm_current(uint64_t until_ms) {
	const struct driver *driver = driver_own();
	uint64_t seen = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
	driver_handle context = NULL;
	bool due;
	int saved;

	if (!driver || driver->ctx_get_current(&context) != 0 || !context)
		return;
	due = mirror_is_due();
	if (here.context == context && here.generation == seen && !due)
		return;
	saved = errno;
	arm_slowly(context, seen, due, until_ms);
	errno = saved;
}

/* Copies a context's instances out; the mirror's thread leaves it alone from then on. */
static void detach(struct mirror_context *context) {
	const struct driver *driver = driver_own();
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle before = NULL;

	if (driver->ctx_get_current(&before) == 0 &&
	    driver->ctx_set_current(context->handle) == 0) {
		driver->exchange_capture_mode(&mode);
		mirror_copy(context, false, false);
		driver->exchange_capture_mode(&mode);
		driver->ctx_set_current(before);
	}
	mirror_end_context(context);
}

/* Does a context have instances that are copied? */
static bool is_copied(driver_handle handle) {
	const struct mirror_context *context;
	bool copied = false;

	if (!mirror_has_contexts() || !load_lock_for_end())
		return false;
	mirror_lock();
	context = mirror_find_context(handle);
	for (const struct instance *instance = context ? context->instances : NULL; instance;
	     instance = instance->next)
		copied |= instance_is_copied(instance);
	mirror_unlock();
	load_unlock();
	return copied;
}

static bool is_primary_active(int device) {
	const struct driver *driver = driver_own();
	unsigned flags;
	int active = 0;

	return driver && driver->get_primary_state(device, &flags, &active) == 0 && active;
}

/* The primary context and its id, if it is active. */
static driver_handle find_primary(int device, uint64_t *id) {
	const struct driver *driver = driver_own();
	driver_handle primary = NULL;

	if (!driver || !is_primary_active(device) || driver->primary_retain(&primary, device) != 0)
		return NULL;
	*id = driver_context_id(primary);
	driver->primary_release(device);
	return primary;
}

driver_handle arm_primary(int device, uint64_t *id) {
	return arm_needed() || mirror_has_contexts() ? find_primary(device, id) : NULL;
}

struct mirror_context *arm_context_ending(driver_handle handle, bool surely) {
	struct mirror_context *context = NULL;
	int saved = errno;

	if (!handle || !(mirror_has_contexts() || arm_needed()))
		return NULL;
	if (surely && is_copied(handle))
		await(handle, true); /* with no lock held: it may be long */
	if (load_lock_for_end()) {
		mirror_lock();
		patch_context_ending(handle, true);
		context = mirror_find_context(handle);
		if (context)
			detach(context);
		mirror_unlock();
		load_unlock();
	}
	errno = saved;
	return context;
}

/* Stops one context's probes from using a map; it must be current. */
static void disarm_in(struct mirror_context *context, uint64_t map_id) {
	const driver_pointer none = 0;
	const struct instance *found = mirror_find_instance(context, map_id);
	bool written = true, held;

	if (!found || found->disarmed)
		return;
	for (struct load *load = load_first(); load; load = load->next) {
		if (!find_armed(load, context->handle))
			continue;
		for (uint32_t i = 0; i < load->slot_count; i++) {
			const struct load_slot *slot = &load->slots[i];
			driver_pointer where;
			size_t size;

			if (slot->kind != WIRE_SLOT_POINTER || slot->map_id != map_id)
				continue;
			where = find_slot(load, slot->symbol, &size);
			written &= where && size == sizeof(none) &&
				   mirror_write(context, where, &none, sizeof(none));
		}
	}
	held = !patch_disarm(context, map_id) || !written;
	mirror_copy(context, false, false);
	for (struct instance *instance = context->instances; instance; instance = instance->next) {
		if (instance->map_id != map_id || instance->disarmed)
			continue;
		instance_disarm(instance); /* two, where contexts were joined */
		instance->held = held;
		/* what patches had is given back where they are changed */
		if (!held && !(arm_work() & ARM_ENGINE) && !instance->forgotten)
			mirror_unuse(instance);
	}
}

/* Both locks are held. now: the id of the context that has the handle now, or 0. What came behind
 * `until` is another's, too. */
static void forget_context(struct mirror_context *context, driver_handle handle, uint64_t now,
			   uint64_t until) {
	for (struct load *load = load_first(); load; load = load->next)
		forget_armed(load, handle);
	arm_again();
	handles_context_ended(handle, now, until);
	twin_context_ended(handle, now, until);
	load_forget_context(handle, now, until);
	patch_context_gone(handle, now, until);
	mirror_free_context(context);
}

/* Does what arm_disarm() left undone in a context that was ending. */
static void disarm_unwanted(struct mirror_context *context) {
	const struct driver *driver = driver_own();
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle before = NULL;

	if (driver->ctx_get_current(&before) != 0)
		return;
	driver->exchange_capture_mode(&mode);
	if (driver->ctx_set_current(context->handle) == 0) {
		for (struct instance *instance = context->instances; instance;
		     instance = instance->next)
			if (instance->unwanted)
				disarm_in(context, instance->map_id);
		driver->ctx_set_current(before);
	}
	driver->exchange_capture_mode(&mode);
}

/* What was armed meanwhile is of the same context. */
static void keep_context(struct mirror_context *context, driver_handle handle) {
	struct mirror_context *meanwhile = context ? mirror_find_context(handle) : NULL;

	patch_context_ending(handle, false);
	if (context)
		disarm_unwanted(context);
	if (meanwhile)
		mirror_join_context(meanwhile, context);
	else if (context)
		mirror_keep_context(context);
}

void arm_context_ended(struct mirror_context *context, driver_handle handle, uint64_t before,
		       bool gone) {
	int saved = errno;

	if (!handle || (!context && !arm_needed() && !mirror_has_contexts()))
		return;
	if (load_lock_for_end()) { /* else nobody touches the context any more, and its memory is
				      lost */
		mirror_lock();
		if (!context && gone) { /* the lock could not be had before */
			context = mirror_find_context(handle);
			if (context && context->born <= before)
				mirror_end_context(context);
			else
				context = NULL;
		}
		if (gone)
			forget_context(context, handle, 0, before);
		else
			keep_context(context, handle);
		mirror_unlock();
		load_unlock();
	}
	errno = saved;
}

/*
 * Asked with the lock held, after each call that may end it: so the last one that asks finds it
 * gone, whoever's release was the last, our own in arm_primary() perhaps. Another thread may have
 * retained it anew by then; only its id tells.
 */
void arm_primary_ended(struct mirror_context *context, driver_handle handle, int device,
		       uint64_t id, bool gone) {
	int saved = errno;
	uint64_t now = 0;

	if (load_lock_for_end()) {
		if (find_primary(device, &now) &&
		    (now == DRIVER_CONTEXT_ID_NONE || id == DRIVER_CONTEXT_ID_NONE))
			now = id;
		if (!is_primary_active(device) || (gone && now == id))
			now = 0;
		mirror_lock();
		if (!context) { /* another thread had it meanwhile */
			context = mirror_find_context(handle);
			if (context && context->id == id)
				mirror_end_context(context);
			else
				context = NULL;
		}
		if (now == id)
			keep_context(context, handle);
		else
			forget_context(context, handle, now, UINT64_MAX);
		mirror_unlock();
		load_unlock();
	}
	errno = saved;
}

bool arm_is_current(driver_handle context) {
	const struct driver *driver = driver_own();
	driver_handle current = NULL;

	return driver && driver->ctx_get_current(&current) == 0 && current == context;
}

void arm_forked(void) {
	__atomic_store_n(&arm_load_count, 0, __ATOMIC_RELAXED);
}

void arm_synchronized(driver_handle context, uint64_t before) {
	int saved = errno;

	if (context || (driver_own() && driver_own()->ctx_get_current(&context) == 0))
		mirror_synchronized(context, before);
	errno = saved;
}

/* The same in one that is ending: if it lives on. */
static void disarm_later(struct mirror_context *context, uint64_t map_id) {
	for (struct instance *instance = context->instances; instance; instance = instance->next)
		instance->unwanted |= instance->map_id == map_id;
}

void arm_disarm(uint64_t map_id) {
	const struct driver *driver = driver_own();

	if (!load_lock())
		return;
	mirror_lock();
	for (struct mirror_context *context = mirror_first_context(); context;
	     context = context->next)
		if (context->ending)
			disarm_later(context, map_id);
		else if (driver->ctx_set_current(context->handle) == 0)
			disarm_in(context, map_id);
	driver->ctx_set_current(NULL);
	mirror_unlock();
	load_unlock();
}
