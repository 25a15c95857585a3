/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* SIGHUP: the configuration is read again. What can change while the daemon runs does so, of the rest it says that it takes a restart; a
 * configuration with a mistake changes nothing. */

#include <uv.h>

#include "daemon.h"
#include "notify.h"

struct reload {
	struct daemon *daemon;
	struct notify *notify;
	struct config *config; /* the last one that was read, or NULL: that of the start */
	int argc;
	char **argv;
	uv_signal_t signal;
};

/* Sessions are left alone, unless they have a file: SIGHUP is the end of their terminal, too. argv stays. */
void reload_start(struct reload *reload, uv_loop_t *loop, struct daemon *daemon, struct notify *notify, int argc, char *argv[]);
/* Before daemon_stop(); reload_deinit() when the daemon has been freed. NULL handles are fine. */
void reload_stop(struct reload *reload);
void reload_deinit(struct reload *reload);
