/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobe-pass-worker: runs passes of the user, one in its life. It has no more rights than the
 * pass, and reads the answer, which is as foreign as the pass.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/pass/pass-run.h"
#include "daemon/worker/base/sandbox.h"
#include "daemon/worker/base/worker.h"
#include "lib/json.h"

#define SYMBOLS_MAX 256

/* "required_symbols": borrowed strings, owned array. */
static int read_symbols(struct pass_strings *symbols, json_object *request) {
	json_object *array;

	*symbols = (struct pass_strings){};
	if (!json_get_array(request, JOB_KEY_REQUIRED_SYMBOLS, SYMBOLS_MAX, &array))
		return 0;
	symbols->strings = calloc(json_object_array_length(array) + 1, sizeof(*symbols->strings));
	if (!symbols->strings)
		return -ENOMEM;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		const char *symbol = json_object_get_string(json_object_array_get_idx(array, i));

		if (symbol)
			symbols->strings[symbols->n++] = (char *)symbol;
	}
	return 0;
}

/* The request's words and numbers; what is wrong with them is the daemon's fault. */
static bool read_request(struct pass_run *run, const struct worker_job *job) {
	int64_t max = 0, timeout = 0, memory = 0;

	if (!json_get_string(job->request, JOB_KEY_EXECUTABLE, &run->executable) ||
	    !json_get_string(job->request, JOB_KEY_ATTACH_POINT, &run->attach_point) ||
	    !json_get_int(job->request, JOB_KEY_MAX_OUTPUT, 1, INT32_MAX, &max) ||
	    !json_get_int(job->request, JOB_KEY_TIMEOUT, 1, 600000, &timeout) ||
	    !json_get_int(job->request, JOB_KEY_MEMORY, 1, 1 << 20, &memory))
		return false;
	json_get_string(job->request, JOB_KEY_KERNEL, &run->kernel);
	json_get_object(job->request, JOB_KEY_PARAMETERS, &run->parameters);
	run->max_output_bytes = (uint64_t)max;
	run->timeout_ms = (unsigned int)timeout;
	run->memory_mib = (unsigned int)memory;
	return true;
}

static int reply_passed(const struct pass_output *made, int output, json_object *reply) {
	int r;

	if (made->ptx) {
		r = worker_write(output, made->ptx, made->length, 0);
		if (r)
			return worker_reply_error(reply, NULL, JOB_E_INTERNAL, "pass: output: %s",
						  strerror(-r));
	}
	json_add_string(reply, JOB_KEY_STATUS, job_statuses[JOB_PASSED]);
	json_add_bool(reply, JOB_KEY_MODIFIED, made->ptx);
	json_add_int(reply, JOB_KEY_SIZE, made->length);
	return 0;
}

static int pass_job(const struct worker_job *job, json_object *reply, void *userdata) {
	const struct worker_options *options = userdata;
	struct pass_run run = { .prepare = options->no_sandbox ? NULL : sandbox_stay_in_group };
	int input = worker_get_fd(job, job->request, JOB_KEY_INPUT),
	    output = worker_get_fd(job, job->request, JOB_KEY_OUTPUT);
	char error[PASS_ERROR_SIZE];
	struct pass_strings symbols;
	struct pass_output made;
	const uint8_t *text;
	int r;

	if (input < 0 || output < 0 || !read_request(&run, job))
		return worker_reply_error(reply, NULL, JOB_E_INTERNAL,
					  "pass: the request is not as it should be");
	r = worker_map(input, WORKER_INPUT_MAX, &text, &run.ptx_length);
	if (r)
		return worker_reply_error(reply, NULL, JOB_E_INTERNAL, "pass: input: %s",
					  strerror(-r));
	run.ptx = (const char *)text;
	r = read_symbols(&symbols, job->request);
	run.required_symbols = &symbols;
	if (!r)
		r = pass_run(&run, &made, error);
	if (r > 0)
		r = worker_reply_error(reply, NULL, JOB_E_PASS, "%s", error);
	else if (r < 0)
		r = worker_reply_error(reply, NULL, JOB_E_INTERNAL, "pass: %s", strerror(-r));
	else {
		r = reply_passed(&made, output, reply);
		free(made.ptx);
	}
	free(symbols.strings);
	worker_unmap(text, run.ptx_length);
	return r;
}

int main(int argc, char *argv[]) {
	static const struct worker_handler handlers[] = {
		{ JOB_PASS, pass_job },
	};
	struct worker_options options;
	int r;

	r = worker_options_parse(&options, argc, argv);
	if (r)
		return r > 0 ? 0 : 2;
	options.sandbox.run_programs = true;
	return worker_run(&options, handlers, 1, NULL, &options) < 0;
}
