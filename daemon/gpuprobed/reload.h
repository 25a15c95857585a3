/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* SIGHUP: the configuration is read again. What can change while the daemon runs does so, of the
 * rest it says that it takes a restart; a configuration with a mistake changes nothing. */

#include <stdbool.h>

#include "daemon.h"
#include "daemon/gpuprobed/base/notify.h"

struct reload {
	struct daemon *daemon;
	struct notify *notify;
	const struct config *current; /* that the daemon goes by */
	struct config *config; /* the last one that was read, or NULL: that of the start */
	int argc;
	char **argv;
};

/* config: of the start; argv stays. reload_deinit() when the daemon has been freed. */
void reload_init(struct reload *reload, struct daemon *daemon, const struct config *config,
		 struct notify *notify, int argc, char *argv[]);
/* Not sessions, unless they have a file: SIGHUP is the end of their terminal, and theirs. */
bool reload_can(const struct reload *reload);
/* Not while the daemon stops. */
void reload_now(struct reload *reload);
void reload_deinit(struct reload *reload);
