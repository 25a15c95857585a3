/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobe-image-worker: takes images of CUDA processes apart and puts probes into them. It sees hostile bytes and nothing
 * else. The compiler is loaded before the sandbox and warmed inside of it, on a kernel of a few lines: then it needs
 * no file any more, cannot find a driver to load (nvJitLink looks for one), and the first job is as fast as the next.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image-job.h"
#include "worker.h"

struct context {
	struct image_worker worker;
	const char *why; /* there is no compiler */
};

static const char warm_ptx[] =
	".version 6.3\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .entry warm(.param .u64 p)\n"
	"{\n"
	"	.reg .u64 %a;\n"
	"	ld.param.u64 %a, [p];\n"
	"	cvta.to.global.u64 %a, %a;\n"
	"	st.global.u64 [%a], %a;\n"
	"	ret;\n"
	"}\n";

/* Compiles a little; what does not work in the sandbox must not be promised. */
static int warm(struct json_object *features, void *userdata)
{
	struct context *context = userdata;
	struct compiler *compiler = context->worker.compiler;
	char version[32], *log = NULL;
	uint8_t *cubin = NULL;
	size_t size;
	int r;

	if (compiler) {
		r = compiler_compile(compiler, warm_ptx, sizeof(warm_ptx) - 1, "sm_90", NULL, 0, &cubin, &size, &log);
		free(cubin);
		free(log);
		if (r < 0)
			return r;
		if (r) {
			context->worker.compiler = compiler_free(compiler);
			compiler = NULL;
			context->why = "nvJitLink does not work in the sandbox";
		}
	}
	if (!compiler)
		return worker_add_string(features, "no_compiler", context->why ? context->why : "not found");
	snprintf(version, sizeof(version), "nvJitLink %u.%u", compiler_version(compiler) / 100,
		 compiler_version(compiler) % 100);
	return worker_add_string(features, "compiler", version);
}

int main(int argc, char *argv[])
{
	static const struct worker_handler handlers[] = {
		{ "image", image_job },
	};
	struct worker_options options;
	struct context context = {};
	const char *toolkit;
	int r;

	r = worker_options_parse(&options, argc, argv);
	if (r)
		return r > 0 ? 0 : 2;
	toolkit = getenv("CUDA_HOME");
	r = compiler_new(&context.worker.compiler, toolkit ? toolkit : "/usr/local/cuda", &context.why);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", argv[0], strerror(-r));
		return 1;
	}
	r = worker_run(&options, handlers, 1, warm, &context);
	compiler_free(context.worker.compiler);
	return r < 0;
}
