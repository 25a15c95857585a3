/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The test double of NVIDIA's resource manager (fake-driver.h). Tests of ctl/rm use it in place of
 * a driver; it touches no device.
 */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake-driver.h"
#include "lib/base/clock.h"

#define RECORD 32
#define GPU_EPOCH UINT64_C(1700000000000000000)

enum {
	OK = 0,
	INSUFFICIENT_PERMISSIONS = 0x1b,
	INVALID_ARGUMENT = 0x1f,
	INVALID_CLASS = 0x22,
	INVALID_CLIENT = 0x23,
	INVALID_COMMAND = 0x24,
	INVALID_OBJECT_HANDLE = 0x33,
	INVALID_OBJECT_PARENT = 0x36,
	INVALID_PARAM_STRUCT = 0x3a,
};

static uint32_t get32(const void *bytes, size_t at) {
	uint32_t word;

	memcpy(&word, (const char *)bytes + at, sizeof(word));
	return word;
}

static uint64_t get64(const void *bytes, size_t at) {
	uint64_t word;

	memcpy(&word, (const char *)bytes + at, sizeof(word));
	return word;
}

static void put32(void *bytes, size_t at, uint32_t word) {
	memcpy((char *)bytes + at, &word, sizeof(word));
}

static void put64(void *bytes, size_t at, uint64_t word) {
	memcpy((char *)bytes + at, &word, sizeof(word));
}

/* The GPU's timer at a time of the host's; it steps by 32 ns. */
static uint64_t gpu_time(const struct fake_driver *fake, uint64_t raw) {
	return (GPU_EPOCH + raw + (uint64_t)((int64_t)(raw / 1000000) * fake->ppm)) & ~UINT64_C(31);
}

/* ---- objects ---- */

static struct fake_object *find(struct fake_driver *fake, uint32_t handle) {
	for (size_t i = 0; handle && i < FAKE_OBJECTS; i++)
		if (fake->objects[i].handle == handle)
			return &fake->objects[i];
	return NULL;
}

static void release(struct fake_driver *fake, struct fake_object *object) {
	const uint32_t handle = object->handle;

	if (object->address) {
		munmap(object->address, object->size);
		close(object->fd);
	}
	*object = (struct fake_object){};
	fake->n_objects--;
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		if (fake->objects[i].handle && fake->objects[i].parent == handle)
			release(fake, &fake->objects[i]);
}

static uint32_t make_memory(struct fake_object *object, const char *parameters) {
	const uint64_t size = get64(parameters, 64);

	/* what an event buffer is made of can be read only */
	if (!size || size % 4096 || size > 1 << 20 || !(get32(parameters, 28) & 1 << 22))
		return INVALID_ARGUMENT;
	object->size = (uint32_t)size;
	object->fd = memfd_create("fake-memory", MFD_CLOEXEC);
	if (object->fd < 0 || ftruncate(object->fd, (off_t)size))
		return INVALID_ARGUMENT;
	object->address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, object->fd, 0);
	return OK;
}

static uint32_t make_event_buffer(struct fake_driver *fake, const char *parameters) {
	const struct fake_object *header = find(fake, get32(parameters, 60)),
				 *ring = find(fake, get32(parameters, 64));
	const uint32_t size = get32(parameters, 16), n = get32(parameters, 20);

	if (!header || !header->address || !ring || !ring->address)
		return INVALID_OBJECT_HANDLE;
	if (size != RECORD || n < 2 || (uint64_t)n * size > ring->size || get32(parameters, 32) ||
	    get32(parameters, 68))
		return INVALID_ARGUMENT;
	if (!find(fake, get32(parameters, 52)))
		return INVALID_OBJECT_HANDLE;
	fake->header = header->handle;
	fake->ring = ring->handle;
	fake->n_ring = n;
	return OK;
}

static uint32_t alloc(struct fake_driver *fake, void *argument) {
	const uint32_t class = get32(argument, 12), parent = get32(argument, 4);
	const char *parameters = (const char *)(uintptr_t)get64(argument, 16);
	const struct fake_object *above = find(fake, parent);
	struct fake_object *object = fake->objects;
	uint32_t status = OK;

	while (object < fake->objects + FAKE_OBJECTS && object->handle)
		object++;
	if (object == fake->objects + FAKE_OBJECTS || get32(argument, 8) ||
	    (class != 0x41 && !find(fake, get32(argument, 0))))
		return INVALID_CLIENT;
	switch (class) {
	case 0x41:
		break;
	case 0x80:
		status = above && above->class == 0x41
				 ? get32(parameters, 0) < fake->n_gpus ? OK : INVALID_ARGUMENT
				 : INVALID_OBJECT_PARENT;
		break;
	case 0x2080:
		status = above && above->class == 0x80 ? OK : INVALID_OBJECT_PARENT;
		break;
	case 0x90ce:
		status = above && above->class == 0x41 ? make_memory(object, parameters)
						       : INVALID_OBJECT_PARENT;
		break;
	case 0x90cd:
		status = above && above->class == 0x41 ? make_event_buffer(fake, parameters)
						       : INVALID_OBJECT_PARENT;
		break;
	default:
		status = INVALID_CLASS;
	}
	if (status)
		return status;
	object->handle = 0xcaf00000 + ++fake->n_handles;
	object->parent = parent;
	object->class = class;
	fake->n_objects++;
	put32(argument, 8, object->handle);
	return OK;
}

static uint32_t free_object(struct fake_driver *fake, const void *argument) {
	struct fake_object *object = find(fake, get32(argument, 8));

	if (!object)
		return INVALID_OBJECT_HANDLE;
	release(fake, object);
	return OK;
}

/* Its descriptor becomes that of the memory, so that mmap(2) maps it. */
static uint32_t map_memory(struct fake_driver *fake, void *argument) {
	const struct fake_object *memory = find(fake, get32(argument, 8));

	if (!memory || !memory->address || get32(argument, 4) != get32(argument, 0))
		return INVALID_OBJECT_HANDLE;
	if (get64(argument, 16) || get64(argument, 24) > memory->size ||
	    (get32(argument, 44) & 3) != 1)
		return INVALID_ARGUMENT;
	return dup2(memory->fd, (int)get32(argument, 48)) < 0 ? INVALID_ARGUMENT : OK;
}

/* ---- commands ---- */

static uint32_t correlation(struct fake_driver *fake, void *parameters) {
	const unsigned char *bytes = parameters;
	const uint64_t raw = clock_ns(CLOCK_MONOTONIC_RAW);

	if ((bytes[0] != 2 && bytes[0] != 3) || bytes[1] < 1 || bytes[1] > 16)
		return INVALID_ARGUMENT;
	/* of the processor's counter there are as many as were asked for: three registers each */
	for (size_t i = 0; bytes[0] == 2 && i < bytes[1]; i++) {
		put64(parameters, 8 + 16 * i, 3 * raw + i * 9000);
		put64(parameters, 16 + 16 * i, gpu_time(fake, raw + i * FAKE_READ * 3));
	}
	if (bytes[0] == 2)
		return OK;
	put64(parameters, 8, fake->clock_wrong ? 1 : raw);
	put64(parameters, 16, gpu_time(fake, raw));
	return OK;
}

static uint32_t bind_buffer(struct fake_driver *fake, char *parameters) {
	if (!find(fake, get32(parameters, 0)) || get32(parameters, 4) != RECORD)
		return INVALID_ARGUMENT;
	if (fake->bind_status && (!fake->only_all_users || parameters[16])) {
		put32(parameters, 20, fake->bind_reason);
		return fake->bind_status;
	}
	fake->bound_at = gpu_time(fake, clock_ns(CLOCK_MONOTONIC_RAW));
	return OK;
}

/* The driver copies what the firmware has logged, as far as there is room. */
static uint32_t flush(struct fake_driver *fake) {
	struct fake_object *header = find(fake, fake->header), *ring = find(fake, fake->ring);
	uint64_t until = fake->taken + (fake->portion ? fake->portion : fake->n_records);

	for (; fake->enabled && fake->taken < until && fake->taken < fake->n_records;
	     fake->taken++) {
		char record[RECORD];

		if ((fake->put + 1) % fake->n_ring == fake->get) {
			fake->n_dropped++;
			continue;
		}
		memcpy(record, (const char *)fake->records + fake->taken * RECORD, RECORD);
		put64(record, 24, fake->bound_at + get64(record, 24));
		memcpy(ring->address + (size_t)fake->put * RECORD, record, RECORD);
		fake->put = (fake->put + 1) % fake->n_ring;
	}
	put32(header->address, 0, fake->get);
	atomic_thread_fence(memory_order_release);
	put32(header->address, 4, fake->put_wrong ? fake->n_ring + 7 : fake->put);
	return OK;
}

static uint32_t control(struct fake_driver *fake, const void *argument) {
	char *parameters = (char *)(uintptr_t)get64(argument, 16);
	const uint32_t n = get32(argument, 24), command = get32(argument, 8);
	const struct fake_object *object = find(fake, get32(argument, 4));
	static const struct {
		uint32_t command, class, size;
	} commands[] = { { 0x205, 0x41, 32 },        { 0x20800406, 0x2080, 264 },
			 { 0x20801238, 0x2080, 24 }, { 0x90cd0101, 0x90cd, 8 },
			 { 0x90cd0102, 0x90cd, 8 },  { 0x90cd0104, 0x90cd, 0 } };

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (commands[i].command == command &&
		    (!object || object->class != commands[i].class))
			return INVALID_OBJECT_HANDLE;
		else if (commands[i].command == command && commands[i].size != n)
			return INVALID_PARAM_STRUCT;
	switch (command) {
	case 0x205:
		if (get32(parameters, 0) - 0x100 >= fake->n_gpus)
			return INVALID_ARGUMENT;
		put32(parameters, 8, get32(parameters, 0) - 0x100);
		return OK;
	case 0x20800406:
		return correlation(fake, parameters);
	case 0x20801238:
		return bind_buffer(fake, parameters);
	case 0x90cd0101:
		fake->enabled = parameters[0] == 1 && get32(parameters, 4) == 1;
		return fake->enabled ? OK : INVALID_ARGUMENT;
	case 0x90cd0102:
		fake->get = get32(parameters, 0);
		return fake->get < fake->n_ring ? OK : INVALID_ARGUMENT;
	case 0x90cd0104:
		return flush(fake);
	default:
		return INVALID_COMMAND;
	}
}

/* ---- ioctls ---- */

static int version(const struct fake_driver *fake, char *argument) {
	if (get32(argument, 0) != '2')
		return -EINVAL;
	put32(argument, 4, 1);
	strncpy(argument + 8, fake->version ? fake->version : "580.159.04", 63);
	return 0;
}

static int cards(const struct fake_driver *fake, char *argument) {
	for (uint32_t i = 0; i < fake->n_gpus; i++, argument += 72) {
		argument[0] = 1;
		put32(argument, 4, 0);
		argument[8] = (char)(0x65 + i);
		put32(argument, 16, 0x100 + i);
		put32(argument, 56, i);
	}
	return 0;
}

int fake_driver_ioctl(void *userdata, int fd, unsigned long command, void *argument) {
	static const struct {
		uint8_t nr, status_at, number_at;
		uint16_t size;
	} ioctls[] = { { 0x29, 12, 8, 16 }, { 0x2a, 28, 8, 32 }, { 0x2b, 28, 12, 32 },
		       { 0x4e, 40, 8, 56 }, { 200, 0, 0, 2304 }, { 201, 0, 0, 4 },
		       { 210, 0, 0, 72 } };
	struct fake_driver *fake = userdata;
	const bool old =
		fake->version && atoi(fake->version) < 535; /* NVOS21 has no number of bytes */
	const uint32_t nr = _IOC_NR(command), size = _IOC_SIZE(command);
	const int call = fake->n_ioctls++;
	uint32_t status = OK;
	size_t i = 0;
	int r = 0;

	while (i < sizeof(ioctls) / sizeof(*ioctls) && ioctls[i].nr != nr)
		i++;
	if (_IOC_TYPE(command) != 'F' || _IOC_DIR(command) != 3 ||
	    i == sizeof(ioctls) / sizeof(*ioctls) || ioctls[i].size != size)
		return -EINVAL;
	if (fake->fail_at == call + 1)
		return -fake->error;
	if (fake->refuse_at == call + 1 && ioctls[i].status_at)
		status = fake->status;
	else if (nr == 200)
		r = cards(fake, argument);
	else if (nr == 201)
		r = 0;
	else if (nr == 210)
		r = version(fake, argument);
	else
		status = nr == 0x29   ? free_object(fake, argument)
			 : nr == 0x2a ? control(fake, argument)
			 : nr == 0x2b ? alloc(fake, argument)
				      : map_memory(fake, argument);
	if (ioctls[i].status_at)
		put32(argument, nr == 0x2b && old ? 24 : ioctls[i].status_at, status);
	if (call < FAKE_LOG) {
		fake->log[call].nr = nr;
		fake->log[call].number =
			ioctls[i].number_at ? get32(argument, ioctls[i].number_at) : 0;
		fake->log[call].status = status;
	}
	return r;
}

int fake_driver_open(void *userdata, const char *path) {
	struct fake_driver *fake = userdata;
	unsigned int minor;
	int fd;

	if (strcmp(path, "/dev/nvidiactl") &&
	    (sscanf(path, "/dev/nvidia%u", &minor) != 1 || minor >= fake->n_gpus))
		return -ENOENT;
	fd = memfd_create("fake-driver", MFD_CLOEXEC);
	fake->n_fds += fd >= 0;
	return fd < 0 ? -errno : fd;
}

static int fake_close(void *userdata, int fd) {
	struct fake_driver *fake = userdata;

	fake->n_fds--;
	return close(fd);
}

static void *fake_map(void *userdata, int fd, size_t size) {
	return rm_driver_kernel.map(NULL, fd, size);
}

static void fake_unmap(void *userdata, void *address, size_t size) {
	rm_driver_kernel.unmap(NULL, address, size);
}

void fake_driver_init(struct fake_driver *fake, struct rm_driver *driver) {
	*fake = (struct fake_driver){ .n_gpus = 1 };
	*driver = (struct rm_driver){ fake_driver_open, fake_close, fake_driver_ioctl,
				      fake_map,         fake_unmap, fake };
}

void fake_driver_deinit(struct fake_driver *fake) {
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		if (fake->objects[i].handle)
			release(fake, &fake->objects[i]);
}
