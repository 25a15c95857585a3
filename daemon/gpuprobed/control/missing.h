/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What this daemon cannot do here: Status and Examine tell it. */

struct control_context;

/*
 * Calls take() for each thing that is missing: the part that lacks it (verifier, processes,
 * image-worker, program-worker, patching, metrics, shims, compiler), and one line on what that is
 * and what would help.
 */
void missing_each(const struct control_context *context,
		  void (*take)(const char *part, const char *line, void *userdata), void *userdata);

/* A text of what the image workers say about themselves (worker/job.md), or NULL. */
const char *missing_feature(const struct control_context *context, const char *key);
