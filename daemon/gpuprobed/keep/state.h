/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is attached, as a file: for the next daemon. Bytes (programs, maps, links) are descriptors
 * in the store; the file names their slots.
 */

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/gpuprobed/map/map.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "store.h"

enum {
	_STATE_E_SUCCESS,
	STATE_E_NONE, /* there is no such file */
	STATE_E_REFUSED, /* it is none of ours, damaged, or of a later version: the error says which
			  */
	STATE_E_OBJECT, /* an object cannot be restored: the error says why */
};

#define STATE_VERSION 3
#define STATE_SIZE_MAX ((size_t)64 << 20)
#define STATE_ERROR_SIZE 256

/* What is beside the objects. */
struct state_numbers {
	uint64_t session; /* random: the same as long as it is the same state, whichever daemon has
			     it */
	uint64_t starts; /* daemons that have had it */
};

/* The state as JSON, to be put. NULL: no memory. */
json_object *state_to_json(const struct registry *registry, const struct state_numbers *numbers);

/* Bytes of an object that go into a memfd: in the order in which the file counts them. The
 * descriptor or -errno. */
int state_blob(const struct object *object);

/* Puts the state into the place of what is there, as a whole. 0 or -errno. */
int state_save(const char *path, json_object *state);

/* Reads it, and makes the present version of it. *statep is to be put. 0, STATE_E_NONE,
 * STATE_E_REFUSED, -errno. */
int state_load(const char *path, json_object **statep, char error[static STATE_ERROR_SIZE]);

/* What is beside the objects; the registry goes on counting from there. 0 or STATE_E_REFUSED. */
int state_take_numbers(json_object *state, struct registry *registry, struct state_numbers *numbers,
		       char error[static STATE_ERROR_SIZE]);

/* How many objects it has; and puts number i, with its maps and attachments, into the registry. 0,
 * STATE_E_OBJECT or -ENOMEM. */
size_t state_objects(json_object *state);
int state_take_object(json_object *state, size_t i, struct registry *registry,
		      struct map_accounts *accounts, struct store *store,
		      char error[static STATE_ERROR_SIZE]);

/* state-convert.c: makes the present version of an older one, in place. 0 or STATE_E_REFUSED. */
int state_convert(json_object *state, char error[static STATE_ERROR_SIZE]);
