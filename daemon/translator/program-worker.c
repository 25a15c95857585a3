/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobe-program-worker: links eBPF objects and turns their programs into PTX. It sees what
 * operators attach, and never an application's image. LLVM and libbpf are linked in, so everything
 * is loaded before the sandbox.
 */

#include "program-job.h"
#include "proto/job.h"

int main(int argc, char *argv[]) {
	static const struct worker_handler handlers[] = {
		{ JOB_LINK, program_job_link },
		{ JOB_COMPILE, program_job_compile },
	};
	struct worker_options options;
	int r;

	r = worker_options_parse(&options, argc, argv);
	if (r)
		return r > 0 ? 0 : 2;
	r = worker_run(&options, handlers, sizeof(handlers) / sizeof(handlers[0]), program_job_warm,
		       NULL);
	return r < 0;
}
