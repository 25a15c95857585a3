/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What each call allocates or frees, looked up by its name without version, because a file of the
 * seeds has nothing but names.
 */

#include <string.h>
#include <sys/types.h>

#include "report.h"

/* Sorted by name. */
static const struct {
	const char *base;
	enum report_resource resource;
	bool allocates;
	bool shared; /* of memory that another call, maybe of another process, has allocated */
} functions[] = {
	{ "cuArray3DCreate", RESOURCE_ARRAY, true },
	{ "cuArrayCreate", RESOURCE_ARRAY, true },
	{ "cuArrayDestroy", RESOURCE_ARRAY, false },
	{ "cuCtxCreate", RESOURCE_CONTEXT, true },
	{ "cuCtxDestroy", RESOURCE_CONTEXT, false },
	{ "cuEventCreate", RESOURCE_EVENT, true },
	{ "cuEventDestroy", RESOURCE_EVENT, false },
	{ "cuExternalMemoryGetMappedBuffer", RESOURCE_MEMORY, true, .shared = true },
	{ "cuExternalMemoryGetMappedMipmappedArray", RESOURCE_ARRAY, true, .shared = true },
	{ "cuGraphClone", RESOURCE_GRAPH, true },
	{ "cuGraphCreate", RESOURCE_GRAPH, true },
	{ "cuGraphDestroy", RESOURCE_GRAPH, false },
	{ "cuGraphExecDestroy", RESOURCE_GRAPH_EXEC, false },
	{ "cuGraphInstantiate", RESOURCE_GRAPH_EXEC, true },
	{ "cuGraphInstantiateWithFlags", RESOURCE_GRAPH_EXEC, true },
	{ "cuGraphInstantiateWithParams", RESOURCE_GRAPH_EXEC, true },
	{ "cuGreenCtxStreamCreate", RESOURCE_STREAM, true },
	{ "cuIpcOpenEventHandle", RESOURCE_EVENT, true },
	{ "cuLibraryLoadData", RESOURCE_LIBRARY, true },
	{ "cuLibraryLoadFromFile", RESOURCE_LIBRARY, true },
	{ "cuLibraryUnload", RESOURCE_LIBRARY, false },
	{ "cuMemAddressFree", RESOURCE_ADDRESSES, false },
	{ "cuMemAddressReserve", RESOURCE_ADDRESSES, true },
	{ "cuMemAlloc", RESOURCE_MEMORY, true },
	{ "cuMemAllocAsync", RESOURCE_MEMORY, true },
	{ "cuMemAllocFromPoolAsync", RESOURCE_MEMORY, true },
	{ "cuMemAllocHost", RESOURCE_HOST_MEMORY, true },
	{ "cuMemAllocManaged", RESOURCE_MEMORY, true },
	{ "cuMemAllocPitch", RESOURCE_MEMORY, true },
	{ "cuMemCreate", RESOURCE_HANDLE, true },
	{ "cuMemFree", RESOURCE_MEMORY, false },
	{ "cuMemFreeAsync", RESOURCE_MEMORY, false },
	{ "cuMemFreeHost", RESOURCE_HOST_MEMORY, false },
	{ "cuMemHostAlloc", RESOURCE_HOST_MEMORY, true },
	{ "cuMemHostRegister", RESOURCE_REGISTRATION, true },
	{ "cuMemHostUnregister", RESOURCE_REGISTRATION, false },
	{ "cuMemImportFromShareableHandle", RESOURCE_HANDLE, true, .shared = true },
	{ "cuMemPoolCreate", RESOURCE_POOL, true },
	{ "cuMemPoolDestroy", RESOURCE_POOL, false },
	{ "cuMemPoolImportFromShareableHandle", RESOURCE_POOL, true },
	{ "cuMemPoolImportPointer", RESOURCE_MEMORY, true, .shared = true },
	{ "cuMemRelease", RESOURCE_HANDLE, false },
	{ "cuMipmappedArrayCreate", RESOURCE_ARRAY, true },
	{ "cuMipmappedArrayDestroy", RESOURCE_ARRAY, false },
	{ "cuModuleLoad", RESOURCE_MODULE, true },
	{ "cuModuleLoadData", RESOURCE_MODULE, true },
	{ "cuModuleLoadDataEx", RESOURCE_MODULE, true },
	{ "cuModuleLoadFatBinary", RESOURCE_MODULE, true },
	{ "cuModuleUnload", RESOURCE_MODULE, false },
	{ "cuMulticastCreate", RESOURCE_HANDLE, true, .shared = true },
	{ "cuStreamCreate", RESOURCE_STREAM, true },
	{ "cuStreamCreateWithPriority", RESOURCE_STREAM, true },
	{ "cuStreamDestroy", RESOURCE_STREAM, false },
	{ "cuStreamEndCapture", RESOURCE_GRAPH, true },
};

/* Its place, or -1. */
static ssize_t find_function(const char *base) {
	size_t low = 0, high = sizeof(functions) / sizeof(*functions);

	while (low < high) {
		const size_t middle = (low + high) / 2;
		const int order = strcmp(base, functions[middle].base);

		if (!order)
			return (ssize_t)middle;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return -1;
}

enum report_resource report_resource_of(const char *base, bool *allocatesp) {
	const ssize_t i = find_function(base);

	if (i < 0)
		return RESOURCE_NONE;
	*allocatesp = functions[i].allocates;
	return functions[i].resource;
}

bool report_is_memory(enum report_resource resource) {
	return resource == RESOURCE_MEMORY || resource == RESOURCE_HOST_MEMORY ||
	       resource == RESOURCE_HANDLE || resource == RESOURCE_ARRAY;
}

/* What the seeds call an allocation. Memory of cuMemCreate() is some, a range of addresses is none,
 * and neither is what was there before. */
bool report_is_allocation(const char *base) {
	const ssize_t i = find_function(base);

	return i >= 0 && functions[i].allocates && !functions[i].shared &&
	       report_is_memory(functions[i].resource);
}

static bool is_call(const struct trace_item *item) {
	return item->kind == EVENT_CALL || item->kind == EVENT_COUNTS;
}

bool report_is_launch(const struct trace_item *item) {
	if (!is_call(item))
		return false;
	return (!strncmp(item->base, "cuLaunch", 8) &&
		strcmp(item->base, "cuLaunchHostFunc") != 0) ||
	       !strcmp(item->base, "cuGraphLaunch");
}

bool report_is_transfer(const struct trace_item *item) {
	return is_call(item) && !strncmp(item->base, "cuMemcpy", 8);
}

uint64_t report_duration(const struct trace_item *item) {
	return item->end > item->start ? item->end - item->start : 0;
}
