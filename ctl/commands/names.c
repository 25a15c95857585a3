/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Names for ids in the output of maps and rings: kernels and instructions. It asks the daemon over
 * a connection of its own, because replies still come in on the first one. That connection is made
 * at the first id. One call brings all kernels; each instruction takes a call. If the daemon does
 * not answer, ids are printed as numbers.
 */

#include "names.h"
#include "lib/json.h"

#include <stdio.h>
#include <string.h>

#define INSTRUCTIONS_MAX 4096 /* that are asked for; later ones are printed as numbers */

/* The parameters of the daemon's answer, or NULL. */
static json_object *ask(struct names *names, const char *method, json_object *consume_parameters) {
	struct varlink_reply reply;
	json_object *parameters = NULL;

	if (!names->client && !names->failed)
		names->failed = varlink_client_connect(&names->client, names->ctl->path,
						       CTL_TIMEOUT_MS) < 0;
	if (names->failed) {
		json_object_put(consume_parameters);
		return NULL;
	}
	if (!ctl_ask(names->client, method, consume_parameters, &reply))
		return NULL;
	parameters = json_object_get(reply.parameters);
	varlink_reply_deinit(&reply);
	return parameters;
}

static json_object *ask_kernels(struct names *names) {
	json_object *answer = ask(names, "ListKernels", json_object_new_object()),
		    *list = json_member(answer, "kernels"), *kernels = json_object_new_object();
	unsigned int failures = 0;

	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		json_object *kernel = json_object_array_get_idx(list, i);

		ctl_add_demangled(kernel, &failures);
		json_object_object_add(kernels, ctl_string(kernel, "id"),
				       json_object_get(json_member(kernel, "demangled")));
	}
	json_object_put(answer);
	return kernels;
}

/* "x.cu:12" where there is line information, else the instruction's text; NULL: unknown. */
static json_object *ask_instruction(struct names *names, const char *hex) {
	json_object *parameters = json_object_new_object(), *answer, *list, *instruction,
		    *name = NULL;

	json_add_string(parameters, "instruction", hex);
	answer = ask(names, "ShowKernel", parameters);
	list = json_member(answer, "instructions");
	instruction =
		list && json_object_array_length(list) ? json_object_array_get_idx(list, 0) : NULL;
	if (instruction && json_member(instruction, "file"))
		name = ctl_format("%s:%lld", ctl_string(instruction, "file"),
				  (long long)json_int_of(instruction, "line"));
	else if (instruction)
		name = json_object_new_string(ctl_string(instruction, "text"));
	json_object_put(answer);
	return name;
}

char *names_of(enum value_id kind, uint64_t id, void *userdata) {
	struct names *names = userdata;
	json_object *name = NULL;
	char hex[17], *text;

	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)id);
	if (kind == VALUE_ID_KERNEL) {
		if (!names->kernels)
			names->kernels = ask_kernels(names);
		name = json_member(names->kernels, hex);
	} else {
		if (!names->instructions)
			names->instructions = json_object_new_object();
		if (!json_object_object_get_ex(names->instructions, hex, &name) &&
		    json_object_object_length(names->instructions) < INSTRUCTIONS_MAX) {
			name = ask_instruction(names, hex);
			json_object_object_add(names->instructions, hex, name);
		}
	}
	text = name ? strdup(json_object_get_string(name)) : NULL;
	if (text)
		ctl_clean_text(text, "");
	return text;
}

void names_deinit(struct names *names) {
	varlink_client_free(names->client);
	json_object_put(names->kernels);
	json_object_put(names->instructions);
}
