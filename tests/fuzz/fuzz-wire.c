/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The shim's side of its protocol, against a daemon that says anything. An input is a
 * script: records of
 *
 *   u8 how      bits 0-2: descriptor beside it (see give()); bit 3: header made right; bit 4: after
 *               a request was received; bit 5: on the MIRROR connection, else on the LOADER's
 *   u8 type     for a header made right: WIRE_WELCOME + type % 11, of which 10 is WIRE_IDS
 *   u8 length   of bytes that follow: the body, or with bit 3 clear the whole datagram
 *
 * Each connection gets its records and then an end of file. The shim's loader, arming and mirror
 * are the real ones; the driver behind them is a piece of memory. What the shim would hand to the
 * driver is read to its end.
 */

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shim/module/arm.h"
#include "shim/driver/test-double.h"
#include "shim/module/image.h"
#include "shim/interest/interest-lock.h"
#include "shim/interest/interest-page.h"
#include "shim/module/load.h"
#include "proto/map-layout.h"
#include "shim/module/mirror.h"
#include "proto/paths.h"
#include "proto/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEADLINE_MS 40
#define THREADS 4
#define SCRIPT_MAX 4096
#define DATA_SIZE 64 /* of an instance */
static const char ptx[] =
	".version 8.0\n.target sm_90\n.address_size 64\n// a module of sixty-four bytes\n";

static char folder[INTEREST_FOLDER_MAX];
static uint64_t generation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct script {
	size_t size;
	uint8_t bytes[SCRIPT_MAX];
} current;

/* ---- a driver
 * ------------------------------------------------------------------------------------------------
 */

static unsigned char memory[4096];
static size_t used;
static unsigned registered; /* ranges of host memory */

static void check_memory(driver_pointer where, size_t size) {
	if (where < (driver_pointer)(uintptr_t)memory ||
	    where + size > (driver_pointer)(uintptr_t)(memory + sizeof(memory)))
		abort();
}

static driver_result get_handle(driver_handle *handle) {
	*handle = memory;
	return 0;
}

static driver_result set_handle(driver_handle handle) {
	return 0;
}

static driver_result no_arguments(void) {
	return 0;
}

static driver_result get_int(int *value) {
	*value = 0;
	return 0;
}

static driver_result device_get(int *device, int ordinal) {
	*device = ordinal;
	return 0;
}

static driver_result get_attribute(int *value, int attribute, int device) {
	*value = 9;
	return 0;
}

static driver_result primary_state(int device, unsigned *flags, int *active) {
	*active = 0;
	return 0;
}

static driver_result primary_retain(driver_handle *handle, int device) {
	return get_handle(handle);
}

static driver_result primary_release(int device) {
	return 0;
}

static driver_result allocate(driver_pointer *where, size_t size) {
	if (size > sizeof(memory) / 2 - used)
		return 2;
	*where = (driver_pointer)(uintptr_t)(memory + sizeof(memory) / 2 + used);
	used += size;
	return 0;
}

static driver_result release(driver_pointer where) {
	return 0;
}

/* The memory is there, all of it. */
static driver_result host_register(void *host, size_t size, unsigned flags) {
	volatile unsigned char *bytes = host;

	bytes[0] = bytes[0];
	bytes[size - 1] = bytes[size - 1];
	registered++;
	return 0;
}

static driver_result host_unregister(void *host) {
	if (!registered--)
		abort();
	return 0;
}

static driver_result host_pointer(driver_pointer *where, void *host, unsigned flags) {
	if (!registered)
		abort();
	*where = (driver_pointer)(uintptr_t)host;
	return 0;
}

static driver_result to_device(driver_pointer where, const void *from, size_t size,
			       driver_handle stream) {
	check_memory(where, size);
	memcpy((void *)(uintptr_t)where, from, size);
	return 0;
}

static driver_result to_host(void *to, driver_pointer where, size_t size, driver_handle stream) {
	check_memory(where, size);
	memcpy(to, (const void *)(uintptr_t)where, size);
	return 0;
}

/* Symbols that begin with p are pointers, with d data; others are not there. */
static driver_result get_global(driver_pointer *where, size_t *size, driver_handle module,
				const char *symbol) {
	if (strlen(symbol) >= WIRE_SYMBOL_MAX)
		abort();
	*where = (driver_pointer)(uintptr_t)memory;
	*size = *symbol == 'p' ? 8 : DATA_SIZE;
	return *symbol == 'p' || *symbol == 'd' ? 0 : DRIVER_ERROR_NOT_FOUND;
}

static driver_result stream_create(driver_handle *stream, unsigned flags) {
	return get_handle(stream);
}

static driver_result stream_synchronize(driver_handle stream) {
	return 0;
}

static driver_result get_nothing(driver_handle *handle) {
	return DRIVER_ERROR_NOT_FOUND;
}

const struct double_function double_functions[] = {
	{ "cuCtxGetCurrent", get_handle },
	{ "cuCtxSetCurrent", set_handle },
	{ "cuCtxGetDevice", get_int },
	{ "cuCtxSynchronize", no_arguments },
	{ "cuDeviceGet", device_get },
	{ "cuDeviceGetAttribute", get_attribute },
	{ "cuDriverGetVersion", get_int },
	{ "cuDevicePrimaryCtxGetState", primary_state },
	{ "cuDevicePrimaryCtxRetain", primary_retain },
	{ "cuDevicePrimaryCtxRelease_v2", primary_release },
	{ "cuMemAlloc_v2", allocate },
	{ "cuMemFree_v2", release },
	{ "cuMemHostRegister_v2", host_register },
	{ "cuMemHostUnregister", host_unregister },
	{ "cuMemHostGetDevicePointer_v2", host_pointer },
	{ "cuMemcpyHtoDAsync_v2", to_device },
	{ "cuMemcpyDtoHAsync_v2", to_host },
	{ "cuModuleGetFunction", get_nothing },
	{ "cuModuleGetGlobal_v2", get_global },
	{ "cuLibraryGetGlobal", get_global },
	{ "cuStreamCreate", stream_create },
	{ "cuStreamDestroy_v2", stream_synchronize },
	{ "cuStreamSynchronize", stream_synchronize },
	{ "cuThreadExchangeStreamCaptureMode", get_int },
	{},
};

void *double_lacks(const char *name) {
#define X(field, symbol, arguments) \
	if (!strcmp(symbol, name))  \
		return NULL;
	DRIVER_OPTIONAL_FUNCTIONS(X)
#undef X
	fprintf(stderr, "the driver of this test lacks %s\n", name);
	abort();
}

/* ---- a daemon
 * ------------------------------------------------------------------------------------------------
 */

void trace_ignore_thread(void); /* shim/trace/tracing.h, which needs what the build generates */
void trace_ignore_thread(void) {
}

/* Always interested, and always changed: nothing that failed is remembered. */
bool interest_find(struct interest *interest, bool changed) {
	*interest = (struct interest){ .inode = 1,
				       .generation = generation += 2,
				       .deadline_ms = DEADLINE_MS };
	strcpy(interest->folder, folder);
	return true;
}

/* No process here has the sanitizer engine. */
static const uint64_t no_generation;
const uint64_t *interest_generations[2] = { &no_generation, &no_generation };

enum interest_change interest_look_again(const struct interest *found, struct interest *now) {
	return INTEREST_ENDED;
}

void interest_forked(void) {
}

bool interest_is_gone(void) {
	return false;
}

bool interest_is_foreign(void) {
	return false;
}

bool interest_wants_sass(char sanitizer[INTEREST_SANITIZER_MAX]) {
	return false;
}

static int filled_memfd(const void *bytes, size_t size, int seals) {
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || pwrite(fd, bytes, size, 0) != (ssize_t)size ||
	    (seals && fcntl(fd, F_ADD_SEALS, seals) < 0))
		abort();
	return fd;
}

/* An instance of the place and kind that the reply names, or with a header out of its body. */
static int make_instance(const uint8_t *body, size_t length, bool bad) {
	unsigned char instance[4 * MAP_DATA_OFFSET] = { 0 };
	struct map_header header = {
		.magic = MAP_MAGIC,
		.version = MAP_LAYOUT_VERSION,
		.map_id = 1,
		.layout = {
			.kind = length >= 40 ? body[36] % 4 : MAP_KIND_ARRAY,
			.place = length >= 40 ? body[32] % 3 : MAP_PLACE_DEVICE,
			.merge = length ? body[length - 1] % 5 : MAP_MERGE_SUM64,
			.shards = 1,
			.data_size = DATA_SIZE,
		},
	};
	size_t size;

	if (header.layout.kind == MAP_KIND_RING) {
		header.layout.rings = 1;
		header.layout.ring_size = 4096;
		header.layout.data_size = sizeof(struct map_ring);
		header.layout.host_size = map_ring_offset(&header.layout, 1);
	}
	size = header.layout.place == MAP_PLACE_KERNEL ? 4096 : map_memfd_size(&header.layout);
	memcpy(instance, &header, sizeof(header));
	if (bad)
		memcpy(instance, body, length < sizeof(header) ? length : sizeof(header));
	return filled_memfd(instance, size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

/* Makes the descriptors of a record: 0 or more. */
static int give(unsigned which, const uint8_t *body, size_t length, int fds[2]) {
	static const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

	switch (which) {
	case 1: /* an image, as it should be */
		fds[0] = filled_memfd(ptx, sizeof(ptx) - 1, all);
		return 1;
	case 2: /* not sealed */
		fds[0] = filled_memfd(ptx, sizeof(ptx) - 1, 0);
		return 1;
	case 3: /* an instance */
	case 4: /* one with a bad header */
		fds[0] = make_instance(body, length, which == 4);
		return 1;
	case 5: /* two */
		fds[0] = filled_memfd(ptx, sizeof(ptx) - 1, all);
		fds[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
		return 2;
	case 6: /* no memfd */
		fds[0] = open("/dev/zero", O_RDWR | O_CLOEXEC);
		return 1;
	case 7: /* the rest of the body is the image */
		fds[0] = filled_memfd(body + length / 2, length - length / 2, all);
		return 1;
	}
	return 0;
}

static void send_record(int fd, const uint8_t *record, size_t length, uint32_t sequence) {
	union {
		union wire_message message;
		uint8_t bytes[1024];
	} datagram = { 0 };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control = { 0 };
	const uint8_t *body = record + 3;
	struct iovec bytes = { &datagram, length };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };
	int fds[2], count;

	if (record[0] & 8) {
		uint16_t type =
			(uint16_t)(record[1] % 11 == 10 ? WIRE_IDS : WIRE_WELCOME + record[1] % 11);
		size_t room = wire_size(type) - sizeof(struct wire_header);

		datagram.message.header =
			(struct wire_header){ WIRE_MAGIC, WIRE_VERSION, type,
					      (uint32_t)wire_size(type), sequence };
		memcpy(datagram.bytes + sizeof(struct wire_header), body,
		       length < room ? length : room);
		bytes.iov_len = wire_size(type);
	} else {
		memcpy(datagram.bytes, body, length);
	}
	count = give(record[0] & 7, body, length, fds);
	if (count) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, (size_t)count * sizeof(int));
	}
	sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (count)
		close(fds[--count]);
}

/* Receives a request, and drops its descriptor. Returns its sequence number. */
static uint32_t receive_request(int fd, union wire_message *request) {
	struct iovec bytes = { request, sizeof(*request) };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };
	ssize_t length =
		recvmsg(fd, &message,
			MSG_CMSG_CLOEXEC); /* no room for descriptors: the kernel drops them */

	if (length > 0 && !wire_valid(request, (size_t)length))
		abort(); /* the shim itself keeps to the protocol */
	return length > 0 ? request->header.sequence : 0;
}

static void serve(int fd) {
	const struct timeval patience = {
		.tv_usec = 2000
	}; /* else it sleeps most of the time: both sides wait for the other one */
	union wire_message request = { 0 };
	struct script script;
	uint32_t sequence;
	unsigned role;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	sequence = receive_request(fd, &request);
	role = request.header.type == WIRE_HELLO ? request.hello.role : 0;
	pthread_mutex_lock(&lock);
	script = current;
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i + 3 <= script.size; i += 3 + (size_t)script.bytes[i + 2]) {
		const uint8_t *record = script.bytes + i;
		size_t length = record[2] < script.size - i - 3 ? record[2] : script.size - i - 3;

		if ((record[0] & 32 ? WIRE_ROLE_MIRROR : WIRE_ROLE_LOADER) != role)
			continue;
		if (record[0] & 16)
			sequence = receive_request(fd, &request);
		send_record(fd, record, length, sequence);
	}
	close(fd);
}

/* One of several threads that take a connection each: to make one for each would take most of the
 * time. */
static void *accept_all(void *argument) {
	int listener = (int)(intptr_t)argument;

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			serve(fd);
	}
	return NULL;
}

static void remove_folder(void) {
	char path[sizeof(folder) + 16];

	snprintf(path, sizeof(path), "%s/%s", folder, PATHS_SHIM_SOCKET);
	unlink(path);
	rmdir(folder);
}

static void start(void) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;
	int listener;

	strcpy(folder, "/tmp/fuzz-wire-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	atexit(remove_folder);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", folder, PATHS_SHIM_SOCKET);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(listener, 64) < 0)
		abort();
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)listener) != 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static const char own[] = ".version 8.0\n.target sm_90\n";
	struct mirror_context *context;
	enum load_answer answer;
	struct interest found;
	struct image image;
	struct load *load;

	if (!*folder)
		start();
	pthread_mutex_lock(&lock);
	current.size = size < SCRIPT_MAX ? size : SCRIPT_MAX;
	memcpy(current.bytes, data, current.size);
	pthread_mutex_unlock(&lock);

	load = interest_is_meant(&found) && image_recognise(&image, own, IMAGE_IN_MEMORY)
		       ? load_twin(&found, &image, true, &answer)
		       : NULL;
	if (load) {
		volatile unsigned sum = 0;

		/* the driver reads it like this */
		if (!image_recognise(&image, load->image, IMAGE_IN_MEMORY))
			abort();
		for (size_t i = 0; i < image.size; i++)
			sum = sum + ((const unsigned char *)image.data)[i];
		load_commit(load, LOAD_MODULE, memory);
		arm_current(0);
		load = load_begin_unload(LOAD_MODULE, memory);
		if (!load)
			abort();
		load_end_unload(load, 0);
	}
	context = arm_context_ending(memory, true);
	arm_context_ended(context, memory, arm_now(), true);
	if (registered)
		abort();
	used = 0;
	return 0;
}
