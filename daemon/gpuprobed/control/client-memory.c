/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes and fills the memory through which a client gets records (client-memory.h). It cannot be
 * made smaller, so that to write it is safe whatever the client does.
 */

#include "client-memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/json.h"
#include "proto/client-ring.h"

static int make(struct client_memory *memory, size_t size) {
	const size_t n = sizeof(struct client_ring) + size;
	void *ring;

	memory->fd = memfd_create("gpuprobe-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory->fd < 0 || ftruncate(memory->fd, (off_t)n) < 0 ||
	    fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	ring = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	if (ring == MAP_FAILED)
		return -errno;
	memory->ring = ring;
	memory->size = size;
	return 0;
}

int client_memory_init(struct client_memory *memory, struct varlink_call *call, size_t size) {
	int r;

	*memory = CLIENT_MEMORY_NONE;
	if (!varlink_call_hold(call, sizeof(struct client_ring) + size))
		return -EDQUOT;
	r = make(memory, size);
	if (r)
		client_memory_deinit(memory);
	return r;
}

void client_memory_deinit(struct client_memory *memory) {
	if (memory->ring)
		munmap(memory->ring, sizeof(struct client_ring) + memory->size);
	if (memory->fd >= 0)
		close(memory->fd);
	*memory = CLIENT_MEMORY_NONE;
}

size_t client_memory_room(const struct client_memory *memory) {
	uint64_t waits;

	if (!memory->ring || memory->fd >= 0)
		return 0;
	waits = memory->end - __atomic_load_n(&memory->ring->consumed, __ATOMIC_ACQUIRE);
	return waits <= memory->size ? memory->size - (size_t)waits : 0;
}

void client_memory_put(struct client_memory *memory, const void *bytes, size_t n) {
	const size_t at = (size_t)(memory->end & (memory->size - 1)),
		     first = n < memory->size - at ? n : memory->size - at;

	memcpy(memory->ring->data + at, bytes, first);
	memcpy(memory->ring->data, (const unsigned char *)bytes + first, n - first);
	memory->end += n;
}

void client_memory_tell(const struct client_memory *memory, json_object *reply) {
	if (memory->ring && memory->fd < 0)
		json_add_uint(reply, "end", memory->end);
}

int client_memory_continue(struct client_memory *memory, struct varlink_call *call,
			   json_object *consume_parameters) {
	int r;

	if (memory->fd < 0)
		return varlink_call_continue(call, consume_parameters);
	json_add_uint(consume_parameters, "descriptor", memory->size);
	r = varlink_call_continue_with(call, json_object_get(consume_parameters), memory->fd);
	if (r == VARLINK_E_FULL) { /* without it, then */
		json_object_object_del(consume_parameters, "descriptor");
		client_memory_deinit(memory);
		return varlink_call_continue(call, consume_parameters);
	}
	json_object_put(consume_parameters);
	close(memory->fd);
	memory->fd = -1;
	return r;
}
