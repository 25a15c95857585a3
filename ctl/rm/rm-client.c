/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The client of NVIDIA's resource manager (rm-client.h): builds the arguments of its ioctls, checks
 * the answers, and puts failures into words. It uses the driver only through the table of driver.h.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "status.h"
#include "rm-client.h"

#define PAGE ((size_t)4096)
#define ALLOC_SIZED                                                                               \
	535 /* the first drivers whose NVOS21 has a number of bytes; before, the status is in its \
	       place */
#define ALLOC_MAX 512 /* bytes: more than any structure of parameters that objects of ours have */

enum {
	ESC_FREE = 0x29,
	ESC_CONTROL = 0x2a,
	ESC_ALLOC = 0x2b,
	ESC_MAP_MEMORY = 0x4e,
	ESC_CARD_INFO = 200,
	ESC_REGISTER_FD = 201,
	ESC_CHECK_VERSION = 210,

	CLASS_ROOT = 0x41,
	CLASS_DEVICE = 0x80,
	CLASS_SUBDEVICE = 0x2080,
	CLASS_MEMORY_DEVICELESS = 0x90ce,

	COMMAND_ID_INFO = 0x205, /* GPU_GET_ID_INFO_V2 */

	VERSION_QUERY = '2',
	MAP_READ_ONLY = 1,
};

#define ATTR_WRITE_BACK (UINT32_C(5) << 29)
#define ATTR2_USER_READ_ONLY (UINT32_C(1) << 22)

/* ---- arguments of ioctls, from nvos.h and nv-ioctl.h ---- */

struct arg_version {
	uint32_t command;
	uint32_t reply; /* 1: recognized */
	char text[64];
};

struct arg_card {
	uint8_t valid;
	uint32_t domain;
	uint8_t bus, slot, function;
	uint16_t vendor, model;
	uint32_t id;
	uint16_t interrupt;
	uint64_t registers, n_registers, memory, n_memory;
	uint32_t minor;
	uint8_t name[10];
};

struct arg_alloc { /* NVOS21 */
	uint32_t root, parent, handle, class;
	uint64_t parameters;
	uint32_t n_parameters; /* 0: as many as the class has */
	uint32_t status;
};

struct arg_free { /* NVOS00 */
	uint32_t root, parent, handle, status;
};

struct arg_control { /* NVOS54 */
	uint32_t root, object, command, flags;
	uint64_t parameters;
	uint32_t n_parameters;
	uint32_t status;
};

struct arg_map { /* NVOS33 with the descriptor that is to be mapped */
	uint32_t root, device, memory, reserved;
	uint64_t offset, size, address;
	uint32_t status, flags;
	int32_t fd, reserved2;
};

_Static_assert(sizeof(struct arg_version) == 72, "nv_ioctl_rm_api_version_t");
_Static_assert(sizeof(struct arg_card) == 72, "nv_ioctl_card_info_t");
_Static_assert(sizeof(struct arg_alloc) == 32, "NVOS21_PARAMETERS");
_Static_assert(sizeof(struct arg_free) == 16, "NVOS00_PARAMETERS");
_Static_assert(sizeof(struct arg_control) == 32, "NVOS54_PARAMETERS");
_Static_assert(sizeof(struct arg_map) == 56, "nv_ioctl_nvos33_parameters_with_fd");

struct id_info { /* NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS */
	uint32_t id, flags, device, subdevice, sli, board, instance;
	int32_t numa;
};

/* ---- calls ---- */

static int call(struct rm_client *client, int fd, unsigned int number, void *argument,
		size_t size) {
	return client->driver->ioctl(client->driver->userdata, fd,
				     _IOC(_IOC_READ | _IOC_WRITE, 'F', number, size), argument);
}

/* Keeps what went wrong: a negative errno, or the driver's status. Returns it, as functions of this
 * file do. */
static int failed(struct rm_client *client, const char *what, uint32_t number, int r,
		  uint32_t status) {
	const char *name = rm_status_name(status);
	char reason[64];

	if (!r && status == RM_OK)
		return 0;
	client->status = r ? RM_OK : status;
	snprintf(reason, sizeof(reason), "NV_STATUS %#x", status);
	snprintf(client->error, sizeof(client->error), number ? "%s %#x: %s" : "%s%.0x: %s", what,
		 number,
		 r      ? strerror(-r)
		 : name ? name
			: reason);
	return r ?: RM_E_REFUSED;
}

int rm_answer_wrong(struct rm_client *client, const char *what) {
	client->status = RM_OK;
	snprintf(client->error, sizeof(client->error), "%s", what);
	return RM_E_ANSWER;
}

int rm_alloc(struct rm_client *client, uint32_t parent, uint32_t class, const void *parameters,
	     size_t n, uint32_t *handlep) {
	_Alignas(8) char buffer[ALLOC_MAX] = {};
	struct arg_alloc argument = { .root = client->root,
				      .parent = parent,
				      .class = class,
				      .parameters = n ? (uintptr_t)buffer : 0 };
	int r;

	if (n > sizeof(buffer))
		return -E2BIG;
	if (n)
		memcpy(buffer, parameters, n);
	r = call(client, client->ctl, ESC_ALLOC, &argument, sizeof(argument));
	r = failed(client, "RM_ALLOC", class, r < 0 ? r : 0,
		   client->branch < ALLOC_SIZED ? argument.n_parameters : argument.status);
	if (r)
		return r;
	if (!argument.handle)
		return rm_answer_wrong(client, "RM_ALLOC: an object without a handle");
	*handlep = argument.handle;
	return 0;
}

void rm_free(struct rm_client *client, uint32_t handle) {
	struct arg_free argument = { .root = client->root,
				     .parent = client->root,
				     .handle = handle };

	if (handle)
		call(client, client->ctl, ESC_FREE, &argument, sizeof(argument));
}

int rm_control(struct rm_client *client, uint32_t object, uint32_t command, void *parameters,
	       size_t n) {
	struct arg_control argument = { client->root,          object,      command, 0,
					(uintptr_t)parameters, (uint32_t)n, 0 };
	const int r = call(client, client->ctl, ESC_CONTROL, &argument, sizeof(argument));

	return failed(client, "RM_CONTROL", command, r < 0 ? r : 0, argument.status);
}

/* ---- the client ---- */

/* The driver refuses objects to those who never asked for its version. */
static int check_version(struct rm_client *client) {
	struct arg_version argument = { .command = VERSION_QUERY };
	int r = call(client, client->ctl, ESC_CHECK_VERSION, &argument, sizeof(argument));

	r = failed(client, "CHECK_VERSION_STR", 0, r < 0 ? r : 0, RM_OK);
	if (r)
		return r;
	memcpy(client->version, argument.text, sizeof(client->version) - 1);
	client->version[strcspn(client->version, "\n")] = '\0';
	client->branch = (unsigned int)strtoul(client->version, NULL, 10);
	if (client->branch >= RM_OLDEST && client->branch < 10000)
		return 0;
	snprintf(client->error, sizeof(client->error),
		 "the driver's version is %.40s: %d or later is needed",
		 *client->version ? client->version : "unknown", RM_OLDEST);
	return RM_E_VERSION;
}

int rm_client_init(struct rm_client *client, const struct rm_driver *driver) {
	int r;

	*client = (struct rm_client){ .driver = driver, .ctl = -1 };
	client->ctl = driver->open(driver->userdata, "/dev/nvidiactl");
	if (client->ctl < 0) {
		r = client->ctl;
		client->ctl = -1;
		return failed(client, "/dev/nvidiactl", 0, r, RM_OK);
	}
	r = check_version(client);
	return r ?: rm_alloc(client, 0, CLASS_ROOT, NULL, 0, &client->root);
}

void rm_client_deinit(struct rm_client *client) {
	rm_free(client, client->root);
	if (client->ctl >= 0)
		client->driver->close(client->driver->userdata, client->ctl);
	client->root = 0;
	client->ctl = -1;
}

/* ---- GPUs ---- */

int rm_cards(struct rm_client *client, struct rm_card *cards, size_t *np) {
	struct arg_card arguments[RM_GPUS_MAX] = {};
	int r = call(client, client->ctl, ESC_CARD_INFO, arguments, sizeof(arguments));
	size_t n = 0;

	r = failed(client, "CARD_INFO", 0, r < 0 ? r : 0, RM_OK);
	for (size_t i = 0; !r && i < RM_GPUS_MAX; i++) {
		const struct arg_card *card = &arguments[i];

		if (card->valid)
			cards[n++] = (struct rm_card){ card->id,  card->minor, card->domain,
						       card->bus, card->slot,  card->function };
	}
	if (!r)
		*np = n;
	return r;
}

/* Opens /dev/nvidiaN, and makes the objects that stand for the GPU. */
int rm_gpu_open(struct rm_gpu *gpu, struct rm_client *client, const struct rm_card *card) {
	const struct rm_driver *driver = client->driver;
	struct id_info info = { .id = card->id };
	uint32_t parameters[14] = {}; /* NV0080_ALLOC_PARAMETERS: deviceId comes first */
	char path[32];
	int r;

	*gpu = (struct rm_gpu){ .client = client, .card = *card, .fd = -1 };
	snprintf(path, sizeof(path), "/dev/nvidia%u", card->minor);
	r = driver->open(driver->userdata, path);
	if (r < 0)
		return failed(client, path, 0, r, RM_OK);
	gpu->fd = r;
	r = call(client, gpu->fd, ESC_REGISTER_FD, &(int){ client->ctl }, sizeof(int));
	r = failed(client, "REGISTER_FD", 0, r < 0 ? r : 0, RM_OK);
	if (!r)
		r = rm_control(client, client->root, COMMAND_ID_INFO, &info, sizeof(info));
	parameters[0] = info.device;
	if (!r)
		r = rm_alloc(client, client->root, CLASS_DEVICE, parameters, sizeof(parameters),
			     &gpu->device);
	return r
		       ?: rm_alloc(client, gpu->device, CLASS_SUBDEVICE, &info.subdevice,
				   sizeof(info.subdevice), &gpu->subdevice);
}

void rm_gpu_close(struct rm_gpu *gpu) {
	if (!gpu->client)
		return;
	rm_free(gpu->client, gpu->device);
	if (gpu->fd >= 0)
		gpu->client->driver->close(gpu->client->driver->userdata, gpu->fd);
	*gpu = (struct rm_gpu){ .fd = -1 };
}

/* ---- memory ---- */

/* A descriptor is good for one mapping, which the driver prepares for it. */
static int map(struct rm_memory *memory, struct rm_client *client) {
	const struct rm_driver *driver = client->driver;
	struct arg_map argument = { .root = client->root,
				    .device = client->root,
				    .memory = memory->handle,
				    .size = memory->size,
				    .flags = MAP_READ_ONLY };
	int r;

	r = driver->open(driver->userdata, "/dev/nvidiactl");
	if (r < 0)
		return failed(client, "/dev/nvidiactl", 0, r, RM_OK);
	argument.fd = r;
	r = call(client, client->ctl, ESC_MAP_MEMORY, &argument, sizeof(argument));
	r = failed(client, "RM_MAP_MEMORY", 0, r < 0 ? r : 0, argument.status);
	if (!r) {
		memory->address = driver->map(driver->userdata, argument.fd, memory->size);
		if (!memory->address)
			r = failed(client, "mmap of /dev/nvidiactl", 0, errno ? -errno : -EIO,
				   RM_OK);
	}
	driver->close(driver->userdata, argument.fd);
	return r;
}

int rm_memory_init(struct rm_memory *memory, struct rm_client *client, size_t size) {
	struct { /* NV_MEMORY_ALLOCATION_PARAMS */
		uint32_t owner, type, flags, width, height;
		int32_t pitch;
		uint32_t attr, attr2, format, compression, cull, reserved;
		uint64_t range_low, range_high, size, alignment;
	} parameters = { .attr = ATTR_WRITE_BACK, .attr2 = ATTR2_USER_READ_ONLY };
	int r;

	_Static_assert(offsetof(__typeof__(parameters), attr) == 24 &&
			       offsetof(__typeof__(parameters), size) == 64,
		       "NV_MEMORY_ALLOCATION_PARAMS");
	*memory = (struct rm_memory){ .size = (size + PAGE - 1) & ~(PAGE - 1) };
	parameters.size = memory->size;
	parameters.alignment = PAGE;
	r = rm_alloc(client, client->root, CLASS_MEMORY_DEVICELESS, &parameters, sizeof(parameters),
		     &memory->handle);
	return r ?: map(memory, client);
}

void rm_memory_deinit(struct rm_memory *memory, struct rm_client *client) {
	if (memory->address)
		client->driver->unmap(client->driver->userdata, memory->address, memory->size);
	rm_free(client, memory->handle);
	*memory = (struct rm_memory){};
}
