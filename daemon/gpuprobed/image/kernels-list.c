/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The method ListKernels (kernels-list.h).
 *
 * What is known is written down in one turn of the loop: which results processes have, and which
 * are only in the cache. These are gone through in parts, as a list of names may be long.
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

#include "image-context.h"
#include "lib/base/text.h"
#include "proto/kernel-id.h"
#include "kernel-names.h"

#define KERNELS_NAME_MAX 4096 /* bytes of a name that is shown */
#define KERNELS_PART 512 /* kernels that are looked at before others have their turn */

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
						 list->context->images.seed) &
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
	at = XXH3_64bits_withSeed(name, shown, list->context->images.seed);
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

bool kernels_may_see(const struct registry *registry, const struct kernels_reader *reader,
		     uid_t uid, const uint64_t *attachments, size_t n) {
	if (reader->all || reader->uid == uid)
		return true;
	for (size_t i = 0; i < n; i++) {
		const struct attachment *attachment = registry_attachment(registry, attachments[i]);

		if (attachment && attachment->object->owner == reader->uid)
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
static int kernels_on_kept(const struct kept_name *name, void *userdata) {
	struct kernels_list *list = userdata;
	struct kernel *kernel;

	if (list->n >= list->max / 2 || /* the rest is for those that processes have now */
	    !kernels_may_see(list->context->registry, &list->reader, name->uid, NULL, 0))
		return 0;
	return kernels_add(list, name->name, name->demangled, name->device_function, &kernel);
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
	size_t max;
	int r;
};

static void kernels_add_place(struct kernels_places *places, struct image_result *result, uid_t uid,
			      int64_t pid) {
	struct kernels_list *list = places->list;
	struct kernels_place *grown;

	if (!kernels_may_see(list->context->registry, &list->reader, uid, result->attachments,
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
static int kernels_find_places(struct kernels_list *list, int64_t pid) {
	struct kernels_places places = { .list = list };
	const struct process *process;
	const struct module *module;

	image_cache_each(&list->context->images, kernels_unlist, NULL);
	LIST_FOREACH(process, &list->context->processes->list, link)
		LIST_FOREACH(module, &process->modules, link)
			module->result->listed = NULL;
	LIST_FOREACH(process, &list->context->processes->list, link)
		LIST_FOREACH(module, &process->modules, link) {
			if (module->result->listed == process || (pid && pid != process->facts.pid))
				continue;
			module->result->listed = process;
			kernels_add_place(&places, module->result, process->facts.uid,
					  process->facts.pid);
		}
	if (!pid)
		image_cache_each(&list->context->images, kernels_on_cached, &places);
	return places.r;
}

int kernels_list_init(struct kernels_list *list, const struct image_context *context,
		      const struct kernels_reader *reader, int64_t pid, bool more) {
	const struct outcome *outcome;
	int r = 0;

	*list = (struct kernels_list){
		.context = context,
		.reader = *reader,
		.max = more ? KERNELS_MORE_MAX : KERNELS_MAX,
		.bytes_max = more ? KERNELS_MORE_BYTES_MAX : KERNELS_BYTES_MAX / 2,
	};
	TAILQ_FOREACH(outcome, &context->outcomes->list, link)
		if (r == 0 && outcome->kernel[0] && (!pid || pid == outcome->pid) &&
		    kernels_may_see(context->registry, reader, outcome->uid, outcome->attachments,
				    outcome->n_attachments))
			r = kernels_from_outcome(list, outcome);
	if (r == 0 && !pid)
		r = kernel_names_each(context->names, kernels_on_kept, list);
	if (r == 0)
		r = kernels_find_places(list, pid);
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
