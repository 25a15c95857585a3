/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "daemon/worker/image/image-job.h"

/* The job `patch` of job.md. userdata is the struct image_worker. */
int patch_job(const struct worker_job *job, struct json_object *reply, void *userdata);
