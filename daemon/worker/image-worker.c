/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobe-image-worker: takes images of CUDA processes apart and puts probes into them. It sees
 * hostile bytes and nothing else. The compiler is loaded before the sandbox and warmed inside of
 * it, on a kernel of a few lines: then it needs no file any more, cannot find a driver to load
 * (nvJitLink looks for one, for its cache), and the first job is as fast as the next.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image-job.h"
#include "worker.h"

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
	struct image_worker *worker = userdata;
	uint8_t *cubin = NULL;
	char *log = NULL;
	size_t size;
	int r;

	if (!worker->compiler)
		return worker_add_string(features, "no_compiler",
					 "neither nvPTXCompiler nor nvJitLink is to be had");
	r = compiler_compile(worker->compiler, warm_ptx, sizeof(warm_ptx) - 1, "sm_90", NULL, 0,
			     &cubin, &size, &log);
	free(cubin);
	if (r > 0)
		fprintf(stderr, "gpuprobe-image-worker: %s does not work in the sandbox: %s\n",
			compiler_name(worker->compiler), log ? log : "no reason given");
	free(log);
	if (r)
		return r < 0 ? r : -EOPNOTSUPP;
	return worker_add_string(features, "compiler", compiler_name(worker->compiler));
}

/* The folder of this program, where its modules lie too; NULL if it cannot be told. */
static const char *own_folder(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (n <= 0)
		return NULL;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return NULL;
	*slash = '\0';
	return path;
}

int main(int argc, char *argv[])
{
	static const struct worker_handler handlers[] = {
		{ "image", image_job },
	};
	struct image_worker worker = {};
	struct worker_options options;
	char folder[4096];
	const char *toolkit;
	int r;

	r = worker_options_parse(&options, argc, argv);
	if (r)
		return r > 0 ? 0 : 2;
	toolkit = getenv("CUDA_HOME");
	r = compiler_new(&worker.compiler, options.compiler, own_folder(folder, sizeof(folder)),
			 toolkit ? toolkit : "/usr/local/cuda");
	if (r < 0) {
		fprintf(stderr, "%s: --compiler=%s: %s\n", argv[0], options.compiler, strerror(-r));
		return r == -EINVAL ? 2 : 1;
	}
	r = worker_run(&options, handlers, 1, warm, &worker);
	compiler_free(worker.compiler);
	return r < 0;
}
