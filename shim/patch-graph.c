/* SPDX-License-Identifier: Apache-2.0 */

#include "patch-graph.h"

#include <pthread.h>
#include <stdlib.h>

#include "patching.h"

struct graph {
	struct graph *next;
	driver_handle exec;
};

bool patch_graph_risk;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held for no call */
static struct graph *graphs;
static bool lost; /* there was no memory to remember one: it is taken to be there for good */

void patch_graph_made(driver_handle exec)
{
	struct graph *graph;

	if (!__atomic_load_n(&patch_graph_risk, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&lock);
	for (graph = graphs; graph && graph->exec != exec; graph = graph->next)
		;
	if (!graph) {
		graph = malloc(sizeof(*graph));
		if (graph) {
			*graph = (struct graph){ graphs, exec };
			graphs = graph;
		} else {
			lost = true;
		}
	}
	pthread_mutex_unlock(&lock);
}

void patch_graph_destroyed(driver_handle exec)
{
	bool last = false;

	pthread_mutex_lock(&lock);
	for (struct graph **link = &graphs; *link; link = &(*link)->next) {
		struct graph *graph = *link;

		if (graph->exec != exec)
			continue;
		*link = graph->next;
		free(graph);
		last = !graphs;
		break;
	}
	pthread_mutex_unlock(&lock);
	if (last) /* what could not be changed can be now */
		__atomic_store_n(&patch_again, true, __ATOMIC_RELEASE);
}

bool patch_graph_holds(void)
{
	bool holds;

	pthread_mutex_lock(&lock);
	holds = graphs || lost;
	pthread_mutex_unlock(&lock);
	return holds;
}
