/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Notices when a process maps a libcuda (libcuda-watch.h).
 *
 * One ring for each CPU that runs. The kernel writes the name of each file that is mapped to be
 * executed; only those of a libcuda are looked at. CPUs come and go, and an event of one that went
 * does not come back with it: which there are is looked at every second. What was mapped on one
 * before it is watched is an event that was lost.
 */

#include "libcuda-watch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cpu-list.h"
#include "libcuda.h"
#include "lib/base/clock.h"

#define RING_PAGES 8
#define EVENT_MAX 8192 /* bytes: a path and some words */

struct libcuda_watch {
	size_t n, page;
	int64_t looked; /* seconds of CLOCK_MONOTONIC: when CPUs were */
	struct watch_ring {
		int fd, cpu;
		struct perf_event_mmap_page *page;
	} *rings; /* in the order of CPUs */
};

/* PERF_RECORD_MMAP2 up to its name. */
struct mapping_event {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t address, length, offset;
	uint32_t major, minor;
	uint64_t inode, generation;
	uint32_t protection, flags;
	char name[];
};

static int open_ring(struct watch_ring *ring, int cpu, size_t page) {
	struct perf_event_attr attribute = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attribute),
		.config = PERF_COUNT_SW_DUMMY,
		.mmap = 1,
		.mmap2 = 1,
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX,
	};
	void *map;

	ring->fd = (int)syscall(SYS_perf_event_open, &attribute, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (ring->fd < 0)
		return -errno;
	map = mmap(NULL, page * (RING_PAGES + 1), PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (map == MAP_FAILED) {
		int error = errno;

		close(ring->fd);
		return -error;
	}
	ring->cpu = cpu;
	ring->page = map;
	return 0;
}

static void close_ring(const struct libcuda_watch *watch, struct watch_ring *ring) {
	munmap(ring->page, watch->page * (RING_PAGES + 1));
	close(ring->fd);
}

int libcuda_watch_set_cpus(struct libcuda_watch *watch, const int *cpus, size_t n, bool *changedp) {
	struct watch_ring *rings = calloc(n + 1, sizeof(*rings));
	size_t n_rings = 0, at = 0;
	int r = 0;

	if (!rings)
		return -ENOMEM;
	*changedp = false;
	for (size_t i = 0; i < n; i++) {
		int error;

		while (at < watch->n && watch->rings[at].cpu < cpus[i])
			close_ring(watch, &watch->rings[at++]);
		if (at < watch->n && watch->rings[at].cpu == cpus[i]) {
			rings[n_rings++] = watch->rings[at++];
			continue;
		}
		error = open_ring(&rings[n_rings], cpus[i], watch->page);
		if (!error) {
			n_rings++;
			*changedp = true;
		} else if (error != -ENODEV) { /* it has just gone */
			r = error;
		}
	}
	while (at < watch->n)
		close_ring(watch, &watch->rings[at++]);
	free(watch->rings);
	watch->rings = rings;
	watch->n = n_rings;
	return r;
}

/* Watches the CPUs that run now. */
static int watch_cpus(struct libcuda_watch *watch, bool *changedp) {
	int *cpus, r;
	size_t n;

	watch->looked = clock_ms(CLOCK_MONOTONIC) / 1000;
	r = cpu_list_online(&cpus, &n);
	if (r)
		return r;
	r = libcuda_watch_set_cpus(watch, cpus, n, changedp);
	free(cpus);
	return r;
}

int libcuda_watch_new(struct libcuda_watch **watchp) {
	struct libcuda_watch *watch = calloc(1, sizeof(*watch));
	bool changed;
	int r;

	if (!watch)
		return -ENOMEM;
	watch->page = (size_t)sysconf(_SC_PAGESIZE);
	r = watch_cpus(watch, &changed);
	if (r) {
		libcuda_watch_free(watch);
		return r;
	}
	*watchp = watch;
	return 0;
}

struct libcuda_watch *libcuda_watch_free(struct libcuda_watch *watch) {
	if (!watch)
		return NULL;
	for (size_t i = 0; i < watch->n; i++)
		close_ring(watch, &watch->rings[i]);
	free(watch->rings);
	free(watch);
	return NULL;
}

/* Copies n bytes that may wrap around. */
static void copy_out(void *to, const char *data, size_t size, uint64_t at, size_t n) {
	size_t offset = at % size, first = n < size - offset ? n : size - offset;

	memcpy(to, data + offset, first);
	memcpy((char *)to + first, data, n - first);
}

/* One event. False: it says that others were lost. */
static bool read_event(const struct perf_event_header *header, pid_t *lastp,
		       libcuda_watch_fn mapped, void *userdata) {
	const struct mapping_event *event = (const void *)header;
	size_t n;

	if (header->type == PERF_RECORD_LOST)
		return false;
	if (header->type != PERF_RECORD_MMAP2 || header->size <= sizeof(*event))
		return true;
	n = strnlen(event->name, header->size - sizeof(*event));
	if (n == header->size - sizeof(*event) || event->name[0] != '/' ||
	    !libcuda_path_matches(event->name, n) || (pid_t)event->pid == *lastp)
		return true;
	*lastp = (pid_t)event->pid;
	mapped(userdata, (pid_t)event->pid, event->name, event->inode);
	return true;
}

bool libcuda_watch_read(struct libcuda_watch *watch, libcuda_watch_fn mapped, void *userdata) {
	union {
		struct perf_event_header header;
		char bytes[EVENT_MAX];
	} event;
	const size_t size = watch->page * RING_PAGES;
	bool complete = true, changed = false;
	pid_t last = 0;

	for (size_t i = 0; i < watch->n; i++) {
		struct perf_event_mmap_page *page = watch->rings[i].page;
		const char *data = (const char *)page + watch->page;
		uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE),
			 tail = page->data_tail;

		while (tail < head && head - tail <= size) {
			copy_out(&event.header, data, size, tail, sizeof(event.header));
			if (event.header.size < sizeof(event.header) ||
			    event.header.size > head - tail)
				break;
			if (event.header.size <= sizeof(event)) {
				copy_out(&event, data, size, tail, event.header.size);
				complete = read_event(&event.header, &last, mapped, userdata) &&
					   complete;
			}
			tail += event.header.size;
		}
		__atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
	}
	if (clock_ms(CLOCK_MONOTONIC) / 1000 != watch->looked &&
	    (watch_cpus(watch, &changed) || changed))
		return false;
	return complete;
}
