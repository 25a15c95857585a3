/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "daemon/worker/compiler/compiler.h"
#include "daemon/worker/base/worker.h"

/* What the jobs of the image worker share. */
struct image_worker {
	struct compiler *compiler; /* NULL: none on this machine; images then carry PTX for the
				      driver to compile */
	unsigned int threads; /* for large images */
	struct compiler *patcher; /* makes patches; NULL: none; may be the same as the above */
};

/* The job `image` of job.md. userdata is the struct image_worker. */
int image_job(const struct worker_job *job, struct json_object *reply, void *userdata);
