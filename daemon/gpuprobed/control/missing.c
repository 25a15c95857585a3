/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lists what this daemon cannot do on this machine, and why (missing.h). It reads the daemon's
 * state and changes nothing.
 */

#include "missing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "control.h"
#include "daemon/gpuprobed/metrics/metrics.h"
#include "daemon/gpuprobed/clients/other-shims.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "lib/json.h"

const char *missing_feature(const struct control_context *context, const char *key) {
	return json_string_of(worker_pool_features(context->image->image_pool), key);
}

struct taker {
	void (*take)(const char *part, const char *line, void *userdata);
	void *userdata;
};

static void tell_shims(const char *line, void *userdata) {
	const struct taker *taker = userdata;

	taker->take("shims", line, taker->userdata);
}

static void tell_metrics(const char *line, void *userdata) {
	const struct taker *taker = userdata;

	taker->take("metrics", line, taker->userdata);
}

void missing_each(const struct control_context *context,
		  void (*take)(const char *part, const char *line, void *userdata),
		  void *userdata) {
	const char *trouble, *why = missing_feature(context, "no_compiler");
	struct taker taker = { take, userdata };
	char line[512];

	if (context->image->config->verify && context->verify_available)
		take("verifier",
		     "programs cannot be verified: the daemon needs CAP_BPF and CAP_PERFMON, or "
		     "--verify=off if all "
		     "programs are trusted",
		     userdata);
	if (!context->image->config->verify)
		take("verifier", "programs are not verified: --verify=off", userdata);
	if (!context->image->config->session && !process_facts_of_all())
		take("processes",
		     "which executable and which libcuda processes of other users have (--exe, "
		     "trace --backend=bpf): the "
		     "daemon has no CAP_SYS_PTRACE; " PROJECT_DROP_INS
		     "/host-tracing.conf says how to give it, and what that costs",
		     userdata);
	trouble = worker_pool_trouble(context->image->image_pool);
	if (trouble)
		take("image-worker", trouble, userdata);
	trouble = worker_pool_trouble(context->attach->program_pool);
	if (trouble)
		take("program-worker", trouble, userdata);
	if (engine_rules_any_sanitizer(&context->image->config->engines) &&
	    worker_pool_features(context->image->image_pool) && !missing_feature(context, "patch"))
		take("patching",
		     "machine code cannot be patched (--engine): no nvPTXCompiler; install the "
		     "package gpuprobed-ptxcompiler, or "
		     "the CUDA toolkit (package cuda-nvcc, libnvptxcompiler_static.a) and build "
		     "gpuprobe with it, so that "
		     "libgpuprobe-ptxcompiler.so lies beside gpuprobe-image-worker",
		     userdata);
	if (context->image->config->toolkit &&
	    access(context->image->config->toolkit, R_OK | X_OK) < 0) {
		snprintf(line, sizeof(line),
			 "--toolkit=%s: %s (as seen by the daemon's user; the unit sees no homes): "
			 "what is found elsewhere is used; mend the setting",
			 context->image->config->toolkit, strerror(errno));
		take("toolkit", line, userdata);
	}
	trouble =
		context->no_cache[0] ? context->no_cache : job_cache_trouble(context->image->cache);
	if (trouble)
		take("cache", trouble, userdata);
	metrics_each_trouble(context->metrics->outputs, tell_metrics, &taker);
	other_shims_each(context->client->other_shims, tell_shims, &taker);
	if (why) {
		snprintf(line, sizeof(line),
			 "no CUDA compiler (%s): the driver compiles at each load; install the "
			 "CUDA toolkit, or "
			 "say where it is with --toolkit=DIR",
			 why);
		take("compiler", line, userdata);
	}
}
