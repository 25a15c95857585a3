/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ListKernels. With `more` the kernels are sent in several replies as the reader takes them;
 * without, in one, which holds no more than one can.
 */

#include "kernels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "daemon/gpuprobed/image/kernels-list.h"
#include "lib/json.h"

#define KERNELS_CHUNK_BYTES (64 * 1024) /* of one reply of several */

/* The type Kernel of the interface. */
static json_object *kernel_json(const struct kernel *kernel) {
	json_object *json = json_object_new_object(), *pids = json_object_new_array(),
		    *attachments = json_object_new_array();
	char id[17];

	snprintf(id, sizeof(id), "%016llx", (unsigned long long)kernel->id);
	json_add_text(json, "id", id);
	json_add_text(json, "name", kernel->name);
	json_add_text(json, "demangled", kernel->demangled ?: kernel->name);
	json_add_bool(json, "device_function", kernel->device_function);
	for (size_t i = 0; i < kernel->n_pids; i++)
		json_append_int(pids, kernel->pids[i]);
	for (size_t i = 0; i < kernel->n_attachments; i++)
		json_object_array_add(attachments,
				      json_object_new_int64((int64_t)kernel->attachments[i]));
	json_object_object_add(json, "pids", pids);
	json_object_object_add(json, "attachments", attachments);
	return json;
}

bool kernels_list_take(struct kernels_list *list, json_object *array, size_t n_bytes) {
	size_t bytes = 0;

	for (; list->next < list->n && bytes < n_bytes; list->next++) {
		const struct kernel *kernel = &list->kernels[list->next];

		json_append(array, kernel_json(kernel));
		bytes += 128 + 2 * strlen(kernel->name) +
			 12 * (kernel->n_pids + kernel->n_attachments);
	}
	return list->next < list->n;
}

struct kernels_call {
	struct control_work work;
	struct kernels_list list;
};

static void kernels_call_free(void *userdata) {
	struct kernels_call *listing = userdata;

	kernels_list_deinit(&listing->list);
	free(listing);
}

/* A part of the list, or one reply. */
static int kernels_call_turn(struct varlink_call *call, void *userdata) {
	struct kernels_call *listing = userdata;
	const bool more = varlink_call_more(call);
	json_object *json, *array;
	bool left;
	int r;

	r = kernels_list_gather(&listing->list);
	if (r < 0)
		return control_work_end(&listing->work,
					control_error_reason(call, "Internal", "no memory"));
	if (!varlink_call_hold(call, kernels_list_memory(&listing->list)))
		return control_work_end(
			&listing->work,
			control_error_limit(call,
					    "bytes of lists of kernels that are made for one user "
					    "at a time: ask when others are through",
					    VARLINK_BYTES_PER_UID_MAX / 2));
	if (r > 0)
		return VARLINK_PRODUCE_AGAIN;
	json = json_object_new_object();
	array = json_object_new_array();
	left = kernels_list_take(&listing->list, array,
				 more ? KERNELS_CHUNK_BYTES : KERNELS_BYTES_MAX);
	json_object_object_add(json, "kernels", array);
	if (!more || !left)
		return control_work_end(&listing->work, varlink_call_reply(call, json));
	r = varlink_call_continue(call, json);
	return r < 0 || r == VARLINK_E_INVALID ? control_work_end(&listing->work, r)
					       : VARLINK_PRODUCE_AGAIN;
}

int control_list_kernels(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *pid = json_member(parameters, "pid");
	const struct kernels_reader reader = control_reader(call);
	struct control_context *context = userdata;
	struct kernels_call *listing;
	int r;

	if (pid && json_object_get_int64(pid) <= 0)
		return control_error_argument(call, "pid", "not a process id");
	listing = calloc(1, sizeof(*listing));
	if (!listing)
		return -ENOMEM;
	r = kernels_list_init(&listing->list, context->image, &reader,
			      pid ? json_object_get_int64(pid) : 0, varlink_call_more(call));
	if (r < 0) {
		free(listing);
		return r;
	}
	control_work_begin(&listing->work, call, kernels_call_free);
	control_work_run(&listing->work, varlink_call_work, kernels_call_turn);
	return 0;
}
