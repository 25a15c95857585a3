/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ShowKernel: what numbers of instructions stand for. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct control_context;
struct kernels_reader;
struct varlink_call;

enum kernels_result {
	_KERNELS_SUCCESS,
	KERNELS_E_INVALID, /* no such JSON, or a strange number */
	KERNELS_E_NOT_FOUND,
	KERNELS_E_LIMIT, /* too much for one reply */
	KERNELS_E_AGAIN, /* there is more to be looked at */
};

#define KERNELS_REPLY_MAX (12 * 1024 * 1024) /* bytes of text of instructions, about */

/*
 * Adds the instructions of the kernels that `kernel` means (name, glob, or 16 hexadecimal digits)
 * and the reader (borrowed for the call) may see, or the one with the id `instruction` if
 * that is not NULL, to `array`; all borrowed. A part at a time: lists of names and instructions are
 * long, and a glob may take long for each name. 0, KERNELS_E_INVALID, or negative errno.
 */
struct kernels_search;
int kernels_search_new(struct kernels_search **searchp, const struct control_context *context,
		       const struct kernels_reader *reader, const char *kernel,
		       const char *instruction, json_object *array);
struct kernels_search *kernels_search_free(struct kernels_search *search);

/* Goes on, for about so long, but one step at least. KERNELS_E_AGAIN: that was not all; 0,
 * KERNELS_E_*, or negative errno. */
int kernels_search_part(struct kernels_search *search, uint64_t nanoseconds);

/*
 * Goes over the elements of a worker's list of instructions. fn returns 0 to go on; what else it
 * returns ends the walk. 0, that, KERNELS_E_INVALID, or -ENOMEM. However long the list is, one
 * element at a time is in memory.
 */
int kernels_walk(const char *text, size_t size, int (*fn)(json_object *item, void *userdata),
		 void *userdata);

struct kernels_list;
/* Adds kernels of type Kernel to the array, up to about n_bytes of text. Whether there are more. */
bool kernels_list_take(struct kernels_list *list, json_object *array, size_t n_bytes);

/* Methods of the control interface; userdata: a struct control_context. */
int control_list_kernels(struct varlink_call *call, json_object *parameters, void *userdata);
int control_show_kernel(struct varlink_call *call, json_object *parameters, void *userdata);
