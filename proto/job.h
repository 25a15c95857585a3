/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The protocol of jobs between the daemon and its workers: limits that both sides know.
 * daemon/worker/job.md describes the messages.
 */

#define JOB_MESSAGE_MAX (128 * 1024) /* bytes of one message, which is one JSON object */
#define JOB_FDS_MAX 64 /* descriptors beside one message */
#define JOB_IMAGE_PROGRAMS_MAX 58 /* of a job about an image, beside its other descriptors */
#define JOB_COMPILE_PROGRAMS_MAX 60 /* of a job `compile`, beside its other descriptors */
