/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Jobs (worker/job.md) without what is only true in this daemon's life: ids of attachments become
 * their positions in the job, numbers of images and what time is left are left out. So two jobs
 * that ask for the same have the same text, and a reply that is kept serves another daemon.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry.h"

#define JOB_IDS_MAX 64

/* The attachments of a job, in its order. */
struct job_ids {
	size_t n;
	int64_t ids[JOB_IDS_MAX];
};

/* What a job asks for: the caller's. NULL: it cannot be kept. */
char *job_text_request(json_object *request, struct job_ids *ids);

/* Its reply, to be kept: the caller's. NULL: it cannot be. */
char *job_text_keep_reply(json_object *reply, const struct job_ids *ids, size_t *sizep);

/*
 * A kept reply, in the form in which the worker of a job with these attachments would give it now.
 * NULL: it is no valid reply.
 */
json_object *job_text_take_reply(const char *text, size_t size, const struct job_ids *ids);

/* Words for people: the job, and what it is about. */
void job_text_name(json_object *request, json_object *reply, struct cache_entry *entry);
