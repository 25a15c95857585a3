/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobed, the main function: reads the configuration, makes the runtime directory, runs the
 * loop, and ends. Exit status: 0 asked to stop, 1 cannot run, 2 wrong usage.
 */

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/gpuprobed/settings/config.h"
#include "daemon.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/message-id.h"
#include "daemon/gpuprobed/base/notify.h"
#include "proto/paths.h"
#include "reload.h"
#include "daemon/gpuprobed/base/runtime-dir.h"
#include "daemon/gpuprobed/base/sigbus.h"
#include "daemon/gpuprobed/keep/store.h"
#include "watchdog.h"
#include "daemon/gpuprobed/workers/worker-setup.h"

/* Reads the configuration, and does what needs no daemon. Negative: go on; else an exit status. */
static int configure(struct config **configp, int argc, char *argv[]) {
	char error[CONFIG_ERROR_SIZE];
	int r;

	r = config_new(configp, argc, argv, CONFIG_FILE, CONFIG_FOLDER, error);
	if (r) {
		if (r < 0 || *error)
			fprintf(stderr, "gpuprobed: %s\n", r < 0 ? strerror(-r) : error);
		return r == CONFIG_E_USAGE ? 2 : 1;
	}
	switch ((*configp)->action) {
	case CONFIG_RUN:
		return -1;
	case CONFIG_CHECK:
		if (!(*configp)->quiet)
			config_print(*configp, stdout);
		break;
	case CONFIG_HELP:
		config_usage(stdout);
		break;
	case CONFIG_VERSION:
		printf("gpuprobed %s\n", PROJECT_VERSION);
		break;
	}
	if (fflush(stdout) == EOF || ferror(stdout)) {
		fprintf(stderr, "gpuprobed: cannot write the output: %s\n", strerror(errno));
		return 1;
	}
	return 0;
}

/* Takes the place where the daemon is found. 0 or an exit status. */
static int open_runtime_dir(const struct config *config, struct runtime_dir **dirp) {
	char path[128];
	int r;

	if (!config->session) {
		strcpy(path, PATHS_SYSTEM_DIR);
	} else if (runtime_dir_session_path(path, getuid(), config->session_name)) {
		fprintf(stderr,
			"gpuprobed: --session=%s: a name has 1 to %d letters, digits and "
			"underscores\n",
			config->session_name, PATHS_SESSION_NAME_MAX);
		return 2;
	}
	r = runtime_dir_new(dirp, path, config->session ? 0700 : 0755, config->session);
	if (r == RUNTIME_DIR_E_RUNNING)
		log_error("%s: another gpuprobed runs there", path);
	else if (r == RUNTIME_DIR_E_UNSAFE)
		log_error("%s: not a directory of this user alone%s", path,
			  config->session ? ""
					  : " (the service has a user of its own: systemctl start "
					    "gpuprobed; a private daemon: gpuprobed --session)");
	else if (r < 0)
		log_error("%s: %s%s", path, strerror(-r),
			  !config->session && r == -EACCES
				  ? " (a private daemon needs no root: --session)"
				  : "");
	return r ? 1 : 0;
}

/* Sockets that systemd listens on for us, by their names. 0 or -errno. */
static int take_descriptors(struct daemon_options *options, struct notify *notify) {
	int *controlp = &options->control_fd, *shimp = &options->shim_fd;
	char **names = NULL;
	int n;

	*controlp = *shimp = -1;
	n = store_new(&options->store, notify_heard(notify), notify);
	if (n < 0)
		return n;
	n = sd_listen_fds_with_names(1, &names);
	if (n < 0) {
		log_error("sockets from systemd: %s", strerror(-n));
		return n;
	}
	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i;

		if (strcmp(names[i], "control") == 0 && *controlp < 0)
			*controlp = fd;
		else if (strcmp(names[i], "shim") == 0 && *shimp < 0)
			*shimp = fd;
		else if (!store_inherit(options->store, names[i], fd))
			log_warning("socket \"%s\" from systemd: not ours", names[i]);
		free(names[i]);
	}
	free(names);
	return 0;
}

static void raise_limit(void) {
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

struct stop {
	struct daemon *daemon;
	struct watchdog *watchdog; /* NULL: nobody watches */
	struct notify *notify;
	struct reload reload;
	struct runtime_dir *dir;
	uv_poll_t poll; /* of signals.fd */
};

/* Handlers stay until the process has ended: one more signal while it stops ends nothing. (libuv
 * would take them away with its handles.) */
static struct {
	int fd; /* an eventfd that is never closed */
	atomic_uint pending; /* bit n: signal n + 1 */
} signals;

static const char *const no_fields[] = { NULL };

static void on_signal(int number) {
	const int saved = errno;

	atomic_fetch_or(&signals.pending, 1U << (number - 1));
	(void)!eventfd_write(signals.fd, 1); /* if it is full, the loop will look */
	errno = saved;
}

static void stop_for(struct stop *stop, int number) {
	log_event(LOG_LEVEL_NOTICE, MESSAGE_STOPS, no_fields, "stops: SIG%s%s",
		  sigabbrev_np(number), number == SIGUSR1 ? ", for another one" : "");
	notify_send(stop->notify, -1, "STOPPING=1");
	stop->watchdog = watchdog_free(stop->watchdog);
	if (daemon_stop(stop->daemon, number == SIGUSR1))
		runtime_dir_hand_over(stop->dir);
	notify_end(stop->notify);
	uv_close((uv_handle_t *)&stop->poll, NULL);
}

static void on_signals(uv_poll_t *poll, int status, int events) {
	static const int ends[] = { SIGTERM, SIGINT, SIGUSR1 };
	struct stop *stop = poll->data;
	unsigned int pending;
	eventfd_t n;

	eventfd_read(signals.fd, &n);
	pending = atomic_exchange(&signals.pending, 0);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (pending & 1U << (ends[i] - 1)) {
			stop_for(stop, ends[i]);
			return;
		}
	if (!(pending & 1U << (SIGHUP - 1)))
		return;
	if (reload_can(&stop->reload))
		reload_now(&stop->reload);
	else
		stop_for(stop, SIGHUP);
}

/* 0 or -errno, logged. */
static int start_signals(struct stop *stop, uv_loop_t *loop) {
	const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct sigaction before;
	int r;

	signals.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = signals.fd < 0 ? -errno : uv_poll_init(loop, &stop->poll, signals.fd);
	if (r < 0) {
		log_error("signals: %s", strerror(-r));
		return r;
	}
	stop->poll.data = stop;
	uv_poll_start(&stop->poll, UV_READABLE, on_signals);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGHUP, NULL, &before);
	if (reload_can(&stop->reload) || before.sa_handler != SIG_IGN) /* by nohup */
		sigaction(SIGHUP, &action, NULL);
	return 0;
}

static void on_beat(void *userdata) {
	notify_beat(userdata);
}

/* Where systemd watches us (WatchdogSec=). 0 or -errno, logged. */
static int start_watchdog(struct stop *stop, uv_loop_t *loop) {
	uint64_t us = 0;
	int r;

	r = sd_watchdog_enabled(0, &us);
	if (r > 0)
		r = watchdog_new(&stop->watchdog, loop, daemon_image_pool(stop->daemon), us / 1000,
				 on_beat, stop->notify);
	if (r < 0)
		log_error("watchdog: %s", strerror(-r));
	return r;
}

/* Runs until a signal. An exit status. */
static int loop(const struct daemon_options *options, struct notify *notify,
		struct runtime_dir *dir, int argc, char *argv[]) {
	const char *session = options->config->session_name;
	struct stop stop = { .notify = notify, .dir = dir };
	uv_loop_t uv;
	int r;

	r = uv_loop_init(&uv);
	if (r < 0) {
		log_error("loop: %s", uv_strerror(r));
		return 1;
	}
	r = daemon_new(&stop.daemon, &uv, options);
	if (r == 0)
		r = notify_start(notify, &uv);
	if (r == 0) {
		reload_init(&stop.reload, stop.daemon, options->config, notify, argc, argv);
		r = start_signals(&stop, &uv);
	}
	if (r == 0)
		r = start_watchdog(&stop, &uv);
	if (r == 0) {
		log_event(LOG_LEVEL_NOTICE, MESSAGE_STARTED, no_fields,
			  "%s " PROJECT_VERSION " listens in %s%s%s",
			  options->config->session ? "session daemon" : "daemon",
			  runtime_dir_path(dir),
			  session && *session
				  ? "; programs and gpuprobectl find it by " PATHS_SESSION_VARIABLE
				    "="
				  : "",
			  session ?: "");
		notify_send(notify, -1, "READY=1\nSTATUS=listens in %s", runtime_dir_path(dir));
	} else if (stop.daemon) {
		if (stop.poll.data)
			uv_close((uv_handle_t *)&stop.poll, NULL);
		if (daemon_stop(stop.daemon, true)) /* the next one may be luckier */
			runtime_dir_hand_over(dir);
		notify_end(notify);
	}
	uv_run(&uv, UV_RUN_DEFAULT);
	daemon_free(stop.daemon);
	reload_deinit(&stop.reload);
	if (uv_loop_close(&uv) < 0)
		log_error("the loop did not end in good order");
	return r < 0 ? 1 : 0;
}

/* Who starts us with descriptors 0 to 2 closed gets nothing of what is written there: else it would
 * be in what is opened next. */
static void open_standard(void) {
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
}

static void prepare_process(void) {
	/* what is large has pages of its own always, which go back to the system with it */
	mallopt(M_MMAP_THRESHOLD, 256 * 1024);
	signal(SIGPIPE, SIG_IGN);
	sigbus_survive();
	signal(SIGXFSZ, SIG_IGN); /* a limit of files is an ordinary error */
	umask(022);
	raise_limit();
}

/* With its configuration, until it ends. An exit status. */
static int run(const struct config *config, int argc, char *argv[]) {
	static struct worker_setup workers; /* as long as the process */
	struct daemon_options options = { .config = config,
					  .socket_mode = config->session ? 0600 : 0666 };
	struct runtime_dir *dir = NULL;
	struct notify *notify;
	int r;

	if (worker_setup(&workers, config, &options.image_pool, &options.program_pool,
			 &options.pass_pool) < 0) {
		log_error("the workers are not found: reinstall, or say where they are with "
			  "--worker-dir=DIR");
		return 1;
	}
	prepare_process();
	r = notify_new(&notify, getenv("NOTIFY_SOCKET"));
	if (r < 0) {
		log_warning("%s: %s: nobody is told that the daemon is ready, nor keeps its "
			    "descriptors",
			    getenv("NOTIFY_SOCKET"), strerror(-r));
		r = notify_new(&notify, NULL);
	}
	if (r < 0 || take_descriptors(&options, notify) < 0)
		return 1;
	r = open_runtime_dir(config, &dir);
	if (r)
		return r;
	runtime_dir_keep(dir, options.control_fd >= 0, options.shim_fd >= 0);
	options.control_path = runtime_dir_control(dir);
	options.shim_path = runtime_dir_shim(dir);
	options.interest_path = runtime_dir_interest(dir);
	options.state_path = runtime_dir_state(dir);
	r = loop(&options, notify, dir, argc, argv);
	runtime_dir_free(dir);
	notify_free(notify);
	return r;
}

int main(int argc, char *argv[]) {
	struct config *config = NULL;
	int r;

	open_standard();
	r = configure(&config, argc, argv);
	if (r < 0)
		r = run(config, argc, argv);
	config_free(config);
	return r;
}
