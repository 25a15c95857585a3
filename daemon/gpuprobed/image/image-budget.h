/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How long a process may be held up, in all, because an image of it has to be compiled:
 * --deadline-ms if an attachment that means it belongs to its own user and was made for chosen
 * processes, else --deadline-others-ms. What the cache answers costs nothing of it.
 */

#include <stdbool.h>
#include <stdint.h>

struct config;
struct process;

struct image_budget {
	unsigned int ms; /* of the process, for all its images */
	bool own;
};

/* Why an image is late: milliseconds, image_budget_setting(). */
#define IMAGE_BUDGET_REASON \
	"late: the %u ms that this process may wait in all for compiling are used up (%s)"

struct image_budget image_budget(const struct config *config, bool own);

/* What the process has not used yet, in milliseconds. */
unsigned int image_budget_left(const struct image_budget *budget, const struct process *process);

/* How long the process waits for an answer that needs no compiler. */
unsigned int image_budget_lookup_ms(const struct image_budget *budget,
				    const struct process *process, const struct config *config);

/* The setting that says how much it is. */
const char *image_budget_setting(const struct image_budget *budget);
