/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Programs whose shim is older or newer than this daemon, because of an upgrade: finds them, and
 * says what to do.
 */

#include <stdint.h>

struct client_context;
struct other_shims;
struct shim_connection;
struct shim_greeting;

/*
 * Lines go to the log some seconds after a program was seen, because many programs come at once. 0
 * or -errno.
 */
int other_shims_new(struct other_shims **othersp, struct client_context *context);
struct other_shims *other_shims_free(struct other_shims *others);

/* A process has greeted in another version of the protocol. */
void other_shims_greeted(struct other_shims *others, const struct shim_connection *connection,
			 const struct shim_greeting *greeting);

/*
 * One line for each such finding at present: what it is and, behind the last "; ", what to do.
 * others may be NULL: no lines.
 */
void other_shims_each(struct other_shims *others, void (*take)(const char *line, void *userdata),
		      void *userdata);
