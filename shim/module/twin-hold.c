/* SPDX-License-Identifier: Apache-2.0 */

/* Counts the executable graphs that hold twins (twin-hold.h). There are few twins at a time. */

#include "twin-hold.h"

#include <pthread.h>
#include <stdlib.h>

struct hold {
	struct hold *next;
	uint64_t twin;
	unsigned count; /* of graphs */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hold *holds;

/* With the lock held: the link to it, or to the end of the list. */
static struct hold **find(uint64_t twin) {
	struct hold **link = &holds;

	while (*link && (*link)->twin != twin)
		link = &(*link)->next;
	return link;
}

static void take_off(struct hold **link) {
	struct hold *hold = *link;

	*link = hold->next;
	free(hold);
}

bool twin_hold(uint64_t twin) {
	struct hold **link, *hold;

	pthread_mutex_lock(&lock);
	link = find(twin);
	hold = *link;
	if (!hold) {
		hold = calloc(1, sizeof(*hold));
		if (hold)
			*hold = (struct hold){ .next = holds, .twin = twin };
		if (hold)
			holds = hold;
	}
	if (hold)
		hold->count++;
	pthread_mutex_unlock(&lock);
	return hold;
}

void twin_release(uint64_t twin) {
	struct hold **link;

	pthread_mutex_lock(&lock);
	link = find(twin);
	if (*link && !--(*link)->count)
		take_off(link);
	pthread_mutex_unlock(&lock);
}

bool twin_is_held(uint64_t twin) {
	bool held;

	pthread_mutex_lock(&lock);
	held = *find(twin);
	pthread_mutex_unlock(&lock);
	return held;
}

void twin_hold_forget(uint64_t twin) {
	struct hold **link;

	pthread_mutex_lock(&lock);
	link = find(twin);
	if (*link)
		take_off(link);
	pthread_mutex_unlock(&lock);
}
