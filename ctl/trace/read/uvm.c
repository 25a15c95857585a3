/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decodes ioctls of /dev/nvidia-uvm. Their numbers say nothing about sizes. The layouts are those
 * of driver 595; older drivers have a few other ones (UVM_FREE had a length before the status). So
 * an unknown status is not taken for a failure.
 */

#include <string.h>

#include "params.h"
#include "ctl/rm/status.h"

void trace_uvm_decode(struct trace_ioctl_job *job) {
	const struct trace_params *params =
		trace_params_find(PARAMS_UVM, job->number, -1, job->driver);

	job->item->class = "uvm";
	if (!params) {
		trace_item_value(job->item, "command", VALUE_HEX, job->number);
		return;
	}
	job->item->name = params->name;
	trace_params_decode(job, params, job->before, job->after);
	job->has_status = job->has_status && rm_status_name(job->status);
	for (size_t i = 0; i < job->item->n_values; i++)
		if (strcmp(job->item->values[i].name, "length") == 0)
			job->item->size = (uint64_t)job->item->values[i].number;
}
