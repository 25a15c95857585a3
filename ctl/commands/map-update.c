/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands map update and map delete. Users type keys and values in the form in which map dump
 * prints them.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "ctl/base/ctl.h"
#include "map-update.h"
#include "ctl/base/value-read.h"
#include "lib/json.h"
#include "lib/varlink/varlink-json.h"

static const char update_help[] =
	"Usage: gpuprobectl map update [OPTION]... MAP KEY VALUE [any|noexist|exist]\n"
	"       gpuprobectl map delete [OPTION]... MAP KEY\n"
	"\n"
	"Writes an element of a map, which is given by its name or id, or deletes one of a hash "
	"map. Programs that start then find it there;\n"
	"what processes have already is written to in host memory alone (type 1513, attach "
	"--shared, arrays shared with the host).\n"
	"\n"
	"KEY and VALUE are typed as map dump prints them, each as one argument: a number, the name "
	"of an enum, \"text\",\n"
	"{.a = 1, .list = [7, 8]} or JSON, where what is not there is zero; or all bytes: 'hex 01 "
	"02 ff'. Options stand before MAP.\n"
	"A percpu map or per-thread array gets the value for all SMs or threads.\n";

struct target {
	json_object *map; /* the daemon's words */
	struct value_types *types;
	uint32_t key_type, value_type;
};

/* Asks for the map and its types. Returns the exit status. */
static int find(struct ctl *ctl, const char *name, struct target *target) {
	struct varlink_reply reply;
	int r;

	r = ctl_call(ctl, "ShowMap", varlink_json_pack("map", json_string(name), NULL), name,
		     CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	target->key_type = (uint32_t)json_int_of(reply.parameters, "btf_key_type");
	target->value_type = (uint32_t)json_int_of(reply.parameters, "btf_value_type");
	r = ctl_value_types(json_member(reply.parameters, "btf"), &target->types);
	target->map = json_object_get(json_member(reply.parameters, "map"));
	varlink_reply_deinit(&reply);
	return r;
}

/* Puts the bytes of what was typed into the parameters. Returns the exit status. */
static int put(const struct target *target, json_object *parameters, const char *member,
	       const char *size_member, uint32_t type, const char *text) {
	const size_t size = (size_t)json_int_of(target->map, size_member);
	unsigned char *data = malloc(size ? size : 1);
	char *encoded = malloc(base64_encoded_size(size)), error[VALUE_ERROR_SIZE];
	int r = CTL_OK;

	if (!data || !encoded)
		r = ctl_fail(CTL_ERROR, "no memory");
	else if (value_read(target->types, type, text, data, size, error))
		r = ctl_fail(CTL_USAGE, "%s %s: %s", member, text, error);
	if (!r) {
		base64_encode(encoded, data, size);
		json_add_string(parameters, member, encoded);
	}
	free(data);
	free(encoded);
	return r;
}

/* Reads key and value (NULL: none) for the map, and calls. */
static int change(struct ctl *ctl, const char *method, const char *name, const char *key,
		  const char *value, json_object *parameters) {
	struct target target = {};
	struct varlink_reply reply;
	char id[24];
	int r;

	r = find(ctl, name, &target);
	if (!r && !strcmp(ctl_string(target.map, "kind"), "ring"))
		r = ctl_fail(CTL_ERROR, "%s is a ring: gpuprobectl ring read takes its records",
			     name);
	if (!r)
		r = put(&target, parameters, "key", "key_size", target.key_type, key);
	if (!r && value)
		r = put(&target, parameters, "value", "value_size", target.value_type, value);
	if (!r) {
		snprintf(id, sizeof(id), "%lld", (long long)json_int_of(target.map, "id"));
		json_add_string(parameters, "map", id);
		r = ctl_call(ctl, method, json_object_get(parameters), name, CTL_TIMEOUT_MS,
			     &reply);
		if (!r) {
			if (ctl->json)
				ctl_print_json(ctl, reply.parameters);
			varlink_reply_deinit(&reply);
		}
	}
	json_object_put(target.map);
	value_types_free(target.types);
	return r;
}

int ctl_map_update(struct ctl *ctl, int argc, char **argv) {
	json_object *parameters = json_object_new_object();
	/* options stand before the map: a value may begin with a minus */
	struct ctl_command_line line = { .help = update_help, .arguments = CTL_ANY, .stops = true };
	const char *flags = "any";
	int r, n;

	r = ctl_parse(ctl, argc, argv, &line);
	n = argc - optind;
	argv += optind;
	if (r < 0 && (n < 3 || n > 4))
		r = ctl_usage("map update takes a map, a key and a value, perhaps with any, "
			      "noexist or exist behind them: put each into quotes");
	if (r < 0 && n == 4)
		flags = argv[3];
	if (r < 0 && strcmp(flags, "any") && strcmp(flags, "noexist") && strcmp(flags, "exist"))
		r = ctl_usage("map update: %s is none of any, noexist and exist", flags);
	if (r < 0) {
		json_add_string(parameters, "flags", flags);
		r = change(ctl, "UpdateMap", argv[0], argv[1], argv[2], parameters);
	}
	json_object_put(parameters);
	return r;
}

int ctl_map_delete(struct ctl *ctl, int argc, char **argv) {
	struct ctl_command_line line = { .help = update_help, .arguments = CTL_ANY, .stops = true };
	json_object *parameters = json_object_new_object();
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r < 0 && argc - optind != 2)
		r = ctl_usage("map delete takes a map and a key: put each into quotes");
	if (r < 0)
		r = change(ctl, "DeleteMap", argv[optind], argv[optind + 1], NULL, parameters);
	json_object_put(parameters);
	return r;
}
