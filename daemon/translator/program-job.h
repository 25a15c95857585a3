/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The jobs of the program worker (job.md): `link` and `compile`. userdata is not used.
 */

#include "daemon/worker/base/worker.h"

int program_job_link(const struct worker_job *job, struct json_object *reply, void *userdata);
int program_job_compile(const struct worker_job *job, struct json_object *reply, void *userdata);

/*
 * Translates a program of two instructions, so that the first job finds LLVM ready; says what
 * libraries there are.
 */
int program_job_warm(struct json_object *features, void *userdata);
