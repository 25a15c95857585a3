/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What this kernel and its driver have: versions, functions, device numbers, layouts, tracepoints.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook-spec.h"

struct btf;

/* Where facts are read; NULL: where the kernel has them. Tests have their own. */
struct hook_places {
	const char *version; /* /proc/driver/nvidia/version */
	const char *devices; /* /proc/devices */
	const char *symbols; /* /proc/kallsyms */
	const char *folder; /* HOOK_FOLDER */
	const char *extra_devices; /* "1:3=ctl 1:5=uvm": others that stand in for the driver's: ctl,
				      gpu, uvm, uvm-tools, modeset, caps */
};

struct hook_symbol {
	char *module; /* with _ for - */
	char *name;
	uint64_t address;
	bool traceable; /* ftrace reaches it */
};

struct hook_kernel {
	struct hook_places places;
	uint16_t version[3]; /* of the driver; version[0] 0: none is loaded */
	char version_text[32];
	struct hook_device devices[HOOK_DEVICES_MAX];
	size_t n_devices;
	struct hook_symbol *symbols; /* functions of modules whose names begin with nvidia, by
					module and name */
	size_t n_symbols;
	bool knows_traceable; /* else all are said to be */
	bool has_fprobe;
	struct btf *btf; /* of the kernel, or NULL */
	int tracefs; /* its root, or -1 */
	const char *tracefs_error;
	int kprobe_type, kprobe_return_bit; /* type -1: the kernel has no kprobes */
};

/* Never fails for what is not there: that is found where it is needed. Some milliseconds, with a
 * driver some tens. 0 or -ENOMEM. */
int hook_kernel_init(struct hook_kernel *kernel, const struct hook_places *places);
void hook_kernel_deinit(struct hook_kernel *kernel);

/* Address of a function. 0: it is not there, and *reasonp says why; the address of other modules
 * than NVIDIA's takes the time to read all symbols. */
uint64_t hook_kernel_address(const struct hook_kernel *kernel, const char *module,
			     const char *function, const char **reasonp);

/* Whether ftrace reaches a function of NVIDIA's: the core of the driver is built without; true
 * where that is not known. */
bool hook_kernel_traceable(const struct hook_kernel *kernel, const char *module,
			   const char *function);

/* Whether the module is loaded. */
bool hook_kernel_has_module(const struct hook_kernel *kernel, const char *module);

/* Offset in bytes of a member, from BTF. False: not known. */
bool hook_kernel_offset(const struct hook_kernel *kernel, const char *structure, const char *member,
			uint32_t *offsetp);

/* The offsets of config. False: there is no BTF that has them. */
bool hook_kernel_offsets(const struct hook_kernel *kernel, struct hook_config *config);

/* BTF of a module: a descriptor and the id of the function; -ENOENT: it has none, or not that
 * function. */
int hook_kernel_function_btf(const struct hook_kernel *kernel, const char *module,
			     const char *function, int *fdp);

struct hook_field {
	uint32_t offset;
	uint8_t size;
	uint8_t from; /* enum hook_from */
	const struct hook_type *type;
};

/* Id of a tracepoint, for perf_event_open(2). Negative: -ENOENT, or that there is no tracefs. */
int hook_kernel_tracepoint(const struct hook_kernel *kernel, const char *group, const char *name);

/* A field of it. False: there is none of that name, or it is no number and no text. */
bool hook_kernel_field(const struct hook_kernel *kernel, const char *group, const char *name,
		       const char *field, struct hook_field *result);
