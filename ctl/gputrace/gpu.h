/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The probes of a script that are on the GPU: attached, read and detached through the daemon. */

#include "ctl/base/ctl.h"
#include "evaluate.h"

struct gpu {
	struct ctl *ctl;
	const struct script *script;
	struct evaluator *evaluator;
	int64_t seen; /* attached_seen() before */
	json_object *attached; /* the reply of Attach; NULL: nothing is attached */
	int64_t ids[SCRIPT_MAPS_MAX + 1]; /* of the maps; the last one counts what was lost */
	json_object *kernels; /* id in hexadecimal: name; NULL: not asked yet */
	json_object *lines;
	uint64_t unknown_starts; /* durations whose beginning was not seen, or found no room */
	bool failed; /* something could not be read */
};

/* Compiles and attaches. pid 0: to all processes of the daemon that the user may probe. Returns the
 * exit status. */
int gpu_attach(struct gpu *gpu, pid_t pid);
/* Copies all maps into the evaluator. */
void gpu_refresh(void *gpu);
void gpu_detach(struct gpu *gpu);
