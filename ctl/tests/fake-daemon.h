/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the fake daemon share. */

#include <json-c/json.h>
#include <stdint.h>

struct varlink_call;

/* What typed maps hold. */
struct event {
	uint32_t a;
	int64_t b;
	char name[8];
	uint32_t color;
	uint32_t low : 3, high : 29;
	uint16_t list[2];
	union {
		uint32_t u;
		float f;
	};
	uint8_t flag;
};

/* The userdata of all methods. */
struct fake_types {
	const char *btf; /* in base64 */
	int event; /* the id of struct event in it */
};

int fake_read_ring(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_read_log(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_trace(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_cache_status(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_list_cache(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_clear_cache(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_list_hooks(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_export_map(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_unexport_map(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_list_exports(struct varlink_call *call, json_object *parameters, void *userdata);
int fake_metrics(struct varlink_call *call, json_object *parameters, void *userdata);
