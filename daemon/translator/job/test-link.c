/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of link.c with real objects (objects/, compiled by clang 19) and with damaged ones.
 * The argument is the folder of the compiled objects.
 */

#include <bpf/btf.h>
#include <errno.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "lib/bpf/elf-check.h"
#include "lib/bpf/helper-name.h"
#include "lib/bpf/thread-section.h"
#include "link.h"

static const char *folder;

/* Reads an object; the caller frees it. */
static void *object_read(const char *name, size_t *size) {
	char path[4096];
	void *data;
	FILE *file;
	long n;

	snprintf(path, sizeof(path), "%s/%s.bpf.o", folder, name);
	file = fopen(path, "rb");
	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	n = ftell(file);
	rewind(file);
	data = malloc((size_t)n);
	assert_int_equal(fread(data, 1, (size_t)n, file), n);
	fclose(file);
	*size = (size_t)n;
	return data;
}

static struct link_output *link_named(const char *name) {
	struct link_output *output = NULL;
	struct link_failure failure;
	size_t size;
	void *elf = object_read(name, &size);
	int r = link_object(elf, size, NULL, &output, &failure);

	if (r == LINK_E_OBJECT)
		print_message("%s: %s\n%s", name, failure.reason, failure.log ? failure.log : "");
	assert_int_equal(r, 0);
	free(elf);
	return output;
}

/* Links those programs of foreign.bpf.o whose names match. As link_object(). */
static int link_foreign(const char *only, struct link_output **outputp,
			struct link_failure *failure) {
	size_t size;
	void *elf = object_read("foreign", &size);
	int r = link_object(elf, size, only, outputp, failure);

	free(elf);
	return r;
}

/* A program that cannot be used does not matter to who wants others. */
static void test_only(void **state) {
	struct link_output *output;
	struct link_failure failure;

	assert_int_equal(link_foreign(NULL, &output, &failure), LINK_E_OBJECT);
	assert_string_equal(
		failure.reason,
		"program cuda__too_long: the name of its section has more than 2063 characters");
	link_failure_deinit(&failure);
	assert_int_equal(link_foreign("cuda__too_long", &output, &failure), LINK_E_OBJECT);
	link_failure_deinit(&failure);

	assert_int_equal(link_foreign("cuda__long", &output, &failure), 0);
	assert_int_equal(output->linked.n_programs, 1);
	assert_int_equal(strlen(output->linked.programs[0].section), strlen("kprobe/") + 128);
	assert_true(output->linked.programs[0].insns.count);
	assert_true(output->linked.programs[0].gpu);
	link_output_free(output);

	assert_int_equal(link_foreign("no_such_program", &output, &failure), 0);
	assert_int_equal(output->linked.n_programs, 0);
	link_output_free(output);
}

/* The struct that a program's argument points to. */
static void test_contexts(void **state) {
	static const char *const cases[][2] = {
		{ "cuda__long", "" },
		{ "cuda__regs", "pt_regs" },
		{ "cuda__typedef", "gpuprobe_kernel_ctx" },
		{ "cuda__memory", "gpuprobe_memory_ctx" },
		{ "cuda__number", "" },
		{ "on_launch", "pt_regs" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct link_output *output;
		struct link_failure failure;

		assert_int_equal(link_foreign(cases[i][0], &output, &failure), 0);
		assert_int_equal(output->linked.n_programs, 1);
		assert_string_equal(output->linked.programs[0].context, cases[i][1]);
		link_output_free(output);
	}
}

static const struct bpf_insn *insns_of(const struct link_output *output, size_t i) {
	return (const struct bpf_insn *)(const void *)(output->blob +
						       output->linked.programs[i].insns.offset);
}

static void test_counter(void **state) {
	struct link_output *output = link_named("counter");
	const struct linked *linked = &output->linked;
	const struct linked_program *program = &linked->programs[0];
	const struct bpf_insn *insns = insns_of(output, 0);
	const struct linked_lane *lane;
	bool seen = false;

	assert_string_equal(linked->license, "GPL");
	assert_int_equal(linked->n_maps, 1);
	assert_string_equal(linked->maps[0].name, "counter");
	assert_int_equal(linked->maps[0].type, BPF_MAP_TYPE_ARRAY);
	assert_int_equal(linked->maps[0].value_size, 8);
	assert_int_equal(linked->maps[0].internal, LINKED_MAP_DECLARED);
	assert_true(linked->maps[0].has_lanes);
	assert_int_equal(linked->maps[0].lanes.count, 1);
	lane = (const void *)(output->blob + linked->maps[0].lanes.offset);
	assert_int_equal(lane->offset, 0);
	assert_int_equal(lane->size, 8);

	assert_int_equal(linked->n_programs, 1);
	assert_string_equal(program->name, "cuda__counter");
	assert_string_equal(program->section, "kprobe/vectorAdd");
	assert_true(program->gpu);
	assert_int_equal(program->n_subprograms, 0);
	assert_int_equal(program->func_info.count, 1);
	assert_true(program->line_info.count > 1);
	for (size_t i = 0; i < program->insns.count; i++)
		if (insns[i].code == (BPF_LD | BPF_IMM | BPF_DW)) {
			assert_int_equal(insns[i].src_reg, BPF_PSEUDO_MAP_IDX);
			assert_int_equal(insns[i].imm, 0);
			seen = true;
			i++;
		}
	assert_true(seen);
	link_output_free(output);
}

/* The BTF is valid and the stub's type is what it is said to be. */
static void test_btf(void **state) {
	struct link_output *output = link_named("counter");
	const struct linked *linked = &output->linked;
	const struct btf_type *stub;
	struct btf *btf;

	btf = btf__new(output->blob + linked->btf.offset, linked->btf.count);
	assert_non_null(btf);
	stub = btf__type_by_id(btf, linked->helper_stub_type);
	assert_non_null(stub);
	assert_true(btf_is_func(stub));
	assert_string_equal(btf__name_by_offset(btf, stub->name_off), "gpuprobe_helper_stub");
	assert_int_equal(btf_vlen(btf__type_by_id(btf, stub->type)), 0);
	assert_string_equal(
		btf__name_by_offset(btf,
				    btf__type_by_id(btf, linked->maps[0].btf_value_type)->name_off),
		"__u64");
	btf__free(btf);
	link_output_free(output);
}

/* Calls of functions of the kernel that a GPU has have their numbers, wherever libbpf puts them;
 * others have none. */
static void test_kfuncs(void **state) {
	struct link_output *output = link_named("loops");
	uint32_t seen = 0;

	for (size_t p = 0; p < output->linked.n_programs; p++)
		for (size_t i = 0; i < output->linked.programs[p].insns.count; i++) {
			const struct bpf_insn *insn = insns_of(output, p) + i;

			if (insn->code != (BPF_JMP | BPF_CALL) || insn->src_reg != 2)
				continue;
			assert_int_equal(insn->dst_reg, 0);
			assert_int_equal(insn->off, 0);
			assert_in_range(insn->imm, 1, _KFUNC_N - 1);
			seen |= UINT32_C(1) << insn->imm;
		}
	assert_int_equal(seen, (UINT32_C(1) << _KFUNC_N) - 2);
	link_output_free(output);

	output = link_named("kfunc");
	for (size_t i = 0; i < output->linked.programs[0].insns.count; i++)
		if (insns_of(output, 0)[i].src_reg == 2)
			assert_int_equal(insns_of(output, 0)[i].imm, 0);
	link_output_free(output);
}

static const struct linked_map *map_named(const struct linked *linked, const char *name) {
	for (size_t i = 0; i < linked->n_maps; i++)
		if (!strcmp(linked->maps[i].name, name))
			return &linked->maps[i];
	fail_msg("no map %s", name);
	return NULL;
}

static void test_globals(void **state) {
	struct link_output *output = link_named("globals");
	const struct linked *linked = &output->linked;
	const struct linked_map *data = map_named(linked, ".data"),
				*rodata = map_named(linked, ".rodata"),
				*bss = map_named(linked, ".bss");
	const struct bpf_insn *insns = insns_of(output, 0);
	unsigned int values = 0;
	uint64_t word;

	assert_int_equal(data->internal, LINKED_MAP_DATA);
	assert_int_equal(rodata->internal, LINKED_MAP_RODATA);
	assert_int_equal(bss->internal, LINKED_MAP_BSS);
	assert_int_equal(data->initial.count, 24);
	memcpy(&word, output->blob + data->initial.offset, 8);
	assert_int_equal(word, 40);
	assert_string_equal((const char *)output->blob + data->initial.offset + 8, "label");
	assert_int_equal(data->lanes.count, 1); /* not the characters */
	assert_int_equal(rodata->initial.count, 12);
	assert_true(rodata->has_lanes && !rodata->lanes.count); /* nobody adds to it */
	memcpy(&word, output->blob + bss->initial.offset, 8);
	assert_int_equal(word, 0);
	for (size_t i = 0; i < linked->programs[0].insns.count; i++)
		if (insns[i].code == (BPF_LD | BPF_IMM | BPF_DW)) {
			values += insns[i].src_reg == BPF_PSEUDO_MAP_IDX_VALUE;
			i++;
		}
	assert_true(values >= 4);
	link_output_free(output);
}

/* Variables of a thread are no map, and those behind them have their numbers. */
static void test_thread(void **state) {
	static const struct thread_variable variables[] = {
		{ "begin", 0, 8 }, { "count", 8, 4 }, { "sizes", 12, 8 }, { "entered", 20, 1 }
	};
	struct link_output *output = link_named("thread");
	const struct linked *linked = &output->linked;
	struct thread_variables found;
	unsigned int references = 0;
	struct btf *btf;

	assert_int_equal(linked->n_maps, 5);
	assert_in_range(linked->thread, 21, 24); /* libbpf may add padding */
	assert_int_equal(map_named(linked, ".data")->internal, LINKED_MAP_DATA);
	for (size_t p = 0; p < linked->n_programs; p++) {
		const struct bpf_insn *insns = insns_of(output, p);

		assert_true(linked->programs[p].gpu); /* one by its variable alone */
		for (size_t i = 0; i < linked->programs[p].insns.count; i++) {
			if (insns[i].code != (BPF_LD | BPF_IMM | BPF_DW))
				continue;
			if (insns[i].src_reg && insns[i].imm == LINKED_THREAD) {
				assert_int_equal(insns[i].src_reg, BPF_PSEUDO_MAP_IDX_VALUE);
				assert_in_range(insns[i + 1].imm, 0, linked->thread - 1);
				references++;
			} else if (insns[i].src_reg) {
				assert_in_range(insns[i].imm, 0, linked->n_maps - 1);
				assert_int_equal(insns[i].src_reg,
						 linked->maps[insns[i].imm].internal
							 ? BPF_PSEUDO_MAP_IDX_VALUE
							 : BPF_PSEUDO_MAP_IDX);
			}
			i++;
		}
	}
	assert_true(references >= 8);
	btf = btf__new(output->blob + linked->btf.offset, linked->btf.count);
	assert_non_null(btf);
	thread_variables_read(&found, btf);
	assert_int_equal(found.n, 4);
	for (size_t i = 0; i < 4; i++) {
		size_t k = 0;

		while (k < 4 && strcmp(found.variables[k].name, variables[i].name))
			k++;
		assert_in_range(k, 0, 3);
		assert_int_equal(found.variables[k].size, variables[i].size);
	}
	btf__free(btf);
	link_output_free(output);
}

static void expect_refused(const char *name, const char *reason) {
	struct link_output *output;
	struct link_failure failure;
	size_t size;
	void *elf = object_read(name, &size);

	assert_int_equal(link_object(elf, size, NULL, &output, &failure), LINK_E_OBJECT);
	assert_string_equal(failure.reason, reason);
	link_failure_deinit(&failure);
	free(elf);
}

static void test_thread_refused(void **state) {
	expect_refused("thread-initial", "limit in .thread begins as 0 in each thread: it can have "
					 "no other first value");
	expect_refused("thread-large", "the variables in .thread have 72 bytes: 64 are allowed, as "
				       "they are registers of a thread");
	expect_refused("thread-pointer", "the variables in .thread begin as 0 in each thread: none "
					 "can begin as an address");
	expect_refused("thread-section",
		       "an object with a section .thread can have none of the name .data.t");
}

static void test_calls(void **state) {
	struct link_output *output = link_named("calls");
	const struct linked *linked = &output->linked;

	assert_int_equal(linked->n_programs, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(linked->programs[i].n_subprograms, 2);
		assert_int_equal(linked->programs[i].func_info.count, 3);
	}
	link_output_free(output);
}

static void test_types_survive(void **state) {
	struct link_output *output = link_named("hash-ring");
	const struct linked_map *seen = map_named(&output->linked, "seen"),
				*events = map_named(&output->linked, "events");

	assert_int_equal(seen->type, 1501);
	assert_int_equal(seen->key_size, 8);
	assert_int_equal(seen->max_entries, 128);
	assert_int_equal(events->type, 1527);
	assert_int_equal(events->value_size, 64);
	assert_int_equal(events->max_entries, 1000);
	link_output_free(output);
}

/* GPU by name, by section, by map, by helper; and not. */
static void test_classes(void **state) {
	struct link_output *output = link_named("gpu-array");

	assert_true(output->linked.programs[0].gpu);
	link_output_free(output);
	output = link_named("helpers");
	assert_true(output->linked.programs[0].gpu);
	link_output_free(output);
	output = link_named("host");
	assert_int_equal(output->linked.n_programs, 2);
	for (size_t i = 0; i < 2; i++) {
		const struct linked_program *program = &output->linked.programs[i];

		assert_false(program->gpu);
		assert_int_equal(program->insns.count > 0, !strcmp(program->name, "on_unlink"));
	}
	link_output_free(output);
}

/* What only a GPU has points for. */
static void test_sections(void **state) {
	struct link_output *output = link_named("sections");

	assert_int_equal(output->linked.n_programs, 8);
	for (size_t i = 0; i < 8; i++) {
		const struct linked_program *program = &output->linked.programs[i];

		assert_int_equal(program->gpu, strcmp(program->name, "on_unlink") != 0);
		assert_true(program->insns.count > 0);
	}
	/* the one that writes to a log does so on the host */
	for (size_t i = 0; i < output->linked.n_maps; i++)
		assert_int_not_equal(output->linked.maps[i].internal, LINKED_MAP_LOG);
	link_output_free(output);
}

/* The log is the last map. */
static void test_log(void **state) {
	struct link_output *output = link_named("log");
	const struct linked *linked = &output->linked;
	const struct linked_map *log = map_named(linked, ".log");

	assert_ptr_equal(log, &linked->maps[linked->n_maps - 1]);
	assert_int_equal(log->internal, LINKED_MAP_LOG);
	assert_int_equal(log->type, 1527);
	assert_int_equal(log->max_entries, 1);
	assert_int_equal(log->initial.count, 0);
	link_output_free(output);
}

static void test_lanes(void **state) {
	static const struct linked_lane expected[] = { { 0, 8 }, { 8, 4 }, { 12, 4 }, { 24, 1 } };
	struct link_output *output = link_named("percpu");
	const struct linked_map *map = &output->linked.maps[0];
	const struct linked_lane *last;

	assert_int_equal(map->type, BPF_MAP_TYPE_PERCPU_ARRAY);
	assert_int_equal(map->lanes.count, 4);
	assert_memory_equal(output->blob + map->lanes.offset, expected, sizeof(expected));
	link_output_free(output);

	output = link_named("wide");
	map = map_named(&output->linked, ".bss");
	assert_int_equal(map->lanes.count, 3 * 3000);
	last = (const void *)(output->blob + map->lanes.offset + (3 * 3000 - 1) * sizeof(*last));
	assert_int_equal(last->offset, 3000 * 16 - 4);
	assert_int_equal(last->size, 4);
	link_output_free(output);
}

/* What is written as JSON is read back the same. */
static void test_json(void **state) {
	static const char *const names[] = { "counter", "globals", "calls", "hash-ring",
					     "thread",  "host",    "log",   "percpu" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct link_output *output = link_named(names[i]);
		struct json_object *reply = json_object_new_object();
		struct linked *back = NULL;
		char error[192];

		assert_int_equal(linked_to_json(&output->linked, reply), 0);
		assert_int_equal(linked_from_json(&back, reply, error), 0);
		assert_int_equal(back->n_programs, output->linked.n_programs);
		assert_int_equal(back->size, output->linked.size);
		assert_int_equal(back->helper_stub_type, output->linked.helper_stub_type);
		assert_int_equal(back->thread, output->linked.thread);
		for (size_t p = 0; p < back->n_programs; p++) {
			assert_string_equal(back->programs[p].name,
					    output->linked.programs[p].name);
			assert_int_equal(back->programs[p].gpu, output->linked.programs[p].gpu);
			assert_int_equal(back->programs[p].insns.offset,
					 output->linked.programs[p].insns.offset);
			assert_int_equal(back->programs[p].insns.count,
					 output->linked.programs[p].insns.count);
			assert_int_equal(back->programs[p].line_info.count,
					 output->linked.programs[p].line_info.count);
		}
		for (size_t m = 0; m < back->n_maps; m++) {
			assert_string_equal(back->maps[m].name, output->linked.maps[m].name);
			assert_int_equal(back->maps[m].internal, output->linked.maps[m].internal);
			assert_int_equal(back->maps[m].has_lanes, output->linked.maps[m].has_lanes);
			assert_int_equal(back->maps[m].lanes.count,
					 output->linked.maps[m].lanes.count);
			assert_int_equal(back->maps[m].initial.count,
					 output->linked.maps[m].initial.count);
		}
		free(back);
		json_object_put(reply);
		link_output_free(output);
	}
}

/* Replies that lie: one line each, and no crash. */
static void test_json_hostile(void **state) {
	static const char *const replies[] = {
		"{}",
		"{\"size\":-1,\"license\":\"\",\"maps\":[],\"programs\":[]}",
		"{\"size\":8,\"license\":\"\",\"maps\":{},\"programs\":[]}",
		"{\"size\":8,\"license\":\"\",\"maps\":[],\"programs\":[7]}",
		"{\"size\":8,\"license\":7,\"maps\":[],\"programs\":[]}",
		"{\"size\":8,\"license\":\"\",\"thread\":65,\"maps\":[],\"programs\":[]}",
		"{\"size\":8,\"license\":\"\",\"thread\":\"8\",\"maps\":[],\"programs\":[]}",
		"{\"size\":8,\"license\":\"\\u001b\",\"maps\":[],\"programs\":[]}",
		"{\"size\":8,\"license\":\"\",\"btf\":{\"offset\":0,\"size\":9,"
		"\"helper_stub_type\":1},\"maps\":[],\"programs\":[]}",
		"{\"size\":64,\"license\":\"\",\"maps\":[],"
		"\"programs\":[{\"name\":\"p\",\"section\":\"s\",\"context\":\"\",\"gpu\":true,"
		"\"insns\":{\"offset\":60,\"count\":1},\"relocated_subprograms\":0}]}",
		"{\"size\":64,\"license\":\"\",\"maps\":[],"
		"\"programs\":[{\"name\":\"p\",\"section\":\"s\",\"context\":\"\",\"gpu\":true,"
		"\"insns\":{\"offset\":0,\"count\":9},\"relocated_subprograms\":0}]}",
		"{\"size\":64,\"license\":\"\",\"maps\":[],"
		"\"programs\":[{\"name\":\"p\",\"section\":\"s\",\"context\":\"\",\"gpu\":true,"
		"\"insns\":{\"offset\":0,\"count\":8},\"func_info\":{\"offset\":0,"
		"\"count\":1,\"record_size\":4},"
		"\"relocated_subprograms\":0}]}",
		"{\"size\":64,\"license\":\"\",\"maps\":[],"
		"\"programs\":[{\"name\":\"p\",\"section\":\"s\",\"context\":\"\",\"gpu\":true,"
		"\"insns\":{\"offset\":0,\"count\":8},\"line_info\":{\"offset\":8,"
		"\"count\":4,\"record_size\":16},"
		"\"relocated_subprograms\":0}]}",
	};

	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		struct json_object *reply = json_tokener_parse(replies[i]);
		struct linked *linked;
		char error[192] = "";

		assert_non_null(reply);
		assert_int_equal(linked_from_json(&linked, reply, error), LINKED_E_INVALID);
		assert_true(*error && !strchr(error, '\n'));
		json_object_put(reply);
	}
}

/*
 * Whatever becomes of a damaged object, it is said in one line. libbpf's own crashes would show
 * here.
 */
static void damaged(const void *elf, size_t size) {
	struct link_output *output;
	struct link_failure failure;
	int r = link_object(elf, size, NULL, &output, &failure);

	assert_true(r == 0 || r == LINK_E_OBJECT);
	if (!r) {
		link_output_free(output);
		return;
	}
	assert_true(*failure.reason && !strchr(failure.reason, '\n'));
	link_failure_deinit(&failure);
}

static void test_damaged(void **state) {
	static const char *const texts[] = {
		"", "\177ELF",
		"#!/bin/sh\necho no object at all, and long enough to be one\n\n\n\n\n"
	};
	struct link_output *output;
	struct link_failure failure;
	size_t size;
	uint8_t *elf = object_read("globals", &size), *copy = malloc(size), byte;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(link_object(texts[i], strlen(texts[i]), NULL, &output, &failure),
				 LINK_E_OBJECT);
		assert_true(*failure.reason);
		link_failure_deinit(&failure);
	}
	for (size_t n = 0; n < size; n += 97)
		damaged(elf, n);
	for (size_t i = 0; i < 64; i++) { /* the ELF header */
		byte = elf[i];
		elf[i] ^= 0xff;
		damaged(elf, size);
		elf[i] = byte;
	}
	memcpy(copy, elf, size);
	memset(copy + size / 2, 0xff, size / 4);
	damaged(copy, size);
	free(copy);
	free(elf);
}

static void refused(const void *elf, size_t size, const char *reason, const char *log) {
	struct link_output *output;
	struct link_failure failure;

	assert_int_equal(link_object(elf, size, NULL, &output, &failure), LINK_E_OBJECT);
	if (!strstr(failure.reason, reason))
		fail_msg("%s", failure.reason);
	assert_int_equal(log != NULL, failure.log != NULL);
	if (log)
		assert_non_null(strstr(failure.log, log));
	link_failure_deinit(&failure);
}

/* Whether LeakSanitizer, where there is one, passes over what is allocated from here on. */
static void leaks_ignored(bool ignored) {
#ifdef __SANITIZE_ADDRESS__
	(ignored ? __lsan_disable : __lsan_enable)();
#endif
}

/* Relocations against types of the kernel are the host's; what is in them may be anything. */
static void test_core(void **state) {
	struct link_failure failure;
	struct link_output *output;
	size_t size, ext_size;
	uint8_t *elf = object_read("host-core", &size), *ext;

	assert_int_equal(link_object(elf, size, NULL, &output, &failure), 0);
	for (size_t i = 0; i < output->linked.n_programs; i++) {
		const struct linked_program *program = &output->linked.programs[i];

		assert_int_equal(program->insns.count > 0, program->gpu);
		assert_int_equal(program->gpu, !strcmp(program->name, "cuda__launch"));
	}
	link_output_free(output);
	ext = (uint8_t *)(uintptr_t)elf_section(elf, size, ".BTF.ext", &ext_size);
	assert_non_null(ext);
	leaks_ignored(true); /* libbpf 1.1 loses 56 bytes where a relocation is of no section */
	for (size_t at = 0; at + 4 <= ext_size; at += 4) {
		static const uint32_t words[] = { 0, 1, 0x7fffffff, 0xffffffff };
		uint8_t before[4];

		memcpy(before, ext + at, 4);
		for (size_t i = 0; i < 4; i++) {
			memcpy(ext + at, &words[i], 4);
			damaged(elf, size);
		}
		memcpy(ext + at, before, 4);
	}
	leaks_ignored(false);
	free(elf);
}

/* Objects that cannot be used, each with a word that helps. libbpf's own words are in the log. */
static void test_refused(void **state) {
	size_t size;
	uint8_t *elf = object_read("counter", &size);

	elf[18] = 62; /* e_machine: x86-64 */
	refused(elf, size, "not a valid eBPF object file", NULL);
	free(elf);
	elf = object_read("extern", &size);
	refused(elf, size, "missing", "libbpf: ");
	free(elf);
	elf = object_read("core", &size);
	refused(elf, size, "program cuda__core relies on types of the running kernel (CO-RE)",
		NULL);
	free(elf);
	elf = object_read("nested", &size);
	refused(elf, size, "to find all integers", NULL);
	free(elf);
}

/* Gives a section another name, of the same length, also in types. */
static void rename_section(uint8_t *elf, size_t size, const char *name, const char *to) {
	uint8_t *at = memmem(elf, size, name, strlen(name) + 1);

	for (assert_non_null(at); at; at = memmem(elf, size, name, strlen(name) + 1))
		memcpy(at, to, strlen(to));
}

/* What is left out or mistyped when one begins: -g, and SEC(".maps"). */
static void test_refused_newcomer(void **state) {
	size_t size;
	uint8_t *elf = object_read("counter", &size);

	rename_section(elf, size, ".BTF.ext", ".BTX.ext");
	rename_section(elf, size, ".BTF", ".BTX");
	refused(elf, size, "it has no types (BTF): compile it with clang -g", NULL);
	free(elf);
	elf = object_read("counter", &size);
	rename_section(elf, size, ".maps", ".mapz");
	refused(elf, size, "bad map relo against 'counter' in section '.mapz'",
		"skipping unrecognized data section");
	free(elf);
}

int main(int argc, char *argv[]) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counter),       cmocka_unit_test(test_btf),
		cmocka_unit_test(test_globals),       cmocka_unit_test(test_calls),
		cmocka_unit_test(test_thread),        cmocka_unit_test(test_thread_refused),
		cmocka_unit_test(test_types_survive), cmocka_unit_test(test_classes),
		cmocka_unit_test(test_only),          cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_sections),      cmocka_unit_test(test_log),
		cmocka_unit_test(test_lanes),         cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_hostile),  cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_refused),       cmocka_unit_test(test_refused_newcomer),
		cmocka_unit_test(test_core),          cmocka_unit_test(test_kfuncs),
	};

	if (argc < 2 || !*argv[1])
		return 77; /* no clang 19 */
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
