/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CUDA graphs in a process with the sanitizer engine. An executable graph keeps the machine code
 * that its kernels had when it was instantiated: bare, or with patches. Code with patches is gone
 * when its module is patched anew or unpatched, and a launch of it makes the GPU fault. So we keep
 * a clone of every graph that is instantiated, and while patches are others than they were, our own
 * instance of the clone is launched in place of the application's.
 *
 * Where that cannot be (a graph that allocates memory cannot be cloned) the graph is *fixed*: it is
 * launched as it is. If it has patches, these stay in all modules till it is destroyed. The
 * application's launch fails for our sake only where its code is gone and the driver has no memory
 * for an instance of ours.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"

enum graph_cause {
	GRAPH_FOLLOWED, /* it is not fixed */
	GRAPH_NOT_CLONED,
	GRAPH_NOT_FOLLOWED, /* what the application did to it could not be done to a clone */
	GRAPH_NOT_MADE, /* it is not fixed, but the driver makes no instance of the clone */
	GRAPH_LOST, /* that, and its code is gone: it cannot be launched */
};

/* ---- for who patches, with the loader's lock held ----------------------------------- */

/*
 * Patches are others from now on; patched: there are any. code_gone: code that graphs may have is
 * not there any more; then the gate is closed, and what was launched before has ended.
 */
void graph_patches_changed(bool patched, bool code_gone);
/* Frees instances of ours that are used no more; the gate is closed. */
void graph_reap(void);
/* Why there is a fixed graph that has patches, or a graph that is launched without those of now. */
enum graph_cause graph_has_fixed(bool with_patches);
/* Is there one that cannot be launched? */
bool graph_has_lost(void);

/* ---- around calls of the application; inside of the gate ---------------------------- */

/* What patches are: before a call that instantiates, for graph_added(). */
uint64_t graph_patches(void);
void graph_added(driver_handle exec, driver_handle graph, unsigned long long flags,
		 uint64_t patches);
/* Before it is destroyed. */
void graph_removed(driver_handle exec);

/* Puts what is to be launched in the place of an executable graph; or an error. */
driver_result graph_find(driver_handle *exec);
/* Can the application's be launched, too, where that could not? */
bool graph_is_sound(driver_handle exec);

/* It was updated from a graph. */
void graph_updated(driver_handle exec, driver_handle graph);

/* A node of the application's graph, and what stands for it. */
struct graph_node {
	driver_handle node; /* of the graph of which instances are made; NULL: none is known */
	driver_handle own, own_node; /* our instance, if that should follow, and its name there */
	driver_handle name; /* for graph_node_enabled() and graph_node_given() */
};

/*
 * One of its nodes was changed. Returns whether there is something to follow it: the same is to be
 * done for `node`, and for `own`. graph_node_end() is told whether both could be done.
 */
bool graph_node_begin(driver_handle exec, driver_handle node, struct graph_node *found);
void graph_node_end(driver_handle exec, bool node_done, bool own_done);

/* A node of it is left out of launches, or not any more. */
bool graph_node_enabled(driver_handle exec, const struct graph_node *node, bool enabled);
/* A node of it has the parameters of another graph. */
bool graph_node_given(driver_handle exec, const struct graph_node *node, driver_handle child);
