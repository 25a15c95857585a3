/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Texts that people, or objects and files of theirs, say: the first byte chooses how
 * the rest is read. What was wrong is said in one line; what was accepted reads back as the same
 * where it can be written.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/gpuprobed/settings/config.h"
#include "daemon/gpuprobed/trace/hook/hook-spec.h"
#include "lib/pass/pass-definition.h"
#include "lib/pass/section.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[40], path[64];

static void remove_folder(void) {
	unlink(path);
	rmdir(folder);
}

static void write_file(const void *data, size_t size) {
	FILE *file;

	if (!*folder) {
		strcpy(folder,
		       "/dev/shm/fuzz-settings.XXXXXX"); /* ext4 would write each one to the disk,
							    as they replace one another */
		if (!mkdtemp(folder))
			abort();
		atexit(remove_folder);
		snprintf(path, sizeof(path), "%s/x.json", folder);
	}
	file = fopen(path, "w");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file))
		abort();
}

static void check_line(const char *line) {
	if (!*line || strchr(line, '\n'))
		abort();
}

static void try_section(const char *text) {
	struct section section;
	char error[SECTION_ERROR_SIZE] = "";

	for (int i = 0; i < 2; i++)
		if (section_parse(&section, text, i ? "kernel" : NULL, error))
			check_line(error);
		else if (!section_point(&section) || (i && !*section.kernel))
			abort();
	point_space(text);
}

static void try_spec(const char *text) {
	char error[HOOK_ERROR_SIZE] = "", line[4096];
	struct hook *hook;
	int r = hook_spec_parse(&hook, text, error);

	if (r) {
		if (r > 0)
			check_line(error);
		return;
	}
	for (size_t i = 0; i < hook->n_alternatives; i++) {
		hook_describe(line, sizeof(line), hook, &hook->alternatives[i], NULL);
		hook_target(line, sizeof(line), &hook->alternatives[i]);
	}
	hook_selected(hook, &text, 1);
	hook_free(hook);
}

static void complain(const char *line, void *userdata) {
	if (!*line)
		abort();
}

static void try_catalogue(const uint8_t *data, size_t size) {
	struct hook_catalogue catalogue;

	write_file(data, size);
	if (hook_catalogue_read(&catalogue, folder, complain, NULL))
		return;
	for (size_t i = 0; i < catalogue.n; i++)
		if (!*catalogue.hooks[i]->name || !catalogue.hooks[i]->n_alternatives)
			abort();
	hook_catalogue_deinit(&catalogue);
}

static void try_rules(const char *text) {
	struct engine_rules rules = {};
	struct process_facts facts = {
		.pid = 1, .comm = "app", .exe = "/usr/bin/app", .cgroup = "/a/b"
	};
	struct interest_rule page[INTEREST_SASS_RULES_MAX];
	char error[ENGINE_ERROR_SIZE] = "";
	struct filter filter = {};
	const char *why;

	if (engine_rules_add(&rules, text, error))
		check_line(error);
	else if (engine_rules_to_page(&rules, page) > INTEREST_SASS_RULES_MAX)
		abort();
	engine_rules_find(&rules, &facts);
	why = filter_set_match(&filter, text, true);
	if (why)
		check_line(why);
	else if (!filter_implies(&filter, &filter))
		abort();
	filter_matches(&filter, &facts);
}

static struct config *read_config(const void *data, size_t size) {
	struct config *config = calloc(1, sizeof(*config));
	char error[CONFIG_ERROR_SIZE] = "";

	write_file(data, size);
	config_set_defaults(config);
	if (config_read_file(config, path, true, error) == 0)
		return config;
	check_line(error);
	config_free(config);
	return NULL;
}

static void try_config(const uint8_t *data, size_t size) {
	struct config *first = read_config(data, size), *second;
	char *text = NULL;
	size_t n = 0;
	FILE *file;

	if (!first)
		return;
	file = open_memstream(&text, &n);
	config_print(first, file);
	fclose(file);
	second = read_config(text, n);
	if (!second)
		abort();
	for (const struct config_setting *setting = config_settings; setting->name; setting++)
		if (!(setting->flags & CONFIG_HIDDEN) && !config_same(setting, first, second))
			abort();
	config_free(first);
	config_free(second);
	free(text);
}

static void try_pass(const char *text, size_t n) {
	struct pass_definition *first, *second;
	char error[PASS_ERROR_SIZE] = "";
	const char *printed;
	json_object *json;

	if (pass_definition_parse(&first, text, n, NULL, error)) {
		check_line(error);
		return;
	}
	pass_definition_means(first, "kprobe/vectorAdd");
	json = pass_definition_to_json(first);
	printed = json_object_to_json_string(json);
	if (pass_definition_parse(&second, printed, strlen(printed), NULL, error))
		abort();
	pass_definition_free(second);
	json_object_put(json);
	pass_definition_free(first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	char *text;

	if (!size)
		return 0;
	text = strndup((const char *)data + 1, size - 1);
	switch (data[0] % 6) {
	case 0:
		try_section(text);
		break;
	case 1:
		try_spec(text);
		break;
	case 2:
		try_catalogue(data + 1, size - 1);
		break;
	case 3:
		try_rules(text);
		break;
	case 4:
		try_config(data + 1, size - 1);
		break;
	default:
		try_pass(text, strlen(text));
	}
	free(text);
	return 0;
}
