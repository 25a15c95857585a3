/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What is known is written down in one turn of the loop: which results processes have, and which
 * are only in the cache. These are gone through in parts, as a list of names may be long. With
 * `more` the kernels are sent in several replies as the reader takes them; without, in one, which
 * holds no more than one can.
 *
 * Names are foreign bytes; buckets are found by a hash with a secret seed, so that nobody can make
 * names that fall into one.
 */

#include "kernels-list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "control.h"
#include "daemon/gpuprobed/daemon.h"
#include "daemon/gpuprobed/keep/keep.h"
#include "lib/base/text.h"
#include "lib/json.h"
#include "proto/kernel-id.h"
#include "daemon/gpuprobed/image/kernel-names.h"

#define KERNELS_NAME_MAX 4096 /* bytes of a name that is shown */
#define KERNELS_PART 512 /* kernels that are looked at before others have their turn */
#define KERNELS_CHUNK_BYTES (64 * 1024) /* of one reply of several */

struct kernel {
	uint64_t id;
	char *name, *demangled; /* demangled NULL: the daemon does not know it */
	bool device_function;
	bool live; /* a process has it: its attachments are those of modules */
	int64_t *pids;
	size_t n_pids;
	uint64_t *attachments;
	size_t n_attachments;
};

/* A result in a process, or (pid 0) in none. All of a process come one after the other. */
struct kernels_place {
	struct image_result *result; /* a reference */
	int64_t pid;
};

/* ---- the table ---- */

static int kernels_grow(struct kernels_list *list) {
	const size_t n = list->n_buckets ? 4 * list->n_buckets : 1024;
	uint32_t *buckets = calloc(n, sizeof(*buckets));
	struct kernel *kernels = reallocarray(list->kernels, n / 2, sizeof(*kernels));

	if (kernels)
		list->kernels = kernels;
	if (!kernels || !buckets) {
		free(buckets);
		return -ENOMEM;
	}
	free(list->buckets);
	list->buckets = buckets;
	list->n_buckets = n;
	for (size_t i = 0; i < list->n; i++) {
		size_t at = XXH3_64bits_withSeed(kernels[i].name, strlen(kernels[i].name),
						 list->daemon->images.seed) &
			    (n - 1);

		while (buckets[at])
			at = (at + 1) & (n - 1);
		buckets[at] = (uint32_t)i + 1;
	}
	return 0;
}

/*
 * The kernel of that name, which is added if need be; *kernelp is NULL if there are too many. The
 * name that is shown and the id are of the same bytes, unless it is cut or not printable. 0 or
 * -ENOMEM.
 */
static int kernels_get(struct kernels_list *list, const char *foreign, size_t length,
		       struct kernel **kernelp) {
	char name[KERNELS_NAME_MAX + 1];
	struct kernel *kernel;
	size_t shown, at;

	*kernelp = NULL;
	if (list->n >= list->n_buckets / 2 && kernels_grow(list) < 0)
		return -ENOMEM;
	shown = (size_t)snprintf(name, sizeof(name), "%.*s",
				 (int)(length > KERNELS_NAME_MAX ? KERNELS_NAME_MAX : length),
				 foreign);
	text_make_printable(name);
	at = XXH3_64bits_withSeed(name, shown, list->daemon->images.seed);
	for (at &= list->n_buckets - 1; list->buckets[at]; at = (at + 1) & (list->n_buckets - 1)) {
		kernel = &list->kernels[list->buckets[at] - 1];
		if (strcmp(kernel->name, name) == 0) {
			*kernelp = kernel;
			return 0;
		}
	}
	if (list->n == list->max || list->n_bytes + shown > list->bytes_max)
		return 0;
	kernel = &list->kernels[list->n];
	*kernel = (struct kernel){ .id = kernel_id(foreign, length), .name = strdup(name) };
	if (!kernel->name)
		return -ENOMEM;
	list->buckets[at] = (uint32_t)++list->n;
	list->n_bytes += shown;
	*kernelp = kernel;
	return 0;
}

/* Adds what is not there yet. 0 or -ENOMEM. */
static int kernel_add_attachment(struct kernels_list *list, struct kernel *kernel, uint64_t id) {
	uint64_t *grown;

	for (size_t i = 0; i < kernel->n_attachments; i++)
		if (kernel->attachments[i] == id)
			return 0;
	grown = reallocarray(kernel->attachments, kernel->n_attachments + 1, sizeof(id));
	if (!grown)
		return -ENOMEM;
	kernel->attachments = grown;
	grown[kernel->n_attachments++] = id;
	list->n_ids++;
	return 0;
}

/* A process has it, or (0) none. 0 or -ENOMEM. */
static int kernel_add_pid(struct kernels_list *list, struct kernel *kernel, int64_t pid) {
	int64_t *grown;

	if (!pid || (kernel->n_pids && kernel->pids[kernel->n_pids - 1] == pid))
		return 0;
	if (!kernel->live)
		kernel->n_attachments = 0;
	kernel->live = true;
	grown = reallocarray(kernel->pids, kernel->n_pids + 1, sizeof(pid));
	if (!grown)
		return -ENOMEM;
	kernel->pids = grown;
	grown[kernel->n_pids++] = pid;
	list->n_ids++;
	return 0;
}

/* ---- where kernels are ---- */

bool kernels_may_see(const struct daemon *daemon, const struct varlink_call *call, uid_t uid,
		     const uint64_t *attachments, size_t n) {
	if (!call || control_may_see(call, uid))
		return true;
	for (size_t i = 0; i < n; i++) {
		const struct attachment *attachment =
			registry_attachment(&daemon->registry, attachments[i]);

		if (attachment && control_may_see(call, attachment->object->owner))
			return true;
	}
	return false;
}

/* A kernel of which the daemon knows the demangled name. 0 or -ENOMEM. */
static int kernels_add(struct kernels_list *list, const char *name, const char *demangled,
		       bool device_function, struct kernel **kernelp) {
	int r = kernels_get(list, name, strlen(name), kernelp);

	if (r < 0 || !*kernelp)
		return r;
	if (!(*kernelp)->demangled) {
		(*kernelp)->demangled = strndup(demangled, KERNELS_NAME_MAX);
		if (!(*kernelp)->demangled)
			return -ENOMEM;
		text_make_printable((*kernelp)->demangled);
		list->n_bytes += strlen((*kernelp)->demangled);
		(*kernelp)->device_function = device_function;
	}
	return 0;
}

static int kernels_from_outcome(struct kernels_list *list, const struct outcome *outcome) {
	struct kernel *kernel;
	bool first;
	int r;

	r = kernels_add(list, outcome->kernel, outcome->demangled, outcome->device_function,
			&kernel);
	if (r < 0 || !kernel)
		return r;
	first = !kernel->n_attachments;
	for (size_t i = 0; r == 0 && first && i < outcome->n_attachments; i++)
		r = kernel_add_attachment(list, kernel, outcome->attachments[i]);
	return r;
}

/* One that a process had, or has, under an earlier daemon; a kernel_names_each() function. */
struct kernels_kept {
	struct kernels_list *list;
	const struct varlink_call *call;
};

static int kernels_on_kept(const struct kernel_name *name, void *userdata) {
	const struct kernels_kept *kept = userdata;
	struct kernel *kernel;

	if (kept->list->n >=
		    kept->list->max / 2 || /* the rest is for those that processes have now */
	    !kernels_may_see(kept->list->daemon, kept->call, name->uid, NULL, 0))
		return 0;
	return kernels_add(kept->list, name->name, name->demangled, name->device_function, &kernel);
}

/* One kernel of a plan. 1: the list is full, and the rest of a million names is not looked at. */
static int kernels_from_name(struct kernels_list *list, const struct kernels_place *place,
			     const struct plan_name *name) {
	const struct image_result *result = place->result;
	struct kernel *kernel;
	int r;

	r = kernels_get(list, name->name, name->length, &kernel);
	if (r < 0 || !kernel)
		return r < 0 ? r : 1;
	r = kernel_add_pid(list, kernel, place->pid);
	for (size_t i = 0; r == 0 && i < result->n_asked; i++)
		if (name->attachments >> i & 1)
			r = kernel_add_attachment(list, kernel, result->asked[i]);
	return r;
}

/* One kernel that the worker has told of. 0 or -ENOMEM. */
static int kernels_from_image(struct kernels_list *list, const struct kernels_place *place,
			      const struct image_kernel *image) {
	struct kernel *kernel;
	int r;

	r = kernels_add(list, image->name, image->demangled, image->device_function, &kernel);
	if (r == 0 && kernel)
		r = kernel_add_pid(list, kernel, place->pid);
	for (size_t k = 0; r == 0 && kernel && k < image->n_attachments; k++)
		r = kernel_add_attachment(list, kernel, image->attachments[k]);
	return r;
}

/* The next kernel of a place. 1: it has no more; -ENOMEM. */
static int kernels_gather_one(struct kernels_list *list, const struct kernels_place *place) {
	struct plan_name name;

	if (list->next_image_kernel < place->result->n_kernels)
		return kernels_from_image(list, place,
					  &place->result->kernels[list->next_image_kernel++]);
	if (!list->naming && plan_names_open(&list->names, place->result) < 0)
		return 1; /* one whose names cannot be read has no more than these */
	list->naming = true;
	return plan_names_next(&list->names, &name) ? kernels_from_name(list, place, &name) : 1;
}

static void kernels_end_place(struct kernels_list *list) {
	if (list->naming)
		plan_names_close(&list->names);
	list->naming = false;
	list->next_image_kernel = 0;
	list->next_place++;
}

int kernels_list_gather(struct kernels_list *list) {
	for (unsigned int i = 0; i < KERNELS_PART && list->next_place < list->n_places; i++) {
		int r = kernels_gather_one(list, &list->places[list->next_place]);

		if (r < 0)
			return r;
		if (r > 0)
			kernels_end_place(list);
	}
	return list->next_place < list->n_places;
}

/* ---- beginning and end ---- */

struct kernels_places {
	struct kernels_list *list;
	const struct varlink_call *call;
	size_t max;
	int r;
};

static void kernels_add_place(struct kernels_places *places, struct image_result *result, uid_t uid,
			      int64_t pid) {
	struct kernels_list *list = places->list;
	struct kernels_place *grown;

	if (!kernels_may_see(list->daemon, places->call, uid, result->attachments,
			     result->n_attachments))
		return;
	if (list->n_places == places->max) {
		places->max = places->max ? 2 * places->max : 64;
		grown = reallocarray(list->places, places->max, sizeof(*grown));
		if (!grown) {
			places->r = -ENOMEM;
			places->max = list->n_places;
			return;
		}
		list->places = grown;
	}
	list->places[list->n_places++] = (struct kernels_place){ image_result_ref(result), pid };
}

static void kernels_unlist(struct image_result *result, uid_t uid, void *userdata) {
	result->listed = NULL;
}

/* A plan that a process had: its kernels are many more than outcomes can be. */
static void kernels_on_cached(struct image_result *result, uid_t uid, void *userdata) {
	if (!result->listed && result->names >= 0)
		kernels_add_place(userdata, result, uid, 0);
}

/* All results that processes have, each once for a process: one image may be loaded thousands of
 * times. */
static int kernels_find_places(struct kernels_list *list, const struct varlink_call *call,
			       int64_t pid) {
	struct kernels_places places = { .list = list, .call = call };
	const struct process *process;
	const struct module *module;

	image_cache_each(&list->daemon->images, kernels_unlist, NULL);
	LIST_FOREACH(process, &list->daemon->processes.list, link)
		LIST_FOREACH(module, &process->modules, link)
			module->result->listed = NULL;
	LIST_FOREACH(process, &list->daemon->processes.list, link)
		LIST_FOREACH(module, &process->modules, link) {
			if (module->result->listed == process || (pid && pid != process->facts.pid))
				continue;
			module->result->listed = process;
			kernels_add_place(&places, module->result, process->facts.uid,
					  process->facts.pid);
		}
	if (!pid)
		image_cache_each(&list->daemon->images, kernels_on_cached, &places);
	return places.r;
}

int kernels_list_init(struct kernels_list *list, const struct daemon *daemon,
		      const struct varlink_call *call, int64_t pid, bool more) {
	const struct outcome *outcome;
	int r = 0;

	*list = (struct kernels_list){
		.daemon = daemon,
		.max = more ? KERNELS_MORE_MAX : KERNELS_MAX,
		.bytes_max = more ? KERNELS_MORE_BYTES_MAX : KERNELS_BYTES_MAX / 2,
	};
	TAILQ_FOREACH(outcome, &daemon->outcomes.list, link)
		if (r == 0 && outcome->kernel[0] && (!pid || pid == outcome->pid) &&
		    kernels_may_see(daemon, call, outcome->uid, outcome->attachments,
				    outcome->n_attachments))
			r = kernels_from_outcome(list, outcome);
	if (r == 0 && !pid)
		r = kernel_names_each(keep_names(daemon->keep), kernels_on_kept,
				      &(struct kernels_kept){ list, call });
	if (r == 0)
		r = kernels_find_places(list, call, pid);
	if (r < 0)
		kernels_list_deinit(list);
	return r;
}

void kernels_list_deinit(struct kernels_list *list) {
	for (size_t i = 0; i < list->n; i++) {
		free(list->kernels[i].name);
		free(list->kernels[i].demangled);
		free(list->kernels[i].pids);
		free(list->kernels[i].attachments);
	}
	if (list->naming)
		plan_names_close(&list->names);
	for (size_t i = 0; i < list->n_places; i++)
		image_result_unref(list->places[i].result);
	free(list->kernels);
	free(list->buckets);
	free(list->places);
	*list = (struct kernels_list){};
}

size_t kernels_list_memory(const struct kernels_list *list) {
	return list->n_buckets * (sizeof(*list->buckets) + sizeof(*list->kernels) / 2) +
	       list->n_bytes + list->n * 4 * sizeof(void *) + list->n_ids * sizeof(uint64_t) +
	       list->n_places * sizeof(*list->places);
}

void kernels_list_each(const struct kernels_list *list,
		       void (*take)(uint64_t id, const char *demangled, void *userdata),
		       void *userdata) {
	for (size_t i = 0; i < list->n; i++)
		take(list->kernels[i].id, list->kernels[i].demangled ?: list->kernels[i].name,
		     userdata);
}

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
		json_append_int(attachments, kernel->attachments[i]);
	json_add(json, "pids", pids);
	json_add(json, "attachments", attachments);
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

/* ---- the method ---- */

struct kernels_call {
	struct varlink_call *call;
	struct kernels_list list;
};

static void kernels_call_free(struct kernels_call *listing) {
	struct varlink_call *call = listing->call;

	kernels_list_deinit(&listing->list);
	free(listing);
	varlink_call_unref(call);
}

static void kernels_call_on_cancel(struct varlink_call *call, void *userdata) {
	kernels_call_free(userdata);
}

/* Sends the last reply. */
static int kernels_call_end(struct kernels_call *listing, json_object *reply) {
	int r;

	varlink_call_on_cancel(listing->call, NULL);
	r = varlink_call_reply(listing->call, reply);
	kernels_call_free(listing);
	return r;
}

/* A part of the list, or one reply. */
static int kernels_call_turn(struct varlink_call *call, void *userdata) {
	struct kernels_call *listing = userdata;
	const bool more = varlink_call_more(call);
	json_object *json, *array;
	bool left;
	int r;

	r = kernels_list_gather(&listing->list);
	if (r < 0) {
		varlink_call_on_cancel(call, NULL);
		r = control_error_reason(call, "Internal", "no memory");
		kernels_call_free(listing);
		return r < 0 ? r : VARLINK_PRODUCE_AGAIN;
	}
	if (!varlink_call_hold(call, kernels_list_memory(&listing->list))) {
		varlink_call_on_cancel(call, NULL);
		r = control_error_limit(call,
					"bytes of lists of kernels that are made for one user at a "
					"time: ask when others are through",
					VARLINK_BYTES_PER_UID_MAX / 2);
		kernels_call_free(listing);
		return r < 0 ? r : VARLINK_PRODUCE_AGAIN;
	}
	if (r > 0)
		return VARLINK_PRODUCE_AGAIN;
	json = json_object_new_object();
	array = json_object_new_array();
	left = kernels_list_take(&listing->list, array,
				 more ? KERNELS_CHUNK_BYTES : KERNELS_BYTES_MAX);
	json_add(json, "kernels", array);
	if (!more || !left)
		r = kernels_call_end(listing, json);
	else
		r = varlink_call_continue(call, json);
	if (more && left && (r < 0 || r == VARLINK_E_INVALID)) {
		varlink_call_on_cancel(call, NULL);
		kernels_call_free(listing);
	}
	return r < 0 ? r : r == VARLINK_E_INVALID ? -EINVAL : VARLINK_PRODUCE_AGAIN;
}

int control_list_kernels(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *pid = json_member(parameters, "pid");
	struct daemon *daemon = userdata;
	struct kernels_call *listing;
	int r;

	if (pid && json_object_get_int64(pid) <= 0)
		return control_error_argument(call, "pid", "not a process id");
	listing = calloc(1, sizeof(*listing));
	if (!listing)
		return -ENOMEM;
	r = kernels_list_init(&listing->list, daemon, call, pid ? json_object_get_int64(pid) : 0,
			      varlink_call_more(call));
	if (r < 0) {
		free(listing);
		return r;
	}
	listing->call = varlink_call_ref(call);
	varlink_call_set_userdata(call, listing);
	varlink_call_on_cancel(call, kernels_call_on_cancel);
	if (varlink_call_work(call, kernels_call_turn)) {
		varlink_call_on_cancel(call, NULL);
		kernels_call_free(listing);
	}
	return 0;
}
