/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs that run on with the shim of before an upgrade, or with that of after it: who they are,
 * and what to do. */

#include <stdint.h>

struct client_context;
struct other_shims;
struct shim_connection;
struct shim_greeting;

/* Lines go to the log some seconds after somebody was seen, as many programs come at once. 0 or
 * -errno. */
int other_shims_new(struct other_shims **othersp, struct client_context *context);
struct other_shims *other_shims_free(struct other_shims *others);

/* A process has greeted in another version of the protocol. */
void other_shims_greeted(struct other_shims *others, const struct shim_connection *connection,
			 const struct shim_greeting *greeting);

/* A line for each thing that is so now: what it is, and behind the last "; " what to do. others may
 * be NULL: there is nobody. */
void other_shims_each(struct other_shims *others, void (*take)(const char *line, void *userdata),
		      void *userdata);
