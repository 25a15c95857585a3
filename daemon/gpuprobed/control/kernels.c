/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The method ShowKernel (kernels.h).
 *
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
#include "lib/base/text.h"
#include "lib/json.h"
#include "proto/kernel-id.h"
#include "daemon/gpuprobed/image/kernels-list.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/image/plan-names.h"

#define KERNELS_ITEM_MAX (64 * 1024) /* bytes of one element of a worker's list */
#define KERNELS_TEXT_MAX 1024 /* of one of its texts that is shown */
#define KERNELS_PART_NS UINT64_C(1000000) /* of a search in a turn of the loop, about */

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

/* A list that is being gone over. */
struct kernels_items {
	struct json_tokener *tokener;
	const char *at, *end; /* at NULL: it is none */
};

static int kernels_items_init(struct kernels_items *items, const char *text, size_t size) {
	items->tokener = json_tokener_new_ex(4);
	if (!items->tokener)
		return -ENOMEM;
	json_tokener_set_flags(items->tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	items->end = text + size;
	items->at = size && *text == '[' ? text + 1 : NULL;
	return 0;
}

static void kernels_items_deinit(struct kernels_items *items) {
	if (items->tokener)
		json_tokener_free(items->tokener);
	*items = (struct kernels_items){};
}

/* The next element in *itemp, NULL: that was all. 0, KERNELS_E_INVALID. */
static int kernels_items_next(struct kernels_items *items, json_object **itemp) {
	const char *item_end, *end = items->end;

	*itemp = NULL;
	if (!items->at)
		return KERNELS_E_INVALID;
	while (items->at < end && strchr(" \t\r\n,", *items->at) && *items->at)
		items->at++;
	if (items->at < end && *items->at == ']')
		return 0;
	item_end = items->at < end && *items->at == '{' ? kernels_item_end(items->at, end) : NULL;
	if (item_end)
		*itemp = json_tokener_parse_ex(items->tokener, items->at,
					       (int)(item_end - items->at));
	json_tokener_reset(items->tokener);
	items->at = item_end;
	return *itemp ? 0 : KERNELS_E_INVALID;
}

int kernels_walk(const char *text, size_t size, int (*fn)(json_object *item, void *userdata),
		 void *userdata) {
	struct kernels_items items;
	json_object *item;
	int r;

	r = kernels_items_init(&items, text, size);
	while (r == 0) {
		r = kernels_items_next(&items, &item);
		if (r == 0 && !item)
			break;
		r = r ?: fn(item, userdata);
		json_object_put(item);
	}
	kernels_items_deinit(&items);
	return r;
}

/* ---- ShowKernel ---- */

/* Results that the caller may see. */
struct kernels_results {
	const struct control_context *context;
	const struct kernels_reader *reader;
	struct image_result **list;
	size_t n, max;
	int r;
};

static void kernels_add_result(struct image_result *result, uid_t uid, void *userdata) {
	struct kernels_results *results = userdata;
	struct image_result **grown;

	if (!result->made || !kernels_may_see(results->context->image->registry, results->reader,
					      uid, result->attachments, result->n_attachments))
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
	results->list[results->n++] = image_result_ref(result);
}

static int kernels_compare(const void *a, const void *b) {
	const struct image_result *const *x = a, *const *y = b;

	return (*x)->image<(*y)->image ? -1 : (*x)->image>(*y)->image;
}

/* All results that are loaded or cached, each once, in the order of their numbers. */
static int kernels_collect(struct kernels_results *results) {
	const struct process *process;
	const struct module *module;
	size_t n = 0;

	image_cache_each(&results->context->image->images, kernels_add_result, results);
	LIST_FOREACH(process, &results->context->image->processes->list, link)
		LIST_FOREACH(module, &process->modules, link)
			kernels_add_result(module->result, process->facts.uid, results);
	if (results->n)
		qsort(results->list, results->n, sizeof(*results->list), kernels_compare);
	for (size_t i = 0; i < results->n; i++)
		if (!n || results->list[n - 1] != results->list[i])
			results->list[n++] = results->list[i];
		else
			image_result_unref(results->list[i]);
	results->n = n;
	return results->r;
}

/* What is gone over of a result. */
enum kernels_phase {
	KERNELS_BEGIN,
	KERNELS_KNOWN, /* kernels that the worker has told of */
	KERNELS_NAMES, /* those of a plan */
	KERNELS_ITEMS, /* instructions */
};

/* What is looked for, how far it has gone, and what was found. */
struct kernels_search {
	const char *pattern; /* of kernels; NULL: by id */
	bool by_id;
	uint64_t id; /* of the kernel, or without a pattern the instruction */
	struct kernels_results results; /* references */
	size_t next_result;
	struct image_result *result;
	enum kernels_phase phase;
	size_t next_kernel;
	bool meant; /* one of its kernels */
	struct plan_names names;
	struct kernels_items items;
	const void *text; /* of the items; mapped */
	size_t n_text;
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
static size_t kernels_add_text(json_object *json, const char *key, const char *text) {
	char copy[KERNELS_TEXT_MAX + 1];

	snprintf(copy, sizeof(copy), "%s", text);
	text_make_printable(copy);
	json_add_text(json, key, copy);
	return strlen(copy);
}

/* An element of a worker's list. */
static int kernels_on_item(struct kernels_search *search, json_object *item) {
	const char *kernel, *text, *file;
	json_object *json;
	uint32_t index;
	int64_t line;
	uint64_t id;
	char hex[17];

	if (!json_get_u32(item, "index", 0, UINT32_MAX, &index) ||
	    !json_get_string(item, "kernel", &kernel) || !json_get_string(item, "text", &text))
		return KERNELS_E_INVALID;
	id = instruction_id(search->result->image, index);
	if (search->pattern ? !kernels_means_any(search, kernel) : id != search->id)
		return 0;
	search->found = true;
	json = json_object_new_object();
	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)id);
	json_add_text(json, "id", hex);
	search->bytes += 128 + kernels_add_text(json, "kernel", kernel);
	search->bytes += kernels_add_text(json, "text", text);
	if (json_get_string(item, "file", &file))
		search->bytes += kernels_add_text(json, "file", file);
	if (json_get_int(item, "line", 0, INT64_MAX, &line))
		json_add_int(json, "line", line);
	json_append(search->array, json);
	return search->bytes > KERNELS_REPLY_MAX ? KERNELS_E_LIMIT : 0;
}

/* A kernel of a plan, which has no instructions. */
static void kernels_on_name(struct kernels_search *search, const struct plan_name *name) {
	char text[KERNELS_TEXT_MAX + 1];

	if (search->by_id) {
		search->found = name->kernel_id == search->id;
	} else {
		snprintf(text, sizeof(text), "%.*s",
			 (int)(name->length > KERNELS_TEXT_MAX ? KERNELS_TEXT_MAX : name->length),
			 name->name);
		search->found = outcome_kernel_means(text, "", search->pattern);
	}
}

/* The end of a result, or of the search. */
static void kernels_search_leave(struct kernels_search *search) {
	plan_names_close(&search->names);
	kernels_items_deinit(&search->items);
	if (search->n_text)
		munmap((void *)search->text, search->n_text);
	search->n_text = 0;
	search->phase = KERNELS_BEGIN;
}

/* Lists are long: one of an image whose kernels are all known and not meant is not read. */
static int kernels_search_begin_items(struct kernels_search *search) {
	const struct image_result *result = search->result;
	int r;

	kernels_search_leave(search);
	if (result->instructions < 0 ||
	    (search->pattern && !search->meant && result->n_kernels < JOB_KERNELS_MAX))
		return KERNELS_E_AGAIN;
	r = memfd_map(result->instructions, (size_t)result->n_instructions, &search->text);
	if (r < 0)
		return r;
	search->n_text = (size_t)result->n_instructions;
	search->phase = KERNELS_ITEMS;
	r = kernels_items_init(&search->items, search->text, search->n_text);
	return r < 0 ? r : KERNELS_E_AGAIN;
}

/* A malformed list ends where it is malformed. */
static int kernels_search_item(struct kernels_search *search) {
	json_object *item;
	int r;

	r = kernels_items_next(&search->items, &item);
	if (r == 0 && item)
		r = kernels_on_item(search, item);
	else
		r = KERNELS_E_INVALID;
	json_object_put(item);
	if (r == KERNELS_E_INVALID)
		kernels_search_leave(search);
	return r == 0 || r == KERNELS_E_INVALID ? KERNELS_E_AGAIN : r;
}

/* One kernel, name or instruction, or what lies between them. */
static int kernels_search_step(struct kernels_search *search) {
	const struct image_kernel *kernel;
	struct plan_name name;
	int r;

	switch (search->phase) {
	case KERNELS_BEGIN:
		if (search->next_result == search->results.n)
			return search->found ? 0 : KERNELS_E_NOT_FOUND;
		search->result = search->results.list[search->next_result++];
		search->next_kernel = 0;
		search->meant = false;
		search->phase = KERNELS_KNOWN;
		return KERNELS_E_AGAIN;
	case KERNELS_KNOWN:
		if (search->pattern && !search->meant &&
		    search->next_kernel < search->result->n_kernels) {
			kernel = &search->result->kernels[search->next_kernel++];
			search->meant = kernels_means(search, kernel->name, kernel->demangled);
			search->found = search->found || search->meant;
			return KERNELS_E_AGAIN;
		}
		if (!search->pattern || search->found)
			return kernels_search_begin_items(search);
		r = plan_names_open(&search->names, search->result);
		search->phase = KERNELS_NAMES;
		return r < 0 ? r : KERNELS_E_AGAIN;
	case KERNELS_NAMES:
		if (search->found || !plan_names_next(&search->names, &name))
			return kernels_search_begin_items(search);
		kernels_on_name(search, &name);
		return KERNELS_E_AGAIN;
	case KERNELS_ITEMS:
		break;
	}
	return kernels_search_item(search);
}

int kernels_search_part(struct kernels_search *search, uint64_t nanoseconds) {
	const uint64_t end = uv_hrtime() + nanoseconds;
	int r;

	do
		r = kernels_search_step(search);
	while (r == KERNELS_E_AGAIN && uv_hrtime() < end);
	return r;
}

int kernels_search_new(struct kernels_search **searchp, const struct control_context *context,
		       const struct kernels_reader *reader, const char *kernel,
		       const char *instruction, json_object *array) {
	struct kernels_search *search;
	struct kernels_results *results;
	size_t n = 0;
	int r;

	search = calloc(1, sizeof(*search));
	if (!search)
		return -ENOMEM;
	if (instruction && !kernels_hex(instruction, &search->id)) {
		free(search);
		return KERNELS_E_INVALID;
	}
	search->pattern = instruction ? NULL : kernel;
	search->array = array;
	/* "face" is a name */
	search->by_id = !instruction && (strlen(kernel) == 16 || strncmp(kernel, "0x", 2) == 0) &&
			kernels_hex(kernel, &search->id);
	results = &search->results;
	*results = (struct kernels_results){ .context = context, .reader = reader };
	r = kernels_collect(results);
	for (size_t i = 0; i < results->n; i++)
		if (!instruction || results->list[i]->image == search->id >> 32)
			results->list[n++] = results->list[i];
		else
			image_result_unref(results->list[i]);
	results->n = n;
	if (r < 0)
		search = kernels_search_free(search);
	else
		*searchp = search;
	return r;
}

/* Takes NULL. Returns NULL. */
struct kernels_search *kernels_search_free(struct kernels_search *search) {
	if (!search)
		return NULL;
	kernels_search_leave(search);
	for (size_t i = 0; i < search->results.n; i++)
		image_result_unref(search->results.list[i]);
	free(search->results.list);
	free(search);
	return NULL;
}

/* ---- the method ---- */

struct kernels_show {
	struct control_work work;
	struct kernels_search *search;
	json_object *array;
};

static void kernels_show_free(void *userdata) {
	struct kernels_show *show = userdata;

	kernels_search_free(show->search);
	json_object_put(show->array);
	free(show);
}

/* What a search has come to. */
static int kernels_show_answer(struct varlink_call *call, json_object *array, int r) {
	const char *kernel = json_string_of(varlink_call_parameters(call), "kernel"),
		   *instruction = json_string_of(varlink_call_parameters(call), "instruction");
	json_object *json;

	switch (r) {
	case 0:
		json = json_object_new_object();
		json_add(json, "instructions", json_object_get(array));
		return varlink_call_reply(call, json);
	case KERNELS_E_INVALID:
		return control_error_argument(call, "instruction", "not a number in hexadecimal");
	case KERNELS_E_NOT_FOUND:
		return control_error_not_found(call, "%s %.200s", kernel ? "kernel" : "instruction",
					       kernel ? kernel : instruction);
	case KERNELS_E_LIMIT:
		return control_error_limit(call, "bytes of one reply: ask for one kernel",
					   KERNELS_REPLY_MAX);
	}
	return r;
}

static int kernels_show_turn(struct varlink_call *call, void *userdata) {
	struct kernels_show *show = userdata;
	int r;

	r = kernels_search_part(show->search, KERNELS_PART_NS);
	if (r == KERNELS_E_AGAIN)
		return VARLINK_PRODUCE_AGAIN;
	return control_work_end(&show->work, kernels_show_answer(call, show->array, r));
}

int control_show_kernel(struct varlink_call *call, json_object *parameters, void *userdata) {
	const struct kernels_reader reader = control_reader(call);
	const char *kernel = json_string_of(parameters, "kernel"),
		   *instruction = json_string_of(parameters, "instruction");
	struct kernels_show *show;
	int r;

	if (!kernel == !instruction)
		return control_error_argument(call, "kernel",
					      "say which kernel, or which instruction");
	if (kernel && !control_name_valid(kernel))
		return control_error_argument(call, "kernel", CONTROL_KERNEL_REASON);
	show = calloc(1, sizeof(*show));
	if (!show)
		return -ENOMEM;
	control_work_begin(&show->work, call, kernels_show_free);
	show->array = json_object_new_array();
	r = kernels_search_new(&show->search, userdata, &reader, kernel, instruction, show->array);
	if (r)
		return control_work_end(&show->work, kernels_show_answer(call, show->array, r));
	control_work_run(&show->work, varlink_call_work, kernels_show_turn);
	return 0;
}
