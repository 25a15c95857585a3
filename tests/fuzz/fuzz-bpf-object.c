/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The link step on an ELF object. Whatever is accepted must be writable as JSON and
 * readable again, and every table must lie inside of the blob (the sanitizer looks when the sums
 * are made).
 */

#include <json-c/json.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/translator/job/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned int sum;

/* Touches every byte of a table. */
static void touch(const struct link_output *output, const struct linked_table *table) {
	for (uint64_t i = 0; i < (uint64_t)table->count * table->record_size; i++)
		sum += output->blob[table->offset + i];
}

static void check_tables(const struct link_output *output) {
	touch(output, &output->linked.btf);
	for (size_t i = 0; i < output->linked.n_maps; i++) {
		touch(output, &output->linked.maps[i].initial);
		touch(output, &output->linked.maps[i].lanes);
	}
	for (size_t i = 0; i < output->linked.n_programs; i++) {
		touch(output, &output->linked.programs[i].insns);
		touch(output, &output->linked.programs[i].func_info);
		touch(output, &output->linked.programs[i].line_info);
	}
}

static void check_json(const struct link_output *output) {
	struct json_object *reply = json_object_new_object(), *parsed;
	struct linked *back;
	char error[192];

	if (!reply || linked_to_json(&output->linked, reply))
		abort();
	parsed = json_tokener_parse(json_object_to_json_string(reply));
	if (!parsed || linked_from_json(&back, parsed, error))
		abort();
	if (back->n_programs != output->linked.n_programs || back->n_maps != output->linked.n_maps)
		abort();
	free(back);
	json_object_put(parsed);
	json_object_put(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct link_failure failure;
	struct link_output *output;
	int r = link_object(data, size, NULL, &output, &failure);

	if (r == LINK_E_OBJECT) {
		if (!*failure.reason || strchr(failure.reason, '\n'))
			abort();
		link_failure_deinit(&failure);
	}
	if (r)
		return 0;
	check_tables(output);
	check_json(output);
	link_output_free(output);
	return 0;
}
