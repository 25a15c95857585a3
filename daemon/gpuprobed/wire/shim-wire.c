/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks messages of shims (shim-wire.h). No field is trusted: all that have a range are checked
 * here, in one place, before other code reads them. Fields that name modules or maps are looked up
 * later, among those of the sender's process.
 */

#include "shim-wire.h"

#include <stdbool.h>
#include <string.h>

#include "proto/patch.h"

size_t shim_wire_fds(uint16_t type) {
	return type == WIRE_IMAGE;
}

/* Terminated, and padded with zeros. */
static bool shim_text_valid(const char *text, size_t size) {
	size_t n = strnlen(text, size);

	for (size_t i = n; i < size; i++)
		if (text[i])
			return false;
	return n < size;
}

static const char *shim_image_check(const struct wire_image *image) {
	if (image->image_size == 0 || image->image_size > WIRE_IMAGE_SIZE_MAX)
		return "image size out of range";
	if (image->kind < WIRE_IMAGE_FATBIN || image->kind > WIRE_IMAGE_NAMES)
		return "unknown kind of image";
	if (image->kind == WIRE_IMAGE_NAMES &&
	    (image->image_size > PATCH_NAMES_SIZE_MAX || image->flags))
		return "list of names out of range";
	if (image->flags & ~(uint32_t)WIRE_IMAGE_FLAG_AWAITED)
		return "unknown image flags";
	if (image->capability_major < 1 || image->capability_major > SHIM_CAPABILITY_MAJOR_MAX ||
	    image->capability_minor > 9)
		return "compute capability out of range";
	if (image->device >= SHIM_DEVICES_MAX || image->reserved)
		return "device out of range";
	return NULL;
}

static const char *shim_ids_check(const struct wire_ids *ids) {
	if (!ids->count || ids->count > WIRE_IDS_MAX || ids->reserved)
		return "number of ids out of range";
	for (size_t i = ids->count; i < WIRE_IDS_MAX; i++)
		if (ids->ids[i])
			return "ids behind the last";
	return NULL;
}

/* What a process says of what it has from an earlier daemon. */
static const char *shim_resume_check(const union wire_message *message) {
	const struct wire_resume *resume = &message->resume;

	if (message->header.type == WIRE_IDS)
		return shim_ids_check(&message->ids);
	if (message->header.type == WIRE_KEEP)
		return NULL;
	if (!resume->attachment_count || resume->attachment_count > WIRE_ATTACHMENTS_MAX ||
	    resume->map_count > WIRE_SLOTS_MAX)
		return "number of ids out of range";
	return resume->flags & ~(uint32_t)(WIRE_RESUME_ARMED | WIRE_RESUME_PLAN) || resume->reserved
		       ? "unknown flags"
		       : NULL;
}

static const char *shim_loader_check(enum shim_state state, const union wire_message *message) {
	switch (message->header.type) {
	case WIRE_IMAGE:
		if (state == SHIM_LOADER_BUSY)
			return "an image while another one is in work";
		return shim_image_check(&message->image);
	case WIRE_INSTANCE:
		if (state == SHIM_LOADER_BUSY)
			return "a request while an image is in work";
		if (message->instance.device >= SHIM_DEVICES_MAX || message->instance.reserved)
			return "device out of range";
		return NULL;
	case WIRE_RESUME:
	case WIRE_IDS:
	case WIRE_KEEP:
		if (state == SHIM_LOADER_BUSY)
			return "a request while an image is in work";
		return shim_resume_check(message);
	case WIRE_ARMED:
		if (message->armed.device >= SHIM_DEVICES_MAX || message->armed.reserved)
			return "device out of range";
		return NULL;
	case WIRE_UNLOAD:
		return NULL;
	case WIRE_REPORT:
		if (!shim_text_valid(message->report.reason, sizeof(message->report.reason)))
			return "text without end";
		return NULL;
	default:
		return "a message that a loader does not send";
	}
}

const char *shim_wire_check(enum shim_state state, const union wire_message *message,
			    size_t received, size_t n_fds) {
	if (!wire_valid(message, received))
		return "not a message of this version";
	if (n_fds != shim_wire_fds(message->header.type))
		return "missing or surplus descriptor";
	switch (state) {
	case SHIM_NEW:
		if (message->header.type != WIRE_HELLO)
			return "no greeting";
		if (message->hello.role < WIRE_ROLE_LOADER || message->hello.role > WIRE_ROLE_TRACE)
			return "unknown role";
		if (!shim_text_valid(message->hello.shim_version,
				     sizeof(message->hello.shim_version)))
			return "text without end";
		return NULL;
	case SHIM_LOADER:
	case SHIM_LOADER_BUSY:
		return shim_loader_check(state, message);
	case SHIM_MIRROR:
		return message->header.type == WIRE_SYNCED
			       ? NULL
			       : "a message that a mirror does not send";
	case SHIM_TRACE:
		if (message->header.type != WIRE_TRACE)
			return "a message that a traced process does not send";
		return message->trace.flags ? "unknown flags" : NULL;
	case SHIM_CLOSED:
		break;
	}
	return "the connection is closed";
}

bool shim_wire_other(const union wire_message *message, size_t received, size_t n_fds,
		     struct shim_greeting *greeting) {
	static const char usual[] =
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-+~_";
	const struct wire_hello *hello = &message->hello;

	if (received < sizeof(hello->header) || hello->header.magic != WIRE_MAGIC ||
	    hello->header.type != WIRE_HELLO || hello->header.version == WIRE_VERSION ||
	    hello->header.size != received || n_fds)
		return false;
	*greeting = (struct shim_greeting){ .version = hello->header.version, .shim_version = "?" };
	_Static_assert(sizeof(greeting->shim_version) == sizeof(hello->shim_version),
		       "the same text");
	if (received >= sizeof(*hello) && hello->shim_version[0] &&
	    shim_text_valid(hello->shim_version, sizeof(hello->shim_version)) &&
	    !hello->shim_version[strspn(hello->shim_version, usual)])
		memcpy(greeting->shim_version, hello->shim_version, sizeof(greeting->shim_version));
	return true;
}

enum shim_state shim_wire_next(enum shim_state state, const union wire_message *message) {
	if (state == SHIM_NEW)
		return message->hello.role == WIRE_ROLE_MIRROR  ? SHIM_MIRROR
		       : message->hello.role == WIRE_ROLE_TRACE ? SHIM_TRACE
								: SHIM_LOADER;
	if (state == SHIM_LOADER && message->header.type == WIRE_IMAGE)
		return SHIM_LOADER_BUSY;
	return state;
}
