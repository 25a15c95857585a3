/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds ready-made scripts (tool.h): beside the command in the build tree, or where they are
 * installed. What one is for is the comment at its beginning.
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/base/suggest.h"
#include "tool.h"

#define NAME_MAX_BYTES 64
#define LINE_MAX_BYTES 1024

bool tool_find(char path[static 4096], const char *name) {
	char installed[256], beside[128];

	if (!*name || strlen(name) > NAME_MAX_BYTES || strpbrk(name, "/."))
		return false;
	snprintf(installed, sizeof(installed), TOOLS_FOLDER "/%s.gt", name);
	snprintf(beside, sizeof(beside), "../tools/%s.gt", name);
	return ctl_find_file(path, installed, beside);
}

/* The next line of the comment that a tool begins with, without its slashes. */
static const char *comment_line(FILE *file, char line[static LINE_MAX_BYTES]) {
	while (fgets(line, LINE_MAX_BYTES, file)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "#!", 2) || strstr(line, "SPDX-License-Identifier"))
			continue;
		if (strncmp(line, "//", 2) != 0)
			return NULL;
		return line + 2 + (line[2] == ' ');
	}
	return NULL;
}

int tool_help(const char *name, const char *path) {
	FILE *file = fopen(path, "re");
	char line[LINE_MAX_BYTES];
	const char *text;

	if (!file)
		return ctl_fail(CTL_ERROR, "%s: %s", path, strerror(errno));
	printf("Usage: gputrace %s [-k KERNEL] [-p PID] [-d SECONDS] [-- CMD [ARGUMENT]...]\n\n",
	       name);
	while ((text = comment_line(file, line)))
		puts(text);
	fclose(file);
	return CTL_OK;
}

/* The files of the folder of tools, in order; negative: there is none. The caller frees. */
static int read_folder(struct dirent ***entriesp) {
	char path[4096];

	if (!tool_find(path, "kernels"))
		return -1;
	*strrchr(path, '/') = '\0';
	return scandir(path, entriesp, NULL, alphasort);
}

/* Whether a file is one; then its .gt goes. */
static bool is_tool(char *file) {
	const size_t n = strlen(file);

	if (n <= 3 || strcmp(file + n - 3, ".gt") != 0)
		return false;
	file[n - 3] = '\0';
	return true;
}

void tool_list(void) {
	struct dirent **entries = NULL;
	const int n = read_folder(&entries);

	for (int i = 0; i < n; i++) {
		char path[4096], line[LINE_MAX_BYTES];
		const char *text = NULL;
		FILE *file = NULL;

		if (is_tool(entries[i]->d_name) && tool_find(path, entries[i]->d_name))
			file = fopen(path, "re");
		if (file)
			text = comment_line(file, line);
		if (text)
			printf("  %-10s %s\n", entries[i]->d_name, text);
		if (file)
			fclose(file);
		free(entries[i]);
	}
	free(entries);
}

const char *tool_suggestion(const char *name) {
	static struct suggestion suggestion;
	struct dirent **entries = NULL;
	const int n = read_folder(&entries);

	suggestion = (struct suggestion){ .wanted = name };
	for (int i = 0; i < n; i++) {
		if (is_tool(entries[i]->d_name))
			suggest_add(&suggestion, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return *suggest_text(&suggestion) ? suggest_text(&suggestion)
					  : "; gputrace -l lists the tools";
}
