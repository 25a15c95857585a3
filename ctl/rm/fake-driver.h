/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A test double of the driver's resource manager: answers the ioctls of a client from the numbers
 * that are in NVIDIA's public headers, which it reads at their offsets and not by our structs, and
 * refuses what the driver would. It is strict: an argument of another size, an object that is not
 * there, a parent of the wrong kind are refused.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define FAKE_OBJECTS 64
#define FAKE_LOG 256
#define FAKE_READ 1056 /* nanoseconds, of a register */

struct fake_driver {
	/* what it is to do */
	const char *version; /* NULL: 580.159.04 */
	unsigned int n_gpus;
	int fail_at, error; /* the ioctl of that number (from 1) fails: errno */
	int refuse_at; /* or its status is: */
	uint32_t status;
	uint32_t bind_status, bind_reason; /* a binding is refused ... */
	bool only_all_users; /* ... if it is of all users */
	int64_t ppm; /* how much faster the GPU's timer is */
	const void *records; /* of 32 bytes, for the event buffer; time 0 ... is since the binding,
				on the GPU's timer */
	size_t n_records;
	size_t portion; /* so many a flush; 0: all */
	bool put_wrong; /* `put` lies outside of the ring */
	bool clock_wrong; /* pairs have times of another year */

	/* what was done */
	int n_ioctls;
	int n_fds, n_objects;
	struct {
		uint32_t nr, number, status; /* number: class or command */
	} log[FAKE_LOG];
	uint32_t get; /* as it was told */
	uint32_t put, n_dropped;
	uint64_t bound_at; /* on the GPU's timer */

	/* its own */
	struct fake_object {
		uint32_t handle, parent, class;
		int fd; /* of memory */
		uint32_t size;
		char *address;
	} objects[FAKE_OBJECTS];
	uint32_t n_handles;
	uint32_t header, ring, n_ring; /* of the event buffer: handles, records */
	bool enabled;
	uint64_t taken; /* records that the buffer got */
};

/* *driver has the table; fake is its userdata. */
void fake_driver_init(struct fake_driver *fake, struct rm_driver *driver);
/* What a client left behind. */
void fake_driver_deinit(struct fake_driver *fake);
int fake_driver_ioctl(void *fake, int fd, unsigned long command, void *argument);
int fake_driver_open(void *fake, const char *path);
