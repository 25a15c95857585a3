/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The image of a twin: a second module, beside one that an application has loaded, with the same
 * kernels and probes in them (WIRE_IMAGE_FLAG_TWIN of wire.h).
 *
 * A twin has no data of the application. Its code finds the addresses of the application's
 * variables in 8-byte slots of the image, and the shim writes them there before the driver gets
 * it: those of the variables of the original module. So the image in the daemon's cache has no
 * address in it.
 *
 * The file is the image, as the driver takes it; then, at the next multiple of 8 bytes, a struct
 * twin_table, its variables, and their names. All numbers are little endian. The shim checks every
 * one of them: the table comes from a worker.
 */

#include <stdint.h>

#define TWIN_MAGIC UINT32_C(0x54525047) /* "GPRT" */
#define TWIN_VERSION UINT32_C(1)
#define TWIN_VARIABLES_MAX 65536

struct twin_table {
	uint32_t magic;
	uint32_t version;
	uint32_t variable_count; /* <= TWIN_VARIABLES_MAX */
	uint32_t names_size; /* bytes, behind the variables; the last one is 0 if there are any */
};

struct twin_variable {
	uint64_t offset; /* of the slot, from the beginning of the image; any alignment */
	uint32_t name; /* offset in the names, NUL-terminated: as cuModuleGetGlobal() takes it */
	uint32_t reserved; /* 0 */
	int64_t addend; /* the slot is to hold the variable's address plus this */
};
