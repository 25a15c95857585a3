/* SPDX-License-Identifier: Apache-2.0 */

/* Programs and maps of a script (code.h): one program for each probe on the GPU, with its body. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"
#include "emit.h"
#include "words.h"

#define RING_MAP 1527 /* BPF_MAP_TYPE_GPU_RINGBUF_MAP */

/* Threads, warps and blocks that run at the same moment on a large GPU: those have begun and not
 * ended. */
#define TIMES_THREADS 524288
#define TIMES_WARPS 16384
#define TIMES_BLOCKS 8192
#define TIMES_GRIDS 1024

bool code_map_has_bucket(const struct map *map) {
	return map->kind == MAP_HIST || map->kind == MAP_LHIST;
}

/* Processes' copies are added up as integers when they are read, which minima and floats cannot be:
 * each device has its own, and each process is read by itself. */
bool code_map_has_device(const struct map *map) {
	return map->kind == MAP_MIN || map->kind == MAP_MAX || map_sums_floats(map);
}

bool code_map_is_array(const struct map *map) {
	return !map->n_keys && !code_map_has_device(map);
}

static void add_script_map(struct code *code, const struct map *map) {
	struct code_map *made = &code->maps[code->n_maps];
	const bool array = code_map_is_array(map), bucket = code_map_has_bucket(map);

	*made = (struct code_map){
		.type = map_is_shared(map) ? CODE_HOST_ARRAY
			: array            ? BPF_MAP_TYPE_ARRAY
					   : BPF_MAP_TYPE_HASH,
		.key_words = array ? 0 : (uint32_t)map->n_keys + bucket + code_map_has_device(map),
		.value_words = map->kind == MAP_AVG || map->kind == MAP_STATS ? 2 : 1,
		.max_entries = !array   ? CODE_KEYS_GPU
			       : bucket ? (uint32_t)map_buckets(map)
					: 1,
	};
	if (!map->gpu_writes.line && !map->gpu_reads.line)
		made->max_entries = 0;
	snprintf(made->name, sizeof(made->name), "m%zu", code->n_maps++);
}

static bool is_whole(enum probe_kind kind) {
	return kind == PROBE_WHOLE_GRID || kind == PROBE_WHOLE_BLOCK || kind == PROBE_WHOLE_WARP;
}

static uint32_t times_of(enum probe_kind kind) {
	switch (kind) {
	case PROBE_THREAD:
		return TIMES_THREADS;
	case PROBE_WARP_LEAD:
	case PROBE_WHOLE_WARP:
		return TIMES_WARPS;
	case PROBE_WHOLE_GRID:
		return TIMES_GRIDS;
	default:
		return TIMES_BLOCKS;
	}
}

/* A map of the times at which threads, warps or blocks began. Returns its index. */
static uint32_t add_times(struct code *code, enum probe_kind kind) {
	struct code_map *made = &code->maps[code->n_maps];

	*made = (struct code_map){ .type = BPF_MAP_TYPE_HASH,
				   .key_words = 4,
				   .value_words = is_whole(kind) ? 3 : 1,
				   .max_entries = times_of(kind) };
	snprintf(made->name, sizeof(made->name), "t%zu", code->n_maps);
	return (uint32_t)code->n_maps++;
}

/* Whether a tree, or a list of statements, has a word. */
bool code_has_word(const struct node *list, enum word_id id) {
	for (; list; list = list->next)
		if ((list->kind == NODE_WORD && list->word->id == id) ||
		    code_has_word(list->a, id) || code_has_word(list->b, id) ||
		    code_has_word(list->c, id))
			return true;
	return false;
}

static char *section_of(const struct probe *probe, bool end) {
	char *text = NULL;
	int n;

	switch (probe->kind) {
	case PROBE_LINE:
		n = asprintf(&text, "kprobe/*@%s:%llu", probe->file,
			     (unsigned long long)probe->number);
		break;
	case PROBE_BLOCK:
		n = asprintf(&text, "kprobe/%s@block:%llu", probe->name,
			     (unsigned long long)probe->number);
		break;
	case PROBE_FUNCTION:
		n = asprintf(&text, "kprobe/dev:%s", probe->name);
		break;
	case PROBE_MEMORY:
	case PROBE_WARP_MEMORY:
		n = asprintf(&text, "memcapture/%s", probe->name);
		break;
	default:
		n = asprintf(&text, "%s/%s", end ? "kretprobe" : "kprobe", probe->name);
	}
	return n < 0 ? NULL : text;
}

static void emit_statements(struct emit *emit, const struct node *list);

static void emit_if(struct emit *emit, const struct node *node) {
	size_t otherwise, end = 0;

	emit_expression(emit, node->a);
	otherwise = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_statements(emit, node->b);
	if (node->c)
		end = emit_jump(emit, BPF_JA, 0, 0);
	emit_land(emit, otherwise);
	emit_statements(emit, node->c);
	if (node->c)
		emit_land(emit, end);
}

static void emit_statements(struct emit *emit, const struct node *list) {
	for (; list && !emit->code->failed; list = list->next) {
		emit->place = list->place;
		if (list->kind == NODE_ASSIGN)
			emit_assign(emit, list);
		else if (list->kind == NODE_IF)
			emit_if(emit, list);
		else if (list->kind == NODE_DO)
			emit_print(emit, list->a);
		else
			for (int64_t i = 0; i < list->a->number && !emit->code->failed; i++)
				emit_statements(emit, list->b);
	}
}

static bool begin_program(struct emit *emit, struct code *code, const struct clause *clause,
			  const struct probe *probe, bool end) {
	struct code_program *program = &code->programs[code->n_programs];

	*emit = (struct emit){ .code = code,
			       .program = program,
			       .clause = clause,
			       .probe = probe,
			       .place = probe->place };
	snprintf(program->name, sizeof(program->name), "cuda__probe_%zu", code->n_programs);
	program->memory = PROBE_IS_MEMORY(probe->kind);
	program->section = section_of(probe, end);
	if (!program->section) {
		emit_fail(emit, "out of memory");
		return false;
	}
	code->n_programs++;
	emit_move(emit, BPF_REG_6, BPF_REG_1);
	return true;
}

/* The predicate and the body, behind what the probe itself asks for. */
static void emit_body(struct emit *emit, uint32_t times) {
	const struct clause *clause = emit->clause;
	size_t leave = 0;

	emit_constant(emit, BPF_REG_0, 0);
	for (size_t i = 0; i < clause->n_locals; i++)
		emit_store(emit, BPF_REG_10, emit_take(emit, 1), BPF_REG_0);
	if (is_whole(emit->probe->kind)) {
		emit->duration = emit_take(emit, 1);
		emit_part(emit, times, emit->probe->end);
	} else if (times) {
		emit->duration = emit_take(emit, 1);
		emit_filter(emit);
		emit_take_time(emit, times);
	} else {
		emit_filter(emit);
	}
	if (clause->of_warp)
		emit_lanes(emit);
	if (clause->predicate) {
		emit_expression(emit, clause->predicate);
		leave = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	}
	emit_statements(emit, clause->body);
	if (clause->predicate)
		emit_land(emit, leave);
	emit_exit(emit);
}

/* What enters must leave, and the other way: the side that is no event counts alone. */
static void make_whole(struct code *code, const struct clause *clause, const struct probe *probe) {
	const uint32_t times = add_times(code, probe->kind);
	struct emit emit;

	if (probe->kind == PROBE_WHOLE_GRID)
		add_times(code, PROBE_WHOLE_BLOCK);
	if (!begin_program(&emit, code, clause, probe, !probe->end))
		return;
	emit.duration = emit_take(&emit, 1);
	emit_part(&emit, times, !probe->end);
	emit_exit(&emit);
	if (!code->failed && begin_program(&emit, code, clause, probe, probe->end))
		emit_body(&emit, times);
}

static void make_probe(struct code *code, const struct clause *clause, const struct probe *probe) {
	const bool timed = code_has_word(clause->body, WORD_DURATION) ||
			   code_has_word(clause->predicate, WORD_DURATION);
	uint32_t times = 0;
	struct emit emit;

	if (is_whole(probe->kind)) {
		make_whole(code, clause, probe);
		return;
	}
	if (timed) {
		times = add_times(code, probe->kind);
		if (!begin_program(&emit, code, clause, probe, false))
			return;
		emit_filter(&emit);
		emit_keep_time(&emit, times);
		emit_exit(&emit);
	}
	if (!code->failed && begin_program(&emit, code, clause, probe, probe->end))
		emit_body(&emit, times);
}

bool code_make(struct code *code, const struct script *script) {
	*code = (struct code){ .script = script };
	for (size_t i = 0; i < script->n_maps; i++)
		add_script_map(code, &script->maps[i]);
	code->lost = (uint32_t)code->n_maps++;
	code->maps[code->lost] = (struct code_map){ .name = CODE_LOST_MAP,
						    .type = BPF_MAP_TYPE_ARRAY,
						    .value_words = 1,
						    .max_entries = SCRIPT_MAPS_MAX + 1 };
	code->print = (uint32_t)code->n_maps++;
	code->maps[code->print] = (struct code_map){ .name = CODE_PRINT_MAP,
						     .type = RING_MAP,
						     .value_words = CODE_PRINT_WORDS,
						     .max_entries = script->n_prints > 0 };
	for (const struct clause *clause = script->clauses; clause; clause = clause->next)
		for (const struct probe *probe = clause->probes;
		     probe && clause->on_gpu && !code->failed; probe = probe->next)
			make_probe(code, clause, probe);
	return !code->failed;
}

void code_deinit(struct code *code) {
	for (size_t i = 0; i < code->n_programs; i++) {
		free(code->programs[i].section);
		free(code->programs[i].insns);
		free(code->programs[i].references);
	}
	code->n_programs = 0;
}
