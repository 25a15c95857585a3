/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a process is told about an image, and what is remembered of that for `gpuprobectl why`. */

#include <stddef.h>
#include <stdint.h>

#include "image-match.h"
#include "image-result.h"

struct client;
struct image_context;

/* Answers the client and remembers why. 0 or negative: the connection is of no use any more. */
int image_answer(struct image_context *context, struct client *client, uint32_t sequence,
		 struct image_result *result);

/* Answers with the own image at once; plan: that there is nothing to patch (later: now).
 * printf-like. */
int image_answer_own(struct image_context *context, struct client *client, uint32_t sequence,
		     bool plan, bool later, const char *format, ...)
	__attribute__((format(printf, 6, 7)));

/* Likewise, and nothing is remembered: it is known already. */
int image_answer_nothing(struct image_context *context, struct client *client, uint32_t sequence,
			 bool later, const char *reason);

/* The process has armed what it got: of a plan, its kernels are patched only now. */
void image_answer_armed(struct image_context *context, struct process *process,
			struct image_result *result);

/* Remembers that attachments were left out. */
void image_answer_excess(struct image_context *context, const struct process *process,
			 size_t n_meant, size_t n);

/* Remembers, once, which attachments that mean the process its engine (sass, or twins) cannot have,
 * and why. */
void image_answer_left_out(struct image_context *context, const struct process *process, bool sass);
