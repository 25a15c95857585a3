/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Turns a record of an ioctl into an item. If the call itself worked, its result is the status of
 * RM or UVM, which report errors in their argument; else it is the errno. Fields whose bytes were
 * not captured are left out, never guessed.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "ioctl.h"
#include "params.h"
#include "ctl/rm/status.h"

/* Of /dev/nvidia-uvm. The numbers say nothing about sizes. The layouts are those of driver 595;
 * older drivers have a few other ones (UVM_FREE had a length before the status). So an unknown
 * status is not taken for a failure. */
static void decode_uvm(struct trace_ioctl_job *job) {
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

/* Which file it was done to, as a value. */
static void add_device(struct trace_item *item, uint8_t device, uint8_t minor) {
	static const char *const names[] = {
		[TRACE_DEVICE_CTL] = "nvidiactl",
		[TRACE_DEVICE_GPU] = "nvidia",
		[TRACE_DEVICE_UVM] = "nvidia-uvm",
		[TRACE_DEVICE_UVM_TOOLS] = "nvidia-uvm-tools",
		[TRACE_DEVICE_MODESET] = "nvidia-modeset",
		[TRACE_DEVICE_CAPS] = "nvidia-caps",
	};
	const char *name = device < sizeof(names) / sizeof(*names) ? names[device] : NULL;

	if (name)
		trace_item_value(item, "device", VALUE_STRING, 0)->text = name;
	if (device == TRACE_DEVICE_GPU) {
		trace_item_value(item, "minor", VALUE_UINT, minor);
		item->device = minor;
	}
}

/* The status that the driver wrote is the result, if the call as such worked. */
static void set_result(const struct trace_ioctl_job *job, int32_t result) {
	struct trace_item *item = job->item;

	if (result < 0) {
		item->result_name = result == INT32_MIN ? NULL : strerrorname_np(-result);
		item->failed = true;
	} else if (job->has_status) {
		item->result = job->status;
		item->result_name = rm_status_name(job->status);
		item->failed = job->status != 0;
	}
}

void trace_decode_ioctl(struct trace_decoder *decoder, const struct trace_ioctl *ioctl,
			const char *driver, struct trace_item *item) {
	struct trace_ioctl_job job = { .decoder = decoder, .item = item };
	struct trace_bytes rest = { ioctl->bytes, ioctl->record.size - sizeof(*ioctl) };
	unsigned long branch = strtoul(driver, NULL, 10);

	job.before = trace_bytes_take(&rest, ioctl->n_before);
	job.after = trace_bytes_take(&rest, ioctl->n_after);
	job.inner = trace_bytes_take(&rest, ioctl->n_inner);
	job.driver = branch > 0 && branch < TRACE_DRIVER_ANY ? (unsigned)branch : TRACE_DRIVER_ANY;
	item->name = item->class = "ioctl";
	if (ioctl->device == TRACE_DEVICE_UVM || ioctl->device == TRACE_DEVICE_UVM_TOOLS) {
		job.number = ioctl->command;
		decode_uvm(&job);
	} else if (_IOC_TYPE(ioctl->command) == 'F' &&
		   (ioctl->device == TRACE_DEVICE_CTL || ioctl->device == TRACE_DEVICE_GPU)) {
		job.number = _IOC_NR(ioctl->command);
		job.size = _IOC_SIZE(ioctl->command);
		trace_rm_decode(&job);
	} else {
		trace_item_value(item, "command", VALUE_HEX, ioctl->command);
	}
	item->base = item->name;
	if (ioctl->record.flags & TRACE_IOCTL_STATUS) {
		job.status = ioctl->status;
		job.has_status = true;
	}
	add_device(item, ioctl->device, ioctl->minor);
	if (!item->open)
		set_result(&job, ioctl->result);
}
