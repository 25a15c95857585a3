/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The image of a twin: a second module, beside one that an application has loaded, with the same
 * kernels and probes in them: the answer to an image (wire.h).
 *
 * A twin has no data of the application. Its code finds the addresses of the application's
 * variables in 8-byte slots of the image, and the shim writes them there before the driver gets
 * it: those of the variables of the original module. So the image in the daemon's cache has no
 * address in it.
 *
 * A kernel whose programs read the launch has one parameter more than the original's, behind the
 * last one: a struct launch_block (launch.h), which the shim fills in at each launch.
 *
 * The file is the image, as the driver takes it; then, at the next multiple of 8 bytes, a struct
 * twin_table, its variables, its kernels with such a block, and the names of both. All numbers are
 * little endian. The shim checks every one of them: the table comes from a worker.
 */

#include <stdint.h>

#define TWIN_MAGIC UINT32_C(0x54525047) /* "GPRT" */
#define TWIN_VERSION UINT32_C(2)
#define TWIN_VARIABLES_MAX 65536
#define TWIN_KERNELS_MAX 65536

struct twin_table {
	uint32_t magic;
	uint32_t version;
	uint32_t variable_count; /* <= TWIN_VARIABLES_MAX */
	uint32_t kernel_count; /* <= TWIN_KERNELS_MAX */
	uint32_t names_size; /* bytes, behind the kernels; the last one is 0 if there are any */
	uint32_t reserved; /* 0 */
};

struct twin_variable {
	uint64_t offset; /* of the slot, from the beginning of the image; any alignment */
	uint32_t name; /* offset in the names, NUL-terminated: as cuModuleGetGlobal() takes it */
	uint32_t reserved; /* 0 */
	int64_t addend; /* the slot is to hold the variable's address plus this */
};

/* A kernel with a struct launch_block behind its parameters. */
struct twin_kernel {
	uint32_t name; /* offset in the names, NUL-terminated */
	uint32_t parameter_count; /* of the original: without the block */
	uint32_t size; /* bytes of the original's parameters, to the end of the last one */
	uint32_t offset; /* of the block among them: `size`, rounded up to a multiple of 8 */
};
