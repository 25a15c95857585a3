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
	int64_t print_id; /* of the ring of what is printed; 0: none */
	struct gpu_print *print;
	uint64_t unknown_starts; /* durations whose beginning was not seen, or found no room */
	bool failed; /* something could not be read */
};

/* Compiles and attaches. pid 0: to all processes of the daemon that the user may probe. Returns the
 * exit status. */
int gpu_attach(struct gpu *gpu, pid_t pid);
/* Sets a word that the GPU reads. */
void gpu_share(void *gpu, size_t map, int64_t number);
/* The name that an id has when it is printed. */
const char *gpu_id_name(struct gpu *gpu, enum type type, uint64_t id);
/* gpu-print.c: prints what the GPU's printf() said, in order of time: what came more than 200 ms
 * ago, or all. At most @rate lines a second. */
void gpu_print(struct gpu *gpu, int64_t rate, bool all);
/* Lines that were not printed: over the rate, and for want of room. */
void gpu_print_lost(const struct gpu *gpu, uint64_t *over, uint64_t *lost);
void gpu_print_deinit(struct gpu *gpu);
/* Copies all maps into the evaluator. */
void gpu_refresh(void *gpu);
void gpu_detach(struct gpu *gpu);
