/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Records the names of kernels in a traced process.
 *
 * Before a slot's first launch of a handle, a record in the slot has the kernel's name. The handle
 * may be a CUfunction, or a CUkernel in its place. A hash table of the process says which slots
 * have the name. It has no lock: a place belongs to a handle once its key is set, and the bit of a
 * slot is set by that slot's thread alone. All is forgotten when the table is full, and when a
 * module or a context is unloaded, because its handles may come again under other names. A thread
 * that is writing to the table just then may tell a name twice.
 *
 * Drivers before CUDA 12.3 know no names of handles: there a name is known from where a handle came
 * from.
 */

#include <string.h>

#include "shim/driver/driver.h"
#include "tracing.h"

#define PLACES 4096 /* a power of two */
#define PROBES 16

enum role {
	NOTHING = 0,
	LAUNCHES_FIRST, /* the handle is the first argument, */
	LAUNCHES_SECOND, /* or the second */
	GIVES_HANDLE, /* (handle *, module or library, name) */
	UNLOADS,
};

const uint8_t trace_name_roles[DRIVER_FUNCTION_COUNT] = {
	[FUNCTION_cuLaunch] = LAUNCHES_FIRST,
	[FUNCTION_cuLaunchGrid] = LAUNCHES_FIRST,
	[FUNCTION_cuLaunchGridAsync] = LAUNCHES_FIRST,
	[FUNCTION_cuLaunchKernel] = LAUNCHES_FIRST,
	[FUNCTION_cuLaunchKernel_ptsz] = LAUNCHES_FIRST,
	[FUNCTION_cuLaunchCooperativeKernel] = LAUNCHES_FIRST,
	[FUNCTION_cuLaunchCooperativeKernel_ptsz] = LAUNCHES_FIRST,
	[FUNCTION_cuLaunchKernelEx] = LAUNCHES_SECOND,
	[FUNCTION_cuLaunchKernelEx_ptsz] = LAUNCHES_SECOND,
	[FUNCTION_cuModuleGetFunction] = GIVES_HANDLE,
	[FUNCTION_cuLibraryGetKernel] = GIVES_HANDLE,
	[FUNCTION_cuModuleUnload] = UNLOADS,
	[FUNCTION_cuLibraryUnload] = UNLOADS,
	[FUNCTION_cuCtxDestroy] = UNLOADS,
	[FUNCTION_cuCtxDestroy_v2] = UNLOADS,
	[FUNCTION_cuCtxDetach] = UNLOADS,
	[FUNCTION_cuGreenCtxDestroy] = UNLOADS,
	[FUNCTION_cuDevicePrimaryCtxRelease] = UNLOADS,
	[FUNCTION_cuDevicePrimaryCtxRelease_v2] = UNLOADS,
	[FUNCTION_cuDevicePrimaryCtxReset] = UNLOADS,
	[FUNCTION_cuDevicePrimaryCtxReset_v2] = UNLOADS,
};

struct place {
	uint64_t handle; /* 0: free */
	uint64_t told[TRACE_RING_SLOTS_MAX / 64]; /* bits of slots */
};

static struct place places[PLACES];
static driver_result (*function_get_name)(const char **, driver_handle);
static driver_result (*kernel_get_name)(const char **, driver_handle);
static bool looked_up;

void trace_name_forget(void) {
	for (unsigned i = 0; i < PLACES; i++) {
		if (!__atomic_load_n(&places[i].handle, __ATOMIC_RELAXED))
			continue;
		for (unsigned j = 0; j < TRACE_RING_SLOTS_MAX / 64; j++)
			__atomic_store_n(&places[i].told[j], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&places[i].handle, 0, __ATOMIC_RELEASE);
	}
}

/* Threads that come at the same time find the same, and none waits: as in driver.c. */
static void look_up(void) {
	__atomic_store_n((void **)&kernel_get_name, driver_symbol("cuKernelGetName"),
			 __ATOMIC_RELAXED);
	__atomic_store_n((void **)&function_get_name, driver_symbol("cuFuncGetName"),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&looked_up, true, __ATOMIC_RELEASE);
}

/* The place of a handle, which may have been free; NULL: there is none near. */
static struct place *find(uint64_t handle) {
	uint64_t hash = handle * UINT64_C(0x9e3779b97f4a7c15) >> 52;

	for (unsigned i = 0; i < PROBES; i++) {
		struct place *place = &places[(hash + i) % PLACES];
		uint64_t there = __atomic_load_n(&place->handle, __ATOMIC_ACQUIRE);

		if (!there && __atomic_compare_exchange_n(&place->handle, &there, handle, false,
							  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return place;
		if (there == handle)
			return place;
	}
	return NULL;
}

static const char *name_of(driver_handle handle) {
	__typeof__(function_get_name) of_function;
	__typeof__(kernel_get_name) of_kernel;
	const char *name = NULL;
	struct trace_hush hush;

	trace_hush(&hush);
	if (!__atomic_load_n(&looked_up, __ATOMIC_ACQUIRE) && driver_is_in_use())
		look_up();
	of_function = __atomic_load_n(&function_get_name, __ATOMIC_RELAXED);
	of_kernel = __atomic_load_n(&kernel_get_name, __ATOMIC_RELAXED);
	if (!of_function || of_function(&name, handle) != 0 || !name)
		if (!of_kernel || of_kernel(&name, handle) != 0)
			name = NULL;
	trace_unhush(&hush);
	return name;
}

/* Writes the name, if this slot was not told it. name: or NULL, then the driver knows. */
static void tell(struct trace_self *thread, uint64_t handle, const char *name) {
	struct place *place = handle ? find(handle) : NULL;
	uint64_t *word, bit = UINT64_C(1) << thread->index % 64;

	if (!handle)
		return;
	if (!place) {
		trace_name_forget();
		place = find(handle);
		if (!place)
			return;
	}
	word = &place->told[thread->index / 64];
	if (!name && (__atomic_load_n(word, __ATOMIC_RELAXED) & bit))
		return;
	if (!name)
		name = name_of((driver_handle)handle);
	if (!name || trace_write_name(thread, TRACE_NAME_KERNEL, handle, name))
		__atomic_or_fetch(word, bit, __ATOMIC_RELAXED);
}

void trace_name_launched(struct trace_self *thread, const struct trace_frame *frame) {
	enum role role = (enum role)trace_name_roles[frame->index];

	if (role == LAUNCHES_FIRST || role == LAUNCHES_SECOND)
		tell(thread, frame->words[role == LAUNCHES_SECOND], NULL);
}

void trace_name_changed(struct trace_self *thread, const struct trace_frame *frame) {
	enum role role = (enum role)trace_name_roles[frame->index];

	if (role == UNLOADS) {
		trace_name_forget();
	} else if (role == GIVES_HANDLE && !__atomic_load_n(&function_get_name, __ATOMIC_RELAXED) &&
		   trace_claim_and_enter(thread, frame->session)) {
		tell(thread, *(const uint64_t *)frame->words[0], (const char *)frame->words[2]);
		trace_leave(thread);
	}
}
