/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The daemon's side of the shim protocol: a connection's life as a sequence of
 * datagrams, each a byte with the number of its descriptors, two with its length, and its bytes.
 * What is accepted is used as the daemon uses it.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/wire/shim-wire.h"
#include "proto/patch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Traps if an accepted message breaks what the handlers rely on. */
static void use(enum shim_state state, const union wire_message *message, size_t received,
		size_t n_fds) {
	if (received != message->header.size || received != wire_size(message->header.type) ||
	    n_fds != (message->header.type == WIRE_IMAGE))
		abort();
	switch (message->header.type) {
	case WIRE_HELLO:
		if (state != SHIM_NEW ||
		    strlen(message->hello.shim_version) >= sizeof(message->hello.shim_version))
			abort();
		break;
	case WIRE_IMAGE:
		if (state != SHIM_LOADER || message->image.image_size == 0 ||
		    message->image.image_size > WIRE_IMAGE_SIZE_MAX ||
		    message->image.device >= SHIM_DEVICES_MAX ||
		    message->image.capability_major * 10 + message->image.capability_minor > 999 ||
		    message->image.kind < WIRE_IMAGE_FATBIN ||
		    message->image.kind > WIRE_IMAGE_NAMES ||
		    (message->image.kind == WIRE_IMAGE_NAMES &&
		     message->image.image_size > PATCH_NAMES_SIZE_MAX))
			abort();
		break;
	case WIRE_INSTANCE:
		if (state != SHIM_LOADER || message->instance.device >= SHIM_DEVICES_MAX)
			abort();
		break;
	case WIRE_RESUME:
		if (state != SHIM_LOADER || message->resume.attachment_count == 0 ||
		    message->resume.attachment_count > WIRE_ATTACHMENTS_MAX ||
		    message->resume.map_count > WIRE_SLOTS_MAX)
			abort();
		break;
	case WIRE_IDS:
		if (state != SHIM_LOADER || message->ids.count == 0 ||
		    message->ids.count > WIRE_IDS_MAX)
			abort();
		break;
	case WIRE_KEEP:
		if (state != SHIM_LOADER)
			abort();
		break;
	case WIRE_ARMED:
	case WIRE_UNLOAD:
		if (state != SHIM_LOADER && state != SHIM_LOADER_BUSY)
			abort();
		break;
	case WIRE_REPORT:
		if (strlen(message->report.reason) >= WIRE_REASON_MAX)
			abort();
		break;
	case WIRE_TRACE:
		if (state != SHIM_TRACE || message->trace.flags)
			abort();
		break;
	case WIRE_SYNCED:
		if (state != SHIM_MIRROR)
			abort();
		break;
	default:
		abort(); /* the daemon's own messages never come from a shim */
	}
}

/* Of another version: it is logged. */
static void check_greeting(const struct shim_greeting *greeting) {
	const size_t n = strnlen(greeting->shim_version, sizeof(greeting->shim_version));

	if (greeting->version == WIRE_VERSION || !n || n == sizeof(greeting->shim_version))
		abort();
	for (size_t i = 0; i < n; i++)
		if (greeting->shim_version[i] <= ' ' || greeting->shim_version[i] > '~')
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	enum shim_state state = SHIM_NEW;
	struct shim_greeting greeting;

	while (size >= 3) {
		size_t n_fds = data[0], n = (size_t)data[1] | (size_t)data[2] << 8;
		union wire_message message = {};
		size_t received;

		data += 3;
		size -= 3;
		if (n > size)
			n = size;
		received = n < sizeof(message) ? n : sizeof(message);
		memcpy(&message, data, received);
		if (message.header.version == 1) /* stands for ours: the corpus outlives versions */
			message.header.version = WIRE_VERSION;
		data += n;
		size -= n;
		if (n > sizeof(message))
			break; /* cut short: recvmsg(2) says so, the connection ends */
		if (state == SHIM_NEW && shim_wire_other(&message, received, n_fds, &greeting)) {
			if (strlen(greeting.shim_version) >= sizeof(greeting.shim_version) ||
			    greeting.version == WIRE_VERSION)
				abort();
			break;
		}
		if (state == SHIM_NEW && shim_wire_other(&message, received, n_fds, &greeting)) {
			check_greeting(&greeting);
			break;
		}
		if (shim_wire_check(state, &message, received, n_fds))
			break;
		use(state, &message, received, n_fds);
		state = shim_wire_next(state, &message);
		if (state == SHIM_LOADER_BUSY && message.header.sequence & 1)
			state = SHIM_LOADER; /* the answer went out */
	}
	return 0;
}
