/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). User objects: what a graph, and each copy of it that
 * is instantiated or cloned, has references to. With the last one a function of the program is
 * called, behind the call that gave it up.
 */

#include <stdlib.h>

#include "api.h"

#define GRAPH_USER_OBJECT_MOVE 1u

struct CUuserObject_st {
	struct CUuserObject_st *next; /* of those whose function is to be called */
	void *pointer;
	CUhostFn destroy;
	unsigned int count;
};

static CUuserObject ending;

/* Under the lock. */
static void release(CUuserObject object, unsigned int count) {
	object->count -= count < object->count ? count : object->count;
	if (object->count)
		return;
	api_live_remove(object);
	object->next = ending;
	ending = object;
}

void api_user_end(void) {
	for (;;) {
		CUuserObject object;

		api_lock();
		object = ending;
		if (object)
			ending = object->next;
		api_unlock();
		if (!object)
			return;
		object->destroy(object->pointer);
		free(object);
	}
}

static bool add(struct CUgraph_st *graph, CUuserObject object, unsigned int count) {
	struct api_user_reference *users =
		realloc(graph->users, (graph->user_count + 1) * sizeof(*users));

	if (!users)
		return false;
	graph->users = users;
	users[graph->user_count++] = (struct api_user_reference){ object, count };
	return true;
}

bool api_user_copy(struct CUgraph_st *to, const struct CUgraph_st *from) {
	bool good = true;

	for (size_t n = 0; n < from->user_count && good; n++) {
		good = add(to, from->users[n].object, from->users[n].count);
		if (good)
			from->users[n].object->count += from->users[n].count;
	}
	return good;
}

void api_user_release_all(struct CUgraph_st *graph) {
	for (size_t n = 0; n < graph->user_count; n++)
		release(graph->users[n].object, graph->users[n].count);
	free(graph->users);
	graph->users = NULL;
	graph->user_count = 0;
}

API_EXPORT CUresult cuUserObjectCreate(CUuserObject *out, void *pointer, CUhostFn destroy,
				       unsigned int count, unsigned int flags) {
	CUresult r = api_initialized();
	CUuserObject object;

	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !destroy || !count || flags != 1) /* CU_USER_OBJECT_NO_DESTRUCTOR_SYNC */
		return CUDA_ERROR_INVALID_VALUE;
	object = calloc(1, sizeof(*object));
	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*object =
		(struct CUuserObject_st){ .pointer = pointer, .destroy = destroy, .count = count };
	api_lock();
	if (!api_live_add(object, API_USER_OBJECT))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	api_unlock();
	if (r == CUDA_SUCCESS)
		*out = object;
	else
		free(object);
	return r;
}

API_EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (api_live(object, API_USER_OBJECT) && count)
		release(object, count);
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	api_user_end();
	return r;
}

API_EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
					    unsigned int flags) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (!api_live(graph, API_GRAPH) || !api_live(object, API_USER_OBJECT) || !count ||
	    (flags & ~GRAPH_USER_OBJECT_MOVE))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!add(graph, object, count))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!(flags & GRAPH_USER_OBJECT_MOVE))
		object->count += count;
	api_unlock();
	return r;
}
