/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobe-image-worker: takes images of CUDA processes apart and puts probes into them. It sees
 * hostile bytes and nothing else. The compiler is loaded before the sandbox and warmed inside of
 * it, on a kernel of a few lines: then it needs no file any more, cannot find a driver to load
 * (nvJitLink looks for one, for its cache), and the first job is as fast as the next.
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/worker/patch/patch-job.h"
#include "daemon/worker/base/processors.h"
#include "daemon/worker/base/worker.h"
#include "lib/json.h"

static const char warm_ptx[] = ".version 6.3\n"
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

static const char warm_patch[] =
	".version 6.3\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .func (.param .b32 r) warm(.param .b64 data, .param .b64 pc)\n"
	"{\n"
	"	st.param.b32 [r], 0;\n"
	"	ret;\n"
	"}\n";

/* Compiles a little; what does not work in the sandbox must not be promised. */
static int try_compiler(struct compiler *compiler, const char *ptx, const char *option) {
	uint8_t *cubin = NULL;
	char *log = NULL;
	size_t size;
	int r;

	r = compiler_compile(compiler, ptx, strlen(ptx), "sm_90", &option, option != NULL, &cubin,
			     &size, &log);
	free(cubin);
	if (r > 0)
		fprintf(stderr, "gpuprobe-image-worker: %s does not work in the sandbox: %s\n",
			compiler_name(compiler), log ? log : "no reason given");
	free(log);
	return r > 0 ? -EOPNOTSUPP : r;
}

static void *nothing(void *argument) {
	return argument;
}

/* Can threads be made, and does the compiler know the option? Older ones do not. */
static bool can_split(struct compiler *compiler, unsigned int threads) {
	pthread_t made[WORKER_THREADS_MAX];
	uint8_t *cubin = NULL;
	const char *option = COMPILER_SPLIT "=2";
	char *log = NULL;
	unsigned int n = 0;
	size_t size;
	int r;

	while (n < threads && !pthread_create(&made[n], NULL, nothing, NULL))
		n++;
	for (unsigned int i = 0; i < n; i++)
		pthread_join(made[i], NULL);
	if (n < threads)
		return false;
	r = compiler_compile(compiler, warm_ptx, strlen(warm_ptx), "sm_90", &option, 1, &cubin,
			     &size, &log);
	free(cubin);
	free(log);
	return !r;
}

static int warm(struct json_object *features, void *userdata) {
	struct image_worker *worker = userdata;
	int r;

	if (!worker->compiler) {
		json_add_string(features, JOB_FEATURE_NO_COMPILER,
				"neither nvPTXCompiler nor nvJitLink is to be had");
		return 0;
	}
	r = try_compiler(worker->compiler, warm_ptx, NULL);
	if (!r && worker->threads > 1 && can_split(worker->compiler, worker->threads))
		compiler_use_threads(worker->compiler, worker->threads);
	if (r)
		return r;
	json_add_string(features, JOB_FEATURE_COMPILER, compiler_name(worker->compiler));
	if (!worker->patcher)
		return 0;
	json_add_string(features, JOB_FEATURE_PATCH, compiler_name(worker->patcher));
	return try_compiler(worker->patcher, warm_patch, "--compile-as-tools-patch");
}

/* The folder of this program, where its modules lie too; NULL if it cannot be told. */
static const char *own_folder(char *path, size_t size) {
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

/* Loads what compiles images, and what compiles patches, which may be the same. */
static int load_compilers(struct image_worker *worker, const char *which) {
	const char *toolkit = getenv("CUDA_HOME"), *folder;
	char path[4096];
	int r;

	toolkit = toolkit ? toolkit : "/usr/local/cuda";
	folder = own_folder(path, sizeof(path));
	r = compiler_new(&worker->compiler, which, folder, toolkit);
	if (r)
		return r < 0 ? r : 0;
	if (compiler_makes_patches(worker->compiler)) {
		worker->patcher = worker->compiler;
		return 0;
	}
	r = compiler_new(&worker->patcher, "nvptxcompiler", folder, toolkit);
	return r < 0 ? r : 0;
}

int main(int argc, char *argv[]) {
	static const struct worker_handler handlers[] = {
		{ JOB_IMAGE, image_job },
		{ JOB_PATCH, patch_job },
	};
	struct image_worker worker = {};
	struct worker_options options;
	int r;

	r = worker_options_parse(&options, argc, argv);
	if (r)
		return r > 0 ? 0 : 2;
	worker.threads = options.threads ? options.threads : processors_allowed();
	if (worker.threads > WORKER_THREADS_MAX)
		worker.threads = WORKER_THREADS_MAX;
	options.sandbox.threads = worker.threads > 1 ? worker.threads : 0;
	r = load_compilers(&worker, options.compiler);
	if (r < 0) {
		fprintf(stderr, "%s: --compiler=%s: %s\n", argv[0], options.compiler, strerror(-r));
		return r == -EINVAL ? 2 : 1;
	}
	r = worker_run(&options, handlers, 2, warm, &worker);
	if (worker.patcher != worker.compiler)
		compiler_free(worker.patcher);
	compiler_free(worker.compiler);
	return r < 0;
}
