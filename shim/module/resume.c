/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tells a daemon that has started again what this process has from an earlier one (resume.h).
 *
 * What the daemon does not know any more is left alone from then on, as with the end of a daemon:
 * its memory stays, kernels may still write to it, and modules are launched without probes. Plans
 * are spoken of, too, though the next launch asks for a new one, because the interest page is
 * another one: it may be long till then, and the daemon should know meanwhile who is to be told of
 * a detach.
 */

#include "resume.h"

#include <string.h>

#include "arm.h"
#include "shim/interest/wire-client.h"
#include "load.h"
#include "mirror.h"
#include "twin.h"
#include "shim/patch/patch-apply.h"

/* The id at `i` of those that a RESUME has: the attachments', then the maps'. */
static uint64_t id_at(const struct load *load, const uint64_t *maps, uint32_t i) {
	return i < load->attachment_count ? load->attachments[i] : maps[i - load->attachment_count];
}

/* The maps of a module, each once. */
static uint32_t collect_maps(const struct load *load, uint64_t maps[static WIRE_SLOTS_MAX]) {
	uint32_t count = 0;

	for (uint32_t i = 0; i < load->slot_count; i++) {
		bool known = !load->slots[i].map_id;

		for (uint32_t k = 0; k < count && !known; k++)
			known = maps[k] == load->slots[i].map_id;
		if (!known)
			maps[count++] = load->slots[i].map_id;
	}
	return count;
}

static bool send_ids(struct wire_client *client, const struct load *load, const uint64_t *maps,
		     uint32_t count, uint64_t deadline_ms) {
	union wire_message message;

	for (uint32_t i = 0; i < count; i += WIRE_IDS_MAX) {
		memset(&message, 0, sizeof(message));
		wire_client_prepare(client, &message, WIRE_IDS, 0);
		message.ids.module_id = load->module_id;
		while (message.ids.count < WIRE_IDS_MAX && i + message.ids.count < count) {
			message.ids.ids[message.ids.count] =
				id_at(load, maps, i + message.ids.count);
			message.ids.count++;
		}
		if (!wire_client_send(client, &message, -1, deadline_ms))
			return false;
	}
	return true;
}

static uint32_t flags_of(const struct load *load) {
	const bool plan = load->kind == LOAD_PLAN;

	return (plan ? WIRE_RESUME_PLAN : 0) |
	       ((plan ? load->armed_devices != 0 : arm_is_armed(load)) ? WIRE_RESUME_ARMED : 0);
}

bool resume_load(struct wire_client *client, struct load *load, uint32_t start,
		 uint64_t deadline_ms) {
	uint64_t maps[WIRE_SLOTS_MAX];
	uint32_t map_count = collect_maps(load, maps);
	union wire_message message;

	if (!load->attachment_count)
		return true;
	memset(&message, 0, sizeof(message));
	wire_client_prepare(client, &message, WIRE_RESUME, 0);
	message.resume.module_id = load->module_id;
	message.resume.attachment_count = load->attachment_count;
	message.resume.map_count = map_count;
	message.resume.flags = flags_of(load);
	if (!wire_client_send(client, &message, -1, deadline_ms) ||
	    !send_ids(client, load, maps, load->attachment_count + map_count, deadline_ms) ||
	    !wire_client_receive(client, &message, WIRE_RESUMED, NULL, deadline_ms) ||
	    message.resumed.module_id != load->module_id)
		return false;
	load->start = start;
	if (!message.resumed.known && load->kind != LOAD_PLAN)
		twin_look_again();
	return true;
}

static bool resume_loads(struct wire_client *client, struct load *first, uint32_t start,
			 uint64_t deadline_ms) {
	for (struct load *load = first; load; load = load->next)
		if (load_is_current(load) && !resume_load(client, load, start, deadline_ms))
			return false;
	return true;
}

bool resume_all(struct wire_client *client, uint32_t start, uint64_t deadline_ms) {
	if (!resume_loads(client, load_first(), start, deadline_ms) ||
	    !resume_loads(client, patch_plans(), start, deadline_ms))
		return false;
	if (!mirror_keep_instances(client, deadline_ms))
		return false;
	arm_again();
	return true;
}
