/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handles the jobs `link` and `compile` of the program worker (program-job.h).
 *
 * The jobs of the program worker, between the harness and what does the work: JSON and descriptors
 * on one side, link.h and translate.h on the other. The daemon asks and is believed, but what it
 * asks about came from a stranger, and a request may also be wrong: every member is checked before
 * it is used.
 */

#include "program-job.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <linux/btf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/link.h"
#include "lib/bpf/btf-check.h"
#include "lib/bpf/linked.h"
#include "lib/bpf/thread-section.h"
#include "lib/json.h"
#include "translate.h"
#include "proto/job.h"

#define SYMBOL_SIZE 64 /* of a slot or program, with its NUL: wire.h */
#define PREFIX_MAX 48

int program_job_link(const struct worker_job *job, struct json_object *reply, void *userdata) {
	int input = worker_get_fd(job, job->request, JOB_KEY_INPUT),
	    output = worker_get_fd(job, job->request, JOB_KEY_OUTPUT);
	struct link_failure failure;
	struct link_output *linked;
	const uint8_t *elf;
	const char *only = NULL;
	size_t size;
	int r;

	if (input < 0 || output < 0)
		return worker_reply_error(reply, NULL, JOB_E_INTERNAL,
					  "link: input or output is missing");
	if (json_has(job->request, JOB_KEY_PROGRAM) &&
	    !json_get_string(job->request, JOB_KEY_PROGRAM, &only))
		return worker_reply_error(reply, NULL, JOB_E_INTERNAL,
					  "link: program is no string");
	r = worker_map(input, LINK_OBJECT_MAX, &elf, &size);
	if (r == -EFBIG || r == -ENODATA)
		return worker_reply_error(reply, NULL, JOB_E_OBJECT,
					  "the object is empty or larger than %zu MiB",
					  LINK_OBJECT_MAX >> 20);
	if (r)
		return worker_reply_error(reply, NULL, JOB_E_INTERNAL, "link: input: %s",
					  strerror(-r));
	r = link_object(elf, size, only, &linked, &failure);
	worker_unmap(elf, size);
	if (r == LINK_E_OBJECT) {
		r = worker_reply_error(reply, failure.log, JOB_E_OBJECT, "%s", failure.reason);
		link_failure_deinit(&failure);
		return r;
	}
	if (r)
		return r;
	r = worker_write(output, linked->blob, linked->linked.size, 0);
	if (r)
		r = worker_reply_error(reply, NULL, JOB_E_INTERNAL, "link: output: %s",
				       strerror(-r));
	else if (!(r = linked_to_json(&linked->linked, reply)))
		json_add_string(reply, JOB_KEY_STATUS, job_statuses[JOB_LINKED]);
	link_output_free(linked);
	return r;
}

/* A compile request, taken apart. */
struct compile {
	const uint8_t *blob;
	size_t blob_size;
	struct translate_map maps[TRANSLATE_MAPS_MAX];
	struct linked_map linked_maps[TRANSLATE_MAPS_MAX]; /* own the maps' names */
	size_t n_maps;
	struct translate_program programs[TRANSLATE_PROGRAMS_MAX];
	char symbols[TRANSLATE_PROGRAMS_MAX][SYMBOL_SIZE];
	int64_t indices[TRANSLATE_PROGRAMS_MAX]; /* as the daemon counts programs */
	int outputs[TRANSLATE_PROGRAMS_MAX];
	int patch_outputs[TRANSLATE_PROGRAMS_MAX]; /* -1: no patch form is wanted */
	size_t n_programs;
	struct thread_variables variables;
	struct translate_variable named[THREAD_VARIABLES_MAX]; /* the same */
	struct translate_thread thread;
	char error[192];
};

/* Whether text is a PTX identifier of at most `max` characters. */
static bool is_symbol(const char *text, size_t max) {
	if (!*text || isdigit((unsigned char)*text) || strlen(text) > max)
		return false;
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && *text != '_')
			return false;
	return true;
}

/* Says that the request is wrong. Returns LINKED_E_INVALID. */
static int wrong(struct compile *c, const char *what) {
	snprintf(c->error, sizeof(c->error), "compile: %s", what);
	return LINKED_E_INVALID;
}

static int maps_parse(struct compile *c, struct json_object *request) {
	struct json_object *array, *object;
	int64_t place, threads, ring_bytes;
	const char *symbol;
	int r;

	if (!json_get_array(request, JOB_KEY_MAPS, TRANSLATE_MAPS_MAX, &array))
		return wrong(c, "no maps, or too many");
	c->n_maps = json_object_array_length(array);
	for (size_t i = 0; i < c->n_maps; i++) {
		struct linked_map *map = &c->linked_maps[i];

		object = json_object_array_get_idx(array, i);
		r = linked_map_from_json(map, object, c->blob_size, c->error);
		if (r)
			return r;
		if (!json_get_string(object, JOB_KEY_SLOT_SYMBOL, &symbol) ||
		    !is_symbol(symbol, SYMBOL_SIZE - 1))
			return wrong(c, "a map's slot_symbol is no symbol");
		if (!json_get_int(object, "place", 0, MAP_PLACE_KERNEL, &place) ||
		    !json_get_int(object, "threads", 0, MAP_THREADS_MAX, &threads) ||
		    !json_get_int(object, "ring_bytes", 0, (int64_t)MAP_RING_TOTAL_MAX,
				  &ring_bytes))
			return wrong(c, "a map's place, threads or ring_bytes");
		c->maps[i] = (struct translate_map){
			.name = map->name,
			.type = map->type,
			.key_size = map->key_size,
			.value_size = map->value_size,
			.max_entries = map->max_entries,
			.slot_symbol = symbol,
			.place = (uint32_t)place,
			.threads = (uint32_t)threads,
			.ring_bytes = (uint64_t)ring_bytes,
			.log = map->internal == LINKED_MAP_LOG,
			.constant = map->internal == LINKED_MAP_RODATA && map->initial.count
					    ? c->blob + map->initial.offset
					    : NULL,
		};
	}
	return 0;
}

/* The strings of the object's BTF, if the request says where it is and they are sound. */
static int strings_parse(struct compile *c, struct json_object *request,
			 struct translate_lines *lines) {
	struct linked_table btf;
	struct btf_header header;
	int r;

	r = linked_btf_from_json(&btf, request, c->blob_size, c->error);
	if (r || btf.count < sizeof(header))
		return r;
	memcpy(&header, c->blob + btf.offset, sizeof(header));
	if (header.hdr_len > btf.count || header.str_off > btf.count - header.hdr_len ||
	    header.str_len > btf.count - header.hdr_len - header.str_off || !header.str_len)
		return 0;
	lines->strings = (const char *)c->blob + btf.offset + header.hdr_len + header.str_off;
	if (!lines->strings[header.str_len - 1])
		lines->strings_size = header.str_len;
	return 0;
}

/* The variables of a thread; their names are for messages, so BTF that is not sound has none. */
static int thread_parse(struct compile *c, struct json_object *request) {
	char why[BTF_CHECK_ERROR_SIZE];
	struct linked_table table;
	struct btf *btf;
	int r = linked_thread_from_json(&c->thread.size, request, c->error);

	if (!r)
		r = linked_btf_from_json(&table, request, c->blob_size, c->error);
	if (r || !c->thread.size || !table.count ||
	    btf_open(&btf, c->blob + table.offset, table.count, why))
		return r;
	thread_variables_read(&c->variables, btf);
	btf__free(btf);
	for (size_t i = 0; i < c->variables.n; i++) {
		const struct thread_variable *variable = &c->variables.variables[i];

		c->named[i] = (struct translate_variable){ variable->name, variable->offset,
							   variable->size };
	}
	c->thread.variables = c->named;
	c->thread.n_variables = c->variables.n;
	return 0;
}

/* Where a program's instructions come from. */
static int lines_parse(struct compile *c, struct json_object *program,
		       struct translate_lines *lines) {
	struct linked_table table;
	int r;

	r = linked_lines_from_json(&table, program, c->blob_size, c->error);
	if (r || table.record_size < sizeof(struct bpf_line_info))
		return r;
	lines->records = c->blob + table.offset;
	lines->n = table.count;
	lines->record_size = table.record_size;
	return 0;
}

static int programs_parse(struct compile *c, const struct worker_job *job) {
	struct json_object *array, *object;
	struct translate_lines lines = {}, strings = {};
	const char *prefix, *name;
	struct linked_table insns;
	int r;

	if (!json_get_string(job->request, JOB_KEY_PREFIX, &prefix) ||
	    !is_symbol(prefix, PREFIX_MAX))
		return wrong(c, "prefix is no symbol");
	if (!json_get_array(job->request, JOB_KEY_PROGRAMS, TRANSLATE_PROGRAMS_MAX, &array) ||
	    !json_object_array_length(array))
		return wrong(c, "no programs, or too many");
	c->n_programs = json_object_array_length(array);
	r = strings_parse(c, job->request, &strings);
	if (!r)
		r = thread_parse(c, job->request);
	if (r)
		return r;
	for (size_t i = 0; i < c->n_programs; i++) {
		object = json_object_array_get_idx(array, i);
		if (!json_object_is_type(object, json_type_object) ||
		    !json_get_string(object, JOB_KEY_NAME, &name) ||
		    !json_get_int(object, JOB_KEY_INDEX, 0, LINKED_PROGRAMS_MAX - 1,
				  &c->indices[i]))
			return wrong(c, "a program without a name or an index");
		r = linked_insns_from_json(&insns, object, c->blob_size, c->error);
		lines = strings;
		if (!r)
			r = lines_parse(c, object, &lines);
		if (r)
			return r;
		if (!insns.count)
			return wrong(c, "a program without instructions");
		c->outputs[i] = worker_get_fd(job, object, JOB_KEY_OUTPUT);
		if (c->outputs[i] < 0)
			return wrong(c, "a program without an output");
		c->patch_outputs[i] = worker_get_fd(job, object, JOB_KEY_PATCH_OUTPUT);
		if (c->patch_outputs[i] < 0 && json_has(object, JOB_KEY_PATCH_OUTPUT))
			return wrong(c, "a program's patch_output is no descriptor");
		snprintf(c->symbols[i], SYMBOL_SIZE, "%s_p%d", prefix, (int)c->indices[i]);
		for (size_t j = 0; j < i; j++)
			if (c->indices[j] == c->indices[i])
				return wrong(c, "two programs of the same index");
		c->programs[i] = (struct translate_program){
			.name = name,
			.symbol = c->symbols[i],
			.index = (uint16_t)c->indices[i],
			.patch = c->patch_outputs[i] >= 0,
			.insns = (const struct bpf_insn *)(const void *)(c->blob + insns.offset),
			.n_insns = insns.count,
			.lines = lines,
			.thread = c->thread,
		};
	}
	return 0;
}

static void maps_reply(const struct translate_result *result, struct json_object *reply) {
	struct json_object *array = json_add_array(reply, JOB_KEY_MAPS), *o;

	for (size_t i = 0; i < result->n_maps; i++) {
		o = json_append_object(array);
		json_add_int(o, JOB_KEY_MERGE, result->maps[i].layout.merge);
		json_add_bool(o, JOB_KEY_USED, result->maps[i].used);
		json_add_bool(o, JOB_KEY_RESIDENT, result->maps[i].resident);
	}
}

/* One program of the reply. */
static void program_reply(const struct compile *c, size_t i,
			  const struct translate_program_result *program, struct json_object *o) {
	struct json_object *maps = json_add_array(o, JOB_KEY_MAPS),
			   *context = json_add_array(o, JOB_KEY_CONTEXT);

	json_add_int(o, JOB_KEY_INDEX, c->indices[i]);
	worker_add_string(o, JOB_KEY_SYMBOL, c->symbols[i]);
	json_add_int(o, JOB_KEY_SIZE, program->size);
	json_add_int(o, JOB_KEY_ISA, program->isa);
	json_add_int(o, JOB_KEY_TARGET, program->target);
	json_add_bool(o, JOB_KEY_PROCESS, program->process);
	json_add_int(o, JOB_KEY_LOCAL_BYTES, program->local_bytes);
	for (size_t m = 0; m < c->n_maps; m++)
		if (program->maps & UINT64_C(1) << m)
			json_append_int(maps, (int64_t)m);
	for (uint32_t f = 0; f < program->context_count; f++)
		json_append_int(context, program->context[f]);
	if (c->patch_outputs[i] < 0)
		return;
	json_add_int(o, JOB_KEY_PATCH_SIZE, program->patch_size);
	json_add_int(o, JOB_KEY_PATCH_MAPS, program->patch_maps);
	if (program->patch_reason)
		worker_add_string(o, JOB_KEY_PATCH_REASON, program->patch_reason);
}

/* Writes the PTX and the reply. */
static int compile_reply(const struct compile *c, const struct translate_result *result,
			 struct json_object *reply) {
	struct json_object *array;
	int r;

	for (size_t i = 0; i < result->n_programs; i++) {
		const struct translate_program_result *program = &result->programs[i];

		r = worker_write(c->outputs[i], program->ptx, program->size, 0);
		if (!r && program->patch)
			r = worker_write(c->patch_outputs[i], program->patch, program->patch_size,
					 0);
		if (r)
			return worker_reply_error(reply, NULL, JOB_E_INTERNAL,
						  "compile: output of program %s: %s",
						  c->programs[i].name, strerror(-r));
	}
	json_add_string(reply, JOB_KEY_STATUS, job_statuses[JOB_COMPILED]);
	maps_reply(result, reply);
	array = json_add_array(reply, JOB_KEY_PROGRAMS);
	for (size_t i = 0; i < result->n_programs; i++)
		program_reply(c, i, &result->programs[i], json_append_object(array));
	return 0;
}

static int compile_run(struct compile *c, const struct worker_job *job, struct json_object *reply) {
	struct translate_result result;
	char *error = NULL;
	int r;

	r = maps_parse(c, job->request);
	if (!r)
		r = programs_parse(c, job);
	if (r == LINKED_E_INVALID)
		return worker_reply_error(reply, NULL, JOB_E_INTERNAL, "%s", c->error);
	if (r)
		return r;
	r = translate_object(c->programs, c->n_programs, c->maps, c->n_maps, &result, &error);
	if (r == -ENOMEM)
		return r;
	if (r) {
		r = worker_reply_error(reply, NULL,
				       r == TRANSLATE_E_PROGRAM || r == TRANSLATE_E_MAP
					       ? JOB_E_PROGRAM
					       : JOB_E_INTERNAL,
				       "%s", error ? error : "the request is malformed");
		free(error);
		return r;
	}
	r = compile_reply(c, &result, reply);
	translate_result_deinit(&result);
	return r;
}

int program_job_compile(const struct worker_job *job, struct json_object *reply, void *userdata) {
	int input = worker_get_fd(job, job->request, JOB_KEY_INPUT);
	struct compile *c;
	int r;

	if (input < 0)
		return worker_reply_error(reply, NULL, JOB_E_INTERNAL, "compile: input is missing");
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	r = worker_map(input, LINKED_BLOB_MAX, &c->blob, &c->blob_size);
	if (r)
		r = worker_reply_error(reply, NULL, JOB_E_INTERNAL, "compile: input: %s",
				       strerror(-r));
	else {
		r = compile_run(c, job, reply);
		worker_unmap(c->blob, c->blob_size);
	}
	free(c);
	return r;
}

int program_job_warm(struct json_object *features, void *userdata) {
	static const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	const struct translate_program program = {
		.name = "warm",
		.symbol = "warm",
		.insns = insns,
		.n_insns = sizeof(insns) / sizeof(insns[0]),
	};
	struct translate_result result;
	char *error = NULL;
	int r;

	r = translate_object(&program, 1, NULL, 0, &result, &error);
	if (r) {
		fprintf(stderr, "LLVM does not work in the sandbox: %s\n",
			error ? error : strerror(r < 0 ? -r : EIO));
		free(error);
		return r < 0 ? r : -EIO;
	}
	translate_result_deinit(&result);
	json_add_string(features, "libbpf", libbpf_version_string());
	return 0;
}
