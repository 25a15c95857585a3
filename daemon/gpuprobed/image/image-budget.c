/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Computes how long a process may wait for an image (image-budget.h). A shim waits at most
 * --deadline-ms and must get the answer before that, so a tenth is left out.
 */

#include "image-budget.h"

#include "daemon/gpuprobed/settings/config.h"
#include "process.h"

#define IMAGE_LOOKUP_MS 200 /* of a process whose budget is used up */

static unsigned int image_budget_heard(unsigned int ms) {
	return ms - ms / 10;
}

struct image_budget image_budget(const struct config *config, bool own) {
	const unsigned int others = config->deadline_others_ms < config->deadline_ms
					    ? config->deadline_others_ms
					    : config->deadline_ms;

	return (struct image_budget){ .ms = image_budget_heard(own ? config->deadline_ms : others),
				      .own = own };
}

unsigned int image_budget_left(const struct image_budget *budget, const struct process *process) {
	return process->waited_ms < budget->ms ? budget->ms - (unsigned int)process->waited_ms : 0;
}

unsigned int image_budget_lookup_ms(const struct image_budget *budget,
				    const struct process *process, const struct config *config) {
	const unsigned int most = image_budget_heard(config->deadline_ms);

	return image_budget_left(budget, process) || most < IMAGE_LOOKUP_MS ? most
									    : IMAGE_LOOKUP_MS;
}

const char *image_budget_setting(const struct image_budget *budget) {
	return budget->own ? "deadline-ms" : "deadline-others-ms";
}
