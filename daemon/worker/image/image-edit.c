/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Puts programs into the PTX of an image with the pass `probe`, and collects what it reports
 * (image-edit.h). Works on text in memory.
 */

#include "image-edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void image_edited_deinit(struct image_edited *edited) {
	free(edited->text);
	free(edited->probes.instructions);
	*edited = (struct image_edited){};
}

/* The functions of the targets, with their uses. */
static int make_functions(struct probe_function **out, const struct ptx_module *module,
			  const struct image_targets *targets, struct ptx_error *error) {
	struct probe_function *functions = calloc(targets->n + 1, sizeof(*functions));

	if (!functions)
		return -ENOMEM;
	for (size_t i = 0; i < targets->n; i++) {
		const struct image_target *target = &targets->targets[i];

		functions[i] = (struct probe_function){
			.function = ptx_module_find_function(module, target->name.mangled,
							     strlen(target->name.mangled)),
			.uses = target->uses,
			.use_count = target->count,
		};
		if (!functions[i].function || !functions[i].function->body.length) {
			snprintf(error->message, sizeof(error->message), "%.120s has no body",
				 target->name.mangled);
			free(functions);
			return IMAGE_EDIT_E_TRANSFORM;
		}
	}
	*out = functions;
	return 0;
}

int image_edit(struct image_edited *edited, const struct ptx_module *module,
	       const struct image_request *request, struct image_targets *targets,
	       struct ptx_error *error) {
	struct probe_function *functions;
	struct ptx_edit *edits;
	int r;

	*edited = (struct image_edited){};
	r = make_functions(&functions, module, targets, error);
	if (r)
		return r;
	r = ptx_edit_new(&edits, module->text, module->length);
	if (!r) {
		r = probe_apply(edits, module, &request->options, request->programs,
				request->n_programs, functions, targets->n, &edited->probes, error);
		if (!r)
			r = ptx_edit_apply(edits, &edited->text, &edited->length);
		ptx_edit_free(edits);
	}
	free(functions);
	if (r > 0 && !error->message[0])
		snprintf(error->message, sizeof(error->message), "edits contradict each other");
	return r > 0 ? IMAGE_EDIT_E_TRANSFORM : r;
}

/* A range of the source as a JSON string in one line: white space is one blank, what is no ASCII a
 * `?`. */
static void write_string(FILE *stream, const char *text, struct ptx_range range) {
	bool blank = false;

	putc('"', stream);
	for (uint32_t i = 0; i < range.length; i++) {
		unsigned char c = (unsigned char)text[range.offset + i];

		if (c <= ' ') {
			blank = true;
			continue;
		}
		if (blank)
			putc(' ', stream);
		blank = false;
		if (c == '"' || c == '\\')
			putc('\\', stream);
		putc(c < 0x7f ? c : '?', stream);
	}
	putc('"', stream);
}

int image_instructions_write(const struct probe_result *probes, const struct ptx_module *module,
			     char **out, size_t *length) {
	FILE *stream = open_memstream(out, length);

	if (!stream)
		return -ENOMEM;
	putc('[', stream);
	for (size_t i = 0; i < probes->n_instructions; i++) {
		const struct probe_instruction *instruction = &probes->instructions[i];

		fprintf(stream, "%s{\"index\":%u,\"kernel\":", i ? "," : "", instruction->index);
		write_string(stream, module->text, instruction->function->name);
		fputs(",\"text\":", stream);
		write_string(stream, module->text, instruction->text);
		if (instruction->file.length) {
			fputs(",\"file\":", stream);
			write_string(stream, module->text, instruction->file);
		}
		if (instruction->line)
			fprintf(stream, ",\"line\":%u", instruction->line);
		putc('}', stream);
	}
	putc(']', stream);
	if (!fclose(stream))
		return 0;
	free(*out);
	return -ENOMEM;
}
