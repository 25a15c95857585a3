/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the request of a pass (ptxpass.h), a JSON object on standard input.
 *
 * Fields that we do not know are fine, as others send more than we need; those that we know must
 * have their type. An instruction is eight bytes, read as a little-endian number, in two halves.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptxpass.h"
#include "lib/base/text.h"

int ptxpass_fail(struct ptxpass_error *error, enum ptxpass_exit status, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	for (char *c = error->message; *c; c++)
		if (is_control(*c))
			*c = ' ';
	return (int)status;
}

/* A member of a type; *memberp is NULL if it is absent or null. */
static int get(json_object *object, const char *key, enum json_type type, json_object **memberp,
	       struct ptxpass_error *error) {
	*memberp = NULL;
	json_object_object_get_ex(object, key, memberp);
	if (!*memberp || json_object_is_type(*memberp, type))
		return 0;
	return ptxpass_fail(error, PTXPASS_INPUT, "%s is not %s", key,
			    type == json_type_string  ? "a string"
			    : type == json_type_array ? "an array"
			    : type == json_type_int   ? "an integer"
						      : "an object");
}

/* A PTX identifier, or a default. */
static int get_symbol(json_object *object, const char *key, const char *otherwise,
		      const char **symbol, struct ptxpass_error *error) {
	json_object *member;
	int r;

	r = get(object, key, json_type_string, &member, error);
	if (r)
		return r;
	*symbol = member ? json_object_get_string(member) : otherwise;
	if (*symbol &&
	    (!**symbol || strlen(*symbol) > 200 || (**symbol >= '0' && **symbol <= '9') ||
	     (*symbol)[strspn(*symbol,
			      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$")]))
		return ptxpass_fail(error, PTXPASS_INPUT, "%s is not the name of a symbol", key);
	return 0;
}

static int get_u32(json_object *object, const char *key, bool required, uint32_t *value,
		   struct ptxpass_error *error) {
	json_object *member;
	int64_t number;
	int r;

	r = get(object, key, json_type_int, &member, error);
	if (r)
		return r;
	if (!member)
		return required ? ptxpass_fail(error, PTXPASS_INPUT, "%s is missing", key) : 0;
	number = json_object_get_int64(member);
	if (number < 0 || number > UINT32_MAX)
		return ptxpass_fail(error, PTXPASS_INPUT, "%s is not a 32-bit number", key);
	*value = (uint32_t)number;
	return 0;
}

static int read_instruction(struct bpf_insn *insn, json_object *object, size_t index,
			    struct ptxpass_error *error) {
	struct ptxpass_error inner;
	uint32_t low = 0, high = 0;
	int r;

	if (!json_object_is_type(object, json_type_object))
		return ptxpass_fail(error, PTXPASS_INPUT, "ebpf_instructions[%zu] is not an object",
				    index);
	r = get_u32(object, "lower_32bit", true, &low, &inner);
	if (!r)
		r = get_u32(object, "upper_32bit", true, &high, &inner);
	if (r)
		return ptxpass_fail(error, PTXPASS_INPUT, "ebpf_instructions[%zu]: %.300s", index,
				    inner.message);
	*insn = (struct bpf_insn){
		.code = (uint8_t)low,
		.dst_reg = (low >> 8) & 15,
		.src_reg = (low >> 12) & 15,
		.off = (int16_t)(low >> 16),
		.imm = (int32_t)high,
	};
	return 0;
}

static int read_instructions(struct ptxpass_request *request, json_object *object,
			     struct ptxpass_error *error) {
	json_object *array;
	int r;

	r = get(object, "ebpf_instructions", json_type_array, &array, error);
	if (r || !array)
		return r;
	if (json_object_array_length(array) > TRANSLATE_INSNS_MAX)
		return ptxpass_fail(error, PTXPASS_INPUT,
				    "ebpf_instructions has more than %d members",
				    TRANSLATE_INSNS_MAX);
	request->insns = calloc(json_object_array_length(array) + 1, sizeof(*request->insns));
	if (!request->insns)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "no memory");
	for (size_t i = 0; !r && i < json_object_array_length(array); i++)
		r = read_instruction(&request->insns[request->n_insns++],
				     json_object_array_get_idx(array, i), i, error);
	return r;
}

static int read_map(struct ptxpass_request *request, json_object *object,
		    struct ptxpass_error *error) {
	struct translate_map *map = &request->maps[request->n_maps];
	const char *slot = NULL, *name = NULL;
	uint32_t fd = UINT32_MAX;
	int r;

	if (!json_object_is_type(object, json_type_object))
		return ptxpass_fail(error, PTXPASS_INPUT, "maps has a member that is no object");
	r = get_u32(object, "type", true, &map->type, error);
	if (!r)
		r = get_u32(object, "key_size", true, &map->key_size, error);
	if (!r)
		r = get_u32(object, "value_size", true, &map->value_size, error);
	if (!r)
		r = get_u32(object, "max_entries", true, &map->max_entries, error);
	if (!r)
		r = get_u32(object, "fd", false, &fd, error);
	if (!r)
		r = get_symbol(object, "slot_symbol", NULL, &slot, error);
	if (!r)
		r = get_symbol(object, "name", "map", &name, error);
	if (r)
		return r;
	if (!slot && asprintf(&request->slots[request->n_maps], "%s_%zu", request->map_symbol,
			      request->n_maps) < 0) {
		request->slots[request->n_maps] = NULL;
		return ptxpass_fail(error, PTXPASS_INTERNAL, "no memory");
	}
	map->name = name;
	map->slot_symbol = slot ? slot : request->slots[request->n_maps];
	request->fds[request->n_maps++] = fd <= INT32_MAX ? (int)fd : -1;
	return 0;
}

static int read_maps(struct ptxpass_request *request, json_object *object,
		     struct ptxpass_error *error) {
	json_object *array;
	int r;

	r = get(object, "maps", json_type_array, &array, error);
	if (r || !array)
		return r;
	if (json_object_array_length(array) > TRANSLATE_MAPS_MAX)
		return ptxpass_fail(error, PTXPASS_INPUT, "maps has more than %d members",
				    TRANSLATE_MAPS_MAX);
	for (size_t i = 0; !r && i < json_object_array_length(array); i++)
		r = read_map(request, json_object_array_get_idx(array, i), error);
	return r;
}

/* The fields that are in "input" of the nested form, and in the request itself of the flat one. */
static int read_input(struct ptxpass_request *request, json_object *object,
		      struct ptxpass_error *error) {
	const char *data_symbol;
	json_object *member;
	int r;

	r = get(object, "full_ptx", json_type_string, &member, error);
	if (r)
		return r;
	if (!member)
		return ptxpass_fail(error, PTXPASS_INPUT, "full_ptx is missing");
	request->ptx = json_object_get_string(member);
	request->ptx_length = (size_t)json_object_get_string_len(member);
	r = get(object, "to_patch_kernel", json_type_string, &member, error);
	if (!r && member && *json_object_get_string(member))
		request->kernel = json_object_get_string(member);
	if (!r)
		r = get_symbol(object, "global_ebpf_map_info_symbol", "map_info",
			       &request->map_symbol, error);
	/* What we put into modules needs no such area: the name is checked and not used. */
	return r ? r
		 : get_symbol(object, "ebpf_communication_data_symbol", "constData", &data_symbol,
			      error);
}

/* All of the text as one JSON object. */
static int parse(struct ptxpass_request *request, const char *text, size_t length,
		 struct ptxpass_error *error) {
	struct json_tokener *tokener = json_tokener_new_ex(16);
	enum json_tokener_error why;

	if (!tokener)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "no memory");
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	while (length && strchr(" \t\r\n", text[length - 1]) && text[length - 1])
		length--;
	request->json = json_tokener_parse_ex(tokener, text, (int)length);
	why = json_tokener_get_error(tokener);
	if (why == json_tokener_success && json_tokener_get_parse_end(tokener) != length)
		why = json_tokener_error_parse_unexpected;
	json_tokener_free(tokener);
	if (why != json_tokener_success)
		return ptxpass_fail(error, PTXPASS_INPUT, "the input is not JSON: %s",
				    why == json_tokener_continue ? "it ends too early"
								 : json_tokener_error_desc(why));
	if (!json_object_is_type(request->json, json_type_object))
		return ptxpass_fail(error, PTXPASS_INPUT, "the input is not a JSON object");
	return 0;
}

int ptxpass_request_read(struct ptxpass_request *request, const char *text, size_t length,
			 struct ptxpass_error *error) {
	json_object *input;
	int r;

	*request = (struct ptxpass_request){};
	r = parse(request, text, length, error);
	if (!r)
		r = get(request->json, "input", json_type_object, &input, error);
	if (r)
		return r;
	request->nested = input;
	r = read_input(request, input ? input : request->json, error);
	if (!r)
		r = read_instructions(request, request->json, error);
	return r ? r : read_maps(request, request->json, error);
}

void ptxpass_request_deinit(struct ptxpass_request *request) {
	for (size_t i = 0; i < request->n_maps; i++)
		free(request->slots[i]);
	free(request->insns);
	json_object_put(request->json);
	*request = (struct ptxpass_request){};
}
