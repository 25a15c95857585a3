/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Instructions are kept with the result of their image, as the worker wrote them: it has seen a
 * hostile image, so the list is read when somebody asks, one element at a time, and never believed.
 */

#include "kernels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "control.h"
#include "daemon.h"
#include "kernel-id.h"
#include "kernels-list.h"
#include "memfd.h"
#include "plan-names.h"

#define KERNELS_ITEM_MAX (64 * 1024) /* bytes of one element of a worker's list */
#define KERNELS_TEXT_MAX 1024 /* of one of its texts that is shown */

/* ---- lists of instructions ---- */

/* The end of the object that begins at text, or NULL: it does not end, or is too long. */
static const char *kernels_item_end(const char *text, const char *end) {
	bool string = false;
	int depth = 0;

	for (const char *c = text; c < end && c - text < KERNELS_ITEM_MAX; c++) {
		if (string && *c == '\\')
			c++;
		else if (*c == '"')
			string = !string;
		else if (!string && *c == '{')
			depth++;
		else if (!string && *c == '}' && --depth == 0)
			return c + 1;
	}
	return NULL;
}

int kernels_walk(const char *text, size_t size, int (*fn)(json_object *item, void *userdata),
		 void *userdata) {
	struct json_tokener *tokener = json_tokener_new_ex(4);
	const char *end = text + size;
	int r = KERNELS_E_INVALID;

	if (!tokener)
		return -ENOMEM;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	if (text < end && *text == '[')
		for (text++, r = 0; r == 0;) {
			const char *item_end;
			json_object *item;

			while (text < end && strchr(" \t\r\n,", *text) && *text)
				text++;
			if (text < end && *text == ']')
				break;
			item_end = text < end && *text == '{' ? kernels_item_end(text, end) : NULL;
			item = item_end ? json_tokener_parse_ex(tokener, text,
								(int)(item_end - text))
					: NULL;
			r = item ? fn(item, userdata) : KERNELS_E_INVALID;
			json_object_put(item);
			json_tokener_reset(tokener);
			text = item_end;
		}
	json_tokener_free(tokener);
	return r;
}

/* ---- ShowKernel ---- */

/* Results that the caller may see. */
struct kernels_results {
	const struct daemon *daemon;
	const struct varlink_call *call;
	struct image_result **list;
	size_t n, max;
	int r;
};

static void kernels_add_result(struct image_result *result, uid_t uid, void *userdata) {
	struct kernels_results *results = userdata;
	struct image_result **grown;

	if (!result->replaced || !kernels_may_see(results->daemon, results->call, uid,
						  result->attachments, result->n_attachments))
		return;
	if (results->n == results->max) {
		results->max = results->max ? 2 * results->max : 64;
		grown = reallocarray(results->list, results->max, sizeof(*grown));
		if (!grown) {
			results->r = -ENOMEM;
			results->max = results->n;
			return;
		}
		results->list = grown;
	}
	results->list[results->n++] = result;
}

static int kernels_compare(const void *a, const void *b) {
	const struct image_result *const *x = a, *const *y = b;

	return (*x)->image < (*y)->image ? -1 : (*x)->image > (*y)->image;
}

/* All results that are loaded or cached, each once, in the order of their numbers. */
static int kernels_collect(struct kernels_results *results) {
	const struct process *process;
	const struct module *module;
	size_t n = 0;

	image_cache_each(&results->daemon->images, kernels_add_result, results);
	LIST_FOREACH(process, &results->daemon->processes.list, link)
		LIST_FOREACH(module, &process->modules, link)
			kernels_add_result(module->result, process->facts.uid, results);
	if (results->n)
		qsort(results->list, results->n, sizeof(*results->list), kernels_compare);
	for (size_t i = 0; i < results->n; i++)
		if (!n || results->list[n - 1] != results->list[i])
			results->list[n++] = results->list[i];
	results->n = n;
	return results->r;
}

/* What is looked for, and what was found. */
struct kernels_search {
	const char *pattern; /* of kernels; NULL: by id */
	bool by_id;
	uint64_t id; /* of the kernel, or without a pattern the instruction */
	const struct image_result *result;
	json_object *array;
	size_t bytes;
	bool found; /* a kernel or instruction that is meant */
};

/* A number in hexadecimal, with or without 0x. */
static bool kernels_hex(const char *text, uint64_t *value) {
	size_t n;

	if (strncmp(text, "0x", 2) == 0)
		text += 2;
	n = strspn(text, "0123456789abcdefABCDEF");
	if (!n || n > 16 || text[n])
		return false;
	*value = strtoull(text, NULL, 16);
	return true;
}

static bool kernels_means(const struct kernels_search *search, const char *name,
			  const char *demangled) {
	if (search->by_id)
		return kernel_id(name, strlen(name)) == search->id;
	return outcome_kernel_means(name, demangled, search->pattern);
}

/* Whether an instruction of this kernel is meant. */
static bool kernels_means_any(const struct kernels_search *search, const char *name) {
	for (size_t i = 0; i < search->result->n_kernels; i++)
		if (strcmp(search->result->kernels[i].name, name) == 0)
			return kernels_means(search, name, search->result->kernels[i].demangled);
	return kernels_means(search, name, "");
}

/* Adds a text of a worker's, made printable. */
static size_t kernels_add_text(json_object *json, const char *key, json_object *text) {
	char copy[KERNELS_TEXT_MAX + 1];

	snprintf(copy, sizeof(copy), "%s", json_object_get_string(text));
	outcome_clean(copy);
	control_add_string(json, key, copy);
	return strlen(copy);
}

/* An element of a worker's list. */
static int kernels_on_item(json_object *item, void *userdata) {
	struct kernels_search *search = userdata;
	json_object *index = NULL, *kernel = NULL, *text = NULL, *file = NULL, *line = NULL, *json;
	uint64_t id;
	char hex[17];

	if (!json_object_object_get_ex(item, "index", &index) ||
	    !json_object_is_type(index, json_type_int) || json_object_get_int64(index) < 0 ||
	    json_object_get_int64(index) > UINT32_MAX ||
	    !json_object_object_get_ex(item, "kernel", &kernel) ||
	    !json_object_is_type(kernel, json_type_string) ||
	    !json_object_object_get_ex(item, "text", &text) ||
	    !json_object_is_type(text, json_type_string))
		return KERNELS_E_INVALID;
	id = instruction_id(search->result->image, (uint32_t)json_object_get_int64(index));
	if (search->pattern ? !kernels_means_any(search, json_object_get_string(kernel))
			    : id != search->id)
		return 0;
	search->found = true;
	json = json_object_new_object();
	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)id);
	control_add_string(json, "id", hex);
	search->bytes += 128 + kernels_add_text(json, "kernel", kernel);
	search->bytes += kernels_add_text(json, "text", text);
	if (json_object_object_get_ex(item, "file", &file) &&
	    json_object_is_type(file, json_type_string))
		search->bytes += kernels_add_text(json, "file", file);
	if (json_object_object_get_ex(item, "line", &line) &&
	    json_object_is_type(line, json_type_int) && json_object_get_int64(line) >= 0)
		control_add_int(json, "line", json_object_get_int64(line));
	json_object_array_add(search->array, json);
	return search->bytes > KERNELS_REPLY_MAX ? KERNELS_E_LIMIT : 0;
}

/* A kernel of a plan, which has no instructions: a plan_names_each() function. */
static int kernels_on_name(const struct plan_name *name, void *userdata) {
	struct kernels_search *search = userdata;
	char text[KERNELS_TEXT_MAX + 1];

	if (search->by_id) {
		search->found = name->kernel_id == search->id;
	} else {
		snprintf(text, sizeof(text), "%.*s", (int)(name->length > KERNELS_TEXT_MAX ? KERNELS_TEXT_MAX : name->length),
			 name->name);
		search->found = outcome_kernel_means(text, "", search->pattern);
	}
	return search->found;
}

/*
 * The instructions of one image that are looked for. A malformed list ends where it is malformed.
 * Lists are long: one of an image whose kernels are all known and not meant is not read.
 */
static int kernels_search_result(struct kernels_search *search, const struct image_result *result) {
	bool meant = false;
	const void *text;
	int r;

	search->result = result;
	for (size_t i = 0; search->pattern && i < result->n_kernels; i++)
		meant = meant || kernels_means(search, result->kernels[i].name,
					       result->kernels[i].demangled);
	search->found = search->found || meant;
	if (search->pattern && !search->found) {
		r = plan_names_each(result, kernels_on_name, search);
		if (r < 0)
			return r;
	}
	if (result->instructions < 0 ||
	    (search->pattern && !meant && result->n_kernels < IMAGE_KERNELS_MAX))
		return 0;
	r = memfd_map(result->instructions, (size_t)result->n_instructions, &text);
	if (r < 0)
		return r;
	r = kernels_walk(text, (size_t)result->n_instructions, kernels_on_item, search);
	munmap((void *)text, (size_t)result->n_instructions);
	return r == KERNELS_E_INVALID ? 0 : r;
}

int kernels_show(const struct daemon *daemon, const struct varlink_call *call, const char *kernel,
		 const char *instruction, json_object *array) {
	struct kernels_search search = { .pattern = instruction ? NULL : kernel, .array = array };
	struct kernels_results results = { .daemon = daemon, .call = call };
	int r;

	if (instruction && !kernels_hex(instruction, &search.id))
		return KERNELS_E_INVALID;
	/* "face" is a name */
	search.by_id = !instruction && (strlen(kernel) == 16 || strncmp(kernel, "0x", 2) == 0) &&
		       kernels_hex(kernel, &search.id);
	r = kernels_collect(&results);
	for (size_t i = 0; r == 0 && i < results.n; i++)
		if (!instruction || results.list[i]->image == search.id >> 32)
			r = kernels_search_result(&search, results.list[i]);
	free(results.list);
	return r ? r : search.found ? 0 : KERNELS_E_NOT_FOUND;
}

/* ---- the method ---- */

int control_show_kernel(struct varlink_call *call, json_object *parameters, void *userdata) {
	const char *kernel = control_string(parameters, "kernel"),
		   *instruction = control_string(parameters, "instruction");
	json_object *json, *array;
	char what[256];
	int r;

	if (!kernel == !instruction)
		return control_error_argument(call, "kernel",
					      "say which kernel, or which instruction");
	array = json_object_new_array();
	r = kernels_show(userdata, call, kernel, instruction, array);
	if (r) {
		json_object_put(array);
		snprintf(what, sizeof(what), "%s %.200s", kernel ? "kernel" : "instruction",
			 kernel ? kernel : instruction);
	}
	switch (r) {
	case 0:
		json = json_object_new_object();
		json_object_object_add(json, "instructions", array);
		return varlink_call_reply(call, json);
	case KERNELS_E_INVALID:
		return control_error_argument(call, "instruction", "not a number in hexadecimal");
	case KERNELS_E_NOT_FOUND:
		return control_error_not_found(call, what);
	case KERNELS_E_LIMIT:
		return control_error_limit(call, "bytes of one reply: ask for one kernel",
					   KERNELS_REPLY_MAX);
	}
	return r;
}
