/* SPDX-License-Identifier: Apache-2.0 */

/* gpuprobed: options, where it lives, the loop, and the end. Exit status: 0 asked to stop, 1 cannot
 * run, 2 wrong usage. */

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include <uv.h>

#include "daemon.h"
#include "engine.h"
#include "log.h"
#include "message-id.h"
#include "paths.h"
#include "runtime-dir.h"
#include "watchdog.h"

#define WORKER_ARGUMENTS_MAX 16
#define WORKERS_MAX 64
#define WORKER_CPU_SECONDS 60 /* their default */
#define STUBS_MAX 16

struct options {
	bool session, verify, allow_exit;
	const char *session_name, *worker_dir, *toolkit, *keep_artifacts;
	const char *stubs[STUBS_MAX + 1];
	unsigned int deadline_ms, compile_ms, mirror_period_ms, workers;
	struct engine_rules engines;
	const char *sanitizer;
	const char *pass_dir;
	const char *pass_arguments[WORKER_ARGUMENTS_MAX + 1];
	const char *image_arguments[WORKER_ARGUMENTS_MAX + 2]; /* for tests; one of allow_time() */
	const char *program_arguments[WORKER_ARGUMENTS_MAX + 1];
};

static int usage(FILE *file) {
	fprintf(file,
		"usage: gpuprobed [options]\n"
		"\n"
		"Runs eBPF programs inside the kernels of CUDA processes. See gpuprobectl(1) for what to do with it.\n"
		"\n"
		"  --session[=NAME]        a private daemon of this user, for a try; processes find it by GPUPROBE_SESSION=NAME\n"
		"  --verify=on|off         have the kernel's verifier check programs (default on)\n"
		"  --allow-exit            programs may end threads of kernels (bpf_cuda_exit)\n"
		"  --stub=NAME             a function whose calls stand for the entry of a kernel; may be given several times\n"
		"                          (default: what the pass kprobe_entry says, " DAEMON_STUB_DEFAULT
		")\n"
		"  --keep-artifacts=DIR    keep the PTX and the new image of each replaced image in DIR\n"
		"  --engine=ENGINE[:MATCH] how probes get into kernels of processes: ptx (the default: as modules are loaded), sass (into\n"
		"                          machine code, at any time), auto (either), off (not at all). MATCH: uid=N, exe=PATH, comm=NAME or\n"
		"                          cgroup=PATH; the first one that matches decides, a rule without one is for all others.\n"
		"                          NVIDIA's profilers do not work in processes that have the SASS engine\n"
		"  --sanitizer=PATH        NVIDIA's libsanitizer-public.so, for the SASS engine (default: where toolkits put it)\n"
		"  --deadline-ms=N         how long a process may be held up by one module (default 2000)\n"
		"  --compile-ms=N          how long a module may be compiled when nobody waits for it any more (default 60000;\n"
		"                          0: it may not)\n"
		"  --mirror-period-ms=N    how often maps are copied out of device memory (default 100; 0: when asked)\n"
		"  --workers=N             image workers (default: processors, at least 2, at most 8)\n"
		"  --worker-dir=DIR        where the workers are\n"
		"  --pass-dir=DIR          definitions of passes, instead of " PASS_DATA_FOLDER
		" and " PASS_SYSTEM_FOLDER "\n"
		"  --toolkit=DIR           CUDA toolkit (default $CUDA_HOME, then /usr/local/cuda)\n"
		"  --help, --version\n");
	return file == stdout ? 0 : 2;
}

static int parse_number(const char *name, const char *text, unsigned int min, unsigned int max,
			unsigned int *value) {
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || n < min || n > max) {
		fprintf(stderr, "gpuprobed: --%s=%s: not a number from %u to %u\n", name, text, min,
			max);
		return -EINVAL;
	}
	*value = (unsigned int)n;
	return 0;
}

static int add_stub(struct options *options, const char *name) {
	size_t n = 0;

	while (options->stubs[n])
		n++;
	if (!*name || n == STUBS_MAX) {
		fprintf(stderr, "gpuprobed: --stub=%s: %s\n", name,
			*name ? "at most 16 of them" : "expected the name of a function");
		return -EINVAL;
	}
	options->stubs[n] = name;
	return 0;
}

static int add_engine(struct options *options, const char *text) {
	char error[ENGINE_ERROR_SIZE];

	if (!engine_rules_add(&options->engines, text, error))
		return 0;
	fprintf(stderr, "gpuprobed: --engine=%s: %s\n", text, error);
	return -EINVAL;
}

static int set_sanitizer(struct options *options, const char *path) {
	if (path[0] != '/' || strlen(path) >= INTEREST_SANITIZER_MAX) {
		fprintf(stderr, "gpuprobed: --sanitizer=%s: expected an absolute path of at most %d bytes\n", path,
			INTEREST_SANITIZER_MAX - 1);
		return -EINVAL;
	}
	options->sanitizer = path;
	return 0;
}

static int add_argument(const char **arguments, const char *argument) {
	for (size_t i = 0; i < WORKER_ARGUMENTS_MAX; i++)
		if (!arguments[i]) {
			arguments[i] = argument;
			return 0;
		}
	return -E2BIG;
}

/* 0: go on; 1: done; negative: wrong usage. */
static int parse_options(struct options *options, int argc, char *argv[]) {
	static const struct option names[] = {
		{ "session", optional_argument, NULL, 's' },
		{ "verify", required_argument, NULL, 'v' },
		{ "allow-exit", no_argument, NULL, 'x' },
		{ "stub", required_argument, NULL, 'u' },
		{ "keep-artifacts", required_argument, NULL, 'k' },
		{ "deadline-ms", required_argument, NULL, 'd' },
		{ "compile-ms", required_argument, NULL, 'c' },
		{ "mirror-period-ms", required_argument, NULL, 'm' },
		{ "workers", required_argument, NULL, 'w' },
		{ "worker-dir", required_argument, NULL, 'W' },
		{ "toolkit", required_argument, NULL, 't' },
		{ "image-worker-argument", required_argument, NULL, 'i' },
		{ "program-worker-argument", required_argument, NULL, 'p' },
		{ "pass-worker-argument", required_argument, NULL, 'P' },
		{ "pass-dir", required_argument, NULL, 'D' },
		{ "engine", required_argument, NULL, 'e' },
		{ "sanitizer", required_argument, NULL, 'S' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{},
	};
	int c, r = 0;

	while (r == 0 && (c = getopt_long(argc, argv, "h", names, NULL)) >= 0) {
		switch (c) {
		case 's':
			options->session = true;
			options->session_name = optarg;
			break;
		case 'v':
			options->verify = strcmp(optarg, "on") == 0;
			if (!options->verify && strcmp(optarg, "off") != 0) {
				fprintf(stderr, "gpuprobed: --verify=%s: on or off\n", optarg);
				r = -EINVAL;
			}
			break;
		case 'x':
			options->allow_exit = true;
			break;
		case 'u':
			r = add_stub(options, optarg);
			break;
		case 'k':
			options->keep_artifacts = optarg;
			break;
		case 'd':
			r = parse_number("deadline-ms", optarg, 10, 600000, &options->deadline_ms);
			break;
		case 'c':
			r = parse_number("compile-ms", optarg, 0, 3600000, &options->compile_ms);
			break;
		case 'm':
			r = parse_number("mirror-period-ms", optarg, 0, 3600000,
					 &options->mirror_period_ms);
			break;
		case 'w':
			r = parse_number("workers", optarg, 1, WORKERS_MAX, &options->workers);
			break;
		case 'W':
			options->worker_dir = optarg;
			break;
		case 't':
			options->toolkit = optarg;
			break;
		case 'i':
			r = add_argument(options->image_arguments, optarg);
			break;
		case 'p':
			r = add_argument(options->program_arguments, optarg);
			break;
		case 'P':
			r = add_argument(options->pass_arguments, optarg);
			break;
		case 'D':
			options->pass_dir = optarg;
			break;
		case 'e':
			r = add_engine(options, optarg);
			break;
		case 'S':
			r = set_sanitizer(options, optarg);
			break;
		case 'h':
			usage(stdout);
			return 1;
		case 'V':
			printf("gpuprobed %s\n", PROJECT_VERSION);
			return 1;
		default:
			usage(stderr);
			return -EINVAL;
		}
	}
	if (r == 0 && optind < argc) {
		fprintf(stderr, "gpuprobed: %s: what is this?\n", argv[optind]);
		r = -EINVAL;
	}
	return r;
}

/*
 * Finds an executable: in --worker-dir; else where it is installed, seen from our own file; else in
 * the folder that meson builds it in, likewise.
 */
static int find_worker(char path[static PATH_MAX], const struct options *options, const char *name,
		       const char *folder) {
	char self[PATH_MAX], *slash;
	ssize_t n;

	if (options->worker_dir) {
		if (!realpath(options->worker_dir, self) ||
		    snprintf(path, PATH_MAX, "%s/%s", self, name) >= PATH_MAX)
			return -ENOENT;
		return access(path, X_OK) == 0 ? 0 : -errno;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return -errno;
	self[n] = '\0';
	slash = strrchr(self, '/');
	*slash = '\0';
	if (snprintf(path, PATH_MAX, "%s/../libexec/gpuprobe/%s", self, name) < PATH_MAX &&
	    access(path, X_OK) == 0)
		return 0;
	if (snprintf(path, PATH_MAX, "%s/%s/%s", self, folder, name) < PATH_MAX &&
	    access(path, X_OK) == 0)
		return 0;
	return -ENOENT;
}

/* Makes the workers' environment: what they need to load their libraries, and no more. */
static int make_environment(const char *environment[static 8],
			    char storage[static 3][PATH_MAX + 32], const struct options *options) {
	const char *toolkit = options->toolkit ? options->toolkit : getenv("CUDA_HOME");
	const char *libraries = options->session ? getenv("LD_LIBRARY_PATH") : NULL;
	const char *sanitizer = getenv("ASAN_OPTIONS");
	size_t n = 0;

	environment[n++] = "LANG=C";
	environment[n++] = "PATH=/usr/bin:/bin";
	if (toolkit) {
		snprintf(storage[0], PATH_MAX + 32, "CUDA_HOME=%s", toolkit);
		environment[n++] = storage[0];
	}
	if (libraries) {
		snprintf(storage[1], PATH_MAX + 32, "LD_LIBRARY_PATH=%s", libraries);
		environment[n++] = storage[1];
	}
	if (options->session && sanitizer) {
		snprintf(storage[2], PATH_MAX + 32, "ASAN_OPTIONS=%s", sanitizer);
		environment[n++] = storage[2];
	}
	environment[n] = NULL;
	return 0;
}

/* Takes the place where the daemon is found. 0 or an exit status. */
static int open_runtime_dir(const struct options *options, struct runtime_dir **dirp) {
	char path[128];
	int r;

	if (!options->session) {
		strcpy(path, PATHS_SYSTEM_DIR);
	} else if (runtime_dir_session_path(path, getuid(), options->session_name)) {
		fprintf(stderr,
			"gpuprobed: --session=%s: a name has 1 to %d letters, digits and underscores\n",
			options->session_name, PATHS_SESSION_NAME_MAX);
		return 2;
	}
	r = runtime_dir_new(dirp, path, options->session ? 0700 : 0755, options->session);
	if (r == RUNTIME_DIR_E_RUNNING)
		log_error("%s: another gpuprobed runs there", path);
	else if (r == RUNTIME_DIR_E_UNSAFE)
		log_error("%s: not a directory of this user alone", path);
	else if (r < 0)
		log_error("%s: %s%s", path, strerror(-r),
			  !options->session && r == -EACCES
				  ? " (a private daemon needs no root: --session)"
				  : "");
	return r ? 1 : 0;
}

/* Sockets that systemd listens on for us, by their names. 0 or -errno. */
static int take_sockets(int *controlp, int *shimp) {
	char **names = NULL;
	int n;

	*controlp = *shimp = -1;
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
		else
			log_warning("socket \"%s\" from systemd: not ours", names[i]);
		free(names[i]);
	}
	free(names);
	return 0;
}

/* Workers limit the processor time of a job by themselves: not to less than we wait for. */
static void allow_time(struct options *options, char text[static 32]) {
	unsigned int ms = options->compile_ms > options->deadline_ms ? options->compile_ms
								      : options->deadline_ms;
	size_t n = 0;

	if (ms <= WORKER_CPU_SECONDS * 1000)
		return;
	while (options->image_arguments[n])
		n++;
	snprintf(text, 32, "--cpu=%u", ms / 1000 + 1);
	options->image_arguments[n] = text;
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
	uv_signal_t signals[2];
};

static const char *const no_fields[] = { NULL };

static void on_signal(uv_signal_t *handle, int number) {
	struct stop *stop = handle->data;

	log_event(LOG_LEVEL_NOTICE, MESSAGE_STOPS, no_fields, "stops: %s", number == SIGTERM ? "SIGTERM" : "SIGINT");
	sd_notify(0, "STOPPING=1");
	stop->watchdog = watchdog_free(stop->watchdog);
	daemon_stop(stop->daemon);
	for (int i = 0; i < 2; i++)
		if (!uv_is_closing((uv_handle_t *)&stop->signals[i]))
			uv_close((uv_handle_t *)&stop->signals[i], NULL);
}

static void on_beat(void *userdata) {
	sd_notify(0, "WATCHDOG=1");
}

/* Where systemd watches us (WatchdogSec=). 0 or -errno, logged. */
static int start_watchdog(struct stop *stop, uv_loop_t *loop) {
	uint64_t us = 0;
	int r;

	r = sd_watchdog_enabled(0, &us);
	if (r > 0)
		r = watchdog_new(&stop->watchdog, loop, stop->daemon->image_pool, us / 1000, on_beat, NULL);
	if (r < 0)
		log_error("watchdog: %s", strerror(-r));
	return r;
}

/* Runs until a signal. An exit status. */
static int run(struct daemon_options *daemon_options, const struct runtime_dir *dir) {
	static const int numbers[2] = { SIGTERM, SIGINT };
	struct stop stop = {};
	uv_loop_t loop;
	int r;

	r = uv_loop_init(&loop);
	if (r < 0) {
		log_error("loop: %s", uv_strerror(r));
		return 1;
	}
	r = daemon_new(&stop.daemon, &loop, daemon_options);
	if (r == 0)
		r = start_watchdog(&stop, &loop);
	if (r == 0) {
		for (int i = 0; i < 2; i++) {
			uv_signal_init(&loop, &stop.signals[i]);
			stop.signals[i].data = &stop;
			uv_signal_start(&stop.signals[i], on_signal, numbers[i]);
		}
		log_event(LOG_LEVEL_NOTICE, MESSAGE_STARTED, no_fields, "%s " PROJECT_VERSION " listens in %s",
			  daemon_options->session ? "session daemon" : "daemon", runtime_dir_path(dir));
		sd_notifyf(0, "READY=1\nSTATUS=listens in %s", runtime_dir_path(dir));
	} else if (stop.daemon) {
		daemon_stop(stop.daemon);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	daemon_free(stop.daemon);
	if (uv_loop_close(&loop) < 0)
		log_error("the loop did not end in good order");
	return r < 0 ? 1 : 0;
}

int main(int argc, char *argv[]) {
	struct options options = {
		.verify = true, .deadline_ms = 2000, .compile_ms = 60000, .mirror_period_ms = 100,
		.engines.fallback = ENGINE_DEFAULT,
	};
	char image_path[PATH_MAX], program_path[PATH_MAX], pass_path[PATH_MAX],
		storage[3][PATH_MAX + 32], cpu[32];
	const char *environment[8];
	struct daemon_options daemon_options = {};
	struct runtime_dir *dir = NULL;
	int r;

	r = parse_options(&options, argc, argv);
	if (r)
		return r > 0 ? 0 : 2;
	if (!options.workers) {
		long processors = sysconf(_SC_NPROCESSORS_ONLN);

		options.workers = processors < 2   ? 2
				  : processors > 8 ? 8
						   : (unsigned int)processors;
	}
	if (find_worker(image_path, &options, "gpuprobe-image-worker", "worker") < 0 ||
	    find_worker(program_path, &options, "gpuprobe-program-worker", "bpf") < 0) {
		log_error(
			"the workers are not found: reinstall, or say where they are with --worker-dir=DIR");
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit of files is an ordinary error */
	umask(022);
	raise_limit();
	make_environment(environment, storage, &options);
	allow_time(&options, cpu);
	if (take_sockets(&daemon_options.control_fd, &daemon_options.shim_fd) < 0)
		return 1;
	r = open_runtime_dir(&options, &dir);
	if (r)
		return r;
	runtime_dir_keep(dir, daemon_options.control_fd >= 0, daemon_options.shim_fd >= 0);
	daemon_options.session = options.session;
	daemon_options.verify = options.verify;
	daemon_options.allow_exit = options.allow_exit;
	daemon_options.stubs = options.stubs;
	daemon_options.keep_artifacts = options.keep_artifacts;
	daemon_options.deadline_ms = options.deadline_ms;
	daemon_options.compile_ms = options.compile_ms;
	daemon_options.mirror_period_ms = options.mirror_period_ms;
	daemon_options.workers = options.workers;
	daemon_options.control_path = runtime_dir_control(dir);
	daemon_options.shim_path = runtime_dir_shim(dir);
	daemon_options.interest_path = runtime_dir_interest(dir);
	daemon_options.socket_mode = options.session ? 0600 : 0666;
	daemon_options.image_pool.path = image_path;
	daemon_options.image_pool.arguments = options.image_arguments;
	daemon_options.image_pool.environment = environment;
	daemon_options.program_pool.path = program_path;
	daemon_options.program_pool.arguments = options.program_arguments;
	daemon_options.program_pool.environment = environment;
	daemon_options.engines = &options.engines;
	daemon_options.sanitizer = options.sanitizer;
	daemon_options.pass_folder = options.pass_dir;
	if (find_worker(pass_path, &options, "gpuprobe-pass-worker", "ptxpass") == 0)
		daemon_options.pass_pool.path = pass_path;
	daemon_options.pass_pool.arguments = options.pass_arguments;
	daemon_options.pass_pool.environment = environment;
	r = run(&daemon_options, dir);
	runtime_dir_free(dir);
	return r;
}
