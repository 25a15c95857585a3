/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Chooses the attachments that an image or a plan of a process is made with (image-match.h).
 *
 * A module has no more slots than WIRE_SLOTS_MAX. In an image all programs share the slot of a map;
 * in a plan each has its own.
 */

#include "image-match.h"

#include <string.h>

#include "image-context.h"
#include "proto/patch.h"

#define IMAGE_NAMES_MAX \
	((size_t)64     \
	 << 10) /* bytes of names in a job, twice: JSON escapes some; a job has 128 KiB */

_Static_assert(JOB_IMAGE_PROGRAMS_MAX <= PATCH_ATTACHMENTS_MAX,
	       "a plan can have as many attachments as a job");
_Static_assert(sizeof(struct patch_data) + WIRE_SLOTS_MAX * sizeof(uint64_t) <= PATCH_DATA_MAX,
	       "slots are the bound");

/* Slots that a module needs for an attachment more. */
static size_t image_slots(const struct image_context *context, const struct attachment *attachment,
			  const uint64_t *ids, size_t n_ids) {
	uint64_t maps = attachment_gpu(attachment)->maps;

	for (size_t i = 0; i < n_ids; i++) {
		const struct attachment *other = registry_attachment(context->registry, ids[i]);

		if (other && other->object == attachment->object)
			maps &= ~attachment_gpu(other)->maps;
	}
	return (size_t)__builtin_popcountll(maps);
}

/* Does the attachment mean processes of its owner that were chosen? All that a session's daemon
 * sees were. */
static bool image_match_is_own(const struct image_context *context,
			       const struct attachment *attachment, uid_t uid) {
	return attachment->object->owner == uid &&
	       (context->config->session || !filter_is_empty(&attachment->filter));
}

/* Adds one that means the process, if there is room. */
static void image_match_add(struct image_match *match, const struct image_context *context,
			    const struct attachment *attachment, bool sass, size_t *text,
			    size_t *slots) {
	match->n_meant++;
	*text += 2 * (strlen(attachment->section.kernel) + strlen(attachment->section.file));
	if (match->n + 1 != match->n_meant || match->n == JOB_IMAGE_PROGRAMS_MAX ||
	    *text > IMAGE_NAMES_MAX)
		return;
	*slots += sass ? attachment_patch_slots(attachment)
		       : image_slots(context, attachment, match->ids, match->n);
	if (*slots <= WIRE_SLOTS_MAX)
		match->ids[match->n++] = attachment->id;
}

void image_match(struct image_match *match, const struct image_context *context,
		 const struct process_facts *facts, bool sass) {
	const struct attachment *attachment;
	size_t text = 0, slots = sass ? 0 : 1; /* of the process */

	*match = (struct image_match){};
	TAILQ_FOREACH(attachment, &context->registry->attachments, link) {
		if (attachment_host(attachment) || !filter_matches(&attachment->filter, facts))
			continue;
		if (sass ? attachment_on_sass(attachment) : attachment_on_ptx(attachment)) {
			image_match_add(match, context, attachment, sass, &text, &slots);
			match->own |= image_match_is_own(context, attachment, facts->uid);
		} else if (!match->other)
			match->other = attachment;
	}
}

void image_match_filter(struct image_match *match, const struct image_context *context,
			const struct filter *filter) {
	const struct attachment *attachment;
	size_t text = 0, slots = 0;

	*match = (struct image_match){};
	TAILQ_FOREACH(attachment, &context->registry->attachments, link)
		if (attachment_on_sass(attachment) && filter_implies(filter, &attachment->filter))
			image_match_add(match, context, attachment, true, &text, &slots);
}
