/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of all settings (config.h): names, kinds, limits, help. Also reads values that are more
 * than a number or a text.
 */

#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "account.h"
#include "proto/interest.h"
#include "daemon/gpuprobed/metrics/metrics.h"
#include "lib/pass/pass-definition.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "daemon/gpuprobed/trace/session/session.h"
#include "proto/trace-ring.h"

#define WORKERS_MAX 64
#define CACHE_SIZE_MAX (UINT64_C(1) << 50)

static int config_apply_engine(struct config *config, char error[static CONFIG_ERROR_SIZE]) {
	char why[ENGINE_ERROR_SIZE];

	config->engines = (struct engine_rules){ .fallback = ENGINE_DEFAULT };
	for (size_t i = 0; i < config->engine_texts.n; i++)
		if (engine_rules_add(&config->engines, config->engine_texts.items[i], why)) {
			snprintf(error, CONFIG_ERROR_SIZE, "%s", why);
			return CONFIG_E_USAGE;
		}
	return 0;
}

static int config_apply_exclude(struct config *config, char error[static CONFIG_ERROR_SIZE]) {
	const char *why;

	for (size_t i = 0; i < config->excludes.n; i++) {
		config->exclude_filters[i] = (struct filter){};
		why = filter_set_match(&config->exclude_filters[i], config->excludes.items[i],
				       true);
		if (!why)
			continue;
		snprintf(error, CONFIG_ERROR_SIZE, "%s", why);
		return CONFIG_E_USAGE;
	}
	return 0;
}

static int config_apply_sanitizer(struct config *config, char error[static CONFIG_ERROR_SIZE]) {
	if (config->sanitizer[0] == '/' && strlen(config->sanitizer) < INTEREST_SANITIZER_MAX)
		return 0;
	snprintf(error, CONFIG_ERROR_SIZE, "expected an absolute path of at most %d bytes",
		 INTEREST_SANITIZER_MAX - 1);
	return CONFIG_E_USAGE;
}

static int config_apply_cupti(struct config *config, char error[static CONFIG_ERROR_SIZE]) {
	if (config->cupti[0] == '/' && strlen(config->cupti) < TRACE_RING_PATH_MAX)
		return 0;
	snprintf(error, CONFIG_ERROR_SIZE, "expected an absolute path of at most %d bytes",
		 TRACE_RING_PATH_MAX - 1);
	return CONFIG_E_USAGE;
}

static int check_output(const char *text, char error[static CONFIG_ERROR_SIZE]) {
	const char *path = config_is_socket(text) ? text + strlen(CONFIG_SOCKET_PREFIX) : text;
	size_t n = strlen(path);

	if (path[0] != '/' || path[n - 1] == '/')
		snprintf(error, CONFIG_ERROR_SIZE,
			 "expected the absolute path of a file, or unix: and that of a socket");
	else if (config_is_socket(text) && n >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		snprintf(error, CONFIG_ERROR_SIZE, "the path of a socket has at most %zu bytes",
			 sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
	else
		return 0;
	return CONFIG_E_USAGE;
}

static int check_mode(const char *text, unsigned int *modep, char error[static CONFIG_ERROR_SIZE]) {
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (text[0] < '0' || text[0] > '7' || *end || mode > 0666 || (mode & ~0666UL) ||
	    !(mode & 0400)) {
		snprintf(error, CONFIG_ERROR_SIZE,
			 "expected the mode of a file that its owner can read, in octal: 0640, "
			 "0644, 0600");
		return CONFIG_E_USAGE;
	}
	*modep = (unsigned int)mode;
	return 0;
}

static int config_apply_metrics(struct config *config, char error[static CONFIG_ERROR_SIZE]) {
	for (size_t i = 0; i < config->metrics.n; i++)
		if (check_output(config->metrics.items[i], error))
			return CONFIG_E_USAGE;
	return 0;
}

static int config_apply_metrics_mode(struct config *config, char error[static CONFIG_ERROR_SIZE]) {
	return check_mode(config->metrics_mode_text, &config->metrics_mode, error);
}

static int config_apply_metrics_format(struct config *config,
				       char error[static CONFIG_ERROR_SIZE]) {
	config->metrics_prometheus = strcmp(config->metrics_format, "prometheus") == 0;
	if (config->metrics_prometheus || strcmp(config->metrics_format, "openmetrics") == 0)
		return 0;
	snprintf(error, CONFIG_ERROR_SIZE, "expected openmetrics or prometheus");
	return CONFIG_E_USAGE;
}

#define AT(member) offsetof(struct config, member)

const struct config_setting config_settings[] = {
	{ "verify", CONFIG_BOOL, .offset = AT(verify), .argument = "on|off",
	  .help = "have the kernel's verifier check programs (default on)" },
	{ "allow-exit", CONFIG_BOOL, CONFIG_OPTIONAL | CONFIG_LIVE, .offset = AT(allow_exit),
	  .argument = "yes|no", .help = "programs may end threads of kernels (bpf_cuda_exit)" },
	{ "user-attach", CONFIG_BOOL, CONFIG_OPTIONAL | CONFIG_LIVE, .offset = AT(user_attach),
	  .argument = "yes|no",
	  .help = "users who are not members of the group gpuprobe may attach to their own "
		  "processes, and probe\n"
		  "functions of their own files" },
	{ "stub", CONFIG_LIST, .offset = AT(stubs), .max = 16, .argument = "NAME",
	  .help = "a function whose calls stand for the entry of a kernel; may be given several "
		  "times\n"
		  "(default: what the pass kprobe_entry says, " DAEMON_STUB_DEFAULT ")" },
	{ "keep-artifacts", CONFIG_TEXT, .offset = AT(keep_artifacts), .argument = "DIR",
	  .help = "keep the PTX and the image of each twin in DIR" },
	{ "engine", CONFIG_LIST, CONFIG_LIVE, .offset = AT(engine_texts),
	  .apply = config_apply_engine, .argument = "ENGINE[:MATCH]",
	  .help = "how probes get into kernels of processes: ptx (the default): by twins, from "
		  "PTX; auto: from machine\n"
		  "code, too, where an image has no PTX; sanitizer: into machine code, by NVIDIA's "
		  "library; off:\n"
		  "not at all. MATCH: uid=N, exe=PATH, comm=NAME or\n"
		  "cgroup=PATH; the first one that matches decides, a rule without one is for all "
		  "others.\n"
		  "NVIDIA's profilers do not work in processes that have the sanitizer engine" },
	{ "exclude", CONFIG_LIST, CONFIG_LIVE, .offset = AT(excludes),
	  .apply = config_apply_exclude, .argument = "MATCH",
	  .help = "processes that are never probed nor traced, whatever is attached: uid=N, "
		  "exe=PATH or a glob,\n"
		  "comm=NAME or cgroup=PATH; may be given several times" },
	{ "sanitizer", CONFIG_TEXT, CONFIG_LIVE, .offset = AT(sanitizer),
	  .apply = config_apply_sanitizer, .argument = "PATH",
	  .help = "NVIDIA's libsanitizer-public.so, for the sanitizer engine (default: where "
		  "toolkits "
		  "put it)" },
	{ "cupti", CONFIG_TEXT, .offset = AT(cupti), .apply = config_apply_cupti,
	  .argument = "PATH",
	  .help = "NVIDIA's libcupti.so, for traces with --gpu=cupti (default: the one that a "
		  "process has\n"
		  "loaded, else where toolkits and wheels put it)" },
	{ "cache-dir", CONFIG_TEXT, .offset = AT(cache_dir), .argument = "DIR",
	  .help = "keep what was compiled in DIR (default $CACHE_DIRECTORY, then " JOB_CACHE_FOLDER
		  ";\n"
		  "a session daemon keeps nothing without this option)" },
	{ "cache-size", CONFIG_SIZE, .offset = AT(cache_size), .max = CACHE_SIZE_MAX,
	  .argument = "BYTES",
	  .help = "how much at most; also with K, M, G or T behind it (default 1G; 0: nothing)" },
	{ "deadline-ms", CONFIG_NUMBER, CONFIG_LIVE, AT(deadline_ms), 10, INTEREST_DEADLINE_MAX_MS,
	  .argument = "N",
	  .help = "how long a process may be held up in all because its modules have to be "
		  "compiled (default 2000)" },
	{ "deadline-others-ms", CONFIG_NUMBER, CONFIG_LIVE, AT(deadline_others_ms), 0,
	  INTEREST_DEADLINE_MAX_MS, .argument = "N",
	  .help = "the same where what is attached is another user's or means every process "
		  "(default 300;\n"
		  "at most deadline-ms)" },
	{ "compile-ms", CONFIG_NUMBER, 0, AT(compile_ms), 0, 3600000, .argument = "N",
	  .help = "how long a module may be compiled when nobody waits for it any more (default "
		  "60000;\n"
		  "0: it may not)" },
	{ "mirror-period-ms", CONFIG_NUMBER, CONFIG_LIVE, AT(mirror_period_ms), 0, 3600000,
	  .argument = "N",
	  .help = "how often maps are copied out of device memory (default 100; 0: when asked)" },
	{ "workers", CONFIG_NUMBER, 0, AT(workers), 1, WORKERS_MAX, .argument = "N",
	  .help = "image workers (default: processors, at least 2, at most 8)" },
	{ "quota-connections", CONFIG_NUMBER, CONFIG_LIVE, AT(quota_connections), 1, 4096,
	  .argument = "N", .help = "of one user: connections of programs (default 256)" },
	{ "quota-clients", CONFIG_NUMBER, CONFIG_LIVE, AT(quota_clients), 1, 4096, .argument = "N",
	  .help = "... connections of gpuprobectl and its like (default 128)" },
	{ "quota-attachments", CONFIG_NUMBER, CONFIG_LIVE, AT(quota_attachments), 1,
	  REGISTRY_ATTACHMENTS_MAX, .argument = "N", .help = "... attachments (default 512)" },
	{ "quota-traces", CONFIG_NUMBER, CONFIG_LIVE, AT(quota_traces), 1, TRACE_SESSIONS_MAX,
	  .argument = "N", .help = "... traces at a time (default 4)" },
	{ "quota-images", CONFIG_NUMBER, CONFIG_LIVE, AT(quota_images), 1, 4096, .argument = "N",
	  .help = "... images in work at a time (default 32)" },
	{ "quota-image-bytes", CONFIG_SIZE, CONFIG_LIVE, AT(quota_image_bytes), 1,
	  UINT64_C(1) << 40, .argument = "BYTES[K|M|G]",
	  .help = "... bytes of these together; one may be larger if it is alone (default 256M)" },
	{ "quota-compile-seconds", CONFIG_NUMBER, CONFIG_LIVE, AT(quota_compile_seconds), 0,
	  60 * WORKERS_MAX, .argument = "N",
	  .help = "... seconds of workers in a minute (default 0: no limit; users take turns)" },
	{ "quota-map-bytes", CONFIG_SIZE, CONFIG_LIVE, AT(quota_map_bytes), 1, UINT64_C(1) << 46,
	  .argument = "BYTES[K|M|G]",
	  .help = "... host memory of maps that he has attached (default 4G)" },
	{ "quota-instances", CONFIG_NUMBER, CONFIG_LIVE, AT(quota_instances), 1, 1 << 20,
	  .argument = "N", .help = "... copies of maps in his processes (default 16384)" },
	{ "worker-dir", CONFIG_TEXT, .offset = AT(worker_dir), .argument = "DIR",
	  .help = "where the workers are" },
	{ "pass-dir", CONFIG_TEXT, .offset = AT(pass_dir), .argument = "DIR",
	  .help = "definitions of passes, instead of " PASS_DATA_FOLDER
		  " and " PASS_SYSTEM_FOLDER },
	{ "toolkit", CONFIG_TEXT, .offset = AT(toolkit), .argument = "DIR",
	  .help = "CUDA toolkit (default $CUDA_HOME, then /usr/local/cuda)" },
	{ "metrics", CONFIG_LIST, .offset = AT(metrics), .apply = config_apply_metrics,
	  .argument = "FILE|unix:PATH",
	  .help = "write metrics to FILE, or answer GET /metrics at a socket; may be given several "
		  "times" },
	{ "metrics-format", CONFIG_TEXT, CONFIG_LIVE, .offset = AT(metrics_format),
	  .apply = config_apply_metrics_format, .argument = "FORMAT",
	  .help = "openmetrics (the default), or prometheus: what node exporter's textfile "
		  "collector reads" },
	{ "metrics-mode", CONFIG_TEXT, CONFIG_LIVE, .offset = AT(metrics_mode_text),
	  .apply = config_apply_metrics_mode, .argument = "MODE",
	  .help = "who may read them (default 0640)" },
	{ "metrics-period-ms", CONFIG_NUMBER, CONFIG_LIVE, AT(metrics_period_ms), 100, 3600000,
	  .argument = "N", .help = "how often the file is written (default 10000)" },
	{ "metrics-series-max", CONFIG_NUMBER, CONFIG_LIVE, AT(metrics_series_max), 1,
	  METRICS_SERIES_MAX, .argument = "N",
	  .help = "series of one exported map; others are left out, and counted (default 10000)" },
	{ "image-worker-argument", CONFIG_LIST, CONFIG_HIDDEN, .offset = AT(image_arguments) },
	{ "program-worker-argument", CONFIG_LIST, CONFIG_HIDDEN, .offset = AT(program_arguments) },
	{ "pass-worker-argument", CONFIG_LIST, CONFIG_HIDDEN, .offset = AT(pass_arguments) },
	{},
};

_Static_assert(sizeof(config_settings) / sizeof(config_settings[0]) <= CONFIG_SETTINGS_MAX,
	       "struct config has room for them");

const struct config_setting *config_setting(const char *name) {
	for (const struct config_setting *setting = config_settings; setting->name; setting++)
		if (strcmp(setting->name, name) == 0)
			return setting;
	return NULL;
}

void config_set_defaults(struct config *config) {
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);

	config->verify = true;
	config->deadline_ms = 2000;
	config->deadline_others_ms = 300;
	config->compile_ms = 60000;
	config->cache_size = UINT64_C(1) << 30;
	config->mirror_period_ms = 100;
	config->metrics_period_ms = METRICS_PERIOD_DEFAULT;
	config->metrics_series_max = METRICS_SERIES_DEFAULT;
	config->metrics_mode = METRICS_MODE_DEFAULT;
	config->quota_connections = ACCOUNT_LIMITS_DEFAULT.connections;
	config->quota_clients = 128;
	config->quota_attachments = 512;
	config->quota_traces = 4;
	config->quota_images = ACCOUNT_LIMITS_DEFAULT.images;
	config->quota_image_bytes = ACCOUNT_LIMITS_DEFAULT.image_bytes;
	config->quota_map_bytes = UINT64_C(4) << 30;
	config->quota_instances = 16384;
	config->workers = processors < 2 ? 2 : processors > 8 ? 8 : (unsigned int)processors;
	config->engines.fallback = ENGINE_DEFAULT;
}
