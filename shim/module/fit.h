/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * May a twin be launched in place of its original (twin.h), as far as room on the device goes?
 *
 * A kernel with a barrier of its own waits until all its blocks are there. Its program chooses the
 * grid so that they all fit on the device at once. Probes take registers, so fewer blocks of the
 * twin may fit. If all blocks of a launch fit at once with the original, and perhaps not with the
 * twin, the original has to be launched. The driver is asked before, once for each shape.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"

/* What is launched, and how: by a call, or as a node of an executable graph. */
struct twin_shape {
	driver_handle function; /* the application's own function or kernel */
	driver_handle stream;
	driver_handle
		context; /* where it runs; NULL: in the stream's, which twin.h then writes here */
	unsigned grid[3], block[3];
	unsigned shared; /* bytes of dynamic shared memory */
	unsigned cluster[3]; /* blocks of a cluster; 0: nothing is said */
	bool cooperative; /* the driver refuses it if its blocks do not fit at once */
	bool own; /* no twin can be launched so */
};

/* CUlaunchAttribute and CUlaunchConfig. */
struct fit_attribute {
	int id;
	int reserved;
	unsigned value[16];
};
struct fit_configuration {
	unsigned grid[3], block[3];
	unsigned shared;
	driver_handle stream;
	const struct fit_attribute *attributes;
	unsigned count;
};

/* The shape of a launch by configuration, which may be NULL. */
struct twin_shape fit_shape(driver_handle function, const struct fit_configuration *configuration);

/* Adds what one attribute of a launch or node says. value: CUlaunchAttributeValue. */
void fit_add_attribute(struct twin_shape *shape, int id, const unsigned *value);

enum fit {
	FIT_YES,
	FIT_UNKNOWN, /* the driver does not say */
	FIT_NO_REGISTERS, /* no block of the twin can be launched */
	FIT_NOT_AT_ONCE, /* the original's blocks may all be on the device at once, the twin's may
			    not */
};

/*
 * May the twin be launched so, in shape->context? Any thread, no lock; in a launch, so that the
 * twin is not unloaded. An answer that is known costs a few nanoseconds.
 */
enum fit fit_ask(const struct twin_shape *shape, driver_handle twin);

/* Something was changed that answers depend on: attributes of a function, or what a handle is of.
 */
void fit_forget(void);
