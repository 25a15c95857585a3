/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Collects facts of the running kernel that hooks need (hook-kernel.h). It only reads.
 *
 * Facts of the kernel. tracefs need not be mounted: fsopen(2) gives a mount of our own that nobody
 * else sees. Functions are looked up by address, since the same name is in several modules
 * (nv_kthread_q_* is in three) and kernels differ in how they take "module:function".
 */

#include "hook-kernel.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "proto/trace.h"

#define PMU "/sys/bus/event_source/devices/"
#define FORMAT_MAX 16384
/* Bytes of the fields that all tracepoints have, common_pid and its like: programs find an address
 * of the kernel's in their place. */
#define COMMON_SIZE 8

/* ---- the driver ---- */

/* "580.159.04" and its parts; zeros: there is none. */
static void read_version(struct hook_kernel *kernel) {
	const char *path = kernel->places.version ?: "/proc/driver/nvidia/version";
	char text[512], *word, *rest;

	/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ...":
	 * the first word that is a version */
	if (file_read_text(AT_FDCWD, path, text, sizeof(text)) < 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	for (word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
		if (strchr(word, '.') && strlen(word) < sizeof(kernel->version_text) &&
		    hook_version_parse(kernel->version, word)) {
			strcpy(kernel->version_text, word);
			return;
		}
	memset(kernel->version, 0, sizeof(kernel->version));
}

static void add_device(struct hook_kernel *kernel, uint32_t major, uint32_t first, uint32_t last,
		       uint32_t device) {
	if (kernel->n_devices < HOOK_DEVICES_MAX)
		kernel->devices[kernel->n_devices++] = (struct hook_device){
			.major = major, .first = first, .last = last, .device = device
		};
}

/* "1:3=ctl 1:5=uvm" */
static void add_extra_devices(struct hook_kernel *kernel, const char *text) {
	static const char *const names[] = {
		[TRACE_DEVICE_CTL] = "ctl",         [TRACE_DEVICE_GPU] = "gpu",
		[TRACE_DEVICE_UVM] = "uvm",         [TRACE_DEVICE_UVM_TOOLS] = "uvm-tools",
		[TRACE_DEVICE_MODESET] = "modeset", [TRACE_DEVICE_CAPS] = "caps"
	};
	unsigned major, minor;
	char name[16];
	int n;

	while (sscanf(text, " %u:%u=%15[a-z-]%n", &major, &minor, name, &n) == 3) {
		for (uint32_t i = 1; i < sizeof(names) / sizeof(*names); i++)
			if (!strcmp(names[i], name))
				add_device(kernel, major, minor, minor, i);
		text += n;
	}
}

/* /proc/devices: "195 nvidia" (older: nvidia-frontend), "508 nvidia-uvm", "237 nvidia-caps". */
static void read_devices(struct hook_kernel *kernel) {
	FILE *file = fopen(kernel->places.devices ? kernel->places.devices : "/proc/devices", "re");
	char line[128], name[64];
	unsigned major;

	if (kernel->places.extra_devices)
		add_extra_devices(kernel, kernel->places.extra_devices);
	while (file && fgets(line, sizeof(line), file) && strncmp(line, "Block", 5)) {
		if (sscanf(line, "%u %63s", &major, name) != 2 || strncmp(name, "nvidia", 6))
			continue;
		if (!strcmp(name, "nvidia") || !strcmp(name, "nvidia-frontend")) {
			add_device(kernel, major, 0, 253, TRACE_DEVICE_GPU);
			add_device(kernel, major, 254, 254, TRACE_DEVICE_MODESET);
			add_device(kernel, major, 255, 255, TRACE_DEVICE_CTL);
		} else if (!strcmp(name, "nvidia-uvm")) {
			add_device(kernel, major, 0, 0, TRACE_DEVICE_UVM);
			add_device(kernel, major, 1, 1, TRACE_DEVICE_UVM_TOOLS);
		} else if (!strcmp(name, "nvidia-modeset")) {
			/* minor of the number above */
		} else if (!strncmp(name, "nvidia-caps", 11)) {
			add_device(kernel, major, 0, UINT32_MAX, TRACE_DEVICE_CAPS);
		}
	}
	if (file)
		fclose(file);
}

/* ---- functions ---- */

/* "ffffffffc0a0b000 t nv_alloc_pages	[nvidia]" */
static bool parse_symbol(char *line, uint64_t *addressp, const char **namep, const char **modulep) {
	char *type, *name, *module, *end;

	*addressp = strtoull(line, &type, 16);
	if (*type != ' ' || !strchr("tTwW", type[1]) || type[2] != ' ')
		return false;
	name = type + 3;
	end = name + strcspn(name, " \t\n");
	module = strchr(end, '[');
	*end = '\0';
	if (module) {
		module++;
		module[strcspn(module, "]")] = '\0';
	}
	*namep = name;
	*modulep = module ? module : "vmlinux";
	return true;
}

static int compare_symbols(const void *a, const void *b) {
	const struct hook_symbol *x = a, *y = b;
	int order = strcmp(x->module, y->module);

	return order ? order : strcmp(x->name, y->name);
}

static int add_symbol(struct hook_kernel *kernel, size_t *max, const char *module, const char *name,
		      uint64_t address) {
	struct hook_symbol *symbols = kernel->symbols;

	if (kernel->n_symbols == *max) {
		*max = *max ? 2 * *max : 4096;
		symbols = reallocarray(symbols, *max, sizeof(*symbols));
		if (!symbols)
			return -ENOMEM;
		kernel->symbols = symbols;
	}
	symbols += kernel->n_symbols;
	*symbols = (struct hook_symbol){ .module = strdup(module),
					 .name = strdup(name),
					 .address = address };
	kernel->n_symbols++;
	return symbols->module && symbols->name ? 0 : -ENOMEM;
}

static int read_symbols(struct hook_kernel *kernel) {
	FILE *file =
		fopen(kernel->places.symbols ? kernel->places.symbols : "/proc/kallsyms", "re");
	const char *name, *module;
	uint64_t address;
	char line[512];
	size_t max = 0;
	int r = 0;

	while (!r && file && fgets(line, sizeof(line), file)) {
		kernel->has_fprobe |= !!strstr(line, " register_fprobe_ips\n");
		if (strstr(line, "\t[nvidia") && parse_symbol(line, &address, &name, &module) &&
		    strncmp(name, "__pfx_", 6))
			r = add_symbol(kernel, &max, module, name, address);
	}
	if (file)
		fclose(file);
	if (!r && kernel->n_symbols)
		qsort(kernel->symbols, kernel->n_symbols, sizeof(*kernel->symbols),
		      compare_symbols);
	return r;
}

static struct hook_symbol *find_symbol(const struct hook_kernel *kernel, const char *module,
				       const char *function) {
	struct hook_symbol key = { .module = (char *)module, .name = (char *)function };

	return kernel->n_symbols ? bsearch(&key, kernel->symbols, kernel->n_symbols, sizeof(key),
					   compare_symbols)
				 : NULL;
}

/* "nv_alloc_pages [nvidia]" */
static void read_traceable(struct hook_kernel *kernel) {
	int fd = kernel->n_symbols && kernel->tracefs >= 0
			 ? openat(kernel->tracefs, "available_filter_functions",
				  O_RDONLY | O_CLOEXEC)
			 : -1;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
	char line[512], name[256], module[128];
	struct hook_symbol *symbol;

	if (!file && fd >= 0)
		close(fd);
	while (file && fgets(line, sizeof(line), file)) {
		if (!strstr(line, " [nvidia") || sscanf(line, "%255s [%127[^]]", name, module) != 2)
			continue;
		symbol = find_symbol(kernel, module, name);
		if (symbol)
			symbol->traceable = kernel->knows_traceable = true;
	}
	if (file)
		fclose(file);
}

bool hook_kernel_traceable(const struct hook_kernel *kernel, const char *module,
			   const char *function) {
	const struct hook_symbol *symbol =
		kernel->knows_traceable ? find_symbol(kernel, module, function) : NULL;

	return !symbol || symbol->traceable;
}

static bool is_module_loaded(const char *module) {
	FILE *file = fopen("/proc/modules", "re");
	size_t n = strlen(module);
	bool found = false;
	char line[512];

	while (!found && file && fgets(line, sizeof(line), file))
		found = !strncmp(line, module, n) && line[n] == ' ';
	if (file)
		fclose(file);
	return found;
}

bool hook_kernel_has_module(const struct hook_kernel *kernel, const char *module) {
	for (size_t i = 0; i < kernel->n_symbols; i++)
		if (!strcmp(kernel->symbols[i].module, module))
			return true;
	/* of NVIDIA's, all that have functions were read */
	return !strcmp(module, "vmlinux") ||
	       (strncmp(module, "nvidia", 6) && is_module_loaded(module));
}

/* Among all symbols: two of one name are none. */
static uint64_t scan_symbols(const struct hook_kernel *kernel, const char *module,
			     const char *function, const char **reasonp) {
	FILE *file =
		fopen(kernel->places.symbols ? kernel->places.symbols : "/proc/kallsyms", "re");
	uint64_t address, found = 0;
	const char *name, *owner;
	char line[512];
	size_t n = 0;

	while (file && fgets(line, sizeof(line), file))
		if (strstr(line, function) && parse_symbol(line, &address, &name, &owner) &&
		    !strcmp(name, function) && !strcmp(owner, module)) {
			found = address;
			n++;
		}
	if (file)
		fclose(file);
	if (n > 1)
		*reasonp = "several functions have that name";
	else if (n && !found)
		*reasonp = "the kernel does not tell addresses of functions";
	return n == 1 ? found : 0;
}

uint64_t hook_kernel_address(const struct hook_kernel *kernel, const char *module,
			     const char *function, const char **reasonp) {
	struct hook_symbol *symbol;

	*reasonp = "there is no such function (or the compiler inlined it)";
	if (strncmp(module, "nvidia", 6)) {
		if (!hook_kernel_has_module(kernel, module))
			*reasonp = "the module is not loaded";
		return scan_symbols(kernel, module, function, reasonp);
	}
	symbol = find_symbol(kernel, module, function);
	if (!symbol && !hook_kernel_has_module(kernel, module))
		*reasonp = "the module is not loaded";
	if (symbol && !symbol->address)
		*reasonp = "the kernel does not tell addresses of functions";
	/* sorted: others of that name are its neighbours */
	if (symbol && ((symbol > kernel->symbols && !compare_symbols(symbol - 1, symbol)) ||
		       (symbol + 1 < kernel->symbols + kernel->n_symbols &&
			!compare_symbols(symbol + 1, symbol)))) {
		*reasonp = "several functions have that name";
		return 0;
	}
	return symbol ? symbol->address : 0;
}

/* ---- layouts ---- */

static bool find_member(const struct btf *btf, uint32_t id, const char *member, uint32_t base,
			uint32_t *offsetp) {
	const struct btf_type *type = btf__type_by_id(btf, id);

	for (uint16_t i = 0; type && i < btf_vlen(type); i++) {
		uint32_t offset = base + btf_member_bit_offset(type, i) / 8;
		const char *name = btf__name_by_offset(btf, btf_members(type)[i].name_off);
		const struct btf_type *inner;
		uint32_t inner_id = btf_members(type)[i].type;

		if (name && !strcmp(name, member)) {
			*offsetp = offset;
			return true;
		}
		/* members of a struct without a name are its parent's; of const ones, too */
		inner = btf__type_by_id(btf, inner_id);
		while (inner && (btf_is_mod(inner) || btf_is_typedef(inner))) {
			inner_id = inner->type;
			inner = btf__type_by_id(btf, inner_id);
		}
		if (inner && btf_is_composite(inner) && (!name || !*name) &&
		    find_member(btf, inner_id, member, offset, offsetp))
			return true;
	}
	return false;
}

bool hook_kernel_offset(const struct hook_kernel *kernel, const char *structure, const char *member,
			uint32_t *offsetp) {
	int id = kernel->btf ? btf__find_by_name_kind(kernel->btf, structure, BTF_KIND_STRUCT)
			     : -ENOENT;

	return id > 0 && find_member(kernel->btf, (uint32_t)id, member, 0, offsetp);
}

bool hook_kernel_offsets(const struct hook_kernel *kernel, struct hook_config *config) {
	const struct {
		const char *structure, *member;
		uint32_t *offset;
	} offsets[] = {
		{ "file", "f_inode", &config->file_inode },
		{ "inode", "i_rdev", &config->inode_rdev },
		{ "task_struct", "files", &config->task_files },
		{ "files_struct", "fdt", &config->files_fdt },
		{ "fdtable", "fd", &config->fdt_fd },
		{ "fdtable", "max_fds", &config->fdt_max },
		{ "task_struct", "pid", &config->task_pid },
		{ "task_struct", "tgid", &config->task_tgid },
		{ "task_struct", "exit_code", &config->task_exit_code },
		{ "task_struct", "signal", &config->task_signal },
		{ "signal_struct", "live", &config->signal_live },
	};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++)
		if (!hook_kernel_offset(kernel, offsets[i].structure, offsets[i].member,
					offsets[i].offset))
			return false;
	return true;
}

/* Descriptor of the kernel's own BTF object of a module. */
static int module_btf_fd(const char *module) {
	uint32_t id = 0;

	while (!bpf_btf_get_next_id(id, &id)) {
		char name[64] = "";
		struct bpf_btf_info info = { .name = (uint64_t)(uintptr_t)name,
					     .name_len = sizeof(name) };
		uint32_t size = sizeof(info);
		int fd = bpf_btf_get_fd_by_id(id);

		if (fd < 0)
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &size) && info.kernel_btf &&
		    !strcmp(name, module))
			return fd;
		close(fd);
	}
	return -ENOENT;
}

int hook_kernel_function_btf(const struct hook_kernel *kernel, const char *module,
			     const char *function, int *fdp) {
	struct btf *btf;
	int id, fd = -1;

	if (!kernel->btf)
		return -ENOENT;
	if (!strcmp(module, "vmlinux")) {
		id = btf__find_by_name_kind(kernel->btf, function, BTF_KIND_FUNC);
	} else {
		btf = btf__load_module_btf(module, kernel->btf);
		if (!btf)
			return -ENOENT;
		id = btf__find_by_name_kind(btf, function, BTF_KIND_FUNC);
		btf__free(btf);
		if (id > 0) {
			fd = module_btf_fd(module);
			if (fd < 0)
				return -ENOENT;
		}
	}
	*fdp = fd;
	return id > 0 ? id : -ENOENT;
}

/* ---- tracepoints ---- */

static int open_tracefs(const char **errorp) {
	int fd, mount = -1;

	if (!access("/sys/kernel/tracing/events", F_OK))
		return open("/sys/kernel/tracing", O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = (int)syscall(SYS_fsopen, "tracefs", FSOPEN_CLOEXEC);
	if (fd < 0) {
		*errorp = errno == ENODEV ? "the kernel has no tracefs" : strerror(errno);
		return -1;
	}
	if (!syscall(SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		mount = (int)syscall(SYS_fsmount, fd, FSMOUNT_CLOEXEC, 0);
	*errorp = strerror(errno);
	close(fd);
	return mount;
}

int hook_kernel_tracepoint(const struct hook_kernel *kernel, const char *group, const char *name) {
	char path[256], text[32];

	snprintf(path, sizeof(path), "events/%.100s/%.100s/id", group, name);
	if (kernel->tracefs < 0)
		return -ENOTSUP;
	return file_read_text(kernel->tracefs, path, text, sizeof(text)) < 0 ? -ENOENT : atoi(text);
}

/* The type by which a field is shown. */
static const struct hook_type *field_type(unsigned size, int is_signed) {
	char name[8];

	snprintf(name, sizeof(name), "%c%u", is_signed ? 's' : 'u', 8 * size);
	return hook_type_find(name, strlen(name));
}

/* "	field:__data_loc char[] name;	offset:12;	size:4;	signed:1;" */
static bool parse_field(char *line, const char *wanted, struct hook_field *field) {
	char *declaration = strstr(line, "field:"), *semicolon, *name, *bracket;
	unsigned offset, size;
	int is_signed;

	semicolon = declaration ? strchr(declaration, ';') : NULL;
	if (!semicolon ||
	    sscanf(semicolon, "; offset:%u; size:%u; signed:%d;", &offset, &size, &is_signed) != 3)
		return false;
	*semicolon = '\0';
	name = strrchr(declaration, ' ');
	if (!name)
		return false;
	name++;
	bracket = strchr(name, '[');
	if (bracket)
		*bracket = '\0';
	if (strcmp(name, wanted) || offset < COMMON_SIZE)
		return false;
	field->offset = offset;
	field->size = (uint8_t)size;
	field->from = HOOK_FROM_FIELD;
	if (strstr(declaration, "__data_loc char"))
		field->from = HOOK_FROM_TEXT_FIELD;
	else if (strstr(declaration, "__rel_loc char"))
		field->from = HOOK_FROM_TEXT_RELATIVE;
	else if (bracket && strstr(declaration, "char "))
		field->from = HOOK_FROM_TEXT_ARRAY;
	if (field->from != HOOK_FROM_FIELD) {
		field->type = hook_type_find("str", 3);
		return true;
	}
	field->type =
		strchr(declaration, '*') ? hook_type_find("ptr", 3) : field_type(size, is_signed);
	return (size == 1 || size == 2 || size == 4 || size == 8) && !bracket;
}

bool hook_kernel_field(const struct hook_kernel *kernel, const char *group, const char *name,
		       const char *wanted, struct hook_field *field) {
	char path[256], *text = malloc(FORMAT_MAX), *line, *rest;
	bool found = false;

	snprintf(path, sizeof(path), "events/%.100s/%.100s/format", group, name);
	if (text && kernel->tracefs >= 0 &&
	    file_read_text(kernel->tracefs, path, text, FORMAT_MAX) >= 0)
		for (line = strtok_r(text, "\n", &rest); line && !found;
		     line = strtok_r(NULL, "\n", &rest))
			found = parse_field(line, wanted, field);
	free(text);
	return found;
}

/* ---- all ---- */

/* A number of a file of sysfs, behind a prefix ("config:0" has 0); -1: it is not there. */
static int read_number(const char *path, const char *prefix) {
	char text[64];

	if (file_read_text(AT_FDCWD, path, text, sizeof(text)) < 0 ||
	    strncmp(text, prefix, strlen(prefix)))
		return -1;
	return atoi(text + strlen(prefix));
}

int hook_kernel_init(struct hook_kernel *kernel, const struct hook_places *places) {
	int r;

	*kernel = (struct hook_kernel){ .tracefs = -1, .tracefs_error = "" };
	if (places)
		kernel->places = *places;
	read_version(kernel);
	read_devices(kernel);
	kernel->kprobe_type = read_number(PMU "kprobe/type", "");
	kernel->kprobe_return_bit = read_number(PMU "kprobe/format/retprobe", "config:");
	kernel->tracefs = open_tracefs(&kernel->tracefs_error);
	kernel->btf = btf__load_vmlinux_btf();
	r = read_symbols(kernel);
	if (r < 0)
		hook_kernel_deinit(kernel);
	else
		read_traceable(kernel);
	return r;
}

void hook_kernel_deinit(struct hook_kernel *kernel) {
	for (size_t i = 0; i < kernel->n_symbols; i++) {
		free(kernel->symbols[i].module);
		free(kernel->symbols[i].name);
	}
	free(kernel->symbols);
	btf__free(kernel->btf);
	if (kernel->tracefs >= 0)
		close(kernel->tracefs);
	*kernel = (struct hook_kernel){ .tracefs = -1 };
}
