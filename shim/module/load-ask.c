/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asks the daemon what to load in place of an image, and keeps the answer (load-ask.h). Runs with
 * the loader's lock held.
 */

#include "load-ask.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image.h"
#include "proto/patch.h"

#define CONTENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Fills in which device the module is for: the current context's, or the first. */
static bool describe_device(struct wire_image *message) {
	const struct driver *driver = driver_own();
	driver_handle context = NULL;
	int device = 0, major, minor;

	if (driver->ctx_get_current(&context) != 0)
		return false;
	if ((context ? driver->ctx_get_device(&device) : driver->device_get(&device, 0)) != 0)
		return false;
	if (driver->device_get_attribute(&major, DRIVER_ATTRIBUTE_CAPABILITY_MAJOR, device) != 0 ||
	    driver->device_get_attribute(&minor, DRIVER_ATTRIBUTE_CAPABILITY_MINOR, device) != 0)
		return false;
	message->capability_major = (uint32_t)major;
	message->capability_minor = (uint32_t)minor;
	message->device = (uint32_t)device;
	return true;
}

/* Is the answer something whose end the driver will find where it is? */
static bool ends_inside(const struct load *load) {
	struct image image;

	return image_recognise(&image, load->image, load->size) && image.data == load->image;
}

/* Maps what the daemon answered, with zeros behind it, because PTX ends with one; consumes fd. */
static bool map_reply(struct load *load, int fd, uint64_t size) {
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool good = false;

	load->image = MAP_FAILED;
	load->length = size;
	if (seals >= 0 && (seals & CONTENT_SEALS) == CONTENT_SEALS && fstat(fd, &status) == 0 &&
	    (uint64_t)status.st_size == size && size && size <= WIRE_IMAGE_SIZE_MAX) {
		load->size = (size + page - 1) / page * page + page;
		load->image = mmap(NULL, load->size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		good = load->image != MAP_FAILED &&
		       mmap(load->image, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) !=
			       MAP_FAILED;
	}
	close(fd);
	return good;
}

/* Does the slot make sense for this load? */
static bool is_slot(const struct load *load, const struct wire_slot *slot) {
	if (slot->module_id != load->module_id || slot->symbol[WIRE_SYMBOL_MAX - 1])
		return false;
	if (load->kind == LOAD_PLAN)
		return (slot->kind == WIRE_SLOT_POINTER || slot->kind == WIRE_SLOT_REGION ||
			slot->kind == WIRE_SLOT_PROCESS) &&
		       slot->offset % 8 == 0 && slot->offset >= sizeof(struct patch_data) &&
		       slot->offset < PATCH_DATA_MAX;
	return slot->kind >= WIRE_SLOT_POINTER && slot->kind <= WIRE_SLOT_PROCESS;
}

static bool receive_attachments(struct wire_client *client, struct load *load, uint32_t count,
				uint64_t deadline_ms) {
	union wire_message message;

	if (count > WIRE_ATTACHMENTS_MAX)
		return false;
	load->attachments = calloc(count ? count : 1, sizeof(*load->attachments));
	if (!load->attachments)
		return false;
	for (uint32_t i = 0; i < count; i += WIRE_IDS_MAX) {
		uint32_t n = count - i < WIRE_IDS_MAX ? count - i : WIRE_IDS_MAX;

		if (!wire_client_receive(client, &message, WIRE_IDS, NULL, deadline_ms) ||
		    message.ids.module_id != load->module_id || message.ids.count != n)
			return false;
		memcpy(load->attachments + i, message.ids.ids, n * sizeof(*load->attachments));
	}
	load->attachment_count = count;
	return true;
}

static bool receive_slots(struct wire_client *client, struct load *load, uint32_t count,
			  uint64_t deadline_ms) {
	union wire_message message;

	if (count > WIRE_SLOTS_MAX)
		return false;
	load->slots = calloc(count ? count : 1, sizeof(*load->slots));
	if (!load->slots)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (!wire_client_receive(client, &message, WIRE_SLOT, NULL, deadline_ms) ||
		    !is_slot(load, &message.slot))
			return false;
		load->slots[i].offset = message.slot.offset;
		load->slots[i].kind = message.slot.kind;
		load->slots[i].map_id = message.slot.map_id;
		memcpy(load->slots[i].symbol, message.slot.symbol, WIRE_SYMBOL_MAX);
	}
	load->slot_count = count;
	return true;
}

void load_drop_image(struct load *load) {
	if (load->image && load->image != MAP_FAILED)
		munmap(load->image, load->size);
	load->image = NULL;
}

void load_free(struct load *load) {
	if (!load)
		return;
	load_drop_image(load);
	free(load->slots);
	free(load->attachments);
	free(load);
}

/* What an answer without an image says. */
static enum load_answer answer_of(const struct wire_image_reply *reply) {
	if (reply->verdict != WIRE_VERDICT_OWN)
		return LOAD_ANSWER_NONE;
	switch (reply->later) {
	case WIRE_LATER_NOT:
		return LOAD_ANSWER_OWN;
	case WIRE_LATER_REMOVE:
		return LOAD_ANSWER_REMOVE;
	default:
		return LOAD_ANSWER_LATER;
	}
}

struct load *load_ask(struct wire_client *client, const struct image *image, uint64_t deadline_ms,
		      enum load_answer *answer) {
	static const char *said;
	const char *why = NULL;
	uint32_t slot_count, attachment_count;
	union wire_message message;
	struct load *load;
	int sent, received = -1;

	*answer = LOAD_ANSWER_LATER; /* it could not be asked for */
	memset(&message, 0, sizeof(message));
	wire_client_prepare(client, &message, WIRE_IMAGE, 0);
	message.image.image_size = image->size;
	message.image.kind = image->kind;
	message.image.flags = image->flags;
	if (!describe_device(&message.image))
		return NULL;
	sent = image_to_memfd(image);
	if (sent < 0)
		why = image_is_too_long(image) ? "what the daemon is to see of a module is past "
						 "the program's limit on "
						 "the size of files (ulimit -f)"
					       : "what the daemon is to see of a module cannot be "
						 "passed on: the program "
						 "has no descriptor or no memory for it";
	if (why &&
	    (image->kind != WIRE_IMAGE_NAMES || why != said)) /* names are sent again and again */
		load_report(0, why);
	if (image->kind == WIRE_IMAGE_NAMES)
		said = why;
	if (why)
		return NULL;
	*answer = LOAD_ANSWER_NONE; /* till it is known to be right */
	if (!wire_client_call(client, &message, sent, WIRE_IMAGE_REPLY, &received, deadline_ms)) {
		close(sent);
		return NULL;
	}
	close(sent);
	if (message.image_reply.verdict != WIRE_VERDICT_MADE || received < 0) {
		if (received < 0)
			*answer = answer_of(&message.image_reply);
		else
			close(received);
		return NULL;
	}
	load = calloc(1, sizeof(*load));
	if (!load) {
		close(received);
		return NULL;
	}
	load->kind = image->kind == WIRE_IMAGE_NAMES ? LOAD_PLAN : LOAD_MODULE;
	load->module_id = message.image_reply.module_id;
	load->deadline_ms = deadline_ms;
	slot_count = message.image_reply.slot_count;
	attachment_count = message.image_reply.attachment_count;
	if (!load->module_id || !map_reply(load, received, message.image_reply.image_size) ||
	    (load->kind != LOAD_PLAN && !ends_inside(load)) ||
	    !receive_slots(client, load, slot_count, deadline_ms) ||
	    !receive_attachments(client, load, attachment_count, deadline_ms)) {
		load_free(load);
		return NULL;
	}
	*answer = LOAD_ANSWER_PLAN;
	return load;
}
