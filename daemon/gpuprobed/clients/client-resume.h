/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Handles RESUME and KEEP: modules and instances that a process has from an earlier daemon. */

#include "client.h"
#include "proto/wire.h"

/* All: 0, or negative: the connection is of no use any more. client_resume() begins,
 * client_resume_ids() goes on until all ids are there. */
int client_resume(struct client_context *context, struct client *client,
		  const struct wire_resume *resume);
int client_resume_ids(struct client_context *context, struct client *client,
		      const struct wire_ids *ids);
int client_resume_keep(struct client_context *context, struct client *client,
		       const struct wire_keep *keep);
