/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reloads the configuration on SIGHUP (reload.h): applies the settings that can change while the
 * daemon runs, and says which others need a restart.
 */

#include "reload.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "daemon/gpuprobed/base/log.h"
#include "lib/base/clock.h"

/* Takes over what does not change without a restart. *restartp: their names, for people. 0 or
 * -ENOMEM. */
static int reload_keep(struct config *config, const struct config *before, char *restart,
		       size_t size) {
	size_t n = 0;
	int r;

	*restart = '\0';
	for (const struct config_setting *setting = config_settings; setting->name; setting++) {
		if (setting->flags & CONFIG_LIVE || config_same(setting, config, before))
			continue;
		if (n < size)
			n += (size_t)snprintf(restart + n, size - n, "%s%s", n ? ", " : "",
					      setting->name);
		r = config_copy(setting, config, before);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Reads all of it again. 0, or what is wrong in error. */
static int reload_read(struct reload *reload, struct config **configp, char *error) {
	struct config *config = NULL;
	char restart[512];
	int r;

	r = config_new(&config, reload->argc, reload->argv, CONFIG_FILE, CONFIG_FOLDER, error);
	if (r == 0)
		r = reload_keep(config, reload->current, restart, sizeof(restart));
	if (r) {
		config_free(config);
		if (r < 0)
			snprintf(error, CONFIG_ERROR_SIZE, "%s", strerror(-r));
		return r;
	}
	if (*restart)
		log_warning("reload: needs a restart, and stays as it was: %s", restart);
	*configp = config;
	return 0;
}

void reload_now(struct reload *reload) {
	struct config *config = NULL, *before = reload->config;
	char error[CONFIG_ERROR_SIZE];
	int r;

	notify_send(reload->notify, -1, "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
		    clock_us(CLOCK_MONOTONIC));
	r = reload_read(reload, &config, error);
	if (r) {
		log_error("reload: %s; everything stays as it was", error);
		notify_send(reload->notify, -1, "READY=1\nSTATUS=configuration not reloaded: %s",
			    error);
		return;
	}
	daemon_configure(reload->daemon, config);
	reload->current = reload->config = config;
	config_free(before);
	log_notice("reload: done");
	notify_send(reload->notify, -1, "READY=1\nSTATUS=configuration reloaded");
}

void reload_init(struct reload *reload, struct daemon *daemon, const struct config *config,
		 struct notify *notify, int argc, char *argv[]) {
	reload->daemon = daemon;
	reload->current = config;
	reload->notify = notify;
	reload->argc = argc;
	reload->argv = argv;
}

bool reload_can(const struct reload *reload) {
	return !reload->current->session || reload->current->file;
}

void reload_deinit(struct reload *reload) {
	reload->config = config_free(reload->config);
}
