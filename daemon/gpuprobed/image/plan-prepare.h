/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Patch images are made before a process asks: when something is attached or detached, for the
 * devices that are known. */

#include <stddef.h>
#include <stdint.h>

struct image_context;
struct filter;
struct object;

#define PLAN_PREPARE_MAX 24 /* images at a time; others are made when they are needed */
#define PLAN_CAPABILITIES_MAX 8

/* Somebody who is believed has a device of this compute capability (90 is sm_90). */
void plan_note_capability(struct image_context *context, uint32_t capability);

typedef void (*plan_prepare_fn)(void *userdata);

/*
 * Makes what the attachments of a new object, which have this filter, need: each object alone, and
 * with the others that mean a process. 0: fn will be called once, from the loop, when all are there
 * or have failed, or after timeout_ms; 1: there is nothing to wait for; negative: -errno.
 */
int plan_prepare(struct image_context *context, const struct object *object,
		 const struct filter *filter, unsigned int timeout_ms, plan_prepare_fn fn,
		 void *userdata);

/* Why the programs of the object alone cannot be compiled to patches: their fault; NULL: nothing is
 * known against them. And why no patches can be made at all. */
const char *plan_programs_trouble(struct image_context *context, const struct object *object);
const char *plan_trouble(struct image_context *context, const struct object *object);

/* After something was detached: what processes will ask for now. Waits for nothing. */
void plan_prepare_again(struct image_context *context);
