/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target. The CPU driver's way from a text to instructions: any text loads or is refused,
 * without a crash. Kernels that come out are run for a single thread if they cannot loop (no branch
 * backwards, no call): whatever they do to memory must be an error. Kernels complain on stderr: run
 * it with -close_fd_mask=2.
 */

#include "tests/sim/sim-op.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool straight(const struct sim_function *function) {
	for (uint32_t n = 0; n < function->insn_count; n++) {
		sim_op op = function->insns[n].op;

		if (op == sim_op_control(SIM_CONTROL_BRANCH_BACK) ||
		    op == sim_op_control(SIM_CONTROL_CALL) ||
		    op == sim_op_control(SIM_CONTROL_BRANCH_INDEX) ||
		    op == sim_op_control(SIM_CONTROL_PRINT))
			return false;
		/* a guarded branch backwards is a BRANCH_BACK; conditions only go forward */
	}
	return function->parameter_bytes <= 4096;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static const unsigned char parameters[4096];
	const char *text = (const char *)data;
	struct sim_program *program;
	char message[256];

	if (sim_program_new(&program, &text, &size, 1, NULL, message, sizeof(message)) !=
	    CUDA_SUCCESS)
		return 0;
	for (uint32_t n = 0; n < program->function_count; n++) {
		struct sim_function *function = program->functions[n];
		struct sim_launch launch = { .function = function,
					     .grid = { 1, 1, 1 },
					     .block = { 1, 1, 1 },
					     .parameters = parameters };

		if (!function->entry || !straight(function))
			continue;
		sim_run_lock();
		sim_run(&launch);
		sim_run_unlock();
	}
	sim_program_free(program);
	return 0;
}
