/* SPDX-License-Identifier: Apache-2.0 */

/* One ring for each CPU. The kernel writes the name of each file that is mapped to be executed; only those of a libcuda are looked at. */

#include "libcuda-watch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libcuda.h"

#define CPUS_MAX 1024
#define RING_PAGES 8
#define EVENT_MAX 8192 /* bytes: a path and some words */

struct libcuda_watch {
	size_t n, page;
	struct watch_ring {
		int fd;
		struct perf_event_mmap_page *page;
	} rings[];
};

/* PERF_RECORD_MMAP2 up to its name. */
struct mapping_event {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t address, length, offset;
	uint64_t file[3];
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
	ring->page = map;
	return 0;
}

int libcuda_watch_new(struct libcuda_watch **watchp) {
	long n = sysconf(_SC_NPROCESSORS_CONF);
	struct libcuda_watch *watch;

	if (n < 1 || n > CPUS_MAX)
		n = CPUS_MAX;
	watch = calloc(1, sizeof(*watch) + (size_t)n * sizeof(watch->rings[0]));
	if (!watch)
		return -ENOMEM;
	watch->page = (size_t)sysconf(_SC_PAGESIZE);
	for (int cpu = 0; cpu < n; cpu++) {
		int r = open_ring(&watch->rings[watch->n], cpu, watch->page);

		if (!r) {
			watch->n++;
		} else if (r != -ENODEV) { /* a CPU that is offline */
			libcuda_watch_free(watch);
			return r;
		}
	}
	*watchp = watch;
	return 0;
}

struct libcuda_watch *libcuda_watch_free(struct libcuda_watch *watch) {
	if (!watch)
		return NULL;
	for (size_t i = 0; i < watch->n; i++) {
		munmap(watch->rings[i].page, watch->page * (RING_PAGES + 1));
		close(watch->rings[i].fd);
	}
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
static bool read_event(const struct perf_event_header *header, pid_t *lastp, void (*mapped)(void *userdata, pid_t pid), void *userdata) {
	const struct mapping_event *event = (const void *)header;
	size_t n;

	if (header->type == PERF_RECORD_LOST)
		return false;
	if (header->type != PERF_RECORD_MMAP2 || header->size <= sizeof(*event))
		return true;
	n = strnlen(event->name, header->size - sizeof(*event));
	if (event->name[0] != '/' || !libcuda_path_matches(event->name, n) || (pid_t)event->pid == *lastp)
		return true;
	*lastp = (pid_t)event->pid;
	mapped(userdata, (pid_t)event->pid);
	return true;
}

bool libcuda_watch_read(struct libcuda_watch *watch, void (*mapped)(void *userdata, pid_t pid), void *userdata) {
	union {
		struct perf_event_header header;
		char bytes[EVENT_MAX];
	} event;
	const size_t size = watch->page * RING_PAGES;
	bool complete = true;
	pid_t last = 0;

	for (size_t i = 0; i < watch->n; i++) {
		struct perf_event_mmap_page *page = watch->rings[i].page;
		const char *data = (const char *)page + watch->page;
		uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE), tail = page->data_tail;

		while (tail < head && head - tail <= size) {
			copy_out(&event.header, data, size, tail, sizeof(event.header));
			if (event.header.size < sizeof(event.header) || event.header.size > head - tail)
				break;
			if (event.header.size <= sizeof(event)) {
				copy_out(&event, data, size, tail, event.header.size);
				complete = read_event(&event.header, &last, mapped, userdata) && complete;
			}
			tail += event.header.size;
		}
		__atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
	}
	return complete;
}
