/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Answers a process's question about an image, and remembers the outcome (image-answer.h).
 *
 * A process asks for a plan again with each module that it loads, and gets mostly the same: what
 * `why` knows of its kernels already is not remembered again. A twin is said to probe once the
 * process has it; a plan once it says that the patches are in place.
 */

#include "image-answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "image-context.h"
#include "kernel-names.h"

/* Remembers that points that were asked for by the name of the kernel are not there, or why nothing
 * was put into a kernel. */
static void image_record_missing(struct image_context *context, const struct process_facts *facts,
				 const struct image_kernel *kernel) {
	char reason[256];

	if (kernel->left_out)
		snprintf(reason, sizeof(reason), "%s", kernel->missing_text);
	else
		snprintf(reason, sizeof(reason), "no such point in %s: %s%s",
			 kernel->device_function ? "this device function" : "this kernel",
			 kernel->missing_text, kernel->n_missing > 1 ? ", and others" : "");
	outcome_tell(context->outcomes, facts, OUTCOME_NOT_PROBED,
		     &(struct outcome_subject){ kernel->name, kernel->demangled,
						kernel->device_function, kernel->missing,
						kernel->n_missing, OUTCOME_ENGINE_PTX },
		     reason);
}

/* Whether a result has the same kernel with the same attachments; *at is where to look first. */
static bool image_has_kernel(const struct image_result *result, const struct image_kernel *kernel,
			     size_t *at) {
	for (size_t i = 0; i < result->n_kernels; i++) {
		const struct image_kernel *other = &result->kernels[(*at + i) % result->n_kernels];

		if (strcmp(other->name, kernel->name) != 0)
			continue;
		*at = (*at + i + 1) % result->n_kernels;
		return other->n_attachments == kernel->n_attachments &&
		       (!kernel->n_attachments ||
			memcmp(other->attachments, kernel->attachments,
			       kernel->n_attachments * sizeof(kernel->attachments[0])) == 0);
	}
	return false;
}

/*
 * Adds to what `why` says of a kernel how its name was read, if it was without the prefix of the
 * section's: the kernel does not have the name that the section says. text: room for it.
 */
static const char *image_prefix_reason(const struct image_context *context,
				       const struct image_kernel *kernel, const char *reason,
				       char text[static 512]) {
	for (size_t i = 0; i < kernel->n_attachments; i++) {
		const struct attachment *attachment =
			registry_attachment(context->registry, kernel->attachments[i]);

		if (!attachment ||
		    !section_prefixed(&attachment->section, attachment->section_text) ||
		    outcome_kernel_means(kernel->name, kernel->demangled,
					 attachment->section.kernel))
			continue;
		snprintf(text, 512,
			 "%.256s%sthe section's %.120s%s was read without " SECTION_PREFIX
			 ": no kernel here has that name",
			 reason, *reason ? "; " : "", attachment->section.kernel,
			 strlen(attachment->section.kernel) > 120 ? "..." : "");
		return text;
	}
	return reason;
}

/* Remembers for the next daemon what kernels with probes are called. */
static void image_keep_names(const struct image_context *context, const struct process *process,
			     const struct image_result *result) {
	for (size_t i = 0; i < result->n_kernels; i++)
		if (result->kernels[i].n_attachments)
			kernel_names_add(context->names, process->facts.uid,
					 result->kernels[i].name, result->kernels[i].demangled,
					 result->kernels[i].device_function);
}

void image_answer_armed(struct image_context *context, struct process *process,
			struct image_result *result) {
	const struct process_facts *facts = &process->facts;
	const struct image_result *last = process->plan;
	char text[512];
	size_t at = 0;

	for (size_t i = 0; result->plan && result != last && i < result->n_kernels; i++) {
		const struct image_kernel *kernel = &result->kernels[i];

		if (kernel->n_attachments && (!last || !image_has_kernel(last, kernel, &at)))
			outcome_tell(context->outcomes, facts, OUTCOME_PROBED,
				     &(struct outcome_subject){ kernel->name, kernel->demangled,
								false, kernel->attachments,
								kernel->n_attachments,
								OUTCOME_ENGINE_SANITIZER },
				     image_prefix_reason(context, kernel, "", text));
	}
	if (!result->plan)
		return;
	image_keep_names(context, process, result);
	image_result_ref(result);
	image_result_unref(process->plan);
	process->plan = result;
}

/* What a process was told about a plan: why there is none, if that is news. */
static void image_record_plan(struct image_context *context, struct process *process,
			      struct image_result *result) {
	const struct process_facts *facts = &process->facts;
	const struct image_result *last = process->refused;

	if (!result->made && (!last || strcmp(last->reason, result->reason) != 0))
		outcome_tell(context->outcomes, facts,
			     result->failed ? OUTCOME_FAILED : OUTCOME_NOT_PROBED,
			     &(struct outcome_subject){ .engine = OUTCOME_ENGINE_SANITIZER },
			     result->reason);
	image_result_unref(process->refused);
	process->refused = result->made ? NULL : image_result_ref(result);
}

/* What `why` says of an image: with what would help an image that has no PTX. */
static void image_reason(char reason[static 256], const struct image_context *context,
			 const struct process_facts *facts, const struct image_result *result) {
	const bool hint = !result->made && !result->failed && result->no_ptx;

	snprintf(reason, 256, "%s%s", result->reason,
		 hint ? "; gpuprobed --engine=sanitizer would reach it" : "");
}

/* A twin is asked for again whenever attachments change: that is told once. */
static void image_record(struct image_context *context, const struct process *process,
			 const struct image_result *result) {
	const struct process_facts *facts = &process->facts;
	enum outcome_kind kind = result->failed ? OUTCOME_FAILED : OUTCOME_NOT_PROBED;
	const enum outcome_engine engine =
		result->machine_code ? OUTCOME_ENGINE_MACHINE_CODE : OUTCOME_ENGINE_PTX;
	char reason[256], text[512];

	image_keep_names(context, process, result);
	image_reason(reason, context, facts, result);

	for (size_t i = 0; i < result->n_kernels; i++) {
		const struct image_kernel *kernel = &result->kernels[i];

		if (kernel->n_missing)
			image_record_missing(context, facts, kernel);
		if (kernel->n_missing && !kernel->n_attachments)
			continue;
		outcome_tell_once(context->outcomes, facts, result->made ? OUTCOME_PROBED : kind,
				  &(struct outcome_subject){
					  kernel->name, kernel->demangled, kernel->device_function,
					  kernel->attachments, kernel->n_attachments, engine },
				  image_prefix_reason(context, kernel, reason, text));
	}
	if (!result->n_kernels)
		outcome_tell_once(context->outcomes, facts, kind,
				  &(struct outcome_subject){ .engine = OUTCOME_ENGINE_PTX },
				  reason);
}

/* Sends the ids of the attachments. 0 or negative. */
static int image_send_attachments(struct client *client, uint32_t sequence,
				  const struct image_result *result, uint64_t module) {
	int r = 0;

	for (size_t i = 0; r == 0 && i < result->n_attachments; i += WIRE_IDS_MAX) {
		const size_t n = result->n_attachments - i < WIRE_IDS_MAX
					 ? result->n_attachments - i
					 : WIRE_IDS_MAX;
		union wire_message ids = { .header = { .type = WIRE_IDS, .sequence = sequence } };

		ids.ids.module_id = module;
		ids.ids.count = (uint32_t)n;
		memcpy(ids.ids.ids, result->attachments + i, n * sizeof(ids.ids.ids[0]));
		r = shim_connection_send(client->connection, &ids, -1);
	}
	return r;
}

/* Whether a process that gets no image or plan may ask again, and what becomes of that which it
 * has. */
static enum wire_later image_later(const struct image_context *context,
				   const struct process *process,
				   const struct image_result *result) {
	const struct module *module;

	if (result->made || (!(result->failed && result->plan) && !result->later))
		return WIRE_LATER_NOT;
	LIST_FOREACH(module, &process->modules, link)
		for (size_t i = 0;
		     module->result->plan == result->plan && i < module->result->n_attachments; i++)
			if (!registry_attachment(context->registry, module->result->attachments[i]))
				return WIRE_LATER_REMOVE;
	return WIRE_LATER_KEEP;
}

/* Sends IMAGE_REPLY, the SLOTs and IDS. 0 or negative: the connection is of no use any more. */
static int image_send(struct client *client, uint32_t sequence, const struct image_result *result,
		      uint64_t module, enum wire_later later) {
	union wire_message message = {};
	int r;

	message.header.type = WIRE_IMAGE_REPLY;
	message.header.sequence = sequence;
	message.image_reply.module_id = module;
	message.image_reply.verdict = result->made ? WIRE_VERDICT_MADE : WIRE_VERDICT_OWN;
	message.image_reply.later = later;
	if (result->made) {
		message.image_reply.image_size = result->size;
		message.image_reply.slot_count = (uint32_t)result->n_slots;
		_Static_assert(JOB_IMAGE_PROGRAMS_MAX <= WIRE_ATTACHMENTS_MAX, "all of an image");
		message.image_reply.attachment_count = (uint32_t)result->n_attachments;
	} else {
		memcpy(message.image_reply.reason, result->reason, strlen(result->reason));
	}
	r = shim_connection_send(client->connection, &message, result->made ? result->fd : -1);
	for (size_t i = 0; r == 0 && result->made && i < result->n_slots; i++) {
		union wire_message slot = {};

		slot.header.type = WIRE_SLOT;
		slot.header.sequence = sequence;
		slot.slot.module_id = module;
		slot.slot.map_id = result->slots[i].map;
		slot.slot.kind = result->slots[i].kind;
		slot.slot.offset = result->slots[i].offset;
		memcpy(slot.slot.symbol, result->slots[i].symbol, strlen(result->slots[i].symbol));
		r = shim_connection_send(client->connection, &slot, -1);
	}
	return r == 0 && result->made ? image_send_attachments(client, sequence, result, module)
				      : r;
}

/* Answers; remember: for `why`. 0 or negative as image_answer(). */
static int image_answer_with(struct image_context *context, struct client *client,
			     uint32_t sequence, struct image_result *result, bool remember) {
	struct process *process = client->process;
	struct image_result *own = NULL;
	struct module *module = NULL;
	char reason[128];
	int r;

	if (client->connection->state == SHIM_LOADER_BUSY)
		client->connection->state = SHIM_LOADER;
	if (result->made && !image_result_wanted(context->registry, result)) {
		r = image_result_new_own(&own, false, "what was attached went away meanwhile");
		if (r < 0)
			return r;
		own->plan = result->plan;
		result = own;
	}
	if (result->made) {
		r = process_module_new(context->processes, process, result, &module);
		if (r < 0)
			return r;
		if (r > 0) {
			process_module_refusal(reason, process, result, r);
			r = image_result_new_own(&own, false, "%s", reason);
			if (r < 0)
				return r;
			own->plan = result->plan;
			own->later = true;
			result = own;
		}
	}
	if (result->made)
		context->counters.images_made++;
	else
		context->counters.images_own++;
	r = image_send(client, sequence, result,
		       module ? module->id : ++context->processes->last_module,
		       image_later(context, process, result));
	if (result->plan)
		image_record_plan(context, process, result);
	else if (remember)
		image_record(context, process, result);
	image_result_unref(own);
	return r;
}

int image_answer(struct image_context *context, struct client *client, uint32_t sequence,
		 struct image_result *result) {
	return image_answer_with(context, client, sequence, result, true);
}

int image_answer_nothing(struct image_context *context, struct client *client, uint32_t sequence,
			 bool later, const char *reason) {
	struct image_result *result;
	int r;

	r = image_result_new_own(&result, false, "%s", reason);
	if (r < 0)
		return r;
	result->later = later;
	r = image_answer_with(context, client, sequence, result, false);
	image_result_unref(result);
	return r;
}

int image_answer_own(struct image_context *context, struct client *client, uint32_t sequence,
		     bool plan, bool later, const char *format, ...) {
	struct image_result *result;
	char reason[WIRE_REASON_MAX];
	va_list arguments;
	int r;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	r = image_result_new_own(&result, false, "%s", reason);
	if (r < 0)
		return r;
	result->plan = plan;
	result->later = later;
	r = image_answer(context, client, sequence, result);
	image_result_unref(result);
	return r;
}

void image_answer_excess(struct image_context *context, const struct process *process,
			 size_t n_meant, size_t n) {
	const struct process_facts *facts = &process->facts;
	char reason[128];

	snprintf(reason, sizeof(reason),
		 "%zu attachments mean this process: only the first %zu of them are applied",
		 n_meant, n);
	outcome_tell(context->outcomes, facts, OUTCOME_FAILED, &(struct outcome_subject){}, reason);
}

/* Why an attachment cannot be had where there is another engine, and what helps. */
static void image_left_out_reason(char reason[static 320], const struct attachment *attachment,
				  bool sass) {
	const struct gpu_program *program = attachment_gpu(attachment);

	if (sass)
		snprintf(reason, 320,
			 "%s: this process has the sanitizer engine alone; gpuprobed "
			 "--engine=ptx:exe=PATH is for programs that need twins",
			 program->patch_reason);
	else
		snprintf(reason, 320,
			 "%s: this process has twins alone; gpuprobed --engine=sanitizer:exe=PATH "
			 "gives "
			 "programs the sanitizer engine when they start",
			 program->engine == ENGINE_SANITIZER
				 ? "engine sanitizer"
				 : "only the sanitizer engine has this point");
}

void image_answer_left_out(struct image_context *context, const struct process *process,
			   bool sass) {
	const struct attachment *attachment;
	char reason[320];

	TAILQ_FOREACH(attachment, &context->registry->attachments, link) {
		const struct outcome_subject subject = {
			.engine = sass ? OUTCOME_ENGINE_SANITIZER : OUTCOME_ENGINE_PTX,
			.attachments = &attachment->id,
			.n_attachments = 1,
		};

		if (!attachment_gpu(attachment) ||
		    (sass ? attachment_on_sass(attachment) : attachment_on_ptx(attachment)) ||
		    !filter_matches(&attachment->filter, &process->facts))
			continue;
		image_left_out_reason(reason, attachment, sass);
		outcome_tell_once(context->outcomes, &process->facts, OUTCOME_NOT_PROBED, &subject,
				  reason);
	}
}
