/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Chooses the attachments with which an image, or a plan, of a process is made. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image-work.h"

struct image_context;
struct filter;
struct process;
struct process_facts;

struct image_match {
	size_t n_meant; /* attachments that mean the process and can be had so */
	size_t n; /* the first of them, in order of id, as many as a job and a module can carry */
	uint64_t ids[JOB_IMAGE_PROGRAMS_MAX];
	const struct attachment
		*other; /* one that means the process, but cannot be had so; or NULL */
	bool own; /* one that is meant belongs to the user of the process, and does not mean every
		     process */
};

/* sass: of a plan. */
void image_match(struct image_match *match, const struct image_context *context,
		 const struct process_facts *facts, bool sass);

/* Of a plan for a process that is not known: those which mean every process that the filter means.
 */
void image_match_filter(struct image_match *match, const struct image_context *context,
			const struct filter *filter);
